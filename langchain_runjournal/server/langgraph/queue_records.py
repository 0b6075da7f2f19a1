"""What the queue of a thread reads and writes in the records. All methods block.

Rule: each change is one write that of all processes one can make, so that a request is begun, withdrawn or taken over once.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from ...errors import RunNotFound
from ...events import Run
from ...journal.core import core_of
from ...journal.records import records_of
from .queue_plan import Entry
from .run_records import RunRecords, key_of
from .run_requests import RunRequest

if TYPE_CHECKING:
    from ...journal.run_journal import RunJournal


class QueueRecords(RunRecords):
    """The requests and queue entries of one journal, as one process works on them."""

    def __init__(self, journal: RunJournal) -> None:
        super().__init__(records_of(journal))
        self._journal = journal

    def store_in_queue(self, request: RunRequest, *, is_held: bool) -> tuple[Entry, list[Entry]]:
        """Store a request and its entry. Return the entry and, if it is held, all those of the thread."""
        self.store(request)
        entry = self.add("begin", request, self._journal.owner_id, is_held=is_held)
        if entry is None:
            raise RuntimeError(f"run {request.run_id} is in the queue already")
        return entry, self.entries(request.thread_id) if is_held else []

    def find(self, run_id: str) -> tuple[Run | None, bool]:
        """Return the run, if it has begun, and whether it still may."""
        for _ in range(2):
            with suppress(RunNotFound):
                return self._journal.run(run_id), False
            request = self.request(run_id)
            if request is None or request.over is not None:
                return None, False
            if self.entry(run_id) is not None:
                return None, True
            # The entry was there a moment ago: the run has begun since the first look, or never will.
        return None, False

    def withdraw(self, run_id: str, rollback: bool) -> Entry | None:
        """Withdraw a run that has not begun. Return its entry; None if there is none, or another call has it."""
        entry = self.entry(run_id)
        if entry is None or not self.take(entry):
            return None
        if rollback:
            self.forget(run_id)
        else:
            self.end(run_id, status="interrupted")
        return entry

    def note_rollback(self, run_id: str, about: RunRequest, now: float) -> None:
        """Note that a run is to be rolled back. From now on, clients do not find it."""
        self.add("rollback", about, self._journal.owner_id)
        self.change(run_id, lambda request: replace(request, rolled_back=now), about)

    def forget_rollback(self, run_id: str, about: RunRequest) -> None:
        """Note that a run is not rolled back: it ended by itself before it could be stopped."""
        entry = self.entry(key_of("rollback", run_id))
        if entry is not None:
            self.take(entry)
        self.change(run_id, lambda request: replace(request, rolled_back=None), about)

    def drop(self, entry: Entry) -> None:
        """Delete an entry and its request, of which no client has heard."""
        if self.take(entry):
            self.forget(entry.run_id)

    def adopt(self, thread_id: str) -> tuple[list[Entry], bool]:
        """Return the entries of a thread, and whether one is of a process that may be dead. Take over those of dead ones."""
        mine, found, may_die = self._journal.owner_id, [], False
        for entry in self.entries(thread_id):
            verdict = "alive" if entry.owner == mine else self._verdict(entry.owner)
            if verdict == "gone":
                taken = self.put(replace(entry, owner=mine))
                if taken is None:
                    continue  # another process was faster
                entry = taken
            may_die = may_die or verdict == "unknown"
            found.append(entry)
        return found, may_die

    def _verdict(self, owner_id: str) -> str:
        owners = core_of(self._journal).dead_owners
        owner = owners.owner(owner_id)
        return "gone" if owner is None else owners.verdict(owner)
