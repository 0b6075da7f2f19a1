"""The feed of a run: its frames in batches, from a cursor on, and live.

Rule: live and replay are the same code. A feed follows the journal, passes each event through the projector of its run, and
leaves out the frames that the reader has. So what a reader gets after it has come back is, byte for byte, what it would have
got had it stayed.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ..errors import RunNotFound
from ..events import Event, Run, RunStatus
from ..journal.core import core_of
from ..journal.follow_pages import afollow_pages
from .cursor import Place
from .dialects import Control, Dialect
from .dialects.native import merged
from .frames import Frame, control, number

if TYPE_CHECKING:
    from ..journal.run_journal import RunJournal

_PORTION: Final = 1 << 18
"""Characters of the events that become frames together, about."""
Batch = Sequence[Frame]
"""Frames that are sent together. An empty batch says that there is nothing to send now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """How a reader sees runs."""

    dialect: Dialect
    merge: bool = False
    """Whether adjacent deltas of a call become one frame. A dialect that folds ignores this."""
    tick: float = 5.0
    """The seconds without news after which a feed yields an empty batch."""


class RunFrames:
    """The frames of one run that a reader does not have."""

    def __init__(self, run: Run, place: Place, view: View) -> None:
        self.run_id = run.run_id
        self.last = 0 if view.dialect.folds else place.after
        """The last event that was passed on."""
        self.is_paused = run.status == RunStatus.PAUSED and place.is_tip
        self.is_over = run.ended and place.is_tip
        self._place = place
        self._merges = view.merge and not view.dialect.folds
        self._projector = view.dialect.projector(run)

    def control(self, what: Control, detail: str | None = None) -> Batch:
        """Return the frames of a control."""
        return control(self._projector.control(what, detail))

    def of(self, events: Sequence[Event]) -> list[Frame]:
        """Return the frames of events that the reader does not have."""
        fresh = [event for event in events if event.seq > self.last]
        if not fresh:
            return []
        self.last = fresh[-1].seq
        marks = [event.kind for event in fresh if event.kind in ("run.pause", "run.end")]
        if marks:
            self.is_paused, self.is_over = marks[-1] == "run.pause", marks[-1] == "run.end"
        found: list[Frame] = []
        for event in merged(fresh) if self._merges else fresh:
            # A folding projector sees all events, also those whose frames the reader has.
            frames = number(event.run_id, event.seq, self._projector.event(event))
            if event.seq == self._place.after + 1:
                frames = frames[min(self._place.frame, max(0, len(frames) - 1)) :]
            if event.seq > self._place.after:
                found += frames
        return found


def portions(events: Sequence[Event]) -> Iterator[Sequence[Event]]:
    """Yield the events in slices of a bounded size: for a reader that does not read, not all of them become frames."""
    begin = size = 0
    for at, event in enumerate(events, 1):
        size += _size(event.bare)
        if size >= _PORTION:
            yield events[begin:at]
            begin, size = at, 0
    if begin < len(events):
        yield events[begin:]


def _size(value: Any) -> int:
    """Return the characters of a JSON value, about."""
    if isinstance(value, str):
        return len(value)
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, (list, tuple)) else ()
    return 8 + sum(map(_size, inner))


class OwnerWatch:
    """Looks whether the owner of a run is dead: when a reader first waits, and then each `tick` seconds at most."""

    def __init__(self, journal: RunJournal, tick: float) -> None:
        self._journal = journal
        self._tick = tick
        self._not_before = 0.0
        self.is_gone = False

    async def look(self, run_id: str, *, is_paused: bool) -> bool:
        """Return True once, when the owner is found to be dead. Its spool was imported then."""
        core = core_of(self._journal)
        buffer = core.appender.buffers.get(run_id)
        is_ours = buffer is not None and not buffer.shut
        now = time.monotonic()
        if is_ours or is_paused or self.is_gone or now < self._not_before:
            return False
        self._not_before = now + self._tick
        self.is_gone = await core.off_loop(partial(owner_is_gone, self._journal, run_id))
        return self.is_gone


class RunFeed:
    """One run for one reader."""

    def __init__(self, journal: RunJournal, run: Run, place: Place, view: View) -> None:
        self._journal = journal
        self._place = place
        self._view = view
        self._frames = RunFrames(run, place, view)
        self._owner = OwnerWatch(journal, view.tick)

    @property
    def is_abandoned(self) -> bool:
        """Whether the owner of the run is dead, and no process has settled the run yet."""
        return self._owner.is_gone

    async def batches(self) -> AsyncGenerator[Batch, None]:
        """Yield the batches. The generator ends when the stream does."""
        if self._place.reset is not None:
            yield self._frames.control("reset", self._place.reset)
        try:
            async with aclosing(self._follow()) as batches:
                async for batch in batches:
                    yield batch
        except RunNotFound:
            return  # deleted meanwhile: a reader that comes back gets a 404

    async def _follow(self) -> AsyncGenerator[Batch, None]:
        frames = self._frames
        pages = afollow_pages(self._journal, frames.run_id, frames.last, self._view.tick)
        async with aclosing(pages):
            async for events in pages:
                if events:
                    for portion in portions(events):
                        if found := frames.of(portion):
                            yield found
                    continue
                if frames.is_paused and not self._view.dialect.holds:
                    if paused := frames.control("paused"):
                        yield paused
                    return
                yield ()
                if await self._owner.look(frames.run_id, is_paused=frames.is_paused):
                    left = frames.of(await self._journal.aread(frames.run_id, frames.last))
                    yield [*left, *frames.control("interrupted")]
                    return
        if over := frames.control("over"):
            yield over


def owner_is_gone(journal: RunJournal, run_id: str) -> bool:
    """Return whether a run is running, by the store, and its owner is dead. Import the spool of that owner first.

    Blocks for as long as the store takes.
    """
    run = journal.run(run_id)
    if run.status != RunStatus.RUNNING or not core_of(journal).dead_owners.owner_is_gone(run):
        return False
    return journal.run(run_id).status == RunStatus.RUNNING
