"""Programs with helpers that are stopped by `start_run`, and those that are killed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from langchain_runjournal import RunJournal, start_run
from tests.capture.test_answers import lines
from tests.support.answering import Desk, ask, attached, config, ended_in, left_of, whole
from tests.support.conversations import story

STOPPED = [
    *(("router", "route", "inside"), ("router", "talk", "inside"), ("title", "title", "returned")),
    *(("reflection", "reflect", "inside"), ("wrapped agent", "say", "inside"), ("map-reduce", "talk", "before")),
]


@pytest.mark.parametrize(("name", "step", "moment"), STOPPED)
@pytest.mark.parametrize("is_first", [True, False], ids=["first", "later"])
def test_a_stop(name: str, step: str, moment: str, is_first: bool) -> None:
    """The same is left as of a cancellation, and the next turn has it."""

    async def turns() -> None:
        desk = Desk()
        async with RunJournal(":memory:") as journal:
            graph = attached(name, desk, journal, InMemorySaver())
            if not is_first:
                await graph.ainvoke(ask("warm up"), config("other", uuid4()))
            run_id = uuid4()
            desk.cut, desk.ended = (step, moment), ended_in(journal, run_id)
            handle = await start_run(graph, ask("hi"), config("t", run_id), journal=journal)
            await asyncio.wait_for(desk.reached.wait(), 30)
            assert (await handle.stop()).settled
            left = ["U hi", *left_of(name, step, moment, is_first=is_first)]
            assert lines(await thread(graph)) == left
            desk.cut = None
            desk.seen.clear()
            await graph.ainvoke(ask("next"), config("t", uuid4()))
            assert lines(desk.seen[0][1]) == [*left, "U next"]

    asyncio.run(turns())


async def thread(graph: object) -> list[object]:
    state = await graph.aget_state(config("t", uuid4()))  # type: ignore[attr-defined]
    return list(state.values["messages"])


KILLED = [
    ("router", "talk", "inside", "sync"),
    ("router", "talk", "before", "exit"),
    ("reflection", "talk", "inside", "exit"),
    ("guard", "talk", "inside", "async"),
    ("structured by json_schema", "talk", "before", "exit"),
    ("wrapped agent", "say", "returned", "exit"),
]


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="SIGKILL")
@pytest.mark.parametrize(("name", "step", "moment", "durability"), KILLED)
@pytest.mark.parametrize("is_first", [True, False], ids=["first", "later"])
def test_a_kill(name: str, step: str, moment: str, durability: str, is_first: bool, tmp_path: Path) -> None:
    """What finished nodes have kept is gone, what they have given and written themselves is there: a kill loses no decision.
    With durability "exit", the thread has nothing but what the journal knows."""
    db, saver, run_id = tmp_path / "runs.db", str(tmp_path / "threads.db"), uuid4()

    async def before() -> None:
        async with AsyncSqliteSaver.from_conn_string(saver) as checkpoints, RunJournal(db) as journal:
            await attached(name, Desk(), journal, checkpoints).ainvoke(ask("warm up"), config("other", uuid4()))

    async def after() -> None:
        desk = Desk()
        async with AsyncSqliteSaver.from_conn_string(saver) as checkpoints, RunJournal(db) as journal:
            graph = attached(name, desk, journal, checkpoints)
            [settled] = await journal.arecover(graph)
            assert UUID(settled.run_id) == run_id
            left = ["U hi", *left_of(name, step, moment, is_first=is_first)]
            assert lines(await thread(graph)) == left
            run = uuid4()
            await graph.ainvoke(ask("next"), config("t", run))
            assert lines(desk.seen[0][1]) == [*left, "U next"]
            assert story(await journal.atranscript(str(run))) == ["U next", *whole(name)]

    if not is_first:
        asyncio.run(before())
    command = [
        sys.executable,
        "-m",
        "tests.support.answering_victim",
        str(db),
        saver,
        name,
        step,
        moment,
        durability,
        str(run_id),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    asyncio.run(after())
