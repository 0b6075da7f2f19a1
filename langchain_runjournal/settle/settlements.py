"""The active settlements of this process, and the outcomes that newer runs need to know.

Rule: one settlement at a time works on a thread, and one reserves an earlier run. A second settlement waits for the first.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from ..capture.thread_slots import current_loop, stands_still
from ..common.twins import Pending
from ..journal.core import core_of
from ..journal.extensions import Extension

if TYPE_CHECKING:
    from ..journal.run_journal import RunJournal
    from .attachment import Attachment
    from .settler import Settlement
    from .thread_hold import Hold

_MOST_PASSED: Final = 10_000


class ActiveSettlement(Pending):
    """A settlement that is at work."""

    def __init__(self, *asked: object) -> None:
        super().__init__()
        self._asked = asked
        self._loop = current_loop()
        self.result: Settlement | None = None
        """The result of the settlement, when it is done."""
        self.hold: Hold | None = None
        """The hold that the settlement has on its thread in the store."""

    def result_for(self, other: ActiveSettlement) -> Settlement | None:
        """Return the result, if the other settlement was asked for the same."""
        return self.result if self._asked and self._asked == other._asked else None

    @property
    def run_ids(self) -> list[str]:
        """The run that is settled, or nothing if a thread without a run is repaired."""
        return [one for one in self._asked[1:2] if isinstance(one, str)]

    def stands_still(self) -> bool:
        """Return whether the event loop on which the settlement began is not running now."""
        return stands_still(self._loop)

    def is_lost(self) -> bool:
        """Return whether the settlement can never continue, because its event loop is closed."""
        return self._loop is not None and self._loop.is_closed()


class Settlements(Extension):
    """The settlements of one journal."""

    def __init__(self) -> None:
        self.active: dict[str, ActiveSettlement] = {}
        """By thread, the settlement that is at work. A thread never has more than one."""
        self.attachments: weakref.WeakSet[Attachment] = weakref.WeakSet()
        """The attachments of the graphs that are attached in this process, as long as the program holds one of them."""
        self._reserved: dict[str, ActiveSettlement] = {}
        self._passed: dict[str, None] = {}

    @contextmanager
    def reserve(self, run_id: str) -> Iterator[ActiveSettlement | None]:
        """Reserve an earlier run that is to be claimed and settled. Yield the settlement of this process that has reserved
        the run before, if there is one; else None."""
        mine = ActiveSettlement()
        other = self._reserved.setdefault(run_id, mine)
        try:
            yield None if other is mine else other
        finally:
            if other is mine:
                self._reserved.pop(run_id, None)
                mine.done.set_result(None)

    def mark_passed(self, run_id: str) -> None:
        """Note that newer runs no longer wait for this one: nothing is left to do for it, or nothing can be done.

        The journal may not say so, if another process owns the run or the store cannot be written.
        """
        self._passed[run_id] = None
        while len(self._passed) > _MOST_PASSED:
            self._passed.pop(next(iter(self._passed)))

    def has_passed(self, run_id: str) -> bool:
        """Return whether `mark_passed` was called for a run in this process."""
        return run_id in self._passed

    def done(self, thread_id: str | None, mine: ActiveSettlement) -> None:
        """End a settlement, so that the next one may begin on its thread."""
        if thread_id is not None and self.active.get(thread_id) is mine:
            del self.active[thread_id]
        mine.done.set_result(None)

    def at_work_on(self, thread_id: str) -> ActiveSettlement | None:
        """Return the settlement that is at work on a thread."""
        return self.active.get(thread_id)

    def forget(self, run_ids: Collection[str]) -> None:
        """Forget runs that were deleted."""
        for run_id in run_ids:
            self._passed.pop(run_id, None)

    def after_fork(self) -> None:
        """Forget everything in a forked child: the settlements belong to the parent."""
        for known in (self.active, self._reserved, self._passed):
            known.clear()


def settlements_of(journal: RunJournal) -> Settlements:
    """Return the settlements of a journal."""
    return core_of(journal).extensions.get(Settlements, Settlements)
