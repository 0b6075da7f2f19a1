"""The list of the runs in a SQLite file."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from ...errors import StoreCorrupt
from ...events import Run, RunStatus
from .. import Begun
from .connections import Connections
from .run_rows import BEGAN, ONE, RUNS, UNSETTLED, began, ids, runs_of, unreadable

logger = logging.getLogger("langchain_runjournal")


class Listing(Connections):
    """The part of a `SqliteStore` that returns one run, or a list. A damaged row does not hide the other runs."""

    def _begin(self) -> None:
        super()._begin()
        self._left_out: set[str] = set()

    def run(self, run_id: str) -> Run | None:
        """Return the run, or None."""
        with self._snapshot() as con:
            runs, damaged = runs_of(con, ONE, {"run_id": run_id})
        for damaged_id, why in damaged.items():
            raise StoreCorrupt(path=str(self._path), reason=unreadable(damaged_id, why))
        return runs[0] if runs else None

    def runs(self, *, thread_id: str | None, status: RunStatus | None, limit: int | None) -> list[Run]:
        """Return the runs that match, newest first. A run whose row is damaged is left out, and logged once."""
        values = {"thread_id": thread_id, "status": status and status.value, "most": -1 if limit is None else limit}
        return self._listed(RUNS[thread_id is not None, status is not None], values)

    def began(self, after: int | None, *, thread_id: str | None, limit: int | None) -> list[Begun]:
        """Return the runs with a larger number, oldest first; with None, the newest run."""
        values = {"thread_id": thread_id, "after": after, "most": -1 if limit is None else limit}
        with self._snapshot() as con:
            return began(con, BEGAN[thread_id is not None, after is not None], values)

    def unsettled(self, *, thread_id: str | None) -> list[Run]:
        """Return the runs that are running, or have ended and are neither settled nor given up; oldest first."""
        return self._listed(UNSETTLED[thread_id is not None], {"thread_id": thread_id})

    def ids(self, start: str, limit: int | None) -> list[str]:
        """Return the ids of the runs that begin with `start`, sorted, at most `limit`."""
        with self._snapshot() as con:
            return ids(con, start, limit)

    def _listed(self, sql: str, values: Mapping[str, Any]) -> list[Run]:
        with self._snapshot() as con:
            runs, damaged = runs_of(con, sql, values)
        for run_id, why in damaged.items():
            if run_id in self._left_out:
                continue
            self._left_out.add(run_id)
            reason = unreadable(run_id, why)
            logger.error("run %s is left out", run_id, exc_info=StoreCorrupt(path=str(self._path), reason=reason))
        return runs
