"""The feed of a run: its frames in batches, from a cursor on, and live.

Rule: live and replay are the same code. A feed follows the journal, passes each event through the projector of its run, and
leaves out the frames that the reader has. So what a reader gets after it has come back is, byte for byte, what it would have
got had it stayed.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Protocol

from ..errors import RunNotFound
from ..events import Event, Run, RunStatus
from ..journal.core import core_of
from ..journal.follow_pages import afollow_pages
from .cursor import Place
from .dialects import BlockProjector, Control, Dialect, ThreadProjector
from .frames import Frame, FrameBlock, control, number

if TYPE_CHECKING:
    from ..journal.run_journal import RunJournal

_KIND: Final = attrgetter("kind")
_LARGE: Final = 256
"""The most events of a block that is kept: a longer page is one that few readers get."""
_KEPT: Final = 64
_PORTION: Final = 1 << 16
"""Characters of the events that become frames together, about."""
Batch = Sequence[Frame]
"""Frames that are sent together. An empty batch says that there is nothing to send now."""


class Blocks:
    """The last few small blocks of frames, for the readers of one run that get the same page: each page is encoded once."""

    def __init__(self) -> None:
        self._found: dict[tuple[int, type, bool], tuple[Sequence[Event], FrameBlock]] = {}
        """By the identity of a page, which is kept so that no other list gets that identity."""
        self._last: tuple[Sequence[Event], bool, type, FrameBlock] | None = None

    def of(self, projector: BlockProjector, events: Sequence[Event], *, merge: bool) -> FrameBlock:
        """Return the frames of a page."""
        last = self._last
        if last is not None and last[0] is events and last[1] is merge and last[2] is type(projector):
            return last[3]
        block = self._of(projector, events, merge)
        self._last = (events, merge, type(projector), block) if len(events) <= _LARGE else None
        return block

    def _of(self, projector: BlockProjector, events: Sequence[Event], merge: bool) -> FrameBlock:
        key = id(events), type(projector), merge
        found = self._found.get(key)
        if found is not None and found[0] is events:
            return found[1]
        block = projector.block(events, merge=merge)
        if len(events) <= _LARGE:
            self._found[key] = events, block
            if len(self._found) > _KEPT:
                del self._found[next(iter(self._found))]
        return block


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """How a reader sees runs."""

    dialect: Dialect
    merge: bool = False
    """Whether adjacent deltas of a call become one frame. A dialect that folds ignores this."""
    tick: float = 5.0
    """The seconds without news after which a feed yields an empty batch."""
    blocks: Blocks = field(default_factory=Blocks)
    """What the readers of one application share."""


class Direct(Protocol):
    """A connection that takes frames at once, while it has nothing else to send."""

    def is_ready(self) -> bool:
        """Return whether frames may be written now, without waiting for the reader."""
        ...

    def write(self, body: bytes) -> None:
        """Write the bytes of whole frames."""
        ...


class RunFrames:
    """The frames of one run that a reader does not have."""

    def __init__(self, run: Run, place: Place, view: View) -> None:
        self.run_id = run.run_id
        self.last = 0 if view.dialect.folds else place.after
        """The last event that was passed on."""
        self.is_paused = run.status == RunStatus.PAUSED and place.is_tip
        self.is_over = run.ended and place.is_tip
        self._place = place
        self._view = view
        self._projector = view.dialect.projector(run)
        self._by_blocks = self._projector if isinstance(self._projector, BlockProjector) else None

    def control(self, what: Control, detail: str | None = None) -> Batch:
        """Return the frames of a control."""
        return control(self._projector.control(what, detail))

    async def ending(self, what: Control) -> Batch:
        """Return the frames with which the stream ends."""
        if isinstance(self._projector, ThreadProjector):
            await self._projector.before(what)
        return self.control(what)

    def of(self, events: Sequence[Event]) -> Batch:
        """Return the frames of events that the reader does not have."""
        fresh = events if not events or events[0].seq > self.last else [one for one in events if one.seq > self.last]
        if not fresh:
            return ()
        self.last = fresh[-1].seq
        marks = [kind for kind in map(_KIND, fresh) if kind == "run.pause" or kind == "run.end"]
        if marks:
            self.is_paused, self.is_over = marks[-1] == "run.pause", marks[-1] == "run.end"
        if self._by_blocks is None:
            return self._folded(fresh)
        return self._view.blocks.of(self._by_blocks, fresh, merge=self._view.merge)

    def give(self, events: Sequence[Event], direct: Direct | None) -> bool:
        """Write the frames of a page of plain events to a connection that is ready. Return whether that was done.

        A dialect that folds may fail, so it takes the longer way.
        """
        first = events[0]
        if direct is None or self._by_blocks is None or first.run_id != self.run_id or first.seq <= self.last:
            return False
        if not direct.is_ready():
            return False
        direct.write(self._view.blocks.of(self._by_blocks, events, merge=self._view.merge).encode())
        self.last = events[-1].seq
        return True

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


def portions(events: Sequence[Event]) -> Iterator[Sequence[Event]]:
    """Yield the events in slices of a bounded size: for a reader that does not read, not all of them become frames."""
    begin = size = 0
    for at, event in enumerate(events, 1):
        size += _size(event.bare)
        if size >= _PORTION:
            yield events[begin:at]
            begin, size = at, 0
    if begin < len(events):
        yield events[begin:] if begin else events  # the same object, by which readers share its frames


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
        buffer = core.appender.buffer_of(run_id)
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
        self.direct: Direct | None = None
        """The connection to which live events are written directly, if it can do that."""

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
        pages = afollow_pages(self._journal, frames.run_id, frames.last, self._view.tick, self._give)
        async with aclosing(pages):
            async for events in pages:
                if events:
                    for portion in portions(events):
                        if found := frames.of(portion):
                            yield found
                    continue
                if frames.is_paused and not self._view.dialect.holds:
                    if paused := await frames.ending("paused"):
                        yield paused
                    return
                yield ()
                if await self._owner.look(frames.run_id, is_paused=frames.is_paused):
                    left = frames.of(await self._journal.aread(frames.run_id, frames.last))
                    yield [*left, *await frames.ending("interrupted")]
                    return
        if over := await frames.ending("over"):
            yield over

    def _give(self, events: Sequence[Event]) -> bool:
        return self._frames.give(events, self.direct)


def owner_is_gone(journal: RunJournal, run_id: str) -> bool:
    """Return whether a run is running, by the store, and its owner is dead. Import the spool of that owner first.

    Blocks for as long as the store takes.
    """
    run = journal.run(run_id)
    if run.status != RunStatus.RUNNING or not core_of(journal).dead_owners.owner_is_gone(run):
        return False
    return journal.run(run_id).status == RunStatus.RUNNING
