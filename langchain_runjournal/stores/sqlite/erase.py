"""The deletion of runs from the bytes of the SQLite file, and not only from its tables.

Rule: the connection that writes has `secure_delete` on, so SQLite writes zeros over each row that it deletes and each page
that it frees. The -wal file still has the deleted text, until `empty_wal`.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

from .owners import bury
from .run_rows import DONE

logger = logging.getLogger("langchain_runjournal")

_DONE: Final = f"FROM runs INDEXED BY runs_to_prune WHERE {DONE}"
_FIRST: Final = f"SELECT ended_at {_DONE} ORDER BY ended_at, run LIMIT 1"
_KEPT: Final = f"SELECT ended_at, run {_DONE} ORDER BY ended_at DESC, run DESC LIMIT 1 OFFSET ?"
_PRUNABLE: Final = f"SELECT run, run_id {_DONE} AND (ended_at, run) < (?, ?) ORDER BY ended_at, run"
_NEVER: Final = 1 << 62
_NUMBER: Final = "SELECT run FROM runs WHERE run_id = ?"


def prunable(con: sqlite3.Connection, before: int | None, keep_last: int | None) -> list[tuple[int, str]]:
    """Return row number and id of the runs that `Store.prune` deletes, the first to end first.

    It reads the index of these runs, from its beginning, and of `keep_last` runs from its end.
    """
    first = con.execute(_FIRST).fetchone()
    if first is None or (before is not None and first[0] >= before):
        return []
    end = (_NEVER if before is None else before, 0)
    if keep_last:
        kept = con.execute(_KEPT, (keep_last,)).fetchone()  # the newest run that is not kept
        if kept is None:
            return []
        end = min(end, (kept[0], kept[1] + 1))
    return con.execute(_PRUNABLE, end).fetchall()


def erase(con: sqlite3.Connection, run_ids: Collection[str]) -> list[str]:
    """Delete runs, in a transaction of the caller. Return the ids of the runs that existed."""
    numbers: dict[str, int] = {}
    for run_id in run_ids:
        found = con.execute(_NUMBER, (run_id,)).fetchone()
        if found is not None:
            numbers[run_id] = found[0]
    remove(con, list(numbers.values()))
    return list(numbers)


def remove(con: sqlite3.Connection, runs: Sequence[int]) -> None:
    """Delete the rows of runs, given by row number, that have no rows in `live`."""
    bury(con, runs)
    for table in ("segments", "runs"):
        con.executemany(f"DELETE FROM {table} WHERE run = ?", [(run,) for run in runs])


def vacuum(con: sqlite3.Connection, path: Path) -> None:
    """Rewrite the file. Only that removes the copies of rows that SQLite leaves in the unused part of a page when it moves
    rows between pages."""
    con.execute("VACUUM")
    empty_wal(con, path)


def empty_wal(con: sqlite3.Connection, path: Path) -> None:
    """Copy the -wal file into the database and truncate it. Wait `busy_timeout` for connections that read from it."""
    if con.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
        logger.warning(
            "could not empty %s-wal, because another connection reads from it: deleted text stays in it until"
            " SQLite overwrites it, or until every journal on the file is closed",
            path,
        )
