"""The feed of a thread: the rest of the run of the cursor, then every later run, then what comes live. It has no end.

A run that began and ended while no reader looked is read like any other.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Final

from ..events import Run
from ..journal.core import core_of
from .cursor import Place
from .feed import Batch, RunFeed, View
from .frames import control

if TYPE_CHECKING:
    from ..journal.run_journal import RunJournal

_LOOK_EVERY: Final = 0.25
"""Seconds between two looks for a new run of a thread on which none is running."""
_LISTED: Final = (1, 20, 400, None)
"""How many runs of a thread are listed to find the one behind a given run, which is usually among the last."""


class ThreadFeed:
    """One thread for one reader."""

    def __init__(self, journal: RunJournal, thread_id: str, run: Run | None, place: Place, view: View) -> None:
        """`run`, `place`: where to begin. Without a run: at the first run of the thread."""
        self._journal = journal
        self._thread_id = thread_id
        self._run = run
        self._place = place
        self._view = view
        self.is_abandoned = False
        """Whether the owner of the present run is dead, and no process has settled the run yet."""

    async def batches(self) -> AsyncGenerator[Batch, None]:
        """Yield the batches, without an end."""
        place, run, before = self._place, self._run, None
        if place.reset is not None:
            blank = Run(run_id="", thread_id=self._thread_id)
            yield control(self._view.dialect.projector(blank).control("reset", place.reset))
            place = Place()
        if run is not None and run.ended and place.is_tip:
            before, run, place = run, None, Place()
        while True:
            if run is None:
                run = await self._look_behind(before)
            if run is None:
                yield ()
                await asyncio.sleep(min(_LOOK_EVERY, self._view.tick))
                continue
            async with aclosing(self._of_run(run, place)) as batches:
                async for batch in batches:
                    yield batch
            place, before, run = Place(), run, None

    async def _of_run(self, run: Run, place: Place) -> AsyncGenerator[Batch, None]:
        feed = RunFeed(self._journal, run, place, self._view, in_thread=True)
        async with aclosing(feed.batches()) as batches:
            async for batch in batches:
                yield batch
                self.is_abandoned = feed.is_abandoned
                if feed.is_abandoned and not batch and await self._look_behind(run) is not None:
                    break  # the conversation has gone on without that run
        self.is_abandoned = False

    async def _look_behind(self, run: Run | None) -> Run | None:
        return await core_of(self._journal).off_loop(partial(run_behind, self._journal, self._thread_id, run))


def run_behind(journal: RunJournal, thread_id: str, run: Run | None) -> Run | None:
    """Return the run of a thread that began next after a run, or its first one. Block for as long as the store takes."""
    for limit in _LISTED if run is not None else (None,):
        runs = journal.runs(thread_id, None, limit)
        if run is None:
            return runs[-1] if runs else None
        behind: Run | None = None
        for one in runs:
            if one.run_id == run.run_id:
                return behind
            behind = one
        if limit is None or len(runs) < limit:
            # The run was deleted: go on by the clock.
            return next((one for one in reversed(runs) if one.started_at > run.started_at), None)
    return None
