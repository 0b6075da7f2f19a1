"""A run of `start_run` ends while its store on another machine is away: its handle says what this process knows."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from langchain_runjournal import RunHandle, RunJournal
from tests.support.agents import words
from tests.support.conversations import PATIENCE, the_rest
from tests.support.far_server import FarServer, ServedStore
from tests.support.started_agent import Talk, asking, facts, needs_311, on, say, start_run


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that fails after 10 ms counts as one that has waited."""
    monkeypatch.setattr("langchain_runjournal.journal.prompt_store._SLOW", 0.01)


@pytest.fixture
def store(db: Path) -> ServedStore:
    return FarServer(db).connect()


@pytest.fixture
def journal(store: ServedStore) -> Iterator[RunJournal]:
    journal = RunJournal(store, lease=600)
    yield journal
    store.come_back()
    journal.close()


async def chunks_of(handle: RunHandle) -> list[Any]:
    return [chunk async for chunk in handle.stream()]


async def is_whole(journal: RunJournal, store: ServedStore, handle: RunHandle) -> None:
    """Check that the handle says what the store says, once the store is back."""
    store.come_back()
    await journal.aflush()
    assert await handle.wait() == await journal.arun(handle.run_id)
    await the_rest()


def test_a_run_that_completes(journal: RunJournal, store: ServedStore, caplog: pytest.LogCaptureFixture) -> None:
    """Its stream ends as any other one, `wait` returns it, and nothing is logged as an error of the end."""

    async def main() -> None:
        talk = Talk(journal, InMemorySaver())
        handle = await talk.start_held(stream_mode="messages")
        reading = asyncio.create_task(chunks_of(handle))
        await journal.aflush()
        store.go_away(0.02)
        talk.gate.open()
        run = await asyncio.wait_for(handle.wait(), PATIENCE)
        assert facts(run) == ("completed", None, True)
        assert (run.run_id, run.thread_id, run.ended) == (handle.run_id, "t", True)
        assert "".join(chunk.text for chunk, _ in await reading) == "one two three"
        assert facts(await handle.wait()) == ("completed", None, True)
        assert [record for record in caplog.records if "could not record the end" in record.getMessage()] == []
        assert [record.getMessage() for record in caplog.records if record.exc_info and record.levelno > logging.DEBUG] == []
        await is_whole(journal, store, handle)

    asyncio.run(main())


def test_a_run_that_fails(journal: RunJournal, store: ServedStore) -> None:
    """Its stream raises what the graph raised, not what the store says."""

    async def breaks() -> None:
        raise RuntimeError("the provider is gone")

    async def main() -> None:
        talk = Talk(journal, InMemorySaver())
        handle = await talk.start_held(breaks, stream_mode="messages")
        reading = asyncio.create_task(chunks_of(handle))
        await journal.aflush()
        store.go_away(0.02)
        talk.gate.open()
        run = await asyncio.wait_for(handle.wait(), PATIENCE)
        assert (run.status, run.ended) == ("failed", True)
        assert "the provider is gone" in (run.error or "")
        with pytest.raises(RuntimeError, match="the provider is gone"):
            await reading
        await is_whole(journal, store, handle)

    asyncio.run(main())


def test_a_run_that_was_never_stored(journal: RunJournal, store: ServedStore) -> None:
    """A run whose first batch finds the outage."""

    async def main() -> None:
        talk = Talk(journal, InMemorySaver())
        handle = await talk.start_held()
        store.go_away(0.02)
        talk.gate.open()
        assert facts(await asyncio.wait_for(handle.wait(), PATIENCE)) == ("completed", None, True)
        await is_whole(journal, store, handle)

    asyncio.run(main())


@needs_311
def test_a_run_that_asks_a_human(journal: RunJournal, store: ServedStore) -> None:
    """It is paused, and not completed."""

    async def main() -> None:
        talk = Talk(journal, InMemorySaver())
        talk.model.say(words("fine"))
        graph = asking(talk)
        store.go_away(0.02, "append", "run", "read", "owner_of", "runs", "unsettled")
        handle = await start_run(graph, say("go"), on("t"))
        run = await asyncio.wait_for(handle.wait(), PATIENCE)
        assert (run.status, run.ended) == ("paused", False)
        await is_whole(journal, store, handle)

    asyncio.run(main())
