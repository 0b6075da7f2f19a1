"""Two graphs of one journal, each with a thread of the same name: each run is settled in the thread of its own graph."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool

from langchain_runjournal import RunJournal, attach
from langchain_runjournal.capture.recorder import recorder_of
from langchain_runjournal.settle.writing_run import FACTS
from tests.settle.test_settle import (
    CALLS,
    CUT,
    THREAD,
    Tools,
    athread,
    cut_off,
    made,
    made_by_hand,
    model,
    say,
    shown,
    without_recovered,
)
from tests.support.agents import asks, words
from tests.support.attached import ON_ITS_OWN, cancelled
from tests.support.conversations import Gate


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@pytest.mark.parametrize("cut", ["the older", "the newer"])
def test_two_threads_of_one_name(cut: str, durability: Any, journal: RunJournal) -> None:
    """The checkpoints of one graph are not recorded for the other, however their runs overlap."""

    async def scenario() -> None:
        gates = Gate(), Gate()
        a = made("A", model([*words("one "), gates[0].apass]), journal)
        b = made("B", model(words("b"), [*words("b1 "), gates[1].apass]), journal)
        if cut == "the newer":
            await b.ainvoke(say("to B"), THREAD)
        older = asyncio.create_task(a.ainvoke(say("to A"), THREAD, durability=durability))
        await gates[0].reached.wait()
        newer = asyncio.create_task(b.ainvoke(say("again to B"), THREAD, durability=durability))
        if cut == "the older":
            await newer
        else:
            await gates[1].reached.wait()
            await cancelled(newer)
            assert await athread(b) == ["U to B", "A b", "U again to B", "A~ b1 "]
            stored = set() if durability == "exit" else {"stored"}
            assert _checkpoints(journal, "B") == {"base", "before", "applied"} | stored
        await cancelled(older)
        assert await athread(a) == ["U to A", "A~ one "]
        assert all(run.settled for run in journal.runs())

    asyncio.run(asyncio.wait_for(scenario(), 60))


def _checkpoints(journal: RunJournal, name: str) -> set[str]:
    run = next(run for run in journal.runs() if run.name == name)
    return {word for event in journal.read(run.run_id) if event.kind == "run.checkpoint" for word in event.data} - FACTS


@ON_ITS_OWN
def test_a_graph_that_a_tool_calls_on_a_thread_of_the_same_name(journal: RunJournal) -> None:
    """Each of the two runs is settled in its own thread, with its own words."""

    async def scenario() -> None:
        gate = Gate()
        b = made("B", model(words("b0"), [*words("b half "), gate.apass]), journal)

        @tool
        async def delegate(x: int, config: RunnableConfig) -> str:
            """Asks the other one."""
            mine: RunnableConfig = {**THREAD, "callbacks": config["callbacks"]}
            return str((await b.ainvoke(say("please"), mine))["messages"][-1].content)

        scripts = asks(("c1", "delegate", {"x": 1})), words("a1"), asks(("c2", "delegate", {"x": 2}))
        a = made("A", model(*scripts), journal, delegate)
        await a.ainvoke(say("hi"), THREAD)
        task = asyncio.create_task(a.ainvoke(say("again"), THREAD))
        await gate.reached.wait()
        await cancelled(task)
        answered = ["U hi", "A Looking. (c1)", "T c1=b0", "A a1"]
        assert await athread(a) == [*answered, "U again", "A Looking. (c2)", "T* c2=started"]
        assert await athread(b) == ["U please", "A b0", "U please", "A~ b half "]

    asyncio.run(asyncio.wait_for(scenario(), 60))


@pytest.mark.parametrize("between", [False, True], ids=["alone", "another-between"])
def test_a_late_result_waits_for_its_own_graph(between: bool, journal: RunJournal) -> None:
    """A message to the other graph does not consume the late result."""

    async def scenario() -> None:
        gate, ended = Gate(), threading.Event()

        @tool
        def plod() -> str:
            """On a thread."""
            gate.hold()
            return "really done"

        asked = model(asks(("c1", "plod", {})), words("fine"))
        a, b = made("A", asked, journal, plod), made("B", model(words("b")), journal)
        late = recorder_of(journal).threads.came_late

        def came_late(*given: Any) -> None:
            late(*given)
            ended.set()

        recorder_of(journal).threads.came_late = came_late  # type: ignore[method-assign]
        task = asyncio.create_task(a.ainvoke(say("hi"), THREAD))
        await asyncio.to_thread(gate.held.wait, 30)
        await cancelled(task)
        gate.open()
        assert await asyncio.to_thread(ended.wait, 30)
        if between:
            await b.ainvoke(say("to b"), THREAD)
        await a.ainvoke(say("next"), THREAD)
        assert shown(asked.seen[-1]) == ["U hi", "A Looking. (c1)", "T+ c1=really done", "U next"]

    asyncio.run(asyncio.wait_for(scenario(), 60))


@pytest.mark.parametrize("runs", [3, 12])
def test_what_was_left_is_found_behind_many_runs_of_another_graph(runs: int, db: Any) -> None:
    """A message settles an old run behind many runs of another graph, also in a program that has not seen that run."""
    with RunJournal(db) as journal:
        tools, asked = Tools(), model(CALLS, words("fine"))
        graph = made_by_hand(asked, tools.all, checkpointer=tools.saver, name="A")
        cut_off(attach(graph, journal, settle="on_stop"), tools)
    with RunJournal(db) as journal:
        b = made("B", model(words("b")), journal)
        for _ in range(runs):
            b.invoke(say("hi"), THREAD)
        attach(graph, journal, settle="on_stop").invoke(say("next"), THREAD)
        assert without_recovered(shown(asked.seen[-1])) == [*CUT, "U next"]
