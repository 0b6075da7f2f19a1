"""The rows of the table `runs`: how a run is written and read, also beside rows that are damaged."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

from ...events import Run
from ...events import run_state as _run_state
from ...events.run import Begun
from ..run_columns import run_of

RUN: Final = "run_id, thread_id, status, owner_id, epoch, stop, settled, ended_at, rest, run"
ONE: Final = f"SELECT {RUN} FROM runs WHERE run_id = :run_id"
ALL: Final = f"SELECT {RUN} FROM runs"
_STATUS: Final = {False: "status = :status", True: "+status = :status"}
"""With a plus, SQLite uses the index on the thread. With the index on the status, it would read the runs of all threads."""
RUNS: Final = {
    # One statement for each combination: SQLite uses no index for a condition that a parameter switches off.
    (of_thread, with_status): (
        f"SELECT {RUN} FROM runs WHERE {'thread_id = :thread_id' if of_thread else 'TRUE'}"
        f" AND {_STATUS[of_thread] if with_status else 'TRUE'} ORDER BY run DESC LIMIT :most"
    )
    for of_thread in (False, True)
    for with_status in (False, True)
}
BEGAN: Final = {
    (of_thread, from_number): (
        f"SELECT run, run_id, thread_id FROM runs WHERE {'thread_id = :thread_id' if of_thread else 'TRUE'}"
        f" AND {'run > :after ORDER BY run LIMIT :most' if from_number else 'TRUE ORDER BY run DESC LIMIT 1'}"
    )
    for of_thread in (False, True)
    for from_number in (False, True)
}
_TO_SETTLE: Final = "(status = 'running' OR (ended_at IS NOT NULL AND NOT settled))"
DONE: Final = "ended_at IS NOT NULL AND settled"
"""The condition of a run that `prune` may delete."""
INDEXES: Final = (
    f"CREATE INDEX IF NOT EXISTS runs_to_settle ON runs (thread_id, run) WHERE {_TO_SETTLE}",
    f"CREATE INDEX IF NOT EXISTS runs_to_prune ON runs (ended_at, run) WHERE {DONE}",
)
"""Not migrations, so that an older release can open the file. That release updates the indexes, and does not use them."""
UNSETTLED: Final = {
    # With the name of the index: without statistics SQLite would read the whole table in order, and not sort the few runs of
    # the index.
    of_thread: (
        f"SELECT {RUN} FROM runs INDEXED BY runs_to_settle"
        f" WHERE {'thread_id = :thread_id' if of_thread else 'TRUE'} AND {_TO_SETTLE} ORDER BY run"
    )
    for of_thread in (False, True)
}
_IDS: Final = "SELECT CAST(run_id AS BLOB) FROM runs WHERE run_id >= ? ORDER BY run_id"
_LAST_SEGMENT: Final = "SELECT last FROM segments WHERE run = ? ORDER BY first DESC LIMIT 1"
_RANGES: Final = (
    "SELECT first, last FROM segments WHERE run = :run AND last >= :first AND first <= :last"
    " UNION ALL SELECT first, last FROM live WHERE run = :run AND last >= :first AND first <= :last ORDER BY first"
)
_LAST_IN_LIVE: Final = "SELECT max(last) FROM live WHERE run = ?"
_LASTS_IN_LIVE: Final = "SELECT run, max(last) FROM live GROUP BY run"
_NUMBERED: Final = f"SELECT {RUN} FROM runs WHERE run = ?"
_BEGUN: Final = "SELECT run, run_id, thread_id FROM runs WHERE run = ?"
_ID: Final = "SELECT run_id FROM runs WHERE run = ?"
_Why = dict[str, str]


def runs_of(con: sqlite3.Connection, sql: str, values: Mapping[str, Any]) -> tuple[list[Run], _Why]:
    """Return the runs that a statement finds, and the reason for each damaged row, by run id.

    The runs have their last seq, which their row does not: the store would have to write it with every batch.
    """
    rows, damaged = _rows(con, sql, values)
    lasts = lasts_in_live(con) if rows else {}
    runs = []
    for row in rows:
        last = last_seq(con, row[9], lasts)
        try:
            runs.append(_run_state.shown(run_of(row, last)))
        except (TypeError, ValueError) as exc:
            damaged[str(row[0])] = str(exc)
    return runs, damaged


def began(con: sqlite3.Connection, sql: str, values: Mapping[str, Any]) -> list[Begun]:
    """Return the runs that a statement of `BEGAN` finds. A run whose ids are not text is left out."""
    try:
        return [Begun(*row) for row in con.execute(sql, values)]
    except sqlite3.OperationalError as exc:
        if not is_no_text(exc):
            raise
    found = []
    for (number,) in con.execute(f"SELECT run FROM ({sql})", values).fetchall():
        with suppress(sqlite3.OperationalError):
            found += [Begun(*row) for row in con.execute(_BEGUN, (number,))]
    return found


def ids(con: sqlite3.Connection, start: str, limit: int | None) -> list[str]:
    """Return the ids of the runs that begin with `start`, sorted, at most `limit`. An id that is not text is left out."""
    found: list[str] = []
    for (raw,) in con.execute(_IDS, (start,)):
        if limit is not None and len(found) >= limit:
            break
        with suppress(UnicodeDecodeError):
            run_id = raw.decode()
            if not run_id.startswith(start):
                break
            found.append(run_id)
    return found


def lasts_in_live(con: sqlite3.Connection) -> dict[int, int]:
    """Return the last seq in `live` of each run that has rows there, by row number. One pass serves many runs."""
    return dict(con.execute(_LASTS_IN_LIVE).fetchall())


def last_seq(con: sqlite3.Connection, run: int, lasts: Mapping[int, int] | None = None) -> int:
    """Return the last seq of a run, given by row number. Events in `live` are newer than those in `segments`."""
    last = con.execute(_LAST_IN_LIVE, (run,)).fetchone()[0] if lasts is None else lasts.get(run)
    if last is None:
        found = con.execute(_LAST_SEGMENT, (run,)).fetchone()
        last = found[0] if found else 0
    return int(last)


def missing(con: sqlite3.Connection, run: int, first: int, last: int) -> Iterator[tuple[int, int]]:
    """Yield the parts of `first` to `last` for which the run, given by row number, has no event."""
    for begin, end in con.execute(_RANGES, {"run": run, "first": first, "last": last}).fetchall():
        if begin > first:
            yield first, begin - 1
        first = max(first, end + 1)
    if first <= last:
        yield first, last


def damaged_runs(con: sqlite3.Connection) -> Iterator[str]:
    """Yield a sentence for each run whose row is damaged."""
    rows, damaged = _rows(con, ALL, {})
    for row in rows:
        try:
            run_of(row)
        except (TypeError, ValueError) as exc:
            damaged[str(row[0])] = str(exc)
    yield from (unreadable(run_id, why) for run_id, why in damaged.items())


def unreadable(run_id: str, why: str) -> str:
    """Return the reason of an error about a damaged row."""
    return f"the row of run {run_id} cannot be read ({why})"


def is_no_text(exc: sqlite3.Error) -> bool:
    """Return whether an error is about bytes in a column of text. Its message has these bytes, and so the text of a user."""
    return "decode to UTF-8" in str(exc)


def _rows(con: sqlite3.Connection, sql: str, values: Mapping[str, Any]) -> tuple[list[Any], _Why]:
    try:
        return con.execute(sql, values).fetchall(), {}
    except sqlite3.OperationalError as exc:
        if not is_no_text(exc):
            raise
    # Read the rows one by one: the driver drops all rows because of one.
    rows, damaged = [], {}
    for (number,) in con.execute(f"SELECT run FROM ({sql})", values).fetchall():
        try:
            rows.append(con.execute(_NUMBERED, (number,)).fetchone())
        except sqlite3.OperationalError:
            damaged[_name(con, number)] = "it is not UTF-8"
    return rows, damaged


def _name(con: sqlite3.Connection, number: int) -> str:
    try:
        return str(con.execute(_ID, (number,)).fetchone()[0])
    except sqlite3.OperationalError:
        return f"number {number}"
