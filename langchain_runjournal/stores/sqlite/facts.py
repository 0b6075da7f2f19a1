"""What was learned about graphs, and which threads are being settled by which journal, as rows of `facts`.

A table of its own would be a migration, after which the previous release could not open the file any more.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection
from contextlib import AbstractContextManager
from typing import Final

_READ: Final = "SELECT value FROM facts WHERE name = ?"
_WRITE: Final = "INSERT OR REPLACE INTO facts (name, value) VALUES (?, ?)"


_HOLD: Final = (
    "INSERT INTO facts (name, value) VALUES (:name, :holder) ON CONFLICT (name)"
    " DO UPDATE SET value = excluded.value WHERE value IS :instead_of"
)
_RELEASE: Final = "DELETE FROM facts WHERE name = ? AND value = ?"


class Facts:
    """The part of a `SqliteStore` that keeps them."""

    def _transaction(self) -> AbstractContextManager[sqlite3.Connection]:
        raise NotImplementedError

    def _snapshot(self, about: str = "") -> AbstractContextManager[sqlite3.Connection]:
        raise NotImplementedError

    def learn(self, graph: str, facts: Collection[str]) -> None:
        """Add facts about a graph, in one transaction: another process may add others."""
        with self._transaction() as con:
            known = _read(con, graph)
            if not known.issuperset(facts):
                con.execute(_WRITE, (_name(graph), json.dumps(sorted(known.union(facts)))))

    def learned(self, graph: str) -> set[str]:
        """All facts about a graph."""
        with self._snapshot() as con:
            return _read(con, graph)

    def hold(self, thread_id: str, holder: str, instead_of: str | None) -> str:
        """Make `holder` the holder of a thread, if it has none or has `instead_of`."""
        name = _held(thread_id)
        with self._transaction() as con:
            con.execute(_HOLD, {"name": name, "holder": holder, "instead_of": instead_of})
            return str(con.execute(_READ, (name,)).fetchone()[0])

    def holder(self, thread_id: str) -> str | None:
        """The holder of a thread."""
        with self._snapshot() as con:
            row = con.execute(_READ, (_held(thread_id),)).fetchone()
        return None if row is None else str(row[0])

    def release(self, thread_id: str, holder: str) -> None:
        """A thread has no holder any more, if it has this one."""
        with self._transaction() as con:
            con.execute(_RELEASE, (_held(thread_id), holder))


def _read(con: sqlite3.Connection, graph: str) -> set[str]:
    """All that is known of a graph. Nothing, if the row is damaged: it is learned again."""
    row = con.execute(_READ, (_name(graph),)).fetchone()
    try:
        found = json.loads(row[0]) if row is not None else []
    except (ValueError, TypeError):
        return set()
    return {one for one in found if isinstance(one, str)} if isinstance(found, list) else set()


def _held(thread_id: str) -> str:
    return f"held {thread_id}".encode("utf-8", "backslashreplace").decode()


def _name(graph: str) -> str:
    # Half of a surrogate pair can be in the name of a graph, but in no column: two such names stay two.
    return f"learned {graph}".encode("utf-8", "backslashreplace").decode()
