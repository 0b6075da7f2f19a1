"""Read the events of a run as they arrive, until it ends, pauses, or loses its owner."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal, TypeAlias

from ..events import Event, Run, RunStatus
from ..journal.check import GapFinder, read_on
from ..journal.core import core_of
from ..journal.follow import PAGE, RunWaiter
from ..journal.run_journal import RunJournal

Outcome: TypeAlias = Literal["ended", "paused", "abandoned"]

_LONGEST: Final = 1.0
"""Seconds after which the follower looks without a wake-up: only then does it ask whether the owner is alive."""


class RunFollower:
    """An iterator over the events of a run, in pages, as they arrive; a gap in the numbering does not stop it."""

    def __init__(self, journal: RunJournal, run: Run, after: int) -> None:
        self.after = after
        """The last event that the caller has handled."""
        self.outcome: Outcome | None = None
        self.run = run
        """The run as it was before its events were last read."""
        self.seen: list[Event] = []
        """The events up to the first `after`, which are not yielded."""
        self.gap_finder = GapFinder(run.run_id)
        self._journal = journal
        self._read_seen(after)

    def _read_seen(self, after: int) -> None:
        run_id = self.run.run_id
        while self.gap_finder.last < after and (page := read_on(self._journal, run_id, self.gap_finder.last, PAGE)):
            before = [event for event in page if event.seq <= after]
            self.gap_finder.see(before)
            self.seen += before
            if len(before) < len(page):
                return
        if self.gap_finder.last < after and not self.run.ended:
            self.gap_finder = GapFinder(run_id, after)  # the events between the last one and `after` do not exist yet

    def __iter__(self) -> Iterator[list[Event]]:
        waiter = RunWaiter(core_of(self._journal), self.run.run_id)
        woken = False
        try:
            while True:
                # Before reading: a wake-up after the read makes the next sleep return at once.
                waiter.listen()
                events = self._read()
                if events:
                    yield events
                    # Only now: a caller that is interrupted while it handles the events resumes before them.
                    self.after = events[-1].seq
                    self.outcome = None
                elif self.outcome is not None:
                    return  # known before this read, which therefore saw everything up to the end
                else:
                    self.outcome = self._look(for_owner=not woken)
                    if self.outcome is None:
                        woken = waiter.sleep(_LONGEST)
        finally:
            waiter.end()

    def missing(self) -> list[str]:
        """List what the run lacks and was not reported yet. Call it after the last page."""
        return [*self.gap_finder.take_gaps(), *self.gap_finder.differences(self.run)]

    def _read(self) -> list[Event]:
        events = read_on(self._journal, self.run.run_id, self.after, PAGE)
        self.gap_finder.see(events)
        return events

    def _look(self, *, for_owner: bool) -> Outcome | None:
        self.run = run = self._journal.run(self.run.run_id)
        if run.ended:
            return "ended"
        if run.status == RunStatus.PAUSED:
            return "paused"
        # owner_is_gone() imports the spool of a dead owner: there may be more to read afterwards.
        return "abandoned" if for_owner and core_of(self._journal).dead_owners.owner_is_gone(run) else None
