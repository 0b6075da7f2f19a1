"""The part of a `SqliteStore` that lists its runs."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...errors import StoreCorrupt
from ...events import Run, RunStatus
from .facts import Facts
from .run_rows import ONE, RUNS, UNSETTLED, runs_of, unreadable

logger = logging.getLogger("langchain_runjournal")


class Listing(Facts):
    """One run, or those that fit. Rows that are damaged do not hide the others."""

    _path: Path
    _left_out: set[str]

    def run(self, run_id: str) -> Run | None:
        """The run, or None."""
        with self._snapshot() as con:
            runs, damaged = runs_of(con, ONE, {"run_id": run_id})
        for damaged_id, why in damaged.items():
            raise StoreCorrupt(path=str(self._path), reason=unreadable(damaged_id, why))
        return runs[0] if runs else None

    def runs(self, *, thread_id: str | None, status: RunStatus | None, limit: int | None) -> list[Run]:
        """The runs that fit, newest first. One whose row is damaged is left out, and said in the log, once."""
        values = {"thread_id": thread_id, "status": status and status.value, "most": -1 if limit is None else limit}
        return self._listed(RUNS[thread_id is not None, status is not None], values)

    def unsettled(self, *, thread_id: str | None) -> list[Run]:
        """The runs that are running, or have ended and are neither settled nor given up; oldest first."""
        return self._listed(UNSETTLED[thread_id is not None], {"thread_id": thread_id})

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
