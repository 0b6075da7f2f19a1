"""The table of records, and the statements on it, in transactions and snapshots of the caller.

The table is not a migration, so that an older release can open the file. That release does not touch the table.
"""

from __future__ import annotations

import sqlite3
from typing import Final

from .. import StoredRecord

SCHEMA: Final = (
    # `number` is the version that the record had when it was made.
    "CREATE TABLE IF NOT EXISTS records (number INTEGER PRIMARY KEY, space TEXT NOT NULL, key TEXT NOT NULL,"
    " group_key TEXT, version INTEGER NOT NULL, text TEXT NOT NULL, UNIQUE (space, key))",
    "CREATE INDEX IF NOT EXISTS records_of_space ON records (space, number)",
    "CREATE INDEX IF NOT EXISTS records_of_group ON records (space, group_key, number)",
)
_COLUMNS: Final = "space, key, group_key, text, version, number"
_ONE: Final = f"SELECT {_COLUMNS} FROM records WHERE space = ? AND key = ?"
_LISTED: Final = {
    of_group: (
        f"SELECT {_COLUMNS} FROM records WHERE space = :space AND number > :after"
        f"{' AND group_key = :of_group' if of_group else ''} ORDER BY number LIMIT :limit"
    )
    for of_group in (False, True)
}
_COUNT_UP: Final = "INSERT INTO facts (name, value) VALUES ('records', 1) ON CONFLICT (name) DO UPDATE SET value = value + 1"
_COUNT: Final = "SELECT value FROM facts WHERE name = 'records'"
_MAKE: Final = f"INSERT INTO records ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)"
_CHANGE: Final = "UPDATE records SET group_key = ?, text = ?, version = ? WHERE number = ?"
_DELETE: Final = "DELETE FROM records WHERE number = ?"


def find(con: sqlite3.Connection, space: str, key: str) -> StoredRecord | None:
    """Return a record, or None."""
    row = con.execute(_ONE, (space, key)).fetchone()
    return None if row is None else StoredRecord(*row)


def listed(con: sqlite3.Connection, space: str, group: str | None, after: int, limit: int | None) -> list[StoredRecord]:
    """Return the records of a space, or of one group in it, by number."""
    values = {"space": space, "after": after, "of_group": group, "limit": -1 if limit is None else limit}
    return [StoredRecord(*row) for row in con.execute(_LISTED[group is not None], values)]


def put(
    con: sqlite3.Connection, space: str, key: str, text: str | None, version: int | None, group: str | None
) -> StoredRecord | None:
    """Write or delete a record, if it has this version. Return it; None if it has another version."""
    old = find(con, space, key)
    if version not in (None, old.version if old else 0):
        return None
    if text is None:
        if old is not None:
            con.execute(_DELETE, (old.number,))
        return old
    con.execute(_COUNT_UP)
    number = int(con.execute(_COUNT).fetchone()[0])
    if old is None:
        new = StoredRecord(space, key, group, text, number, number)
        con.execute(_MAKE, new)
    else:
        new = old._replace(group=group or old.group, text=text, version=number)
        con.execute(_CHANGE, (new.group, new.text, new.version, new.number))
    return new
