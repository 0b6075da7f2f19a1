"""Extensions: objects that other rooms keep with a journal, such as the recorder of its callbacks.

Rule: a room makes its extension when it first needs it. The journal calls the methods of `Extension`, and knows nothing else
about an extension.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeVar, cast

from ..common.twins import Waited

_E = TypeVar("_E", bound="Extension")


class Extension:
    """The base of an extension: the calls that it gets from the journal. Each method does nothing unless overridden."""

    def after_fork(self) -> None:
        """Forget what belongs to the parent process.

        The journal calls this in a forked child, where a lock that another thread of the parent held is never released.
        """

    def end_idle_runs(self) -> None:
        """Append the end of each run on which neither a task nor a settlement works."""

    def at_work_on(self, thread_id: str) -> Waited | None:
        """Return the work on a thread that must end before the runs of the thread may be deleted, or None."""
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
        """Return the extension of a class. Make it if the journal does not have it."""
        found = self._found.get(kind)
        if found is None:
            # In a race, two threads may each make one. `setdefault` keeps the first, and both callers get that one.
            found = self._found.setdefault(kind, make())
        return cast("_E", found)

    def after_fork(self) -> None:
        """Call `after_fork` of each extension."""
        for one in self._all():
            one.after_fork()

    def end_idle_runs(self) -> None:
        """Call `end_idle_runs` of each extension."""
        for one in self._all():
            one.end_idle_runs()

    def at_work_on(self, thread_id: str) -> list[Waited]:
        """Return the work of all extensions on a thread."""
        return [work for one in self._all() if (work := one.at_work_on(thread_id)) is not None]

    def forget(self, run_ids: Collection[str]) -> None:
        """Call `forget` of each extension."""
        for one in self._all():
            one.forget(run_ids)

    def _all(self) -> list[Extension]:
        return list(self._found.values())
