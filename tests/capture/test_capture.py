"""What a journal records of LangChain and LangGraph runs."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, SystemMessage, ToolMessage
from langchain_core.outputs import ChatGenerationChunk, GenerationChunk, LLMResult
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableConfig, RunnableLambda, RunnableParallel
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command, RetryPolicy, interrupt

from langchain_runjournal import Event, JournalCallbackHandler, RunJournal, errors, is_partial, is_synthetic
from langchain_runjournal.journal.core import core_of
from tests.support.agents import USAGE, PlainText, Scripted, asks, by_hand, words


@pytest.fixture
def journal() -> Iterator[RunJournal]:
    with RunJournal(":memory:") as journal:
        yield journal


@pytest.fixture
def handler(journal: RunJournal) -> JournalCallbackHandler:
    return JournalCallbackHandler(journal)


def config(handler: BaseCallbackHandler, thread: str | None = "t") -> dict[str, Any]:
    """Return a config with a new run id."""
    found: dict[str, Any] = {"callbacks": [handler], "run_id": uuid4()}
    if thread is not None:
        found["configurable"] = {"thread_id": thread}
    return found


def kinds(events: list[Event], without: str = "llm.ai.delta") -> list[str]:
    return [event.kind for event in events if event.kind != without]


def lines(journal: RunJournal, cfg: dict[str, Any]) -> list[tuple[str, str]]:
    """The transcript as lines."""
    return [(message.type, message.text) for message in journal.transcript(str(cfg["run_id"]))]


def events(journal: RunJournal, cfg: dict[str, Any]) -> list[Event]:
    return journal.read(str(cfg["run_id"]))


@tool
def double(x: int) -> str:
    """Twice x."""
    return str(2 * x)


@tool
def broken(x: int) -> str:
    """Fails."""
    raise ValueError("no such x")


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


# --- who counts -------------------------------------------------------------------------------------------------------


def test_helpers_and_subagents_are_recorded_and_are_not_answers(
    journal: RunJournal, handler: JournalCallbackHandler
) -> None:
    """The program asks for a summary, and an agent inside of a tool says and does things: neither is an answer."""
    helper = Scripted(scripts=[words("a summary")])
    inner = create_agent(Scripted(scripts=[asks(("i1", "double", {"x": 4})), words("inner answer")]), [double])

    @tool
    def ask_expert(question: str) -> str:
        """Asks an expert."""
        return str(inner.invoke({"messages": [("user", question)]})["messages"][-1].text)

    def summarise(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
        helper.invoke("sum it up", {**config, "metadata": {"lc_source": "summarization"}})
        return {}

    outer = create_agent(
        Scripted(scripts=[asks(("c1", "ask_expert", {"question": "?"})), words("outer answer")]), [ask_expert]
    )
    graph = StateGraph(MessagesState)
    graph.add_node("summarise", summarise)
    graph.add_node("agent", outer)
    graph.add_edge(START, "summarise")
    graph.add_edge("summarise", "agent")
    cfg = config(handler)
    graph.compile().invoke({"messages": [("user", "go")]}, cfg)
    roles = [(event.data["role"], event.data["node"]) for event in events(journal, cfg) if event.kind == "llm.start"]
    assert roles == [
        ("helper", "summarise"),
        ("answer", "model"),
        ("subagent", "model"),
        ("subagent", "model"),
        ("answer", "model"),
    ]
    inside = [event.data.get("inside") for event in events(journal, cfg) if event.kind == "tool.start"]
    assert inside == [None, "c1"]
    assert lines(journal, cfg) == [("human", "go"), ("ai", "Looking. "), ("tool", "inner answer"), ("ai", "outer answer")]
    assert journal.run(str(cfg["run_id"])).usage["scripted"]["calls"] == 5


def test_of_several_attempts_the_last_one_counts(journal: RunJournal, handler: JournalCallbackHandler) -> None:
    """LangGraph retries a node, a model has retries, and another one has a fallback."""

    def failing() -> Scripted:
        return Scripted(scripts=[[*words("half of "), ConnectionError("net")], words("whole")])

    model = failing()

    def node(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
        return {"messages": [AIMessage("".join(chunk.text for chunk in model.stream("?", config)))]}

    graph = StateGraph(MessagesState)
    graph.add_node("node", node, retry_policy=RetryPolicy(initial_interval=0.001, jitter=False))
    graph.add_edge(START, "node")
    plain = Scripted(scripts=[words("whole")])
    chains = {
        "policy": (graph.compile(), {"messages": [("user", "go")]}),
        "retry": (failing().with_retry(wait_exponential_jitter=False, stop_after_attempt=2), "go"),
        "fallback": (failing().with_fallbacks([plain]), "go"),
    }
    for name, (chain, given) in chains.items():
        cfg = config(handler, None)
        chain.invoke(given, cfg)
        attempts = [event.data["attempt"] for event in events(journal, cfg) if event.kind == "llm.start"]
        assert (name, attempts) == (name, [1, 2])
        assert kinds(events(journal, cfg)).count("llm.error") == 1
        assert lines(journal, cfg) == [("human", "go"), ("ai", "whole")], name
        assert journal.run(str(cfg["run_id"])).status == "completed"


def test_an_answer_that_its_node_threw_away_does_not_count(journal: RunJournal, handler: JournalCallbackHandler) -> None:
    """The model had answered, and the node failed on it and was retried: only the second answer belongs to the thread."""
    model = Scripted(scripts=[words("not JSON"), words("{}")])

    def node(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
        answer = model.invoke("?", config)
        if not answer.text.startswith("{"):
            raise ValueError("not JSON")
        return {"messages": [answer]}

    graph = StateGraph(MessagesState)
    graph.add_node("node", node, retry_policy=RetryPolicy(initial_interval=0.001, retry_on=ValueError))
    graph.add_edge(START, "node")
    cfg = config(handler)
    graph.compile().invoke({"messages": [("user", "go")]}, cfg)
    assert lines(journal, cfg) == [("human", "go"), ("ai", "{}")]
    first, second = [event for event in events(journal, cfg) if event.kind == "llm.start"]
    assert second.data["replaces"] == [first.call_id]


def test_parallel_calls_are_not_attempts_of_each_other(journal: RunJournal, handler: JournalCallbackHandler) -> None:
    """Two branches of a chain are both cut off: the journal keeps both partial answers."""

    async def main() -> dict[str, Any]:
        said, cfg = [asyncio.Event(), asyncio.Event()], config(JournalCallbackHandler(journal, capture_invoke=True), None)
        branches = {
            name: Scripted(scripts=[[*words(f"{name} says "), done.set, asyncio.Event().wait]])
            for name, done in zip("ab", said, strict=True)
        }
        task = asyncio.ensure_future(RunnableParallel(**branches).ainvoke("?", cfg))
        for done in said:
            await done.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return cfg

    cfg = asyncio.run(main())
    assert sorted(lines(journal, cfg)) == [("ai", "a says "), ("ai", "b says "), ("human", "?")]


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


# --- endings ----------------------------------------------------------------------------------------------------------


def test_a_stop_request_gives_the_cause(journal: RunJournal, handler: JournalCallbackHandler) -> None:
    """A cancellation has no cause; a stop request has one."""

    async def main() -> dict[str, Any]:
        cfg, reached = config(handler), asyncio.Event()
        script = [*words("so far "), lambda: reached.set(), asyncio.Event().wait]
        agent = by_hand(Scripted(scripts=[script]), [])
        stream = agent.astream({"messages": [("user", "go")]}, cfg, stream_mode="messages")
        task = asyncio.ensure_future(_read(stream))
        await reached.wait()
        await journal.astop(str(cfg["run_id"]), "superseded")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return cfg

    cfg = asyncio.run(main())
    run = journal.run(str(cfg["run_id"]))
    assert (run.status, run.cause) == ("interrupted", "superseded")
    partial = journal.transcript(str(cfg["run_id"]))[-1]
    assert (is_partial(partial), is_synthetic(partial), partial.text) == (True, False, "so far ")
    assert partial.additional_kwargs["runjournal"]["reason"] == "superseded"


async def _read(stream: Any) -> list[Any]:
    return [chunk async for chunk in stream]


def call(handler: JournalCallbackHandler, parent: UUID | None = None) -> UUID:
    """Report that a model call begins."""
    run_id = uuid4()
    handler.on_chat_model_start({"name": "m"}, [[HumanMessage("?")]], run_id=run_id, parent_run_id=parent)
    return run_id


def say(handler: JournalCallbackHandler, run_id: UUID, text: str) -> None:
    handler.on_llm_new_token(text, chunk=ChatGenerationChunk(message=AIMessageChunk(content=text)), run_id=run_id)


def answer(text: str) -> LLMResult:
    return LLMResult(generations=[[ChatGenerationChunk(message=AIMessageChunk(content=text, id="x"))]])


ENDINGS = {
    "complete": lambda handler, root, model: handler.on_llm_end(answer("words"), run_id=model),
    "cut": lambda handler, root, model: handler.on_llm_error(asyncio.CancelledError(), run_id=model),
    "root": lambda handler, root, model: handler.on_chain_error(asyncio.CancelledError(), run_id=root),
}


@pytest.mark.parametrize("first", ENDINGS)
@pytest.mark.parametrize("second", ENDINGS)
@pytest.mark.parametrize("third", ENDINGS)
def test_endings_in_any_order(
    journal: RunJournal, handler: JournalCallbackHandler, first: str, second: str, third: str
) -> None:
    """A call is complete or partial and never both, a run ends once, and a late report changes nothing."""
    root = uuid4()
    handler.on_chain_start({}, {}, run_id=root)
    model = call(handler, root)
    say(handler, model, "words")
    for ending in (first, second, third):
        ENDINGS[ending](handler, root, model)
        found = kinds(journal.read(str(root)))
        assert found.count("llm.ai.response") + found.count("llm.ai.partial") <= 1
        assert found.count("run.end") <= 1
    messages = [message for message in journal.transcript(str(root)) if message.type == "ai"]
    assert [message.text for message in messages] == ["words"]
    whole = next(ending for ending in (first, second, third)) == "complete"
    assert is_partial(messages[0]) is not whole


def test_what_a_model_says_after_the_end_counts_for_nothing(journal: RunJournal, handler: JournalCallbackHandler) -> None:
    """A zombie continues: the journal records its words and its answer as late, and the transcript stays as it was."""
    for said in ("so far", ""):
        root = uuid4()
        handler.on_chain_start({}, {}, run_id=root)
        model = call(handler, root)
        say(handler, model, said)
        handler.on_chain_error(asyncio.CancelledError(), run_id=root)
        before, last = journal.transcript(str(root)), journal.run(str(root)).last_seq
        say(handler, model, " and on")
        handler.on_llm_end(answer("so far and on"), run_id=model)
        assert journal.transcript(str(root)) == before
        assert [message.text for message in before if message.type == "ai"] == ([said] if said else [])
        late = journal.read(str(root), after=last)
        assert late[0].text == " and on"
        assert [event.data["late"] for event in late if event.kind == "llm.ai.response"] == ([] if said else [True])


def test_a_complete_run_has_no_partial_answer(journal: RunJournal, handler: JournalCallbackHandler) -> None:
    """A call that the run did not wait for is not part of the transcript; its usage is unknown."""
    root, node = uuid4(), uuid4()
    handler.on_chain_start({}, {"messages": "go"}, run_id=root)
    handler.on_chain_start({}, {}, run_id=node, parent_run_id=root, metadata={"langgraph_checkpoint_ns": "node:1"})
    model = call(handler, node)
    say(handler, model, "too slow")
    handler.on_chain_end({}, run_id=node)
    handler.on_chain_end({}, run_id=root)
    assert [message.type for message in journal.transcript(str(root))] == ["human"]
    assert journal.run(str(root)).usage == {"m": {"calls": 1, "incomplete": 1}}
    assert "llm.ai.partial" not in kinds(journal.read(str(root)))


def test_an_empty_partial_is_not_recorded(journal: RunJournal, handler: JournalCallbackHandler) -> None:
    """A call that has streamed only blanks, or only the beginning of a tool call, leaves no partial answer."""
    for text, calls in ((" \n", []), ("", [{"name": "rm", "args": '{"a', "id": "1", "index": 0}])):
        model = call(handler)
        message = AIMessageChunk(content=text, tool_call_chunks=calls)
        handler.on_llm_new_token(text, chunk=ChatGenerationChunk(message=message), run_id=model)
        handler.on_llm_error(GeneratorExit(), run_id=model)
        assert kinds(journal.read(str(model))) == ["run.start", "llm.human.input", "llm.start", "run.end"]
        assert [message.type for message in journal.transcript(str(model))] == ["human"]
        assert journal.run(str(model)).cause == "disconnect"


def test_a_call_speaks_one_way(journal: RunJournal, handler: JournalCallbackHandler) -> None:
    """The journal records a model that reports both tokens and stream events once, whichever come first."""
    for token_first in (True, False):
        model = call(handler)
        if token_first:
            say(handler, model, "One ")
        handler.on_stream_event({"event": "message-start", "id": f"lc_run--{model}"}, run_id=model)
        for text in ("One ", "two"):
            delta = {"type": "text-delta", "text": text}
            handler.on_stream_event({"event": "content-block-delta", "index": 0, "delta": delta}, run_id=model)
            say(handler, model, text)
        partial = journal.transcript(str(model))[-1]
        assert partial.content == [{"type": "text", "text": "One two"}]


def test_a_running_call_can_be_read(journal: RunJournal, handler: JournalCallbackHandler) -> None:
    """A client that returns in the middle sees what there is, marked as running."""
    model = call(handler)
    say(handler, model, "so far")
    partial = journal.transcript(str(model))[-1]
    assert (partial.text, partial.additional_kwargs["runjournal"]["reason"]) == ("so far", "running")


# --- what it does to others -------------------------------------------------------------------------------------------


def test_two_handlers_record_a_run_once(journal: RunJournal, handler: JournalCallbackHandler) -> None:
    """One handler is in the config of the run and one at the model, both of the same journal."""
    model = Scripted(scripts=[words("a", "b")]).with_config(callbacks=[JournalCallbackHandler(journal)])
    chain = RunnableLambda(lambda text, config: model.invoke(text, config))
    cfg = config(handler, None)
    chain.invoke("?", cfg)
    list(model.stream("?", {"callbacks": [handler]}))
    for run in journal.runs():
        found = kinds(journal.read(run.run_id))
        assert found == ["run.start", "llm.human.input", "llm.start", "llm.ai.response", "run.end"]


def test_an_update_of_a_state_is_not_a_run(journal: RunJournal, handler: JournalCallbackHandler) -> None:
    """LangGraph reports it as a chain, where the node has an edge to choose."""
    graph = StateGraph(MessagesState)
    graph.add_node("model", lambda state: {"messages": [("ai", "made up")]})
    graph.add_node("tools", ToolNode([double]))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    watched = Names()
    bound = graph.compile(checkpointer=InMemorySaver()).with_config(callbacks=[handler, watched])
    bound.update_state({"configurable": {"thread_id": "t"}}, {"messages": [("ai", "1")]}, as_node="model")
    assert "LangGraphUpdateState" in watched.names
    assert journal.runs() == []


class Names(BaseCallbackHandler):
    """A handler that keeps the names of the chains that LangChain reports."""

    def __init__(self) -> None:
        self.names: list[str | None] = []

    def on_chain_start(self, *args: Any, **kwargs: Any) -> None:
        self.names.append(kwargs.get("name"))


def test_it_never_raises(journal: RunJournal, handler: JournalCallbackHandler, caplog: pytest.LogCaptureFixture) -> None:
    """Not with any argument; the tokens of a call whose start cannot be understood are kept; the next barrier raises."""
    odd: Any = SimpleNamespace()
    run_id = uuid4()
    handler.on_chat_model_start(odd, odd, run_id=run_id, metadata=odd, tags=odd)
    for name in dir(handler):
        if name.startswith("on_") and name in vars(JournalCallbackHandler):
            with_id = {} if name in ("on_interrupt", "on_resume") else {"run_id": uuid4()}
            method = getattr(handler, name)
            for given in (None, odd, 7, "x", [None], {"a": odd}):
                two = [given, given] if name.endswith("_start") else [given]
                method(*two, **with_id)
    with pytest.raises(errors.WriteFailed):
        journal.flush()
    assert "could not record what on_" in caplog.text


def test_an_answer_that_cannot_be_understood_ends_its_run(journal: RunJournal, handler: JournalCallbackHandler) -> None:
    """What came before is in the journal, the run has its end, and the next barrier raises."""
    odd: Any = SimpleNamespace(generations=[[SimpleNamespace(message=7)]], llm_output=None)
    model = call(handler)
    say(handler, model, "words")
    handler.on_llm_end(odd, run_id=model)
    with pytest.raises(errors.WriteFailed):
        journal.flush()
    assert journal.run(str(model)).ended
    assert "".join(event.text for event in journal.read(str(model))) == "words"


def test_odd_tokens_are_kept(journal: RunJournal, handler: JournalCallbackHandler) -> None:
    """A chunk of a plain text model, a token without a chunk, a list without one, and half a surrogate pair."""
    model = call(handler)
    handler.on_llm_new_token("ab", chunk=GenerationChunk(text="ab"), run_id=model)
    handler.on_llm_new_token("c", run_id=model)
    handler.on_llm_new_token([{"type": "text", "text": "d"}], run_id=model)
    handler.on_llm_new_token("\ud83d", run_id=model)
    say(handler, model, "\ude00")
    journal.flush()
    assert "".join(event.text for event in journal.read(str(model))) == "abcd\ud83d\ude00"


def test_a_chunk_belongs_to_its_consumer(journal: RunJournal, handler: JournalCallbackHandler) -> None:
    """What the consumer does to a chunk afterwards changes nothing of what was recorded."""
    model = call(handler)
    block = {"type": "text", "text": "mine", "index": 0, "annotations": []}
    message = AIMessageChunk(content=[block], response_metadata={"a": {"b": 1}})
    handler.on_llm_new_token("", chunk=ChatGenerationChunk(message=message), run_id=model)
    block["text"] = "yours"
    message.response_metadata["a"]["b"] = 2
    handler.on_llm_new_token("", chunk=ChatGenerationChunk(message=message), run_id=model)
    first, second = [event.data for event in journal.read(str(model)) if event.kind == "llm.ai.delta"]
    assert (first["blocks"][0]["text"], first["metadata"], second["metadata"]) == ("mine", {"a": {"b": 1}}, {"a": {"b": 2}})


def test_a_handler_needs_a_journal() -> None:
    """It raises an error that says so."""
    with pytest.raises(errors.InvalidArgument, match="RunJournal"):
        JournalCallbackHandler("runs.db")  # type: ignore[arg-type]


@pytest.mark.parametrize("way", ["error", "silent", "in a graph"])
def test_ten_thousand_interrupted_calls_leave_nothing(journal: RunJournal, way: str) -> None:
    """The calls are cancelled, with and without a callback of LangChain's, alone and under a root."""
    handler = JournalCallbackHandler(journal, capture_invoke=True)
    tracker = handler._tracker
    for _ in range(10_000):
        root = uuid4()
        if way == "in a graph":
            handler.on_chain_start({}, {}, run_id=root)
        model = call(handler, root if way == "in a graph" else None)
        say(handler, model, "word")
        if way == "error":
            handler.on_llm_error(asyncio.CancelledError(), run_id=model)
        if way == "in a graph":
            handler.on_chain_error(asyncio.CancelledError(), run_id=root)
        del model, root
    gc.collect()
    assert (len(tracker.nodes), len(handler.streaming)) == (0, 0)
    assert all(run.status == "interrupted" for run in journal.runs(limit=None))


def test_ids_that_other_code_keeps_do_not_keep_the_calls(journal: RunJournal) -> None:
    """Another tracer, which waits for ever for the end of cancelled calls, holds their ids: the tracker bounds the
    number."""
    handler = JournalCallbackHandler(journal)
    kept = []
    for _ in range(11_000):
        root = uuid4()
        handler.on_chain_start({}, {}, run_id=root)
        kept.append(call(handler, root))
        handler.on_chain_error(asyncio.CancelledError(), run_id=root)
    assert len(handler._tracker.nodes) <= 10_000


def test_a_generator_that_is_collected_in_an_append_does_not_deadlock(
    journal: RunJournal, handler: JournalCallbackHandler
) -> None:
    """The garbage collector closes a stream in the middle of an append, and another thread that records an ending waits for
    that very append."""
    model, inside = call(handler), threading.Event()
    say(handler, model, "words")

    def elsewhere() -> None:
        def work() -> None:
            inside.set()
            journal.append(Event(run_id="other", kind="run.start"))

        handler._tracker.do(work)

    thread = threading.Thread(target=elsewhere)
    with core_of(journal).appender._lock:  # type: ignore[union-attr]  # in an append
        thread.start()
        assert inside.wait(30)
        handler.on_llm_error(GeneratorExit(), run_id=model)
    thread.join(30)
    assert not thread.is_alive()
    assert journal.run(str(model)).cause == "disconnect"


# --- what a task gives back ---------------------------------------------------------------------------------------------


def one_node(node: Any, **options: Any) -> Any:
    """Return a graph of one node."""
    graph = StateGraph(MessagesState)
    graph.add_node("node", node, **options)
    graph.add_edge(START, "node")
    return graph.compile()


def test_what_a_node_keeps_to_itself_is_not_an_answer(journal: RunJournal, handler: JournalCallbackHandler) -> None:
    """A plan before the answer, a choice among tools, and the steps of an agent of which the node returns only the last
    word."""
    talker = Scripted(scripts=[words("a plan"), words("the answer")])
    inner = create_agent(Scripted(scripts=[asks(("i1", "double", {"x": 4})), words("the answer")]), [double])
    chooser = Scripted(scripts=[asks(("r1", "route", {"to": "x"}), text=""), words("the answer")])

    def plan(state: MessagesState) -> dict[str, Any]:
        return {"messages": [talker.invoke("?"), talker.invoke("?")][1:]}

    def ask(state: MessagesState) -> dict[str, Any]:
        return {"messages": inner.invoke({"messages": [("user", "?")]})["messages"][-1:]}

    def choose(state: MessagesState) -> dict[str, Any]:
        chooser.invoke("which?")
        return {"messages": [AIMessage(chooser.invoke("?").text)]}  # the words, in a message of its own

    for node in (plan, ask, choose):
        cfg = config(handler)
        one_node(node).invoke({"messages": [("user", "go")]}, cfg)
        assert lines(journal, cfg) == [("human", "go"), ("ai", "the answer")], node


def test_a_choice_that_is_not_given_back_at_all(journal: RunJournal, handler: JournalCallbackHandler) -> None:
    """The model requests a tool that the node will not call, or just says words: what the state does not get is not part of
    the thread."""
    for script in (asks(("r1", "route", {})), words("thought")):
        model = Scripted(scripts=[script])

        def node(state: MessagesState, model: Scripted = model) -> dict[str, Any]:
            model.invoke("?")
            return {}

        cfg = config(handler)
        one_node(node).invoke({"messages": [("user", "go")]}, cfg)
        assert lines(journal, cfg) == [("human", "go")]


def test_a_nested_graph_that_is_tried_again(journal: RunJournal, handler: JournalCallbackHandler) -> None:
    """The second attempt replaces all that the first one said, also what was complete in it, and no request stays open."""
    fails = [ValueError("once")]

    @tool
    def shaky(x: int) -> str:
        """Fails once."""
        if fails:
            raise fails.pop()
        return "steady"

    scripts = [asks(("c1", "shaky", {"x": 1})), asks(("c2", "shaky", {"x": 1})), words("done")]
    inner = create_agent(Scripted(scripts=scripts), [shaky])
    cfg = config(handler)
    policy = RetryPolicy(initial_interval=0.001, retry_on=ValueError)
    state = one_node(inner, retry_policy=policy).invoke({"messages": [("user", "go")]}, cfg)
    assert lines(journal, cfg) == [(message.type, message.text) for message in state["messages"]]
    assert lines(journal, cfg)[1:] == [("ai", "Looking. "), ("tool", "steady"), ("ai", "done")]


def test_a_refusal_in_a_resumed_run_is_kept(journal: RunJournal, handler: JournalCallbackHandler) -> None:
    """The tool never runs, so only the task says what became of the request, which an earlier run had made."""
    model = Scripted(scripts=[asks(("c1", "double", {"x": 1})), words("Then not.")])
    guard = HumanInTheLoopMiddleware(interrupt_on={"double": True})
    agent = create_agent(model, [double], middleware=[guard], checkpointer=InMemorySaver())
    agent.invoke({"messages": [("user", "go")]}, config(handler))
    cfg = config(handler)
    agent.invoke(Command(resume={"decisions": [{"type": "reject", "message": "no"}]}), cfg)
    (result, answered) = journal.transcript(str(cfg["run_id"]))
    assert isinstance(result, ToolMessage)
    assert (result.tool_call_id, result.status, answered.text) == ("c1", "error", "Then not.")


def test_one_message_as_a_pair(journal: RunJournal, handler: JournalCallbackHandler) -> None:
    """LangGraph reads the pair as one message (its role and its content), and not as two messages."""
    cfg = config(handler)
    create_agent(Scripted(scripts=[words("ok")]), []).invoke({"messages": ("user", "hello")}, cfg)
    assert lines(journal, cfg) == [("human", "hello"), ("ai", "ok")]
