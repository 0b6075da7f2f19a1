"""The runs of this process that have a task of their own: `runs/` registers them, and the journal stops and awaits them.

Rule: the journal does not know how such a run works. It knows the thread of the run's event loop, when the run is over, and
how to ask the run to stop.
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
"""The seconds that a shutdown gives to settlements after the grace of all runs is over."""
_NOT_OVER: Final = (
    "closing the journal %s while run %s is still running: the next message of its thread settles the run, or"
    " RunJournal.recover. Await aclose() on the event loop of the run, before that loop ends"
)


class LocalRun(Protocol):
    """A run in a task of its own."""

    run_id: str
    thread: int
    """The thread of its event loop. A caller that blocks this thread until the run is over causes a deadlock."""
    grace: float
    """The seconds that the run has to end after a stop request."""
    done: concurrent.futures.Future[Run]
    """The future of the run. It is done when the run is over, settled and durable."""

    def ask(self, cause: str) -> None:
        """Ask the run to stop, from any thread. The first cause stays."""


class LocalRuns:
    """The local runs of one journal until they are over, by the integer of their id."""

    def __init__(self) -> None:
        self.after_fork()

    def after_fork(self) -> None:
        """Begin anew in a forked child: the runs are the parent's, and another thread of the parent may hold the lock."""
        # Reentrant: a finalizer may close a journal while it interrupts a method on the same thread.
        self._lock = threading.RLock()
        self._runs: dict[int, LocalRun] = {}
        self.is_closing = False
        """Whether the journal is being closed, so that no run may begin."""

    def __len__(self) -> int:
        return len(self._runs)

    def register(self, key: int, run: LocalRun) -> bool:
        """Add a run that begins. Return False if the journal is being closed: the run must not begin then."""
        with self._lock:
            if not self.is_closing:
                self._runs[key] = run
            return not self.is_closing

    def remove(self, key: int) -> None:
        """Remove a run that is over."""
        self._runs.pop(key, None)

    def get(self, key: int) -> Any:
        """Return the run with this key, or None. The type is `Any`, because `capture` uses more than the protocol above."""
        return self._runs.get(key)

    def named(self, run_id: str) -> LocalRun | None:
        """Return the run with this id, or None."""
        return next((one for one in list(self._runs.values()) if one.run_id == run_id), None)

    def begin_to_close(self) -> list[LocalRun]:
        """Prevent runs from beginning, and return those that have begun."""
        with self._lock:
            self.is_closing = True
            return list(self._runs.values())


def shut_down(runs: LocalRuns, url: str) -> Effects[None]:
    """Stop all runs that this journal has started, and wait until they are settled."""
    going = runs.begin_to_close()
    for one in going:
        one.ask("shutdown")
    give_up = time.monotonic() + max((one.grace for one in going), default=0.0) + _SETTLING
    for one in going:
        if not (yield wait_for(one, max(0.0, give_up - time.monotonic()))):
            logger.error(_NOT_OVER, url, one.run_id)
