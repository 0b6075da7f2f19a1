"""Which owners there are, and which runs are theirs: the questions that are one statement each."""

from __future__ import annotations

from typing import Final

from . import Owner
from ._sqlite_listing import Listing

_OWNER: Final = "SELECT owner_id FROM runs WHERE run_id = ?"
_STOPS: Final = "SELECT run_id, stop FROM runs WHERE owner_id = ? AND stop IS NOT NULL AND ended_at IS NULL"


class Owners(Listing):
    """The part of a `SqliteStore` that answers them."""

    def owner_of(self, run_id: str) -> str | None:
        """The owner that may append to a run."""
        with self._snapshot() as con:
            found = con.execute(_OWNER, (run_id,)).fetchone()
        return None if found is None else str(found[0])

    def owners(self) -> list[Owner]:
        """All owners that have not been forgotten."""
        with self._snapshot() as con:
            rows = con.execute("SELECT owner_id, place, pid, born, lease, beats FROM owners").fetchall()
        names = ("owner_id", "place", "pid", "born", "lease", "beats")
        return [Owner(**dict(zip(names, row, strict=True))) for row in rows]

    def stops(self, owner_id: str) -> dict[str, str]:
        """The stops asked for, of what `owner_id` owns and has not ended."""
        with self._snapshot() as con:
            return dict(con.execute(_STOPS, (owner_id,)).fetchall())

    def forget(self, owner_id: str) -> None:
        """Drop an owner."""
        with self._transaction() as con:
            con.execute("DELETE FROM owners WHERE owner_id = ?", (owner_id,))
