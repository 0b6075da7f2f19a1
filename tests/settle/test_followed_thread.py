"""A follower of the thread of an attached graph: live and replay are the same, through pauses, stops and settlements."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, interrupt

from langchain_runjournal import Event, JournalCallbackHandler, RunJournal, attach
from tests.support.agents import Scripted, words
from tests.support.attached import cancelled
from tests.support.conversations import Gate

THREAD: Any = {"configurable": {"thread_id": "t"}}
PATIENCE = 60
pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="nodes of asynchronous runs cannot interrupt on 3.10")


def graph_of(model: Scripted) -> Any:
    async def answer(state: MessagesState, config: RunnableConfig) -> Any:
        return {"messages": [await model.ainvoke(state["messages"], config)]}

    def ask(state: MessagesState) -> Any:
        if "ask" in state["messages"][-2].text:
            return {"messages": [("ai", f"approved: {interrupt('Really?')}")]}
        return {}

    graph = StateGraph(MessagesState).add_node("answer", answer).add_node("ask", ask)
    return graph.add_edge(START, "answer").add_edge("answer", "ask").compile(checkpointer=InMemorySaver())


async def until_ends(journal: RunJournal, runs: int, after: Any = None) -> list[Event]:
    """Follow the thread until so many runs have ended."""
    found: list[Event] = []
    async for event in journal.afollow_thread("t", after):
        found.append(event)
        runs -= event.kind == "run.end"
        if not runs:
            break
    return found


def test_live_and_replay_are_the_same(tmp_path: Path, journals: Callable[..., RunJournal]) -> None:
    """Here and in another journal: a whole answer, a pause and its resume, a pause that is passed over, a stop, and the
    message after it. Then from every cursor."""
    journal, other = journals(), journals()
    gate = Gate()
    scripts = [words("one"), words("two"), words("three"), [*words("four "), gate.apass], words("five")]
    graph = attach(graph_of(Scripted(scripts=scripts)), journal)

    async def main() -> tuple[list[Event], ...]:
        live = [asyncio.create_task(until_ends(one, 6)) for one in (journal, other)]
        await graph.ainvoke({"messages": "hi"}, THREAD)
        await graph.ainvoke({"messages": "ask one"}, THREAD)
        await graph.ainvoke(Command(resume="yes"), THREAD)
        await graph.ainvoke({"messages": "ask two"}, THREAD)
        stopped = asyncio.create_task(graph.ainvoke({"messages": "go on"}, THREAD))
        await gate.reached.wait()
        await cancelled(stopped)
        await graph.ainvoke({"messages": "again"}, THREAD)
        return tuple(await asyncio.wait_for(asyncio.gather(*live), PATIENCE))

    here, elsewhere = asyncio.run(main())
    assert here == elsewhere
    order = list(dict.fromkeys(event.run_id for event in here))
    assert order == [run.run_id for run in reversed(journal.runs())]
    assert [event.kind for event in here].count("run.pause") == 2
    assert [event.kind for event in here].count("run.end") == len(order) == 6
    journal.flush()

    async def again() -> None:
        ends = [event.kind == "run.end" for event in here]
        for at in range(0, len(here), 3):
            cursor = (here[at].run_id, here[at].seq)
            if any(ends[at + 1 :]):
                assert await until_ends(other, sum(ends[at + 1 :]), cursor) == here[at + 1 :]

    asyncio.run(asyncio.wait_for(again(), PATIENCE))


def test_runs_that_only_a_handler_records(tmp_path: Path, journals: Callable[..., RunJournal]) -> None:
    """The run that pauses is never ended; the follower goes on with the run that resumes it."""
    journal, other = journals(), journals()
    graph = graph_of(Scripted(scripts=[words("one"), words("two")]))
    config = {**THREAD, "callbacks": [JournalCallbackHandler(journal)]}

    async def main() -> tuple[list[Event], ...]:
        live = [asyncio.create_task(until_ends(one, 1)) for one in (journal, other)]
        await graph.ainvoke({"messages": "ask"}, config)
        await asyncio.sleep(0.1)
        await graph.ainvoke(Command(resume="yes"), config)
        return tuple(await asyncio.wait_for(asyncio.gather(*live), PATIENCE))

    here, elsewhere = asyncio.run(main())
    assert here == elsewhere
    assert len({event.run_id for event in here}) == 2
    assert here[-1].kind == "run.end"
