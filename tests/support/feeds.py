"""Feeds of a journal, read without a server; and a dialect that makes several frames of an event, and folds."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from langchain_runjournal import Event, Run, RunJournal
from langchain_runjournal.server.dialects import Control, Dialect, Payload
from langchain_runjournal.server.dialects.native import NATIVE
from langchain_runjournal.server.feed import View
from langchain_runjournal.server.frames import Frame
from langchain_runjournal.server.opening import open_run, open_thread


class _FoldingProjector:
    def __init__(self) -> None:
        self._seen = 0

    def event(self, event: Event) -> Sequence[Payload]:
        self._seen += len(event.text) + 1
        return [Payload(f"{at} of {event.seq} after {self._seen}", event.kind) for at in range(event.seq % 4)]

    def control(self, what: Control, detail: str | None = None) -> Sequence[Payload]:
        return [Payload(f"{what} {detail}", "control")]


@dataclass(frozen=True)
class Folding:
    """A dialect whose frames depend on all events before them: none to three for each event."""

    name: str = "folding"
    has_ids: bool = True
    folds: bool = True
    holds: bool = True
    headers: Mapping[str, str] = field(default_factory=dict)

    def projector(self, run: Run) -> _FoldingProjector:
        return _FoldingProjector()


FOLDING = Folding()


async def batches(
    journal: RunJournal, run_id: str, cursor: str | None = None, dialect: Dialect = NATIVE, **view: Any
) -> AsyncIterator[Sequence[Frame]]:
    """Yield the batches of a run. Fail if the run is over and nothing follows."""
    feed = await open_run(journal, await journal.arun(run_id), cursor, View(dialect=dialect, tick=0.05, **view))
    assert feed is not None
    async with aclosing(feed.batches()) as found:
        async for batch in found:
            yield batch


async def until_wait(found: AsyncIterator[Sequence[Frame]]) -> tuple[list[Frame], bool]:
    """Return the frames until the feed waits for more, and whether it has ended instead."""
    frames: list[Frame] = []
    async for batch in found:
        if not batch:
            return frames, False
        frames += batch
    return frames, True


async def now(
    journal: RunJournal, run_id: str, cursor: str | None = None, dialect: Dialect = NATIVE, **view: Any
) -> tuple[list[Frame], bool] | None:
    """Return what a reader gets now, and whether its stream ends; None for status 204."""
    feed = await open_run(journal, await journal.arun(run_id), cursor, View(dialect=dialect, tick=0.05, **view))
    if feed is None:
        return None
    async with aclosing(feed.batches()) as found:
        return await until_wait(found)


async def thread_now(
    journal: RunJournal, thread_id: str, cursor: str | None = None, dialect: Dialect = NATIVE, **view: Any
) -> list[Frame]:
    """Return what a reader of a thread gets before it waits."""
    feed = await open_thread(journal, thread_id, cursor, View(dialect=dialect, tick=0.05, **view))
    async with aclosing(feed.batches()) as found:
        frames: list[Frame] = []
        waits = 0
        async for batch in found:
            frames += batch
            # Between two runs, a feed waits once without need.
            waits = 0 if batch else waits + 1
            if waits > 1:
                break
        return frames


def sent(frames: Sequence[Frame]) -> bytes:
    """Return frames as bytes."""
    return b"".join(frame.encode() for frame in frames)
