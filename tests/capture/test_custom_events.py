"""What a program reports about itself: LangGraph's stream writer and LangChain's custom events become `run.custom`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, TypedDict

import pytest
from langchain_core.callbacks import adispatch_custom_event, dispatch_custom_event
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_stream_writer
from langgraph.func import entrypoint, task
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.pregel.protocol import StreamProtocol
from langgraph.runtime import Runtime
from langgraph.types import StreamWriter, TimeoutPolicy

from langchain_runjournal import Event, JournalCallbackHandler, RunJournal, attach, start_run
from langchain_runjournal.capture.custom_events import LARGEST_CUSTOM
from langchain_runjournal.errors import EventsLost
from langchain_runjournal.redact import Text
from tests.support.agents import Scripted, words

HAS_CONTEXT = sys.version_info >= (3, 11)
needs_context = pytest.mark.skipif(
    not HAS_CONTEXT, reason="asynchronous nodes have no config in their context on Python 3.10"
)
MODES: list[Any] = [None, "custom", ["custom", "updates"], "messages"]
HOWS = ("handler", "attach")


class State(TypedDict, total=False):
    x: int


def customs(journal: RunJournal) -> list[Event]:
    return [event for event in journal.read(journal.runs(limit=1)[0].run_id) if event.kind == "run.custom"]


def values(journal: RunJournal) -> list[Any]:
    return [event.data["value"] for event in customs(journal)]


def observed(graph: Any, journal: RunJournal, how: str) -> Callable[..., Any]:
    """Return the method `stream` of a graph whose runs are recorded, with a config already."""
    thread = {"configurable": {"thread_id": "t"}}
    if how == "attach":
        return lambda given, **options: attach(graph, journal).stream(given, thread, **options)
    config = {**thread, "callbacks": [JournalCallbackHandler(journal)]}
    return lambda given, **options: graph.stream(given, config, **options)


def nested() -> Any:
    """A graph whose node and whose subgraph write to the stream."""

    def inner(state: State, writer: StreamWriter) -> State:
        writer({"in": "the subgraph"})
        return {}

    def outer(state: State, writer: StreamWriter) -> State:
        writer({"in": "the graph"})
        return {}

    sub = StateGraph(State).add_node("inner", inner).add_edge(START, "inner").compile()
    graph = StateGraph(State).add_node("outer", outer).add_node("sub", sub).add_edge(START, "outer")
    return graph.add_edge("outer", "sub").compile(checkpointer=InMemorySaver())


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("subgraphs", [False, True])
@pytest.mark.parametrize("mode", MODES, ids=str)
def test_what_nodes_and_subgraphs_write_is_recorded_once(journal: RunJournal, how: str, mode: Any, subgraphs: bool) -> None:
    """Also if the caller does not ask for it; and with the place that LangGraph gives to the chunk."""
    given = list(observed(nested(), journal, how)({"x": 1}, stream_mode=mode, subgraphs=subgraphs))
    found = customs(journal)
    assert [event.data["value"] for event in found] == [{"in": "the graph"}, {"in": "the subgraph"}]
    assert [(event.data["node"], event.data["name"]) for event in found] == [("outer", None), ("inner", None)]
    assert found[0].data["ns"] == []
    assert [part.partition(":")[0] for part in found[1].data["ns"]] == ["sub"]
    if mode == "custom" and subgraphs:
        assert [(list(ns), chunk) for ns, chunk in given] == [(event.data["ns"], event.data["value"]) for event in found]


@pytest.mark.parametrize("subgraphs", [False, True])
@pytest.mark.parametrize("mode", MODES, ids=str)
def test_the_stream_yields_what_it_yields_without_the_journal(journal: RunJournal, mode: Any, subgraphs: bool) -> None:
    options: Any = {"stream_mode": mode, "subgraphs": subgraphs}

    def plain(chunks: list[Any]) -> list[str]:
        return [repr(chunk).split("sub:")[0] for chunk in chunks]

    without = plain(list(nested().stream({"x": 1}, {"configurable": {"thread_id": "t"}}, **options)))
    for how in HOWS:
        assert plain(list(observed(nested(), journal, how)({"x": 1}, **options))) == without


@needs_context
def test_asynchronous_nodes_and_tools(journal: RunJournal) -> None:
    """In an agent, with the tool call that wrote it."""

    @tool
    async def search(query: str) -> str:
        """Searches."""
        get_stream_writer()({"found": query})
        return "done"

    async def report(state: MessagesState, writer: StreamWriter) -> Any:
        writer("reporting")
        return {}

    graph = StateGraph(MessagesState).add_node("report", report).add_node("tools", ToolNode([search]))
    agent = attach(graph.add_edge(START, "report").add_edge("report", "tools").compile(), journal)
    request = AIMessage("", tool_calls=[{"name": "search", "id": "c1", "args": {"query": "snow"}}])
    asyncio.run(agent.ainvoke({"messages": [("user", "hi"), request]}))
    first, second = customs(journal)
    assert (first.data["value"], second.data["value"]) == ("reporting", {"found": "snow"})
    assert (first.data["node"], second.data["node"]) == ("report", "tools")
    assert ("inside" in first.data, second.data["inside"]) == (False, "c1")


def test_an_asynchronous_node_without_a_context(journal: RunJournal) -> None:
    """On Python 3.10, no context shows the node; the namespace of its graph is known all the same."""

    async def node(state: State, writer: StreamWriter) -> State:
        writer("here")
        return {}

    inner = StateGraph(State).add_node("node", node).add_edge(START, "node").compile()
    graph = StateGraph(State).add_node("sub", inner).add_edge(START, "sub").compile()
    asyncio.run(attach(graph, journal).ainvoke({"x": 1}))
    (event,) = customs(journal)
    assert [part.partition(":")[0] for part in event.data["ns"]] == ["sub"]
    assert event.data["node"] == ("node" if HAS_CONTEXT else None)


def test_custom_events_stand_between_the_tokens(journal: RunJournal) -> None:
    """In the order in which the consumer sees both."""
    model = Scripted(scripts=[words("Hello ", "world")])

    def node(state: MessagesState, writer: StreamWriter) -> Any:
        writer("before")
        whole = AIMessage("")
        for chunk in model.stream(state["messages"]):
            writer(f"after {chunk.content}")
            whole = AIMessage(whole.content + chunk.content)
        return {"messages": [whole]}

    graph = StateGraph(MessagesState).add_node("node", node).add_edge(START, "node").compile()
    list(observed(graph, journal, "handler")({"messages": "hi"}, stream_mode=["custom", "messages"]))
    events = journal.read(journal.runs(limit=1)[0].run_id)
    told = [event.text or event.data.get("value") for event in events if event.kind in ("llm.ai.delta", "run.custom")]
    assert [one for one in told if one] == ["before", "Hello ", "after Hello ", "world", "after world", "after "]


def test_dispatched_events_have_a_name(journal: RunJournal) -> None:
    """In a node, in a tool with its call, and in a chain without any graph."""

    @tool
    def look(x: int, config: RunnableConfig) -> str:
        """Looks."""
        dispatch_custom_event("progress", {"percent": x}, config=config)
        return "seen"

    handler = JournalCallbackHandler(journal)
    agent = StateGraph(MessagesState).add_node("tools", ToolNode([look])).add_edge(START, "tools").compile()
    request = AIMessage("", tool_calls=[{"name": "look", "id": "c1", "args": {"x": 40}}])
    agent.invoke({"messages": [("user", "hi"), request]}, {"callbacks": [handler]})
    (event,) = customs(journal)
    assert (event.data["name"], event.data["value"]) == ("progress", {"percent": 40})
    assert (event.data["node"], event.data["ns"], event.data["inside"]) == ("tools", [], "c1")

    def step(x: int, config: RunnableConfig) -> int:
        dispatch_custom_event("halfway", x, config=config)
        return x

    RunnableLambda(step).invoke(1, {"callbacks": [handler]})
    (event,) = customs(journal)
    assert dict(event.data) == {"value": 1, "ns": [], "node": None, "name": "halfway"}


def test_events_dispatched_by_coroutines(journal: RunJournal) -> None:
    async def step(x: int, config: RunnableConfig) -> int:
        await adispatch_custom_event("halfway", {"x": x}, config=config)
        return x

    asyncio.run(RunnableLambda(step).ainvoke(1, {"callbacks": [JournalCallbackHandler(journal)]}))
    assert [(event.data["name"], event.data["value"]) for event in customs(journal)] == [("halfway", {"x": 1})]


def test_two_handlers_record_it_once_and_two_journals_each(journal: RunJournal) -> None:
    with RunJournal(":memory:") as other:
        graph = attach(attach(nested(), journal), other)
        handlers = [JournalCallbackHandler(journal), JournalCallbackHandler(other)]
        graph.invoke({"x": 1}, {"configurable": {"thread_id": "t"}, "callbacks": handlers})
        assert values(journal) == values(other) == [{"in": "the graph"}, {"in": "the subgraph"}]


def test_the_functional_api(journal: RunJournal) -> None:
    @task
    def part(x: int) -> int:
        get_stream_writer()(f"part {x}")
        return x

    @entrypoint()
    def whole(x: int, *, writer: StreamWriter) -> int:
        writer("whole")
        return part(x).result()

    list(observed(whole, journal, "handler")(1))
    assert values(journal) == ["whole", "part 1"]


@needs_context
def test_a_node_with_a_time_limit(journal: RunJournal) -> None:
    """LangGraph puts a guard of its own around the writer there, and around that of a graph inside."""

    async def node(state: State, config: RunnableConfig) -> Any:
        get_stream_writer()("outside")
        async for _ in nested().astream({"x": 1}, config):
            pass
        return {}

    limit = TimeoutPolicy(run_timeout=timedelta(seconds=60))
    graph = StateGraph(State).add_node("node", node, timeout=limit).add_edge(START, "node").compile()

    async def main() -> list[Any]:
        return [chunk async for chunk in attach(graph, journal).astream({}, stream_mode="custom", subgraphs=True)]

    given = asyncio.run(main())
    assert values(journal) == ["outside", {"in": "the graph"}, {"in": "the subgraph"}] == [chunk for _, chunk in given]


def test_runs_that_start_run_began(journal: RunJournal) -> None:
    async def main() -> None:
        run = await start_run(attach(nested(), journal), {"x": 1}, {"configurable": {"thread_id": "t"}})
        await run.wait()

    asyncio.run(main())
    assert values(journal) == [{"in": "the graph"}, {"in": "the subgraph"}]


def writes(journal: RunJournal, *given: Any, how: str = "handler") -> list[Event]:
    def node(state: State, writer: StreamWriter) -> State:
        for one in given:
            writer(one)
        return {}

    graph = StateGraph(State).add_node("node", node).add_edge(START, "node").compile()
    list(observed(graph, journal, how)({"x": 1}))
    assert journal.runs(limit=1)[0].status == "completed"
    return customs(journal)


class Odd:
    def __repr__(self) -> str:
        raise ValueError("no repr")


def test_values_that_are_not_json(journal: RunJournal) -> None:
    """They become text, or LangChain's own dicts; nothing breaks the run."""
    loop: list[Any] = []
    loop.append(loop)
    found = writes(journal, Path("/a"), Odd(), {1: float("nan")}, loop, AIMessage("hi"), None, b"\xff")
    got = [event.data["value"] for event in found]
    assert (got[0], got[1], got[2]) == (repr(Path("/a")), "<Odd>", {"1": "NaN"})
    assert (got[4]["type"], got[5], got[6]) == ("ai", None, {"runjournal_bytes": "/w=="})
    journal.flush()


def test_a_large_value_is_dropped_and_said(journal: RunJournal) -> None:
    """Exactly above the bound, in bytes of JSON; the place stays."""
    fits, above = "x" * (LARGEST_CUSTOM - 2), "é" * (LARGEST_CUSTOM // 2)
    found = writes(journal, fits, above, "after")
    assert [event.data.get("value") for event in found] == [fits, None, "after"]
    assert "value" not in found[1].data
    assert (found[1].data["size"], found[1].data["node"]) == (LARGEST_CUSTOM + 2, "node")
    assert "65,536 bytes" in found[1].data["dropped"]


def test_a_change_behind_the_write_does_not_change_the_event(journal: RunJournal) -> None:
    def node(state: State, writer: StreamWriter) -> State:
        progress = {"percent": 10}
        writer(progress)
        progress["percent"] = 99
        return {}

    list(observed(StateGraph(State).add_node("node", node).add_edge(START, "node").compile(), journal, "handler")({}))
    assert values(journal) == [{"percent": 10}]


def test_what_is_written_after_the_end_is_late(journal: RunJournal) -> None:
    """The event is kept behind `run.end`, and says so."""
    kept: list[StreamWriter] = []

    def node(state: State, writer: StreamWriter) -> State:
        kept.append(writer)
        return {}

    list(observed(StateGraph(State).add_node("node", node).add_edge(START, "node").compile(), journal, "handler")({"x": 1}))
    kept[0]("after")
    events = journal.read(journal.runs()[0].run_id)
    assert [event.kind for event in events[-2:]] == ["run.end", "run.custom"]
    assert (events[-1].data["value"], events[-1].data["late"]) == ("after", True)


def test_the_redaction_sees_the_text(tmp_path: Path) -> None:
    def redact(text: Text) -> str:
        return text.text.replace("secret", "***")

    with RunJournal(tmp_path / "runs.db", redact=redact) as journal:
        found = writes(journal, {"note": ["a secret", 1]}, "secret")
        assert [event.data["value"] for event in found] == [{"note": ["a ***", 1]}, "***"]
        assert (found[0].data["ns"], found[0].data["node"]) == ([], "node")


@pytest.mark.parametrize("how", HOWS)
def test_a_journal_that_fails_breaks_no_run(
    journal: RunJournal, how: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr("langchain_runjournal.capture.stream_writer.keep_custom", fail)
    given = list(observed(nested(), journal, how)({"x": 1}, stream_mode="custom", subgraphs=True))
    assert [chunk for _, chunk in given] == [{"in": "the graph"}, {"in": "the subgraph"}]
    assert "could not record what was written to the stream" in caplog.text
    with pytest.raises(EventsLost):
        journal.flush()


def test_an_error_of_the_writer_reaches_the_node(journal: RunJournal) -> None:
    """The writer that the caller gets is LangGraph's own, with its errors; the thread passes on nothing afterwards."""

    class Broken(Exception):
        pass

    def broken(chunk: Any) -> None:
        raise Broken

    def node(state: State, writer: StreamWriter) -> State:
        writer("same")
        return {}

    graph = StateGraph(State).add_node("node", node).add_edge(START, "node").compile()
    handlers = [JournalCallbackHandler(journal)]
    around = StreamProtocol(lambda chunk: None, set())
    config: Any = {"configurable": {"__pregel_runtime": Runtime(stream_writer=broken), "__pregel_stream": around}}
    for _ in range(2):
        with pytest.raises(Broken):
            graph.invoke({"x": 1}, {**config, "callbacks": handlers})
        assert values(journal) == ["same"]


def test_runs_in_parallel_keep_their_values(journal: RunJournal) -> None:
    """One handler, many runs at the same time: each value is in the run that wrote it."""

    async def node(state: State, writer: StreamWriter) -> State:
        for at in range(5):
            writer([state["x"], at])
            await asyncio.sleep(0)
        return {}

    graph = StateGraph(State).add_node("node", node).add_edge(START, "node").compile()
    handler = JournalCallbackHandler(journal)

    async def main() -> None:
        await asyncio.gather(*(graph.ainvoke({"x": x}, {"callbacks": [handler]}) for x in range(20)))

    asyncio.run(main())
    got = {
        run.run_id: [e.data["value"] for e in journal.read(run.run_id) if e.kind == "run.custom"] for run in journal.runs()
    }
    assert sorted(got.values()) == [[[x, at] for at in range(5)] for x in range(20)]
