"""What a run needs of the store, and what it leaves to others."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from langchain_runjournal import Event, RunJournal, errors
from tests.support.agents import words
from tests.support.started_agent import facts, on_a_loop, talking


@pytest.mark.parametrize("how", ["completed", "stopped", "called"])
def test_the_next_barrier_of_the_user_is_told(tmp_path: Path, how: str) -> None:
    """A run waits until it is durable, and does not hear what was refused of others: that is for whoever flushes."""
    asyncio.run(refused(tmp_path, how))  # and it is logged as an error, which `on_a_loop` would not have


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
    """Nobody can have the thread, so nothing begins, and it is said; when the lock is gone, all is as before."""
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
