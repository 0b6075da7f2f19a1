"""The files of an open SQLite database: the next commit detects files that were deleted or replaced.

Rule: a commit into a file without a name succeeds, and is lost when the process ends. So a commit is durable only if the
database and its -wal and -shm files are still those that were opened.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Final

from ...errors import StoreFailed
from .database_file import identity

logger = logging.getLogger("langchain_runjournal")

_BESIDE: Final = ("-wal", "-shm")
_PUT_BACK: Final = "Put it back, or close the journal and open it again"
_CLOSE_ALL: Final = "Close every journal on it, in all processes, and open them again"
_MOVED: Final = (
    "%s was deleted while %s was open: until now, a kill would have lost what was stored since its last checkpoint."
    " The database has that now, and SQLite has created the file again"
)


class OpenFiles:
    """The files of one open database."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._names = [Path(f"{path}{end}") for end in _BESIDE]
        self._database = identity(path)
        self._beside: dict[str, tuple[int, int] | None] = {}

    def closed(self) -> None:
        """Forget the files beside the database: with all connections closed, SQLite may delete and recreate them."""
        self._beside.clear()

    def check(self, con: sqlite3.Connection, close_others: Callable[[], bool]) -> None:
        """Raise `StoreFailed` if the last commit of `con` may be lost when the process ends.

        `close_others` closes the other connections of this store from which no thread is reading.
        """
        if identity(self._path) != self._database:
            raise self._failed("it", _PUT_BACK)
        there = {end: identity(name) for end, name in zip(_BESIDE, self._names, strict=True)}
        if not self._beside and all(there.values()):
            self._beside = there
        if there == self._beside or con.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
            return
        gone = next(end for end in _BESIDE if there[end] is None or there[end] != self._beside.get(end))
        if self._is_used_by_others(there):
            # This process and the other one do not see what each of them writes.
            raise self._failed(f"its {gone} file", _CLOSE_ALL)
        if not close_others() or not _made_anew(con):
            if there["-shm"] == self._beside.get("-shm"):
                # This makes the commit safe: all processes that have the database open share the deleted -wal file.
                con.execute("PRAGMA wal_checkpoint(PASSIVE)")
            raise self._failed(f"its {gone} file", _CLOSE_ALL)
        self._beside.clear()
        logger.warning(_MOVED, f"{self._path.name}{gone}", self._path)

    def _is_used_by_others(self, there: dict[str, tuple[int, int] | None]) -> bool:
        """Return whether another connection has opened the database since, and may have written to other files.

        A connection that only reads, which may be ours, creates an empty -wal file.
        """
        if there["-wal"] == self._beside.get("-wal"):
            return there["-shm"] is not None
        return there["-wal"] is not None and self._names[0].stat().st_size > 0

    def _failed(self, what: str, hint: str) -> StoreFailed:
        reason = f"{what} has been deleted, moved or replaced while it was open"
        return StoreFailed(path=str(self._path), reason=reason, hint=hint)


def _made_anew(con: sqlite3.Connection) -> bool:
    """Copy the deleted -wal file into the database, and begin another one. Return False if it is open elsewhere."""
    try:
        con.execute("PRAGMA journal_mode = DELETE")  # SQLite leaves the WAL mode only for the last connection
    except sqlite3.OperationalError as exc:
        if "locked" not in str(exc):
            raise
        return False
    con.execute("PRAGMA journal_mode = WAL")
    return True
