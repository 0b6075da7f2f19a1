"""How the code of users type-checks: `make lint` runs mypy over it, strictly. It is never run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig
from typing_extensions import assert_type

from langchain_runjournal import (
    Event,
    JournalCallbackHandler,
    Run,
    RunJournal,
    RunJournalError,
    RunStatus,
    is_partial,
    is_synthetic,
)
from langchain_runjournal.stores import Store
from langchain_runjournal.stores.memory import MemoryStore
from langchain_runjournal.stores.sqlite import SqliteStore
from langchain_runjournal.testing import FakeClock, FaultyStore


def sync(path: Path) -> None:
    with RunJournal(path, synchronous="full", clock=FakeClock()) as journal:
        assert_type(journal, RunJournal)
        journal.append(Event(run_id="r", kind="run.start", data={"thread_id": "t"}))
        journal.flush(timeout=1)
        assert_type(journal.run("r"), Run)
        assert_type(journal.runs(status=RunStatus.RUNNING), list[Run])
        assert_type(journal.read("r", after=1), list[Event])
        assert_type(journal.follow("r"), Iterator[Event])
        assert_type(journal.stop("r", cause="timeout").stop, str | None)
        assert_type(journal.claim("r"), bool)
        assert_type(journal.prune(keep_last=1), list[str])


async def in_a_loop(journal: RunJournal) -> None:
    async with journal as opened:
        assert_type(opened, RunJournal)
        await opened.aflush()
        assert_type(opened.afollow("r"), AsyncIterator[Event])
        async for event in opened.afollow("r"):
            assert_type(event.seq, int)
        assert_type(await opened.aruns(), list[Run])
        assert_type(await opened.atranscript("r"), list[BaseMessage])


def captured(journal: RunJournal) -> RunnableConfig:
    messages = journal.transcript("r")
    assert_type(messages, list[BaseMessage])
    assert_type([is_partial(message) or is_synthetic(message) for message in messages], list[bool])
    return {"callbacks": [JournalCallbackHandler(journal), JournalCallbackHandler(journal, capture_invoke=True)]}


def stores(path: Path) -> list[Store]:
    memory: Store = MemoryStore()
    sqlite: Store = SqliteStore(path)
    faulty = FaultyStore(memory)
    RunJournal(faulty)
    return [memory, sqlite]


def errors(journal: RunJournal) -> str:
    try:
        journal.flush()
    except RunJournalError as exc:
        return str(exc)
    return ""


Event(run_id="r", kind="llm.ai.token")  # type: ignore[arg-type]  # a kind that does not exist is a type error
RunJournal("runs.db", synchronous="off")  # type: ignore[arg-type]
