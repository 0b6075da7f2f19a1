"""The runs that this process works on in tasks of their own: `runs/` registers them, and the journal stops and awaits them.

Rule: the journal does not know how such a run works. It knows on which thread the run's event loop is, when the run is
over, and how to ask the run to stop.
"""

from __future__ import annotations

import concurrent.futures
import logging
import threading
import time
from typing import Any, Final, Protocol

from ..common.twins import Effects, wait_for
from ..events import Run

logger = logging.getLogger("langchain_runjournal")

_SETTLING: Final = 30.0
"""Seconds that a shutdown gives to settlements, once the grace of all runs is over."""
_NOT_OVER: Final = (
    "closing the journal %s while run %s is still running: the next message of its thread settles the run, or"
    " RunJournal.recover. Await aclose() on the event loop of the run, before that loop ends"
)


class LocalRun(Protocol):
    """A run in a task of its own."""

    run_id: str
    thread: int
    """The thread of its event loop. A caller that blocks that thread until the run is over waits for ever."""
    grace: float
    """Seconds that it gets to end when it is stopped."""
    done: concurrent.futures.Future[Run]
    """Has the run when it is over, settled and durable."""

    def ask(self, cause: str) -> None:
        """Ask it to stop, from any thread. The first cause stays."""


class LocalRuns:
    """The runs of one journal in tasks of their own, until they are over, by the integers of their ids."""

    def __init__(self) -> None:
        self.after_fork()

    def after_fork(self) -> None:
        """In a child: all of them are the parent's, and another thread of the parent may hold the lock."""
        # Reentrant: the garbage collector may close a journal in the middle of a method, on the same thread.
        self._lock = threading.RLock()
        self._runs: dict[int, LocalRun] = {}
        self.is_closing = False
        """Whether the journal is being closed: no run begins any more."""

    def __len__(self) -> int:
        return len(self._runs)

    def register(self, key: int, run: LocalRun) -> bool:
        """Add a run that begins. Return False if it may not, since the journal is being closed."""
        with self._lock:
            if not self.is_closing:
                self._runs[key] = run
            return not self.is_closing

    def remove(self, key: int) -> None:
        """Remove a run that is over."""
        self._runs.pop(key, None)

    def get(self, key: int) -> Any:
        """Return the run with this key, or None. `capture` asks, and knows more of it than its protocol here says."""
        return self._runs.get(key)

    def named(self, run_id: str) -> LocalRun | None:
        """Return the run with this id, or None."""
        return next((one for one in list(self._runs.values()) if one.run_id == run_id), None)

    def begin_to_close(self) -> list[LocalRun]:
        """Let no run begin any more, and return those that have begun."""
        with self._lock:
            self.is_closing = True
            return list(self._runs.values())


def shut_down(runs: LocalRuns, url: str) -> Effects[None]:
    """Stop all runs that this process has started, and wait until they are settled."""
    going = runs.begin_to_close()
    for one in going:
        one.ask("shutdown")
    give_up = time.monotonic() + max((one.grace for one in going), default=0.0) + _SETTLING
    for one in going:
        if not (yield wait_for(one, max(0.0, give_up - time.monotonic()))):
            logger.error(_NOT_OVER, url, one.run_id)
