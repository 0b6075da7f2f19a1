"""The check of a file by SQLite, by its schema and by its tables."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Final

from ...common.wording import plural
from .database_file import create
from .run_rows import damaged_runs

_MOST: Final = "PRAGMA integrity_check(20)"
_SCHEMA: Final = "SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'"
_STRAY: Final = "SELECT count(*) FROM {table} WHERE run NOT IN (SELECT run FROM runs)"


def problems(con: sqlite3.Connection) -> list[str]:
    """Return one sentence for each problem of the file."""
    found = [str(line) for (line,) in con.execute(_MOST) if line != "ok"]
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as new:
        create(new)
        wanted = {name: (kind, _plain(sql)) for kind, name, sql in new.execute(_SCHEMA)}
    there = {name: (kind, _plain(sql)) for kind, name, sql in con.execute(_SCHEMA)}
    for name, (kind, sql) in wanted.items():
        if name not in there:
            found.append(f"the {kind} {name} is missing")
        elif there[name] != (kind, sql):
            found.append(f"the {kind} {name} is not as this version makes it")
    for table in ("live", "segments"):
        if table in there:
            stray = con.execute(_STRAY.format(table=table)).fetchone()[0]
            found += [f"{table} has {plural(stray, 'row')} without a run"] if stray else []
    return [*found, *damaged_runs(con)]


def _plain(sql: str | None) -> str:
    return " ".join((sql or "").split())
