"""The errors of appended events, kept until a barrier raises them, because an append raises nothing."""

from __future__ import annotations

import logging
from collections import deque

from ..errors import EventsLost, RunFenced, RunIdTaken, RunJournalError, WriteFailed

logger = logging.getLogger("langchain_runjournal")


class Complaints:
    """The complaints of one journal. Call its methods under the lock of the appender."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.lost = 0
        """The number of events that were dropped, because the store failed for too long."""
        self.refused: dict[str, int] = {}
        """By run, the number of events that were refused, because another owner has the run."""
        self.taken: set[str] = set()
        """The refused runs whose ids other journals had used before."""
        self.unreadable = 0
        """The number of objects that could not be made into an event, or that failed to be numbered."""
        self.unusable: deque[RunJournalError] = deque()
        """The errors of runs with an event that the store cannot take."""
        self.late = 0
        """The number of events that came after the journal was closed."""

    def lose(self) -> None:
        """Count an event that is dropped."""
        if not self.lost:
            logger.error("the journal %s is losing events: it could not be written for too long", self._url)
        self.lost += 1

    def refuse(self, run_id: str) -> None:
        """Count an event of a run that another owner has."""
        if not self.refused.get(run_id):
            logger.error("refusing events of run %s: the run belongs to another owner", run_id)
        self.refused[run_id] = self.refused.get(run_id, 0) + 1

    def refuse_dropped(self, run_id: str, dropped: int, error: RunJournalError) -> None:
        """Count events that were waiting when another owner took the run."""
        logger.error("refusing events of run %s (%d): %s", run_id, dropped, error)
        self.refused[run_id] = self.refused.get(run_id, 0) + dropped
        (self.taken.add if isinstance(error, RunIdTaken) else self.taken.discard)(run_id)

    def refuse_late(self, run_id: str) -> None:
        """Count an event that came after the journal was closed."""
        if not self.late:
            logger.error("run %s appends to a closed journal: its events are not stored", run_id)
        self.late += 1

    def take_late(self) -> int:
        """Return how many events came after the journal was closed, and reset that number."""
        late, self.late = self.late, 0
        return late

    def take(self) -> RunJournalError | None:
        """Return the error that the next barrier raises. Each error is returned once, and one error at a time."""
        if self.unusable:
            return self.unusable.popleft()
        if self.refused:
            refused, self.refused = self.refused, {}
            kind = RunIdTaken if refused.keys() <= self.taken else RunFenced
            return kind(run_ids=sorted(refused), refused=sum(refused.values()))
        if self.unreadable:
            unreadable, self.unreadable = self.unreadable, 0
            return EventsLost(url=self._url, lost=unreadable)
        lost, self.lost = self.lost, 0
        if not lost:
            return None
        reason = "the store failed for so long that the memory for waiting events was full"
        return WriteFailed(url=self._url, reason=reason, waiting=0, where="", lost=lost)
