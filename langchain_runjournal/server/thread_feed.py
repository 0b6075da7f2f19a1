"""The feed of a thread: the rest of the run of the cursor, then every later run, then what comes live. It has no end.

A run that began and ended while no reader looked is read like any other.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING

from ..errors import RunNotFound
from ..events import Run
from ..journal.follow_pages import Page, afollow_thread_pages
from .cursor import Place
from .feed import Batch, Direct, OwnerWatch, RunFrames, View, portions

if TYPE_CHECKING:
    from ..journal.run_journal import RunJournal


class ThreadFeed:
    """One thread for one reader."""

    def __init__(self, journal: RunJournal, thread_id: str, run: Run | None, place: Place, view: View) -> None:
        """`run`, `place`: where to begin. Without a run: at the first run of the thread."""
        self._journal = journal
        self._thread_id = thread_id
        self._view = view
        self._first = run
        self._place = place
        self._frames = RunFrames(run or Run(run_id="", thread_id=thread_id), place, view)
        self._owner = OwnerWatch(journal, view.tick)
        self.direct: Direct | None = None
        """The connection to which live events are written directly, if it can do that."""

    @property
    def is_abandoned(self) -> bool:
        """Whether the owner of the present run is dead, and no process has settled the run yet."""
        return self._owner.is_gone

    async def batches(self) -> AsyncGenerator[Batch, None]:
        """Yield the batches, without an end."""
        if self._place.reset is not None:
            yield self._frames.control("reset", self._place.reset)
        after = None if self._first is None else (self._first.run_id, self._frames.last)
        pages = afollow_thread_pages(self._journal, self._thread_id, after, self._view.tick, self._give)
        async with aclosing(pages):
            async for events in pages:
                if events:
                    await self._enter(events[0].run_id)
                    for portion in portions(events):
                        if found := self._frames.of(portion):
                            yield found
                    if self._frames.is_over and (over := self._frames.control("over")):
                        yield over
                    continue
                yield ()
                run_id = self._frames.run_id
                if run_id and not self._frames.is_over and await self._owner.look(run_id, is_paused=self._frames.is_paused):
                    yield self._frames.control("interrupted")

    def _give(self, events: Page) -> bool:
        return self._frames.give(events, self.direct)

    async def _enter(self, run_id: str) -> None:
        """Begin with the frames of a run, unless they have begun."""
        if run_id == self._frames.run_id:
            return
        try:
            run = await self._journal.arun(run_id)
        except RunNotFound:  # deleted meanwhile
            run = Run(run_id=run_id, thread_id=self._thread_id)
        self._frames = RunFrames(run, Place(), self._view)
        self._owner = OwnerWatch(self._journal, self._view.tick)
