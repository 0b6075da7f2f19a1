"""The list of the runs in a database."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from ...errors import StoreCorrupt
from ...events import Run, RunStatus
from ...events.run_state import shown
from .. import Begun
from .connections import Connections
from .names import HASH, decoded, key
from .run_rows import BEGAN, ONE, RUNS, UNSETTLED, begun_of, run_of, unreadable

logger = logging.getLogger("langchain_runjournal")


class Listing(Connections):
    """The part of a `PostgresStore` that returns one run, or a list. A damaged row does not hide the other runs."""

    def _begin(self) -> None:
        super()._begin()
        self._left_out: set[str] = set()

    def run(self, run_id: str) -> Run | None:
        """Return the run, or None."""
        row = self._call(lambda session: session.execute(self._sql(ONE), {"run_id": key(run_id)}).fetchone())
        return None if row is None else self._shown(row)

    def runs(self, *, thread_id: str | None, status: RunStatus | None, limit: int | None) -> list[Run]:
        """Return the runs that match, newest first. A run whose row is damaged is left out, and logged once."""
        values = {
            "thread_id": None if thread_id is None else key(thread_id),
            "status": status and status.value,
            "most": limit,
        }
        return self._listed(RUNS[thread_id is not None, status is not None], values)

    def began(self, after: int | None, *, thread_id: str | None, limit: int | None) -> list[Begun]:
        """Return the runs with a larger number, oldest first; with None, the newest run."""
        sql = BEGAN[thread_id is not None, after is not None]
        values = {"thread_id": None if thread_id is None else key(thread_id), "after": after, "most": limit, "hash": HASH}
        rows = self._call(lambda session: session.execute(self._sql(sql), values).fetchall())
        found = []
        for row in rows:
            with suppress(TypeError, ValueError):  # `runs` logs a damaged row
                found.append(begun_of(row))
        return found

    def unsettled(self, *, thread_id: str | None) -> list[Run]:
        """Return the runs that are running, or have ended and are neither settled nor given up; oldest first."""
        return self._listed(UNSETTLED[thread_id is not None], {"thread_id": None if thread_id is None else key(thread_id)})

    def _listed(self, sql: str, values: Mapping[str, Any]) -> list[Run]:
        rows = self._call(lambda session: session.execute(self._sql(sql), values).fetchall())
        runs = []
        for row in rows:
            try:
                runs.append(self._shown(row))
            except StoreCorrupt as exc:
                run_id = decoded(row[0])
                if run_id not in self._left_out:
                    self._left_out.add(run_id)
                    logger.error("run %s is left out", run_id, exc_info=exc)
        return runs

    def _shown(self, row: tuple[Any, ...]) -> Run:
        try:
            return shown(run_of(row))
        except (TypeError, ValueError) as exc:
            raise StoreCorrupt(path=self.url, reason=unreadable(decoded(row[0]), str(exc))) from exc
