"""The runs that were deleted here: what becomes of an event that still comes for one of them.

Rule: a deleted run never comes back. A model or a tool that could not be stopped may still send events for it, and the first
event of an unknown run would begin it again.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Final

from ..events import Kind

logger = logging.getLogger("langchain_runjournal")

_MOST: Final = 100_000


class Buried:
    """The ids of deleted runs. Used under the lock of the intake."""

    def __init__(self) -> None:
        self._ids: dict[str, None] = {}

    def __contains__(self, run_id: object) -> bool:
        return run_id in self._ids

    def add(self, run_ids: Collection[str]) -> None:
        """They are being deleted. The oldest of very many are forgotten."""
        self._ids.update(dict.fromkeys(run_ids))
        while len(self._ids) > _MOST:
            del self._ids[next(iter(self._ids))]

    def discard(self, run_ids: Collection[str]) -> None:
        """They could not be deleted, after all."""
        for run_id in run_ids:
            self._ids.pop(run_id, None)

    def drops(self, run_id: str, kind: Kind) -> bool:
        """Whether an event is a late one of a deleted run. `run.start` is none: a new run has been given the old id."""
        if run_id not in self._ids:
            return False
        if kind == "run.start":
            del self._ids[run_id]
            return False
        logger.debug("dropping an event %s of run %s: the run was deleted", kind, run_id)
        return True
