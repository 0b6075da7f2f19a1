"""The runs that this process has deleted, so that their late events can be dropped.

Rule: a deleted run never comes back. A model or a tool that could not be stopped may still send events for a deleted run,
and the first event of an unknown run would begin that run again.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Final

from ..events import Kind

logger = logging.getLogger("langchain_runjournal")

_MOST: Final = 100_000


class DeletedRuns:
    """The ids of deleted runs. Call the methods under the lock of the appender."""

    def __init__(self) -> None:
        self._ids: dict[str, None] = {}

    def __contains__(self, run_id: object) -> bool:
        return run_id in self._ids

    def add(self, run_ids: Collection[str]) -> None:
        """Add runs that are being deleted. Beyond 100,000 ids, forget the oldest."""
        self._ids.update(dict.fromkeys(run_ids))
        while len(self._ids) > _MOST:
            del self._ids[next(iter(self._ids))]

    def discard(self, run_ids: Collection[str]) -> None:
        """Remove runs whose deletion has failed."""
        for run_id in run_ids:
            self._ids.pop(run_id, None)

    def drops(self, run_id: str, kind: Kind) -> bool:
        """Return whether an event is a late event of a deleted run, which the caller must drop.

        A `run.start` is not late: it begins a new run with the old id.
        """
        if run_id not in self._ids:
            return False
        if kind == "run.start":
            del self._ids[run_id]
            return False
        logger.debug("dropping an event %s of run %s: the run was deleted", kind, run_id)
        return True
