"""The owners: journals that have the file open, or had it open when their process was killed.

The store remembers the id of a deleted run for a while. Without that, if the owner of the run is killed, the run would come
back from its spool. The ids are rows of the table `facts`: a table of their own would need a migration.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from typing import Final

from .. import Owner, StoredRun
from .connections import Connections
from .run_rows import last_seq, lasts_in_live, missing

_BURY: Final = (
    "INSERT OR REPLACE INTO facts (name, value) SELECT 'deleted ' || owner_id || ' ' || run_id, beats"
    " FROM runs JOIN owners USING (owner_id) WHERE run = ?"
)
_DELETED: Final = "SELECT substr(name, length(:first) + 1) FROM facts WHERE name >= :first AND name < :end"
_DIG_UP: Final = "DELETE FROM facts WHERE name >= :first AND name < :end AND value < :beats"
_STORED: Final = "SELECT run, owner_id, epoch, rest FROM runs WHERE run_id = ?"
_OWNER: Final = "SELECT owner_id FROM runs WHERE run_id = ?"
_STOPS: Final = "SELECT run_id, stop FROM runs WHERE owner_id = ? AND stop IS NOT NULL AND ended_at IS NULL"
_REMEMBERED: Final = 10
"""Heartbeats after which no spool file of a live owner holds a deleted run: the owner begins a new file at each beat."""


def bury(con: sqlite3.Connection, runs: Collection[int]) -> None:
    """Remember the ids of runs, given by row number, that are about to be deleted and whose owner the store still knows."""
    con.executemany(_BURY, [(run,) for run in runs])


def _range(owner_id: str) -> dict[str, str]:
    return {"first": f"deleted {owner_id} ", "end": f"deleted {owner_id}!"}


class Owners(Connections):
    """The part of a `SqliteStore` that keeps owners."""

    def _begin(self) -> None:
        super()._begin()
        self._owner_ids: set[str] = set()
        """The owners that have sent a heartbeat through this store: journals of this process."""

    def beat(self, owner: Owner) -> None:
        """Note that the owner is alive."""
        self._owner_ids.add(owner.owner_id)
        row = (owner.owner_id, owner.place, owner.pid, owner.born, owner.lease, owner.beats)
        with self._transaction() as con:
            con.execute("INSERT OR REPLACE INTO owners VALUES (?, ?, ?, ?, ?, ?)", row)
            con.execute(_DIG_UP, {**_range(owner.owner_id), "beats": owner.beats - _REMEMBERED})

    def forget(self, owner_id: str) -> None:
        """Remove an owner."""
        with self._transaction() as con:
            con.execute("DELETE FROM owners WHERE owner_id = ?", (owner_id,))
            con.execute(_DIG_UP, {**_range(owner_id), "beats": 1 << 62})

    def deleted(self, owner_id: str) -> set[str]:
        """Return the deleted runs of `owner_id` that its spool may still hold."""
        with self._snapshot() as con:
            return {run_id for (run_id,) in con.execute(_DELETED, _range(owner_id))}

    def stored(self, run_ids: Collection[str]) -> dict[str, StoredRun]:
        """Return owner, epoch and last event of these runs."""
        found = {}
        with self._snapshot() as con:
            lasts = lasts_in_live(con)
            for run_id in run_ids:
                for run, owner, epoch, rest in con.execute(_STORED, (run_id,)).fetchall():
                    last = last_seq(con, run, lasts)
                    # A run that lost no events has no gap.
                    gaps = tuple(missing(con, run, 1, last)) if '"lost"' in rest else ()
                    found[run_id] = StoredRun(owner, epoch, last, gaps)
        return found

    def owners(self) -> list[Owner]:
        """Return all owners that were not removed."""
        with self._snapshot() as con:
            rows = con.execute("SELECT owner_id, place, pid, born, lease, beats FROM owners").fetchall()
        names = ("owner_id", "place", "pid", "born", "lease", "beats")
        return [Owner(**dict(zip(names, row, strict=True))) for row in rows]

    def owner_of(self, run_id: str) -> str | None:
        """Return the owner that may append to a run."""
        with self._snapshot() as con:
            found = con.execute(_OWNER, (run_id,)).fetchone()
        return None if found is None else str(found[0])

    def stops(self, owner_id: str) -> dict[str, str]:
        """Return the pending stop requests for the live runs of `owner_id`: `{run_id: cause}`."""
        with self._snapshot() as con:
            return dict(con.execute(_STOPS, (owner_id,)).fetchall())
