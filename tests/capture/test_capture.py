"""What a journal records of LangChain and LangGraph runs: whole runs, tools, runs that wait for a human."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command, interrupt

from langchain_runjournal import JournalCallbackHandler, RunJournal
from tests.support.agents import USAGE, PlainText, Scripted, asks, by_hand, words
from tests.support.captured import broken, config, double, events, kinds, lines

# --- a whole run ------------------------------------------------------------------------------------------------------


def test_an_agent_run_from_start_to_end(journal: RunJournal, handler: JournalCallbackHandler) -> None:
    """The journal has every fact of the run, in order, each with the ids by which a reader finds it again."""
    model = Scripted(
        scripts=[asks(("c1", "double", {"x": 2}), ("c2", "double", {"x": 3})), words("Four ", "and six.", usage=True)]
    )
    agent = create_agent(model, [double], checkpointer=InMemorySaver())
    cfg = {**config(handler), "metadata": {"customer": "c7"}, "run_name": "chat"}
    for _ in agent.stream({"messages": [HumanMessage("Double 2 and 3", id="h1")]}, cfg, stream_mode="messages"):
        pass
    found = events(journal, cfg)
    assert kinds(found)[:4] == ["run.start", "llm.human.input", "llm.start", "llm.ai.response"]
    assert kinds(found)[4] == "task.end"
    assert sorted(kinds(found)[5:9]) == ["llm.tool.result", "llm.tool.result", "tool.start", "tool.start"]
    assert kinds(found)[9:] == ["llm.start", "llm.ai.response", "task.end", "run.end"]
    begin = found[0].data
    assert (begin["thread_id"], begin["name"], begin["metadata"]["customer"]) == ("t", "chat", "c7")
    call = next(event for event in found if event.kind == "llm.start")
    assert (call.data["model"], call.data["node"], call.data["attempt"], call.data["role"]) == (
        "scripted",
        "model",
        1,
        "answer",
    )
    assert call.data["checkpoint_ns"].startswith("model:")
    assert {event.call_id for event in found if event.kind == "llm.ai.delta"} == {
        event.call_id for event in found if event.kind == "llm.start"
    }
    started = {event.data["tool_call_id"]: event for event in found if event.kind == "tool.start"}
    assert {id: event.data["args"] for id, event in started.items()} == {"c1": {"x": 2}, "c2": {"x": 3}}
    run = journal.run(str(cfg["run_id"]))
    assert (run.status, run.cause, run.thread_id, run.name) == ("completed", None, "t", "chat")
    assert run.usage == {"scripted": {"calls": 2, "incomplete": 1, **USAGE}}
    assert lines(journal, cfg) == [
        ("human", "Double 2 and 3"),
        ("ai", "Looking. "),
        ("tool", "4"),
        ("tool", "6"),
        ("ai", "Four and six."),
    ]
    ours = [message.id for message in journal.transcript(str(cfg["run_id"])) if message.type in ("human", "ai")]
    theirs = agent.get_state({"configurable": {"thread_id": "t"}}).values["messages"]
    assert ours == [message.id for message in theirs if message.type in ("human", "ai")]


def test_the_words_are_there_before_the_consumer_has_them(journal: RunJournal, handler: JournalCallbackHandler) -> None:
    """Whenever the consumer gets a token, the journal has it already."""
    cfg, seen = config(handler, None), ""
    for chunk in Scripted(scripts=[words("a", "b", "c")]).stream("?", cfg):
        seen += chunk.text
        assert "".join(event.text for event in events(journal, cfg)) == seen
    assert seen == "abc"


def test_a_model_alone_is_a_run(journal: RunJournal, handler: JournalCallbackHandler) -> None:
    """Only the new messages of the request are the input of the run: not the instructions, and not what was said before."""
    cfg = config(handler, None)
    history = [SystemMessage("Be brief."), HumanMessage("1"), AIMessage("one"), HumanMessage("2")]
    Scripted(scripts=[words("two", usage=True)]).invoke(history, cfg)
    assert kinds(events(journal, cfg)) == ["run.start", "llm.human.input", "llm.start", "llm.ai.response", "run.end"]
    assert lines(journal, cfg) == [("human", "2"), ("ai", "two")]
    assert journal.run(str(cfg["run_id"])).usage["scripted"] == {"calls": 1, **USAGE}


def test_a_chain_and_a_plain_text_model(journal: RunJournal, handler: JournalCallbackHandler) -> None:
    """The prompt that the chain made is the input; a text is an answer like any other."""
    cfg = config(handler, None)
    chain = ChatPromptTemplate.from_messages([("human", "About {topic}")]) | Scripted(scripts=[words("Bears ", "sleep.")])
    list(chain.stream({"topic": "bears"}, cfg))
    assert lines(journal, cfg) == [("human", "About bears"), ("ai", "Bears sleep.")]
    cfg = config(handler, None)
    list(PlainText(says="plain").stream("Say it", cfg))
    assert lines(journal, cfg) == [("human", "Say it"), ("ai", "plain")]
    assert [event.text for event in events(journal, cfg) if event.kind == "llm.ai.delta"] == list("plain")


def test_what_goes_into_a_thread_is_new_to_it(journal: RunJournal, handler: JournalCallbackHandler) -> None:
    """A run with a thread keeps all messages of its input, and a run that only resumes keeps none."""
    agent = create_agent(Scripted(scripts=[words("ok")]), [], checkpointer=InMemorySaver())
    cfg = config(handler)
    agent.invoke({"messages": [("user", "1"), ("assistant", "one"), {"role": "user", "content": "2"}]}, cfg)
    assert lines(journal, cfg) == [("human", "1"), ("ai", "one"), ("human", "2"), ("ai", "ok")]
    cfg = config(handler)
    agent.invoke(None, cfg)
    assert lines(journal, cfg) == []


# --- tools ------------------------------------------------------------------------------------------------------------


def test_results_that_no_tool_reports_are_kept(journal: RunJournal, handler: JournalCallbackHandler) -> None:
    """The tool is unknown, or the tool node turned an error into a message: the model saw both results."""
    graph = StateGraph(MessagesState)
    model = Scripted(scripts=[asks(("c1", "broken", {"x": 1}), ("c2", "unknown", {})), words("Sorry.")])
    graph.add_node("model", lambda state, config: {"messages": [model.invoke(state["messages"], config)]})
    graph.add_node("tools", ToolNode([broken], handle_tool_errors=True))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    cfg = config(handler)
    state = graph.compile().invoke({"messages": [("user", "go")]}, cfg)
    errored = next(event for event in events(journal, cfg) if event.kind == "tool.error")
    assert (errored.data["tool_call_id"], "no such x" in errored.data["error"]) == ("c1", True)
    assert lines(journal, cfg) == [(message.type, message.text) for message in state["messages"]]


def test_a_tool_that_ends_after_its_run_is_kept_as_late(journal: RunJournal, handler: JournalCallbackHandler) -> None:
    """A synchronous tool cannot be interrupted: its true result comes later, and takes its place behind its request."""
    running, go_on, done = threading.Event(), threading.Event(), threading.Event()

    @tool
    def slow(x: int) -> str:
        """Slow."""
        running.set()
        go_on.wait(30)
        return "at last"

    async def main(cfg: dict[str, Any]) -> None:
        agent = by_hand(Scripted(scripts=[asks(("c1", "slow", {"x": 1}))]), [slow])
        task = asyncio.ensure_future(agent.ainvoke({"messages": [("user", "go")]}, cfg))
        await asyncio.to_thread(running.wait, 30)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert journal.run(str(cfg["run_id"])).status == "interrupted"
        assert lines(journal, cfg) == [("human", "go"), ("ai", "Looking. ")]
        after = events(journal, cfg)[-1].seq
        go_on.set()
        while not (late := journal.read(str(cfg["run_id"]), after)):  # noqa: ASYNC110 - a thread, with nothing to await
            await asyncio.sleep(0)
        assert [(event.kind, event.data["late"]) for event in late] == [("llm.tool.result", True)]
        done.set()

    cfg = config(handler)
    asyncio.run(main(cfg))
    assert done.is_set()
    assert lines(journal, cfg) == [("human", "go"), ("ai", "Looking. "), ("tool", "at last")]
    run = journal.run(str(cfg["run_id"]))
    assert (run.status, run.cause) == ("interrupted", "stop")


def test_a_tool_that_gives_a_command(journal: RunJournal, handler: JournalCallbackHandler) -> None:
    """The message in the update of the command is the result."""

    @tool
    def hand_over() -> Command[Any]:
        """Hands over."""
        return Command(update={"messages": [ToolMessage("handed over", tool_call_id="c1")]})

    agent = create_agent(Scripted(scripts=[asks(("c1", "hand_over", {})), words("Bye.")]), [hand_over])
    cfg = config(handler)
    agent.invoke({"messages": [("user", "go")]}, cfg)
    assert lines(journal, cfg)[2] == ("tool", "handed over")
    assert kinds(events(journal, cfg)).count("llm.tool.result") == 1


# --- humans -----------------------------------------------------------------------------------------------------------


def test_a_run_that_waits_for_a_human(journal: RunJournal, handler: JournalCallbackHandler) -> None:
    """The run is paused, not completed, and has no end; another run resumes it, with the result of the tool."""

    @tool
    def buy(what: str) -> str:
        """Buys."""
        return f"{what}: {interrupt({'buy': what})}"

    model = Scripted(scripts=[asks(("c1", "buy", {"what": "tea"}), ("c2", "double", {"x": 1})), words("Done.")])
    agent = create_agent(model, [buy, double], checkpointer=InMemorySaver())
    cfg = config(handler)
    agent.invoke({"messages": [("user", "tea")]}, cfg)
    run = journal.run(str(cfg["run_id"]))
    assert (run.status, run.ended) == ("paused", False)
    found = events(journal, cfg)
    assert "run.end" not in kinds(found)
    pause = next(event for event in found if event.kind == "run.pause")
    assert pause.data["interrupts"][0]["value"] == {"buy": "tea"}
    assert [event.data for event in found if event.kind == "tool.error"] == [{"tool_call_id": "c1", "interrupted": True}]
    assert lines(journal, cfg) == [("human", "tea"), ("ai", "Looking. "), ("tool", "2")]
    second = config(handler)
    agent.invoke(Command(resume="yes"), second)
    assert journal.run(str(second["run_id"])).status == "completed"
    assert lines(journal, second) == [("tool", "tea: yes"), ("ai", "Done.")]
