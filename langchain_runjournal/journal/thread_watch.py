"""The watch over threads: which runs have begun, in whatever process, and who waits for that.

Rule: one look asks the store for all runs that began since the last look, whatever the number of followers, and wakes only
the followers of the threads of these runs. A follower begins to listen before it looks for itself: what it does not see then
appears after that, and so in a later look of the watch.
"""

from __future__ import annotations

import time
from typing import Final, Protocol

from ..stores import Begun, Store
from .run_buffer import Waiter

LOOK_FOR_RUNS: Final = 0.05
"""The least seconds between two looks for runs that have begun."""
_MOST: Final = 1_000
"""The number of runs that one look takes for news. If more have begun, it wakes all followers."""
_AGAIN: Final = 10.0
"""The seconds for which runs that a server has shown are asked for again: a run of another thread that began a moment before
them may appear behind them."""


class ThreadListener(Waiter, Protocol):
    """A waiter for runs that begin on a thread."""

    has_thread_news: bool
    """Whether a run may have begun. The watch sets it before it wakes the waiter."""


class ThreadWatch:
    """The followers of threads that wait in one journal. The writer thread looks; other threads add and remove listeners."""

    def __init__(self, store: Store, *, is_shared: bool) -> None:
        """`is_shared`: several machines write the store, so that runs of two threads may appear out of order."""
        self.listeners: dict[ThreadListener, str] = {}
        """The followers that wait, each with its thread."""
        self.has_news = False
        """Whether this journal itself has begun runs since the last look."""
        self._store = store
        self._again = _AGAIN if is_shared else 0.0
        self._after: int | None = None
        self._recent: dict[str, tuple[int, float]] = {}

    def look(self) -> None:
        """Wake the followers of threads on which a run has begun. Raises what the store raises."""
        listeners = list(self.listeners.items())
        self.has_news = False
        fresh = self._fresh()
        threads = None if fresh is None else {run.thread_id for run in fresh}
        for waiter, thread_id in listeners:
            if threads is None or thread_id in threads:
                waiter.has_thread_news = True
                waiter.wake()

    def wake_all(self) -> None:
        """Wake all followers: the journal closes, and each of them says so."""
        for waiter in list(self.listeners):
            waiter.has_thread_news = True
            waiter.wake()

    def _fresh(self) -> list[Begun] | None:
        """Return the runs that have begun since the last look; None if that is not known."""
        found = [] if self._after is None else self._store.began(self._after, thread_id=None, limit=_MOST)
        if self._after is None or len(found) == _MOST:
            newest = self._store.began(None, thread_id=None, limit=1)
            self._after = newest[0].number if newest else 0
            self._recent.clear()
            return None
        now = time.monotonic()
        fresh = [run for run in found if run.run_id not in self._recent]
        self._recent.update((run.run_id, (run.number, now)) for run in fresh)
        for run_id, (number, seen) in sorted(self._recent.items(), key=lambda item: item[1]):
            if now - seen < self._again:
                break
            self._after = number
            del self._recent[run_id]
        return fresh
