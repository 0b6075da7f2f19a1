"""The records of runs that clients have asked for, and the entries of their queues. All methods block.

Rule: the request is stored before its entry, and the entry is deleted after the run has begun. So an entry always names a
request, and a request without entry and without run in the journal is one that no client has heard of.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from .queue_plan import Entry, Job, entry_of
from .run_requests import RunRequest

if TYPE_CHECKING:
    from ...journal.records import Record, Records

RUNS: Final = "langgraph.run"
"""The space of requests: by run id, in the group of their thread."""
QUEUE: Final = "langgraph.queue"
"""The space of entries of queues: in the group of their thread."""
READERS: Final = "langgraph.reader"
"""The space of the processes that serve a run to readers: in the group of the run."""
_TRIES: Final = 100


class RunRecords:
    """The requests and queue entries of one journal."""

    def __init__(self, records: Records) -> None:
        self._records = records

    # --- requests -----------------------------------------------------------------------------------------------------

    def request(self, run_id: str) -> RunRequest | None:
        """Return the request of a run, or None."""
        found = self._records.get(RUNS, run_id)
        return None if found is None else RunRequest.from_json(found.value)

    def requests(self, thread_id: str) -> list[RunRequest]:
        """Return the requests of a thread, the oldest first."""
        return [RunRequest.from_json(one.value) for one in self._records.list(RUNS, group=thread_id)]

    def store(self, request: RunRequest) -> None:
        """Store a new request."""
        self._records.put(RUNS, request.run_id, request.to_json(), version=0, group=request.thread_id)

    def change(self, run_id: str, change: Callable[[RunRequest], RunRequest], otherwise: RunRequest | None = None) -> None:
        """Change a request in one step. If there is none, `otherwise` is changed and stored, unless it is None."""
        for _ in range(_TRIES):
            found = self._records.get(RUNS, run_id)
            before = otherwise if found is None else RunRequest.from_json(found.value)
            if before is None:
                return
            value, version = change(before).to_json(), 0 if found is None else found.version
            if self._records.put(RUNS, run_id, value, version=version, group=before.thread_id) is not None:
                return

    def end(self, run_id: str, **about: Any) -> None:
        """Note how a request ended that never began."""
        self.change(run_id, lambda request: replace(request, over=about))

    def forget(self, run_id: str) -> None:
        """Delete a request."""
        self._records.put(RUNS, run_id, None, version=None)

    # --- queues -------------------------------------------------------------------------------------------------------

    def entry(self, key: str) -> Entry | None:
        """Return an entry, or None."""
        found = self._records.get(QUEUE, key)
        return None if found is None else _entry(found)

    def entries(self, thread_id: str | None) -> list[Entry]:
        """Return the entries of a thread, or of all threads, by number."""
        return [_entry(one) for one in self._records.list(QUEUE, group=thread_id)]

    def waiting(self) -> set[str]:
        """Return the threads on which a run waits to begin."""
        return {entry.thread_id for entry in self.entries(None) if entry.job == "begin"}

    def add(self, job: Job, request: RunRequest, owner: str, *, is_held: bool = False) -> Entry | None:
        """Store an entry; None if there is one."""
        key = key_of(job, request.run_id)
        not_before = request.not_before if job == "begin" else 0.0
        entry = Entry(
            key=key, version=0, number=0, job=job, run_id=request.run_id, thread_id=request.thread_id, owner=owner,
            not_before=not_before, is_held=is_held,
        )  # fmt: skip
        return self.put(entry)

    def put(self, entry: Entry) -> Entry | None:
        """Store an entry in place of the one that has its version; None if it has another one by now."""
        stored = self._records.put(QUEUE, entry.key, entry.to_json(), version=entry.version, group=entry.thread_id)
        return None if stored is None else _entry(stored)

    def take(self, entry: Entry) -> bool:
        """Delete an entry. Return whether this call did: of all processes, one does."""
        return self._records.put(QUEUE, entry.key, None, version=entry.version) is not None

    # --- readers ------------------------------------------------------------------------------------------------------

    def note_reader(self, run_id: str, owner: str) -> None:
        """Note that a process serves a run to readers."""
        self._records.put(READERS, f"{run_id}:{owner}", {"owner": owner}, version=None, group=run_id)

    def drop_reader(self, run_id: str, owner: str) -> None:
        """Note that a process has no more readers of a run."""
        self._records.put(READERS, f"{run_id}:{owner}", None, version=None)

    def readers(self, run_id: str) -> list[str]:
        """Return the owner ids of the processes that serve a run to readers."""
        return [str(one.value.get("owner")) for one in self._records.list(READERS, group=run_id)]


def key_of(job: Job, run_id: str) -> str:
    """Return the key of an entry."""
    return run_id if job == "begin" else f"{job}:{run_id}"


def _entry(record: Record) -> Entry:
    return entry_of(record.key, record.version, record.number, record.value)
