"""The connections of a store to its SQLite file: one writes, up to eight read, one watches; and what a fork does to them.

Rule: each write is one transaction that takes SQLite's write lock at its first statement, and each read is one snapshot. In
WAL mode a reader does not wait for the writer, so readers and the writer have separate locks here, too.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import quote

from ...common import file_access as _file_access
from ...errors import StoreClosed, StoreCorrupt, WouldDeadlock
from ...events.segments import Damaged
from .database_file import connect, prepare, translated
from .file_watch import OpenFiles

_KEPT_READERS: Final = 8

logger = logging.getLogger("langchain_runjournal")


class Connections:
    """One SQLite file, open for reading and writing from any thread."""

    def __init__(self, path: Path, synchronous: str, busy_timeout: float) -> None:
        with translated(path):
            _file_access.check_links(path)
        # Resolved once: the process may change its directory, and two names of one file must mean one journal.
        self.path: Path | None = Path(os.path.realpath(path))
        self._path = self.path
        self.url = f"sqlite:///{quote(self._path.as_posix())}"
        self._synchronous = synchronous
        self.busy_timeout = busy_timeout
        self.store_id, self.exposed = prepare(self._path, busy_timeout)
        with translated(self._path):
            self._files = OpenFiles(self._path)
        self._closed = False
        self._begin()

    def _begin(self) -> None:
        """Set what belongs to one process: at the start, and again in a forked child."""
        self._lock = threading.RLock()
        # A lock of its own for readers, so that they do not wait for a thread that waits for the write lock.
        self._rest_lock = threading.RLock()
        self._at_rest = threading.Condition(self._rest_lock)  # `with` takes the lock: between its lines, no Ctrl-C can come
        self._reading = 0
        self._writer: sqlite3.Connection | None = None
        self._watcher: sqlite3.Connection | None = None
        self._readers: list[sqlite3.Connection] = []
        self._in_transaction = False

    def _forget(self) -> None:
        """Drop what the store remembers of the file: a transaction has failed. For subclasses."""

    def before_fork(self) -> None:
        """Wait until no operation is running, and close the file.

        A child that inherits a lock inside SQLite could never use SQLite again. One that inherits an open database would
        believe, with its own new connections, that it holds the parent's locks on it: when the parent closes the file,
        SQLite would then take the parent for the last process, and delete the -wal file that the child uses.
        """
        patience = 2 * self.busy_timeout
        rested = self._lock.acquire(timeout=patience)
        if not rested:
            logger.warning("the process forks while %s waits for a lock: open a new journal in the child", self.url)
        self._at_rest.acquire()
        self._at_rest.wait_for(lambda: not self._reading, timeout=patience)
        self._close_connections(writer=rested)

    def after_fork(self, *, child: bool) -> None:
        """Release the locks, or replace them in the child; the next operation opens new connections."""
        if child:
            self._begin()
        else:
            self._at_rest.release()
            with contextlib.suppress(RuntimeError):  # `before_fork` timed out before it had this lock
                self._lock.release()

    # --- writing ------------------------------------------------------------------------------------------------------

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Run one transaction that takes the write lock at once: begun as a reader, it could not wait for it later."""
        with self._lock, translated(self._path):
            if self._in_transaction:
                # A signal handler or a finalizer runs in the middle of a transaction of this thread: to continue would be
                # to commit or roll back that transaction.
                raise WouldDeadlock(url=self.url, where="in a signal handler or a finalizer that interrupts a transaction")
            con = self._open_writer()
            try:
                self._in_transaction = True
                con.execute("BEGIN IMMEDIATE")
                yield con
                con.execute("COMMIT")
                self._files.check(con, self._close_readers)
            except BaseException as exc:
                # A failed COMMIT may have committed or not, so what the store remembers may be wrong.
                self._forget()
                if con.in_transaction:
                    con.execute("ROLLBACK")
                if isinstance(exc, Damaged):
                    raise StoreCorrupt(path=str(self._path), reason=str(exc)) from exc
                raise
            finally:
                self._in_transaction = False

    def _close_readers(self) -> bool:
        """Close the connections from which no thread is reading. Return whether those were all."""
        with self._at_rest:
            self._close_connections(writer=False)
            return not self._reading

    def _open_writer(self) -> sqlite3.Connection:
        if self._writer is None:
            self._writer = self._connect()
            self._writer.execute(f"PRAGMA synchronous = {self._synchronous.upper()}")
            # Always, also when rows are only moved: a page that SQLite frees while text is on it keeps a part of that text
            # when SQLite uses the page again. The -wal file gets 8 % larger by that; no slowdown could be measured.
            self._writer.execute("PRAGMA secure_delete = ON")
        return self._writer

    def _connect(self) -> sqlite3.Connection:
        if self._closed:
            raise StoreClosed(url=self.url)
        return connect(self._path, self.busy_timeout)

    # --- reading ------------------------------------------------------------------------------------------------------

    def changed(self) -> int:
        """Return SQLite's own count of what other connections have committed. It takes two microseconds."""
        with self._rest_lock, translated(self._path):
            if self._watcher is None:
                self._watcher = self._connect()
            return int(self._watcher.execute("PRAGMA data_version").fetchone()[0])

    @contextmanager
    def _snapshot(self, about: str = "") -> Iterator[sqlite3.Connection]:
        """Lend a connection with one snapshot of the file. `about` is the beginning of the reason of an error."""
        with translated(self._path, about):
            con = self._borrow()
            try:
                con.execute("BEGIN")
                yield con
            finally:
                if con.in_transaction:
                    con.execute("ROLLBACK")  # of a read, and unlike a COMMIT it does not fail where the file is damaged
                self._give_back(con)

    def _borrow(self) -> sqlite3.Connection:
        with self._rest_lock:
            if self._closed:
                raise StoreClosed(url=self.url)
            con = self._readers.pop() if self._readers else self._connect()
            self._reading += 1
            return con

    def _give_back(self, con: sqlite3.Connection) -> None:
        with self._rest_lock:
            self._reading -= 1
            self._at_rest.notify_all()
            if not self._closed and len(self._readers) < _KEPT_READERS:
                self._readers.append(con)
                return
        con.close()

    # --- the end ------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the file. The last process to close it makes SQLite copy its -wal file into it."""
        with self._lock, self._rest_lock:
            self._closed = True
            self._close_connections()

    def _close_connections(self, *, writer: bool = True) -> None:
        for con in (*self._readers, self._watcher, self._writer if writer else None):
            if con is not None:
                con.close()
        self._readers, self._watcher = [], None
        if writer:
            self._writer = None
            self._files.closed()
