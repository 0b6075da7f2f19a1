"""The blocking reader: one connection of a store that waits for the writes of others.

Rule: no method of a store waits for this thread. It reads a stream and not a channel: each write has an entry there, so the
reader misses no write while it is slow. After each new connection it reports a change, because it cannot know.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from ...errors import RunJournalError
from .server import Server, Wire, exchange

logger = logging.getLogger("langchain_runjournal")

_BLOCK: Final = 2.0
"""Seconds for which the server holds one answer back. A cable that was cut is noticed that much later than elsewhere."""
_MANY: Final = 500
"""Entries at once from which on others may have been trimmed before they were read."""
_REST: Final = 0.005
"""Seconds between two wake-ups: many writes in a short time need only one."""
_RETRY: Final = 0.1
_RETRY_MOST: Final = 5.0
_POLL: Final = 1.0


class Changes:
    """The number of changes that other writers have made, as far as this process knows."""

    def __init__(self, server: Server, key: bytes, who: bytes) -> None:
        self._server = server
        self._key = key
        self._who = who
        self._number = 0
        self._newest = b"0-0"
        self._wake: Callable[[], None] | None = None
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._wire: Wire | None = None
        self._failing = False
        self._polled = 0.0

    def number(self) -> int:
        """Return a number that is another one after a write of another writer. The first call starts the thread."""
        if self._thread is None:
            self._start()
        if self._failing and time.monotonic() - self._polled > _POLL:
            self._poll()
        return self._number

    def listen(self, wake: Callable[[], None]) -> None:
        """Call `wake` after each change."""
        self._wake = wake
        self.number()

    def close(self) -> None:
        """End the thread."""
        self._stop.set()
        with self._lock:
            thread, wire = self._thread, self._wire
        if wire is not None:
            wire.disconnect()
        if thread is not None and thread is not threading.current_thread():
            thread.join(_BLOCK + self._server.settings.busy_timeout)

    def _start(self) -> None:
        with self._lock:
            if self._thread is None and not self._stop.is_set():
                thread = threading.Thread(target=self._run, name="runjournal-redis-reader", daemon=True)
                thread.start()
                self._thread = thread

    def _run(self) -> None:
        retry = _RETRY
        while not self._stop.is_set():
            began = time.monotonic()
            try:
                self._read()
            except Exception as exc:  # noqa: BLE001 - the thread must not end while the store is open
                if self._stop.is_set():
                    break
                retry = _RETRY if time.monotonic() - began > _RETRY_MOST else min(_RETRY_MOST, 2 * retry)
                self._note_failure(exc)
            self._disconnect()
            self._stop.wait(retry)
        self._disconnect()

    def _read(self) -> None:
        """Read until the connection fails, or the store is closed."""
        wire = self._server.connect(longer=_BLOCK)
        with self._lock:
            self._wire = wire
        self._newest = self._newest_of(exchange(wire, [self._look()]))
        self._changed()
        block = round(_BLOCK * 1000)
        while not self._stop.is_set():
            [answer] = exchange(wire, [(b"XREAD", b"BLOCK", block, b"STREAMS", self._key, self._newest)])
            if self._failing:
                self._failing = False
                logger.info("listening to %s again", self._server.settings.url)
            if answer is None:
                # The server was emptied, and its clock set back: the new entries are older than the one that was seen last.
                newest = self._newest_of(exchange(wire, [self._look()]))
                if newest != self._newest:
                    self._newest = newest
                    self._changed()
                continue
            entries = answer[0][1]
            self._newest = entries[-1][0]
            if len(entries) >= _MANY or any(fields[1] != self._who for _, fields in entries):
                self._changed()
                self._stop.wait(_REST)

    def _look(self) -> tuple[Any, ...]:
        return (b"XREVRANGE", self._key, b"+", b"-", b"COUNT", 1)

    def _newest_of(self, answers: list[Any]) -> bytes:
        [entries] = answers
        return bytes(entries[0][0]) if entries else b"0-0"

    def _changed(self) -> None:
        self._number += 1
        if self._wake is not None:
            self._wake()

    def _poll(self) -> None:
        self._polled = time.monotonic()
        try:
            newest = self._newest_of([self._server.call(*self._look())])
        except RunJournalError:
            return  # the reader has said that the server cannot be reached
        if newest != self._newest:
            self._newest = newest
            self._number += 1

    def _note_failure(self, exc: Exception) -> None:
        if not self._failing:
            reason = self._server.failure(exc)
            logger.warning("cannot listen to %s, polling once a second instead: %s", self._server.settings.url, reason)
        self._failing = True

    def _disconnect(self) -> None:
        with self._lock:
            wire, self._wire = self._wire, None
        if wire is not None:
            wire.disconnect()
