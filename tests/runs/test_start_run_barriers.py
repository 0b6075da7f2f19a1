"""What a run needs of the store: its own barriers, whatever other processes lock, prune or fence there."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from langchain_runjournal import Event, Run, RunJournal, errors, start_run
from tests.support.agents import words
from tests.support.started_agent import facts, on, on_a_loop, say, talking


@pytest.mark.parametrize("how", ["completed", "stopped", "called"])
def test_the_next_barrier_of_the_user_raises(tmp_path: Path, how: str) -> None:
    """A run waits until it is durable, and does not raise what the store refused of other runs: the next `flush` raises
    that."""
    asyncio.run(refused(tmp_path, how))  # the journal logs it as an error, which `on_a_loop` refuses


async def refused(tmp_path: Path, how: str) -> None:
    async with talking(tmp_path) as talk:
        with RunJournal(tmp_path / "runs.db") as other:
            other.append(Event(run_id="theirs", kind="run.start"))
            other.flush()
            talk.journal.append(Event(run_id="theirs", kind="llm.ai.delta", data={"text": "stolen"}))
            if how == "called":
                talk.model.say(words("fi", "ne"))
                await talk.agent.ainvoke({"messages": [("user", "go")]}, {"configurable": {"thread_id": "t"}})
            else:
                handle = await talk.start_held()
                if how == "completed":
                    talk.gate.open()
                run = await (handle.wait() if how == "completed" else handle.stop())
                assert run.status == ("completed" if how == "completed" else "interrupted")
        with pytest.raises(errors.RunFenced, match="theirs"):
            await talk.journal.aflush()


@on_a_loop
async def test_a_store_that_is_locked(tmp_path: Path) -> None:
    """While another process holds the lock, `start_run` raises and nothing begins; after that, all is as before."""
    async with talking(tmp_path, busy_timeout=0.05) as talk:
        talk.model.say(words("fi", "ne"))
        lock = sqlite3.connect(tmp_path / "runs.db", isolation_level=None)
        lock.execute("BEGIN IMMEDIATE")
        with pytest.raises(errors.StoreFailed, match="locked"):
            await talk.start()
        lock.execute("ROLLBACK")
        lock.close()
        assert await talk.journal.aruns() == []
        assert facts(await (await talk.start()).wait()) == ("completed", None, True)


@on_a_loop
async def test_a_run_after_a_prune(tmp_path: Path) -> None:
    """A journal that has pruned, or has forgotten a run, accepts the events of the runs that `start_run` begins as
    before."""
    async with talking(tmp_path) as talk:
        assert talk.journal.prune(keep_last=0) == []
        talk.model.say(words("fi", "ne"))
        run = await (await talk.start()).wait()
        assert facts(run) == ("completed", None, True)
        assert await talk.thread() == ["U go", "A fine"]


@pytest.mark.parametrize("how", ["ends well", "fails", "is stopped"])
@on_a_loop
async def test_pruned_by_another_process_as_soon_as_it_is_over(tmp_path: Path, how: str) -> None:
    """A caller that waits for the run gets it, and a reader gets its chunks to the end: the run was over and settled."""
    async with talking(tmp_path) as talk:
        if how == "fails":
            talk.model.say([*words("one"), ValueError("broken")])
            handle = await start_run(talk.agent, say("go"), on("t"))
        else:
            handle = await talk.start_held()
        read = talk.journal.arun

        async def arun(run_id: str) -> Run:
            await talk.journal.aflush()
            with RunJournal(tmp_path / "runs.db") as other:
                other.prune(keep_last=0)
            return await read(run_id)

        talk.journal.arun = arun  # type: ignore[method-assign]
        ended = {"ends well": ("completed", None), "fails": ("failed", None), "is stopped": ("interrupted", "stop")}[how]
        if how == "is stopped":
            run = await handle.stop()
        else:
            talk.gate.open()
            run = await handle.wait()
        assert (run.run_id, run.thread_id, run.status, run.cause) == (handle.run_id, "t", *ended)
        assert (run.ended, run.settled, run.error) == (True, True, "ValueError: broken" if how == "fails" else None)
        assert facts(await handle.wait()) == facts(run)
        with pytest.raises(errors.RunNotFound):
            await read(handle.run_id)
        if how == "fails":
            with pytest.raises(ValueError, match="broken"):
                [chunk async for chunk in handle.stream()]
        else:
            # By default, a chunk is the output of a whole step.
            assert len([chunk async for chunk in handle.stream()]) == (how == "ends well")
