"""`run.checkpoint` for readers: one event for each checkpoint that a run writes, with its id, namespace, source and step."""

from __future__ import annotations

import asyncio
from itertools import chain
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph

from langchain_runjournal import Event, JournalCallbackHandler, JournalSaver, RunJournal, attach
from langchain_runjournal.settle.writing_run import FACTS
from tests.support.agents import Scripted, words
from tests.support.attached import cancelled
from tests.support.conversations import Gate

THREAD: Any = {"configurable": {"thread_id": "t"}}
HOWS = ("attach", "handler")


def graph_of(journal: RunJournal, how: str, model: Scripted | None = None) -> Any:
    """A graph with a node, and a subgraph with one; whose runs are recorded."""
    model = model or Scripted(scripts=[words("Hello ", "world")])

    async def answer(state: MessagesState, config: RunnableConfig) -> Any:
        return {"messages": [await model.ainvoke(state["messages"], config)]}

    inner = StateGraph(MessagesState).add_node("answer", answer).add_edge(START, "answer").compile()
    outer = StateGraph(MessagesState).add_node("first", lambda state: {}).add_node("sub", inner)
    outer = outer.add_edge(START, "first").add_edge("first", "sub")
    if how == "attach":
        return attach(outer.compile(checkpointer=InMemorySaver()), journal)
    return outer.compile(checkpointer=JournalSaver(InMemorySaver(), journal))


def config(journal: RunJournal, how: str) -> Any:
    return THREAD if how == "attach" else {**THREAD, "callbacks": [JournalCallbackHandler(journal)]}


def told(events: list[Event]) -> list[dict[str, Any]]:
    """What the events of a run say of checkpoints, for readers."""
    found = [event.data for event in events if event.kind == "run.checkpoint" and "checkpoint_id" in event.data]
    return [{key: one for key, one in data.items() if key in FACTS} for data in found]


def stored(graph: Any) -> list[dict[str, Any]]:
    """What the checkpointer has, in the order in which it was written, of the whole thread."""
    found = [
        {
            "checkpoint_id": one.checkpoint["id"],
            "checkpoint_ns": one.config["configurable"]["checkpoint_ns"],
            "source": one.metadata["source"],
            "step": one.metadata["step"],
        }
        for one in graph.checkpointer.saver.list(THREAD)
    ]
    return sorted(found, key=lambda one: one["checkpoint_id"])


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@pytest.mark.parametrize("how", HOWS)
def test_each_checkpoint_of_a_run_is_told_once(journal: RunJournal, how: str, durability: Any) -> None:
    """Of the graph and of its subgraph, in the order in which they were stored, over two runs of a thread."""
    graph = graph_of(journal, how)
    for _ in range(2):
        asyncio.run(graph.ainvoke({"messages": "hi"}, config(journal, how), durability=durability))
    runs = [journal.read(run.run_id) for run in reversed(journal.runs())]
    found = [told(events) for events in runs]
    assert sorted(chain(*found), key=lambda one: one["checkpoint_id"]) == stored(graph)
    for one in found:
        for namespace in {each["checkpoint_ns"] for each in one}:
            steps = [each["step"] for each in one if each["checkpoint_ns"] == namespace]
            assert steps == sorted(steps)
    if durability != "exit":
        assert [one["source"] for one in found[0] if not one["checkpoint_ns"]] == ["input", "loop", "loop", "loop"]
        assert {one["checkpoint_ns"].partition(":")[0] for one in found[0]} == {"", "sub"}
    for events in runs:
        assert events[-1].kind == "run.end"


def test_they_stand_between_the_words_of_their_supersteps(journal: RunJournal) -> None:
    """With durability "sync", LangGraph begins the next superstep after the checkpoint of the one before."""
    graph = graph_of(journal, "attach")

    async def main() -> None:
        async for _ in graph.astream({"messages": "hi"}, THREAD, stream_mode="messages", durability="sync"):
            pass

    asyncio.run(main())
    events = journal.read(journal.runs()[0].run_id)
    line = [event.text or event.data.get("step") for event in events if event.text or "checkpoint_id" in event.data]
    # Input, "first", the input of the subgraph and its start, its answer, "sub".
    assert line == [-1, 0, 1, -1, 0, "Hello ", "world", 1, 2]


def test_a_settlement_and_an_update_by_hand_tell_nothing(journal: RunJournal) -> None:
    """Neither between runs nor while another run of the thread begins."""
    gate = Gate()
    graph = graph_of(journal, "attach", Scripted(scripts=[[*words("Hello "), gate.apass], words("again")]))

    async def main() -> None:
        first = asyncio.create_task(graph.ainvoke({"messages": "hi"}, THREAD, durability="sync"))
        await gate.reached.wait()
        await cancelled(first)
        await graph.aupdate_state(THREAD, {"messages": "by hand"})
        await graph.ainvoke({"messages": "again"}, THREAD, durability="sync")

    asyncio.run(main())
    by_hand = [one for one in stored(graph) if one["source"] == "update"]
    assert len(by_hand) >= 1
    found = list(chain(*(told(journal.read(run.run_id)) for run in journal.runs())))
    assert {one["source"] for one in found} == {"input", "loop"}
    assert sorted(found, key=lambda one: one["checkpoint_id"]) == [one for one in stored(graph) if one["source"] != "update"]


def test_an_update_by_a_node_is_not_a_superstep(journal: RunJournal) -> None:
    """Also if the program passes on the callbacks of the run."""
    saver = JournalSaver(InMemorySaver(), journal)
    other: Any = {"configurable": {"thread_id": "other"}}
    side = StateGraph(MessagesState).add_node("a", lambda state: {}).add_edge(START, "a").compile(checkpointer=saver)

    def node(state: MessagesState) -> Any:
        side.update_state(other, {"messages": "noted"}, as_node="a")
        return {}

    graph = StateGraph(MessagesState).add_node("node", node).add_edge(START, "node").compile(checkpointer=saver)
    graph.invoke({"messages": "hi"}, config(journal, "handler"))
    found = told(journal.read(journal.runs()[0].run_id))
    assert [one["source"] for one in found] == ["input", "loop", "loop"]


def test_runs_at_the_same_time_on_one_thread_are_not_mixed_up(journal: RunJournal) -> None:
    """Of two runs that only a handler records, nothing shows which one writes: neither is told."""
    gates = Gate(), Gate()
    model = Scripted(scripts=[[*words("a"), gates[0].apass], [*words("b"), gates[1].apass]])
    graph = graph_of(journal, "handler", model)

    async def main() -> None:
        handler = config(journal, "handler")
        first = asyncio.create_task(graph.ainvoke({"messages": "hi"}, handler, durability="sync"))
        await gates[0].reached.wait()
        second = asyncio.create_task(graph.ainvoke({"messages": "hi"}, handler, durability="sync"))
        await gates[1].reached.wait()
        for gate in gates:
            gate.open()
        await asyncio.gather(first, second)

    asyncio.run(main())
    newer, older = (told(journal.read(run.run_id)) for run in journal.runs())
    ids = [one["checkpoint_id"] for one in (*older, *newer)]
    assert len(set(ids)) == len(ids)
    assert [one["step"] for one in older if not one["checkpoint_ns"]][:2] == [-1, 0]
    assert [one["source"] for one in older if not one["checkpoint_ns"]].count("input") == 1
    # When one of them has ended, the other one writes for certain.
    assert "input" not in [one["source"] for one in newer if not one["checkpoint_ns"]]


def test_a_writer_without_the_callbacks_of_the_run_tells_nothing(journal: RunJournal) -> None:
    """Another program part writes a checkpoint to the thread of a live run, as a copy of a thread does."""
    gate = Gate()
    graph = graph_of(journal, "attach", Scripted(scripts=[[*words("Hello "), gate.apass]]))
    foreign = empty_checkpoint()

    async def main() -> None:
        running = asyncio.create_task(graph.ainvoke({"messages": "hi"}, THREAD))
        await gate.reached.wait()
        for source in ("input", "loop", "fork", "update"):
            config = {"configurable": {"thread_id": "t", "checkpoint_ns": "" if source != "loop" else "copy:1"}}
            await graph.checkpointer.aput(config, foreign, {"source": source, "step": 9}, {})
        gate.open()
        await running

    asyncio.run(main())
    found = told(journal.read(journal.runs()[0].run_id))
    assert foreign["id"] not in {one["checkpoint_id"] for one in found}
