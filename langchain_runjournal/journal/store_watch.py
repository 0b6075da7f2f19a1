"""The watch over what other writers store: stop requests for the runs of this journal, and news of followed runs.

Rule: look when the store has changed, and then not again before a pause is over, which is longer for a slow store. So a
hundred writes in a row cost a few looks. A store that reports writes (`stores.Listening`) wakes the writer thread; any other
store is polled. For a store that reports writes, and for many followers, one call asks about all followed runs, and only
followers of a run that has changed are woken: each of them then reads the store.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, Protocol

from ..errors import RunJournalError
from ..stores import Store, StoredRun
from .append import Appender
from .run_buffer import Waiter
from .stop_requests import StopRequests
from .thread_watch import LOOK_FOR_RUNS, ThreadWatch

LOOK_FOR_OTHERS: Final = 0.01
"""The seconds between two looks at a store that does not report writes, while a follower waits."""
_LOOK_FOR_STOPS: Final = 0.05
_LOOK_WHEN_WOKEN: Final = 0.02
"""The least seconds between two looks at followed runs, at a store that reports writes."""
_POLL: Final = 1.0
"""The seconds after which the journal looks although no wake-up came. It is also the longest pause between two looks."""
_MANY: Final = 20
"""The number of followers from which on a store is asked which of their runs have changed, also if reading it is cheap."""
_SHARE: Final = 4
"""A pause is at least this many times as long as the look before it: looks take a fifth of the writer thread at most."""


class Listener(Waiter, Protocol):
    """A waiter for news of a run that another process writes."""

    position: int | None
    """The last event that the waiter has, which needs no wake-up for it. None: wake it after each change of the run."""


class _Look:
    """One thing to look for. These pauses use the real clock: a test has no reason to control them."""

    def __init__(self, store: Store, pause: float, work: Callable[[], None]) -> None:
        self._store = store
        self._pause = pause
        self._work = work
        self._seen = -1
        self._not_before = 0.0

    def look(self) -> None:
        """Look, if the pause is over and the store has changed since the last look. Raises what the store raises."""
        began = time.monotonic()
        if began < self._not_before:
            return
        pause = _POLL  # if the store fails: batches must not wait for the next failure
        try:
            version = self._store.changed()  # before the work: what is written meanwhile makes the next look work again
            if version != self._seen:
                self._work()
                self._seen = version
            pause = min(_POLL, max(self._pause, _SHARE * (time.monotonic() - began)))
        finally:
            self._not_before = time.monotonic() + pause

    def due_in(self) -> float:
        """Return the seconds until the pause is over."""
        return self._not_before - time.monotonic()

    def is_news(self) -> bool:
        """Return whether the store has changed since the last look."""
        return self._store.changed() != self._seen


class StoreWatch:
    """The watch of one journal. The writer thread calls its methods; other threads add and remove listeners."""

    def __init__(self, store: Store, owner_id: str, appender: Appender, stops: StopRequests) -> None:
        self.listeners: dict[Listener, str] = {}
        """The followers of runs that other processes write, each with its run."""
        self.is_woken = hasattr(store, "listen")
        """Whether the store reports writes."""
        self._owner_id = owner_id
        self._appender = appender
        self._stops = stops
        self._store = store
        self._stored: Any = getattr(store, "stored", None)
        self._known: dict[str, StoredRun | None] = {}
        pause = _LOOK_WHEN_WOKEN if self.is_woken else 0.0
        self._for_others = _Look(store, pause, self._wake_followers)
        self.threads = ThreadWatch(store, is_shared=self.is_woken)
        """The followers of threads that wait for a run."""
        self._for_threads = _Look(store, LOOK_FOR_RUNS, self.threads.look)
        self._for_stops = _Look(store, _LOOK_FOR_STOPS, self._deliver_stops)

    def look(self) -> None:
        """Look for whatever is due. Raises `RunJournalError` if the store fails, after both looks were tried."""
        failure: RunJournalError | None = None
        own = [self.threads.look] if self.threads.has_news and self.threads.listeners else []
        for look in (*own, *(one.look for one in self._wanted())):
            try:
                look()
            except RunJournalError as exc:
                failure = exc
        if failure is not None:
            raise failure

    def patience(self) -> float:
        """Return how many seconds there are until the next look."""
        if self.listeners and not self.is_woken:
            return LOOK_FOR_OTHERS
        wanted = self._wanted()
        if self.threads.listeners and not self.is_woken:
            return LOOK_FOR_RUNS
        return min((one.due_in() if not self.is_woken or one.is_news() else _POLL for one in wanted), default=float("inf"))

    def _wanted(self) -> list[_Look]:
        followers = [self._for_others] * bool(self.listeners) + [self._for_threads] * bool(self.threads.listeners)
        return followers + [self._for_stops] * self._appender.live

    def _wake_followers(self) -> None:
        listeners = list(self.listeners.items())
        if self._stored is None or not (self.is_woken or len(listeners) >= _MANY):
            for waiter, _ in listeners:
                waiter.wake()
            self._known = {}
            return
        run_ids = {run_id for _, run_id in listeners}
        found = self._stored(run_ids)
        now = {run_id: found.get(run_id) for run_id in run_ids}
        for waiter, run_id in listeners:
            there, position = now[run_id], waiter.position
            if position is not None and there is not None:
                is_news = there.last > position
            else:
                # A run that was not followed at the last look may have changed before it.
                is_news = run_id not in self._known or self._known[run_id] != there
            if is_news:
                waiter.wake()
        self._known = now

    def _deliver_stops(self) -> None:
        for run_id, cause in self._store.stops(self._owner_id).items():
            self._stops.deliver(run_id, cause)
