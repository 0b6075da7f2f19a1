"""Which calls of a run count as its answers: attempts, helpers, and what a task returns."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.runnables import RunnableConfig, RunnableParallel
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, RetryPolicy

from langchain_runjournal import JournalCallbackHandler, RunJournal
from tests.support.agents import Scripted, asks, words
from tests.support.captured import config, double, events, kinds, lines

# --- attempts and helpers ---------------------------------------------------------------------------------------------


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


# --- what a task returns ----------------------------------------------------------------------------------------------


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
