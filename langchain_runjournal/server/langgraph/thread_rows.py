"""The rows of threads: what belongs to a thread and to none of its runs, above all the metadata of the application.

Rule: the status of a thread is never stored. It follows from its runs, so that a crash cannot leave a thread busy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from .thread_status import ThreadRow

if TYPE_CHECKING:
    from ...journal.records import Record, Records

SPACE: Final = "langgraph.thread"
_TRIES: Final = 100
"""How often a change is tried again because another process has changed the row meanwhile."""


def row_of(record: Record) -> ThreadRow:
    """Return the row in a record."""
    value = record.value
    return ThreadRow(
        thread_id=record.key,
        created_at=value["created_at"],
        updated_at=value["updated_at"],
        metadata=value.get("metadata") or {},
        config=value.get("config") or {},
        written=value.get("written"),
    )


class ThreadRows:
    """The rows of all threads of a journal. All methods block: call them by `service.off_loop`."""

    def __init__(self, records: Records, wall: Callable[[], float]) -> None:
        """`wall`: the time in seconds since 1970."""
        self._records = records
        self._wall = wall

    def get(self, thread_id: str) -> ThreadRow | None:
        """Return the row of a thread; None for a thread that only runs have made."""
        found = self._records.get(SPACE, thread_id)
        return None if found is None else row_of(found)

    def all(self) -> list[ThreadRow]:
        """Return all rows."""
        return [row_of(one) for one in self._records.list(SPACE)]

    def create(self, thread_id: str, metadata: Mapping[str, Any]) -> ThreadRow | None:
        """Create a row and return it; None if there is one."""
        now = self._wall()
        row = ThreadRow(thread_id=thread_id, created_at=now, updated_at=now, metadata=metadata)
        stored = self._records.put(SPACE, thread_id, row.to_json(), version=0)
        return None if stored is None else row

    def change(
        self, thread_id: str, change: Callable[[ThreadRow], ThreadRow], *, created_at: float | None = None
    ) -> ThreadRow:
        """Change a row in one step, and return it. If there is none, it is created, as of `created_at`."""
        for _ in range(_TRIES):
            now = self._wall()
            found = self._records.get(SPACE, thread_id)
            born = now if created_at is None else created_at
            before = row_of(found) if found else ThreadRow(thread_id=thread_id, created_at=born, updated_at=now)
            row = replace(change(before), updated_at=now)
            version = found.version if found else 0
            if self._records.put(SPACE, thread_id, row.to_json(), version=version) is not None:
                return row
        raise RuntimeError(f"the row of thread {thread_id!r} changes faster than it can be written")

    def stamp(self, thread_id: str, *, graph: str, assistant_id: str, config: Mapping[str, Any] | None = None) -> ThreadRow:
        """Say that a run of a graph begins on a thread. Clients find the threads of a graph by this metadata."""
        about = {"graph_id": graph, "assistant_id": assistant_id}

        def change(row: ThreadRow) -> ThreadRow:
            configs = row.config if config is None else {**row.config, **config}
            return replace(row, metadata={**row.metadata, **about}, config=configs, written=None)

        return self.change(thread_id, change)

    def note_write(self, thread_id: str, run_id: str | None, *, is_left: bool, created_at: float) -> None:
        """Note that a client has written the state of a thread, whose newest run is `run_id`. `is_left`: steps are left."""
        written = {"run_id": run_id, "next": is_left, "at": self._wall()}
        self.change(thread_id, lambda row: replace(row, written=written), created_at=created_at)

    def delete(self, thread_id: str) -> None:
        """Delete the row of a thread, if there is one."""
        self._records.put(SPACE, thread_id, None, version=None)
