"""Pure: which model call stands for which, when something is tried again.

Rule: a failed call is replaced by a later one of the same task, or by any call of a later attempt of the whole task. Two
branches of a graph inside of one task are not attempts of each other.
"""

from __future__ import annotations

from typing import Any

from ._translate import Data


class Scope:
    """One task of a graph, or all that is in no graph: what a retry there stands for."""

    __slots__ = ("failed", "results", "rounds")

    def __init__(self) -> None:
        self.failed: dict[str, tuple[int | None, str]] = {}
        """Calls whose answers came to nothing, and that a later call will replace, each with its `Node.spot`."""
        self.rounds = 0
        self.results: dict[str, Any] = {}
        """The tool messages of this task, until it has ended: middleware may change them on their way."""

    def replaced_by(self, spot: tuple[int | None, str]) -> list[str]:
        """The failed calls that a call at this spot stands for: those at the same one, and, if the whole task is tried
        again, all of its earlier attempts. Branches side by side inside of one task do not replace each other."""
        outer, place = spot
        return [id for id, (theirs, there) in self.failed.items() if theirs != outer or there == place]

    def begin_call(self, spot: tuple[int | None, str]) -> Data:
        """The attempt that a new call is, and the calls that it replaces."""
        replaced = self.replaced_by(spot)
        if not replaced:
            return {"attempt": 1}
        self.rounds += 1
        for id in replaced:
            del self.failed[id]
        return {"attempt": self.rounds + 1, "replaces": replaced}
