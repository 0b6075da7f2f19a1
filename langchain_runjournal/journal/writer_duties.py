"""The duties of the writer thread besides storing events: heartbeats, stop requests, dead owners, followers, and errands.

An errand is a function that another thread hands to the writer thread.

Rule: only the writer thread calls `do` and `run_errands`. Other threads add listeners and errands.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from ..common.clock import Clock
from ..errors import RunJournalError
from ..stores import Owner, Store
from .append import Appender
from .dead_owners import DeadOwners
from .run_buffer import Waiter
from .spool_watch import SpoolWatch
from .stop_requests import StopRequests
from .wake_signal import WakeSignal

logger = logging.getLogger("langchain_runjournal")

_LOOK_FOR_STOPS: Final = 0.05
LOOK_FOR_OTHERS: Final = 0.01


class Duties:
    """The duties of one journal."""

    def __init__(
        self,
        store: Store,
        owner: Owner,
        clock: Clock,
        appender: Appender,
        dead_owners: DeadOwners,
        stops: StopRequests,
        bell: WakeSignal,
    ) -> None:
        self.owner = owner
        """This journal as an owner, with its last heartbeat."""
        self.watch = SpoolWatch(appender, self.beat, store.url)
        self.listeners: set[Waiter] = set()
        """The followers of runs that other processes write. The writer thread wakes them when the store has changed."""
        self.errands: deque[Callable[[], None]] = deque()
        """Functions that other threads want the writer thread to call, because they may block."""
        self._store = store
        self._clock = clock
        self._appender = appender
        self._dead_owners = dead_owners
        self._stops = stops
        self._bell = bell
        self._seen_for_stops = self._seen_for_others = -1
        now = clock.monotonic()
        self._due_beat = now + owner.lease / 3
        self._due_stops = now

    def give(self, errand: Callable[[], None]) -> None:
        """Have the writer thread call a function soon. This method does no I/O and does not wait."""
        self.errands.append(errand)
        self._bell.ring()

    def patience(self) -> float:
        """Return how many seconds there are until the next duty; less than 0 if one is due."""
        if self.listeners:
            return LOOK_FOR_OTHERS
        due = self._due_beat
        if self._appender.live:
            due = min(due, self._due_stops)
        return due - self._clock.monotonic()

    def do(self) -> None:
        """Do what is due. If the store fails, log the error."""
        self.run_errands()
        try:
            self._do_what_is_due()
        except RunJournalError as exc:
            # The store is locked or full. The next attempt to store events fails as well, and the barriers raise its error.
            logger.warning("postponing the background duties of the journal writer of %s: %s", self._store.url, exc)

    def _do_what_is_due(self) -> None:
        now = self._clock.monotonic()
        if self.listeners:
            self._look_for_others()
        if now >= self._due_stops:
            self._due_stops = now + _LOOK_FOR_STOPS
            self._look_for_stops()
        if now >= self._due_beat:
            self._due_beat = now + self.owner.lease / 3
            self.watch.look(again=True)
            self.beat()
            self._dead_owners.import_spools()
            # Text that the store has must not stay in a spool file for long: another process may delete its run.
            self._appender.rotate_spool(only_if_ready=True)
            if self._appender.spool is not None:
                self._appender.spool.release()

    def run_errands(self) -> None:
        """Call the functions that other threads have handed over."""
        while self.errands:
            try:
                self.errands.popleft()()
            except Exception:
                logger.exception("a task of the journal writer of %s failed; a follower polls instead", self._store.url)

    def _look_for_others(self) -> None:
        version = self._store.changed()
        if version != self._seen_for_others:
            self._seen_for_others = version
            for waiter in list(self.listeners):
                waiter.wake()

    def _look_for_stops(self) -> None:
        version = self._store.changed()
        if version == self._seen_for_stops:
            return
        self._seen_for_stops = version
        for run_id, cause in self._store.stops(self.owner.owner_id).items():
            self._stops.deliver(run_id, cause)

    def beat(self) -> None:
        """Store one heartbeat."""
        self.owner = replace(self.owner, beats=self.owner.beats + 1)
        self._store.beat(self.owner)
