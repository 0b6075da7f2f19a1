"""A wake-up signal: any thread can wake one thread that sleeps."""

from __future__ import annotations

import contextlib
import threading


class WakeSignal:
    """A wake-up signal for one sleeping thread. Several calls of `ring` before a `wait` count as one."""

    def __init__(self) -> None:
        # A bare lock, which is held while there is nothing new. `threading.Event.set` takes a lock that the sleeper may
        # hold: a thread that appends would have to wait for that lock, and then for the GIL.
        self._nothing_new = threading.Lock()
        self._nothing_new.acquire()

    def ring(self) -> None:
        """Wake the sleeper, or make its next `wait` return at once. This method does no I/O and does not wait."""
        with contextlib.suppress(RuntimeError):  # the bell has been rung already
            self._nothing_new.release()

    def wait(self, longest: float) -> bool:
        """Sleep until another thread calls `ring`, at most `longest` seconds. Return whether one did."""
        return self._nothing_new.acquire(timeout=longest)
