"""Stop requests for the runs of this journal: noticed once, from whatever side they come."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from ..events import Event
from .append import Appender

_MOST_EARLY: Final = 1_000

logger = logging.getLogger("langchain_runjournal")


class Stops:
    """Who wants to be told when somebody asks a run of this journal to stop."""

    def __init__(self, appender: Appender) -> None:
        self._appender = appender
        self._lock = threading.Lock()
        self._callbacks: dict[str, list[Callable[[str], object]]] = {}
        self._early: dict[str, str] = {}

    def requested(self, run_id: str) -> str | None:
        """The cause, if the run is ours and was asked to stop."""
        buffer = self._appender.buffers.get(run_id)
        return buffer.stop if buffer is not None else None

    def add(self, run_id: str, callback: Callable[[str], object]) -> Callable[[], None]:
        """Call it once, at once if the request is there already. Returns what takes it back."""
        with self._lock:
            self._callbacks.setdefault(run_id, []).append(callback)
        early = self._early.pop(run_id, None)
        if early is not None:
            self.deliver(run_id, early)
        # Looked at after it was added: a request in between would find either the one or the other.
        cause = self.requested(run_id)
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
        """A request has come. The first one is journaled and told; any other is the same as the first."""
        buffer = self._appender.buffers.get(run_id)
        if buffer is None:
            # It has its place on its thread, and has not said its first word.
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

    def _call(self, run_id: str, cause: str) -> None:
        with self._lock:
            callbacks = self._callbacks.pop(run_id, [])
        for callback in callbacks:
            try:
                callback(cause)
            except BaseException as exc:
                # Also a sys.exit() or a cancellation: it is not for the thread of the journal, in which this may be.
                logger.exception("a stop callback of run %s failed", run_id)
                if isinstance(exc, KeyboardInterrupt):
                    raise
