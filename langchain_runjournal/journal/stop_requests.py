"""The stop requests for the runs of one journal. Each run gets the first request only, from this or another process."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from ..errors import RunFenced
from ..events import Event
from .append import Appender

_MOST_EARLY: Final = 1_000
_CLAIMED: Final = "crash"

logger = logging.getLogger("langchain_runjournal")


class StopRequests:
    """The stop callbacks of one journal, and the requests that came before their run."""

    def __init__(self, appender: Appender) -> None:
        self._appender = appender
        self._lock = threading.Lock()
        self._callbacks: dict[str, list[Callable[[str], object]]] = {}
        self._early: dict[str, str] = {}

    def requested(self, run_id: str) -> str | None:
        """Return the cause of the stop request of a run, or None. Return None also for a run that we do not own."""
        buffer = self._appender.buffer_of(run_id)
        return buffer.stop if buffer is not None else None

    def add(self, run_id: str, callback: Callable[[str], object]) -> Callable[[], None]:
        """Call `callback` once, at once if the request has come already. Return a function that removes it."""
        with self._lock:
            self._callbacks.setdefault(run_id, []).append(callback)
        early = self._early.pop(run_id, None)
        if early is not None:
            self.deliver(run_id, early)
        # Check for a request after adding the callback. In a race, the request then finds the callback, or this check finds
        # the request.
        cause = self.requested(run_id) or self._lost(run_id)
        if cause is not None:
            self._call(run_id, cause)

        def remove() -> None:
            with self._lock:
                callbacks = self._callbacks.get(run_id, [])
                if callback in callbacks:
                    callbacks.remove(callback)
                if not callbacks:
                    self._callbacks.pop(run_id, None)

        return remove

    def deliver(self, run_id: str, cause: str) -> None:
        """Deliver a request: append `run.stop` and call the callbacks. After the first request of a run, do nothing."""
        buffer = self._appender.buffer_of(run_id)
        if buffer is None:
            # `start_run` has admitted the run to its thread, and the run has not appended its first event yet.
            self._early[run_id] = cause
            while len(self._early) > _MOST_EARLY:
                self._early.pop(next(iter(self._early)))
        if buffer is None or buffer.shut or buffer.ended:
            return
        with self._lock:
            first, buffer.stop = buffer.stop is None, buffer.stop or cause
        if first:
            self._appender.append(Event(run_id=run_id, kind="run.stop", data={"cause": cause}))
            self._call(run_id, cause)

    def taken_over(self, run_id: str) -> None:
        """Stop the work on a run that another journal has claimed: what it would still do is recorded nowhere.

        That journal took this one for dead, and has settled the run with the cause "crash".
        """
        if run_id not in self._appender.deleted_runs:
            self._call(run_id, _CLAIMED)

    def _lost(self, run_id: str) -> str | None:
        buffer = self._appender.buffer_of(run_id)
        return _CLAIMED if buffer is not None and isinstance(buffer.shut, RunFenced) else None

    def _call(self, run_id: str, cause: str) -> None:
        with self._lock:
            callbacks = self._callbacks.pop(run_id, [])
        for callback in callbacks:
            try:
                callback(cause)
            except BaseException as exc:
                # Also `SystemExit` and `CancelledError`: they must not end the writer thread, on which this may run.
                logger.exception("a stop callback of run %s failed", run_id)
                if isinstance(exc, KeyboardInterrupt):
                    raise
