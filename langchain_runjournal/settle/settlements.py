"""The settlements that are at work in this process, and what is known of those that were.

Rule: one settlement at a time works on a thread, and one takes an earlier run in hand. A second one waits for the first.
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


class Settling(Pending):
    """A settlement at work."""

    def __init__(self, *asked: object) -> None:
        super().__init__()
        self._asked = asked
        self._loop = current_loop()
        self.result: Settlement | None = None
        """What came of it."""
        self.hold: Hold | None = None
        """That of the store on its thread."""

    def result_for(self, other: Settling) -> Settlement | None:
        """Its result, if the other one was asked for the same."""
        return self.result if self._asked and self._asked == other._asked else None

    @property
    def run_ids(self) -> list[str]:
        """The run that is settled, if it is one, and not a thread without a run."""
        return [one for one in self._asked[1:2] if isinstance(one, str)]

    def stands_still(self) -> bool:
        """Return whether the event loop that it began on does not run now."""
        return stands_still(self._loop)

    def is_lost(self) -> bool:
        """Return whether it can never continue: its event loop is closed."""
        return self._loop is not None and self._loop.is_closed()


class Settlements(Extension):
    """Those of one journal."""

    def __init__(self) -> None:
        self.at_work: dict[str, Settling] = {}
        """By thread, the settlement that is at work: there is never more than one."""
        self.attachments: weakref.WeakSet[Attachment] = weakref.WeakSet()
        """Those of the graphs that are attached in this process, as long as the program holds one of them."""
        self._in_hand: dict[str, Settling] = {}
        self._passed: dict[str, None] = {}

    @contextmanager
    def hand(self, run_id: str) -> Iterator[Settling | None]:
        """Take in hand an earlier run that is to be claimed and settled. Gives the settlement of this process that has done
        so before, if there is one."""
        mine = Settling()
        other = self._in_hand.setdefault(run_id, mine)
        try:
            yield None if other is mine else other
        finally:
            if other is mine:
                self._in_hand.pop(run_id, None)
                mine.done.set_result(None)

    def passed(self, run_id: str) -> None:
        """Newer runs need not wait for this one any more: nothing is left to do for it, or nothing can be done. The journal
        need not say so: another process owns the run, or the store cannot be written."""
        self._passed[run_id] = None
        while len(self._passed) > _MOST_PASSED:
            self._passed.pop(next(iter(self._passed)))

    def has_passed(self, run_id: str) -> bool:
        """Whether that was said of a run, in this process."""
        return run_id in self._passed

    def done(self, thread_id: str | None, mine: Settling) -> None:
        """End a settlement: the next one may begin on its thread."""
        if thread_id is not None and self.at_work.get(thread_id) is mine:
            del self.at_work[thread_id]
        mine.done.set_result(None)

    def at_work_on(self, thread_id: str) -> Settling | None:
        """Return the settlement that is at work on a thread."""
        return self.at_work.get(thread_id)

    def forget(self, run_ids: Collection[str]) -> None:
        """Forget runs that were deleted."""
        for run_id in run_ids:
            self._passed.pop(run_id, None)

    def after_fork(self) -> None:
        """In a child: all of them are the parent's."""
        for known in (self.at_work, self._in_hand, self._passed):
            known.clear()


def settlements_of(journal: RunJournal) -> Settlements:
    """Return the settlements of a journal."""
    return core_of(journal).extensions.get(Settlements, Settlements)
