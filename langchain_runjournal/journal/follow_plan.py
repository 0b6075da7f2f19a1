r"""Pure: decides what a follower does next.

Rule: READ until a page is empty, WAIT until woken, READ again; DONE when the run has ended and nothing is left. A follower
keeps nothing but the last seq that it has delivered, and whether it has seen the run live: from then on, only `run.end` ends
the run, so that the last page that there is need not be followed by an empty one. So a follower that falls behind, or
returns after a week, reads the same as one that never left.

    READ --page--> READ --empty, live--> WAIT --woken--> READ --empty, ended--> DONE
                     |                                    \--the last page--> WAIT
                     \--the page holds run.end--> DONE
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from operator import attrgetter
from typing import NamedTuple

from ..errors import EventsMissing
from ..events import Event

_SEQ = attrgetter("seq")
_KIND = attrgetter("kind")


class Page(NamedTuple):
    """The result of one read of a run."""

    events: Sequence[Event]
    ended: bool | None
    """Whether the run had ended *before* `events` were read: only then does an empty page mean that nothing is left. None if
    that is not known."""
    is_last: bool = False
    """Whether the run had no more events when `events` were read."""
    is_plain: bool = False
    """Whether `events` is a list without gaps, and no event changes the state of the run; so not each reader must look."""


class Step(Enum):
    """The next action of the follower."""

    READ = "read"
    WAIT = "wait"
    DONE = "done"


class Replay:
    """The position of one follower in one run. It delivers every event once and in order."""

    def __init__(self, run_id: str, after: int = 0, url: str = "") -> None:
        self.run_id = run_id
        self.url = url
        self.after = after
        self.step = Step.READ
        self.was_live = False
        """Whether the run had not ended when it had the last event: so its `run.end` is still to be read."""
        self._began_after = after

    def accept(self, page: Page) -> list[Event]:
        """Return the new events of the page, in order. Raise `EventsMissing` at a gap, which must not pass unnoticed."""
        if page.events and self._is_next(page):
            self.after = page.events[-1].seq
            self.was_live = self.was_live or page.ended is False
            if page.is_last and self.was_live:
                self.step = Step.WAIT
            return page.events if isinstance(page.events, list) else list(page.events)
        fresh = []
        for event in page.events:
            if event.seq <= self.after:
                continue
            if event.seq != self.after + 1:
                raise EventsMissing(run_id=self.run_id, after=self.after, found=event.seq, url=self.url)
            self.after = event.seq
            fresh.append(event)
            if event.kind == "run.end":
                # Late events may come after `run.end` for hours. `read` returns them; a follower ends here.
                self.step = Step.DONE
                return fresh
        self.was_live = self.was_live or (page.ended is False and self.after > self._began_after)
        if not fresh:
            self.step = Step.DONE if page.ended else Step.WAIT
        elif page.is_last and self.was_live:
            self.step = Step.WAIT
        return fresh

    def would_wait(self, page: Page) -> bool:
        """Return whether the follower has to wait again after this page of plain events."""
        return page.is_plain and page.is_last and page.ended is False and page.events[0].seq == self.after + 1

    def passed(self, page: Page) -> bool:
        """Note that the follower has this page, for which `would_wait` was true. Return True."""
        self.after, self.was_live = page.events[-1].seq, True
        return True

    def _is_next(self, page: Page) -> bool:
        """Return whether these are the next events, without a gap and without the end of the run: nearly every page."""
        events = page.events
        if page.is_plain:
            return events[0].seq == self.after + 1
        expected = range(self.after + 1, self.after + 1 + len(events))
        return list(map(_SEQ, events)) == list(expected) and "run.end" not in set(map(_KIND, events))

    def woken(self) -> None:
        """Read again, because a wake-up came, or because the wait was long enough."""
        if self.step is Step.WAIT:
            self.step = Step.READ
