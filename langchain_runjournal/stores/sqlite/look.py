"""A look at a SQLite file that changes no byte of it, of the files beside it, or of its directory.

Rule: SQLite's own read-only mode is not enough. A reader of a file in WAL mode notes in the -shm file what it reads, creates
that file and the -wal file if they are missing, and may delete both when it is the last to close. Two options of SQLite
prevent this. With `readonly_shm`, a reader opens the -shm file for reading; where a killed process left it, SQLite builds
its content in memory. With `immutable`, which is for a file without -shm, SQLite reads the file alone.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final
from urllib.parse import quote

from ...errors import NotADatabase, StoreCorrupt
from ...events import Run
from .database_file import SMALLEST, check_owner, fact, has_content, translated
from .file_watch import OpenFiles
from .listing import Listing
from .owners import Owners

_HAS_INDEX: Final = "SELECT 1 FROM sqlite_master WHERE name = 'runs_to_settle'"


class SqliteLook(Owners, Listing):
    """A SQLite file that exists, read and never written."""

    def __init__(self, path: Path, busy_timeout: float) -> None:
        self.path = self._path = Path(os.path.realpath(path))
        self.url = f"sqlite:///{quote(self._path.as_posix())}"
        self.busy_timeout = busy_timeout
        self._closed = False
        self._begin()
        with translated(self._path):
            self._files = OpenFiles(self._path)
        with translated(self._path):
            if self._path.stat().st_size < SMALLEST:
                raise NotADatabase(path=str(self._path), reason="it is shorter than the smallest page of SQLite")
            with closing(self._connect()) as con:
                check_owner(con, self._path)
                self.store_id = bytes(fact(con, self._path, "store_id"))

    @property
    def missed(self) -> str | None:
        """What is not read: a -wal file without its -shm file, or a transaction that SQLite must roll back first."""
        if has_content(Path(f"{self._path}-journal")):
            return "a transaction of a killed process, which the next program that opens the file rolls back"
        if has_content(Path(f"{self._path}-wal")) and not self._has_shm():
            return "the events in its -wal file, because the -shm file beside it is missing"
        return None

    def unsettled(self, *, thread_id: str | None) -> list[Run]:
        """Return the runs that are running, or have ended and are neither settled nor given up; oldest first."""
        with self._snapshot() as con:
            has_index = con.execute(_HAS_INDEX).fetchone()
        if has_index:
            return super().unsettled(thread_id=thread_id)
        runs = self.runs(thread_id=thread_id, status=None, limit=None)  # of a release before the index
        return [run for run in reversed(runs) if run.status == "running" or (run.ended and not run.done)]

    def _connect(self) -> sqlite3.Connection:
        mode = "readonly_shm=1" if self._has_shm() else "immutable=1"
        uri = f"{self._path.as_uri()}?mode=ro&{mode}"
        con = sqlite3.connect(uri, uri=True, timeout=self.busy_timeout, isolation_level=None, check_same_thread=False)
        try:
            con.execute("PRAGMA query_only = ON")
        except sqlite3.Error as exc:
            con.close()
            raise StoreCorrupt(path=str(self._path), reason=str(exc)) from exc
        return con

    def _has_shm(self) -> bool:
        return Path(f"{self._path}-shm").exists()
