"""What other rooms keep for one journal: the recorder of its callbacks, for one. The journal does not know what it is.

Rule: an extension is made when its room first asks for it. The journal calls its extensions; it asks nothing else of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeVar, cast

from ..common.twins import Waited

_E = TypeVar("_E", bound="Extension")


class Extension:
    """What the journal tells one of them. Each method does nothing unless the extension overrides it."""

    def after_fork(self) -> None:
        """Forget what belongs to the parent process. Called in the child, where other threads may hold a lock for ever."""

    def end_idle_runs(self) -> None:
        """Append the end of each run that no task and no settlement works on any more."""

    def at_work_on(self, thread_id: str) -> Waited | None:
        """Return what is at work on a thread, if it must end before the runs of the thread may be deleted."""
        return None

    def forget(self, run_ids: Collection[str]) -> None:
        """Forget runs that were deleted."""


class Extensions:
    """The extensions of one journal, one of each class. Any thread may call `get`."""

    def __init__(self) -> None:
        self._found: dict[type[Extension], Extension] = {}

    def __len__(self) -> int:
        return len(self._found)

    def get(self, kind: type[_E], make: Callable[[], _E]) -> _E:
        """Return the extension of a class; make it if no other call has made it."""
        found = self._found.get(kind)
        if found is None:
            # Two threads may both make one: `setdefault` keeps the first, and no caller has the other.
            found = self._found.setdefault(kind, make())
        return cast("_E", found)

    def after_fork(self) -> None:
        """Tell all of them."""
        for one in self._all():
            one.after_fork()

    def end_idle_runs(self) -> None:
        """Tell all of them."""
        for one in self._all():
            one.end_idle_runs()

    def at_work_on(self, thread_id: str) -> list[Waited]:
        """Ask all of them."""
        return [work for one in self._all() if (work := one.at_work_on(thread_id)) is not None]

    def forget(self, run_ids: Collection[str]) -> None:
        """Tell all of them."""
        for one in self._all():
            one.forget(run_ids)

    def _all(self) -> list[Extension]:
        return list(self._found.values())
