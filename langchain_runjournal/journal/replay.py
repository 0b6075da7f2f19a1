r"""Pure: what a follower does next.

Rule: READ until a page is empty, WAIT until woken, READ again; DONE when the run has ended and nothing is left. A follower
keeps nothing but the seq that it has delivered, so one that falls behind, or comes back after a week, is the same as one
that never left.

    READ --page--> READ --empty, live--> WAIT --woken--> READ --empty, ended--> DONE
                     \--the page holds run.end--> DONE
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from ..errors import EventsMissing
from ..events import Event


class Page(NamedTuple):
    """What one look at a run showed."""

    events: Sequence[Event]
    ended: bool
    """Whether the run had ended *before* `events` were read: only then does an empty page mean that nothing is left."""


class Step(Enum):
    """What the follower has to do now."""

    READ = "read"
    WAIT = "wait"
    DONE = "done"


class Replay:
    """The place of one follower in one run: every event once, in order, whatever comes in between."""

    def __init__(self, run_id: str, after: int = 0, url: str = "") -> None:
        self.run_id = run_id
        self.url = url
        self.after = after
        self.step = Step.READ

    def accept(self, page: Page) -> list[Event]:
        """The events of the page that are new, in order. A hole raises: better than to skip in silence."""
        fresh = []
        for event in page.events:
            if event.seq <= self.after:
                continue
            if event.seq != self.after + 1:
                raise EventsMissing(run_id=self.run_id, after=self.after, found=event.seq, url=self.url)
            self.after = event.seq
            fresh.append(event)
            if event.kind == "run.end":
                # Late facts may come after it for hours. They are for read(), a follower leaves here.
                self.step = Step.DONE
                return fresh
        if not fresh:
            self.step = Step.DONE if page.ended else Step.WAIT
        return fresh

    def woken(self) -> None:
        """Something may have happened, or the wait was long enough to have a look."""
        if self.step is Step.WAIT:
            self.step = Step.READ
