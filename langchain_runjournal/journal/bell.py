"""A bell: what wakes one thread that sleeps, from any other one."""

from __future__ import annotations

import contextlib
import threading


class Bell:
    """Rung once or many times, it wakes its one sleeper once."""

    def __init__(self) -> None:
        # A bare lock, held while there is nothing new. An Event takes a lock to be set, which the sleeper may hold: then a
        # thread that appends would have to wait for it, and to win back the GIL after that.
        self._nothing_new = threading.Lock()
        self._nothing_new.acquire()

    def ring(self) -> None:
        """Wake the sleeper, or keep it from sleeping the next time. Costs no I/O and does not wait."""
        with contextlib.suppress(RuntimeError):  # it has been rung already
            self._nothing_new.release()

    def wait(self, longest: float) -> bool:
        """Sleep until it is rung, at most `longest` seconds. Return whether it was."""
        return self._nothing_new.acquire(timeout=longest)
