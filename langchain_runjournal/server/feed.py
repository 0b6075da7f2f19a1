"""The feed of a run: its frames in batches, from a cursor on, and live.

Rule: live and replay are the same code. A feed follows the journal, passes each event through the projector of its run, and
leaves out the frames that the reader has. So what a reader gets after it has come back is, byte for byte, what it would have
got had it stayed.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from ..errors import RunNotFound
from ..events import Event, Run, RunStatus
from ..journal.core import core_of
from ..journal.follow_pages import afollow_pages
from .cursor import Place
from .dialects import BlockProjector, Control, Dialect
from .frames import Frame, control, number

if TYPE_CHECKING:
    from ..journal.run_journal import RunJournal

_KIND: Final = attrgetter("kind")
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


class RunFeed:
    """One run for one reader. `in_thread`: other runs follow, so a dead owner does not end the feed."""

    def __init__(self, journal: RunJournal, run: Run, place: Place, view: View, *, in_thread: bool = False) -> None:
        self._journal = journal
        self._run_id = run.run_id
        self._place = place
        self._view = view
        self._projector = view.dialect.projector(run)
        self._in_thread = in_thread
        self._last = 0 if view.dialect.folds else place.after
        self._is_paused = run.status == RunStatus.PAUSED and not view.dialect.folds and place.is_tip
        self._look_at = 0.0
        self.is_abandoned = False
        """Whether the owner of the run is dead, and no process has settled the run yet."""

    async def batches(self) -> AsyncGenerator[Batch, None]:
        """Yield the batches. The generator ends when the stream does."""
        if self._place.reset is not None:
            yield self._control("reset", self._place.reset)
        try:
            async with aclosing(self._follow()) as batches:
                async for batch in batches:
                    yield batch
        except RunNotFound:
            return  # deleted meanwhile: a reader that comes back is told so

    async def _follow(self) -> AsyncGenerator[Batch, None]:
        async with aclosing(afollow_pages(self._journal, self._run_id, self._last, self._view.tick)) as pages:
            async for events in pages:
                if events:
                    if frames := self._frames(events):
                        yield frames
                    continue
                if self._is_paused and not self._view.dialect.holds:
                    if paused := self._control("paused"):
                        yield paused
                    return
                yield ()
                if self._may_be_abandoned() and await self._is_abandoned():
                    left = self._frames(await self._journal.aread(self._run_id, self._last))
                    yield [*left, *self._control("interrupted")]
                    if not self._in_thread:
                        return
        if over := self._control("over"):
            yield over

    def _control(self, what: Control, detail: str | None = None) -> Batch:
        return control(self._projector.control(what, detail))

    def _frames(self, events: Sequence[Event]) -> Batch:
        """Return the frames of events that the reader does not have."""
        fresh = events if not events or events[0].seq > self._last else [one for one in events if one.seq > self._last]
        if not fresh:
            return ()
        self._last = fresh[-1].seq
        marks = [kind for kind in map(_KIND, fresh) if kind == "run.pause" or kind == "run.end"]
        self._is_paused = marks[-1] == "run.pause" if marks else self._is_paused
        if isinstance(self._projector, BlockProjector):
            return self._projector.block(fresh, merge=self._view.merge)
        return self._folded(fresh)

    def _folded(self, fresh: Sequence[Event]) -> list[Frame]:
        found: list[Frame] = []
        for event in fresh:
            # A folding projector sees all events, also those whose frames the reader has.
            frames = number(event.run_id, event.seq, self._projector.event(event))
            if event.seq == self._place.after + 1:
                frames = frames[min(self._place.frame, max(0, len(frames) - 1)) :]
            if event.seq > self._place.after:
                found += frames
        return found

    def _may_be_abandoned(self) -> bool:
        """Return whether it is time to look at the owner: at the first wait, and then each tick at most."""
        buffer = core_of(self._journal).appender.buffers.get(self._run_id)
        is_ours = buffer is not None and not buffer.shut
        now = time.monotonic()
        if is_ours or self._is_paused or self.is_abandoned or now < self._look_at:
            return False
        self._look_at = now + self._view.tick
        return True

    async def _is_abandoned(self) -> bool:
        self.is_abandoned = await core_of(self._journal).off_loop(partial(owner_is_gone, self._journal, self._run_id))
        return self.is_abandoned


def owner_is_gone(journal: RunJournal, run_id: str) -> bool:
    """Return whether a run is running, by the store, and its owner is dead. Import the spool of that owner first.

    Blocks for as long as the store takes.
    """
    run = journal.run(run_id)
    if run.status != RunStatus.RUNNING or not core_of(journal).dead_owners.owner_is_gone(run):
        return False
    return journal.run(run_id).status == RunStatus.RUNNING
