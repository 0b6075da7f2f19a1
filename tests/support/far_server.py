"""A server that several journals reach, on a file that they do not know of: it reports writes, and it can be away.

`FarServer(db).connect()` returns a store for one journal, as a machine of its own would have it.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from langchain_runjournal import errors
from langchain_runjournal.stores.sqlite import SqliteStore

WRITES = {"append", "begin", "withdraw", "request_stop", "claim", "delete", "prune", "restore"}


class FarServer:
    """What all stores of one server share."""

    def __init__(self, db: Path) -> None:
        self.db = db
        self.stores: list[ServedStore] = []

    def connect(self) -> ServedStore:
        store = ServedStore(self)
        self.stores.append(store)
        return store

    def report(self, writer: ServedStore) -> None:
        for store in list(self.stores):
            if store is not writer:
                store.hear()


class ServedStore:
    """A store without a path. `calls` counts its calls, `reads` the reads of each run; `changed` costs no call."""

    def __init__(self, server: FarServer) -> None:
        self.server = server
        self.inner = SqliteStore(server.db)
        self.url = f"far:{server.db.name}"
        self.path = None
        self.store_id = self.inner.store_id
        self.busy_timeout = 5.0
        self.calls: Counter[str] = Counter()
        self.reads: Counter[str] = Counter()
        self.wake: Callable[[], None] = lambda: None
        self.is_deaf = False
        self.waits: list[str] = []
        """The calls that have waited for a server that is away, without those of the writer thread."""
        self._version = 0
        self._counting = threading.Lock()
        self._away: tuple[float, threading.Event, frozenset[str]] | None = None

    def go_away(self, seconds: float = 0.0, *verbs: str) -> None:
        """Have each call, or each of these verbs, wait `seconds` and then fail, as when a cable was cut."""
        with self._counting:
            self._away = seconds, threading.Event(), frozenset(verbs)

    def hurry(self, seconds: float) -> None:
        """Have calls wait no longer than this, also those that wait now."""
        assert self._away is not None
        _, waiting, verbs = self._away
        self.go_away(seconds, *verbs)
        waiting.set()

    def come_back(self) -> None:
        """Answer again; calls that wait fail at once."""
        with self._counting:
            away, self._away = self._away, None
        if away is not None:
            away[1].set()

    def listen(self, wake: Callable[[], None]) -> None:
        self.wake = wake

    def hear(self) -> None:
        self._version += 1
        if not self.is_deaf:
            self.wake()

    def changed(self) -> int:
        return self._version

    def before_fork(self) -> None:
        self.inner.before_fork()

    def after_fork(self, *, child: bool) -> None:
        self.inner.after_fork(child=child)

    def close(self) -> None:
        if self in self.server.stores:
            self.server.stores.remove(self)
        self.inner.close()

    def __getattr__(self, name: str) -> Any:
        inner = getattr(self.inner, name)

        def verb(*args: Any, **kwargs: Any) -> Any:
            with self._counting:  # so a test that has seen the call knows that it meets the outage, or does not
                self.calls[name] += 1
                away = self._away
            if name == "read":
                self.reads[args[0]] += 1
            if away is not None and (not away[2] or name in away[2]):
                if threading.current_thread().name != "runjournal-writer":
                    self.waits.append(name)
                away[1].wait(away[0])
                reason = f"it has not answered within {away[0]:g} s"
                raise errors.StoreUnreachable(path=self.url, reason=reason, hint="Start the server")
            found = inner(*args, **kwargs)
            if name in WRITES:
                self.server.report(self)
            return found

        return verb
