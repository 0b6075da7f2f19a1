"""Facts about graphs, and the threads that journals settle, as rows of the table `facts`.

A table of their own would need a migration, after which the previous release could not open the file.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection
from typing import Final

from .connections import Connections

_READ: Final = "SELECT value FROM facts WHERE name = ?"
_WRITE: Final = "INSERT OR REPLACE INTO facts (name, value) VALUES (?, ?)"
_HOLD: Final = (
    "INSERT INTO facts (name, value) VALUES (:name, :holder) ON CONFLICT (name)"
    " DO UPDATE SET value = excluded.value WHERE value IS :instead_of"
)
_RELEASE: Final = "DELETE FROM facts WHERE name = ? AND value = ?"


class Facts(Connections):
    """The part of a `SqliteStore` that keeps facts about graphs, and which journal settles a thread."""

    def learn(self, graph: str, facts: Collection[str]) -> None:
        """Add facts about a graph, in one transaction: another process may add others at the same time."""
        with self._transaction() as con:
            known = _read(con, graph)
            if not known.issuperset(facts):
                con.execute(_WRITE, (_name("learned", graph), json.dumps(sorted(known.union(facts)))))

    def learned(self, graph: str) -> set[str]:
        """Return all facts about a graph."""
        with self._snapshot() as con:
            return _read(con, graph)

    def hold(self, thread_id: str, holder: str, instead_of: str | None) -> str:
        """Make `holder` the holder of a thread, if it has none or `instead_of`. Return its holder."""
        name = _name("held", thread_id)
        with self._transaction() as con:
            con.execute(_HOLD, {"name": name, "holder": holder, "instead_of": instead_of})
            return str(con.execute(_READ, (name,)).fetchone()[0])

    def holder(self, thread_id: str) -> str | None:
        """Return the holder of a thread, or None."""
        with self._snapshot() as con:
            row = con.execute(_READ, (_name("held", thread_id),)).fetchone()
        return None if row is None else str(row[0])

    def release(self, thread_id: str, holder: str) -> None:
        """Remove the holder of a thread, if it is this one."""
        with self._transaction() as con:
            con.execute(_RELEASE, (_name("held", thread_id), holder))


def _read(con: sqlite3.Connection, graph: str) -> set[str]:
    """Return all facts about a graph, or none if the row is damaged: the journal learns them again."""
    row = con.execute(_READ, (_name("learned", graph),)).fetchone()
    try:
        found = json.loads(row[0]) if row is not None else []
    except (ValueError, TypeError):
        return set()
    return {one for one in found if isinstance(one, str)} if isinstance(found, list) else set()


def _name(kind: str, about: str) -> str:
    # The name of a graph or a thread can hold half of a surrogate pair, which a column cannot. Two such names must differ.
    return f"{kind} {about}".encode("utf-8", "backslashreplace").decode()
