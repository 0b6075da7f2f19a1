"""Pure: a thread as clients read it: its status and its times follow from its newest run and its row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, Final

from ...events import Run, RunStatus

STATUSES: Final = ("idle", "busy", "interrupted", "error")


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadRow:
    """What is stored of a thread. Times are seconds since 1970."""

    thread_id: str
    created_at: float
    updated_at: float
    metadata: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    """The config of its newest run, as far as a client may see it."""
    written: Mapping[str, Any] | None = None
    """After a client has written the state: the newest run then (`run_id`), whether steps are left (`next`), and when
    (`at`)."""

    def to_json(self) -> dict[str, Any]:
        """Return the value of the record."""
        names = ("created_at", "updated_at", "metadata", "config", "written")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownThread:
    """What is known of a thread without its state."""

    thread_id: str
    row: ThreadRow | None
    newest: Run | None
    graph: str | None
    """The graph of its newest run, or the one that its metadata names."""
    is_waiting: bool
    """Whether a run waits to begin."""
    metadata: Mapping[str, Any]

    @property
    def status(self) -> str:
        """Its status in the words of LangGraph Server."""
        newest, written = self.newest, None if self.row is None else self.row.written
        if self.is_waiting or (newest is not None and newest.status == RunStatus.RUNNING):
            return "busy"
        if written is not None and written.get("run_id") == (newest and newest.run_id):
            return "interrupted" if written.get("next") else "idle"
        if newest is None:
            return "idle"
        if newest.status == RunStatus.PAUSED:
            return "interrupted"
        has_failed = newest.status == RunStatus.FAILED or newest.cause == "crash"
        return "error" if has_failed else "idle"

    @property
    def created_at(self) -> float:
        """When it was created."""
        return self.row.created_at if self.row is not None else self.newest.started_at if self.newest else 0.0

    @property
    def updated_at(self) -> float:
        """When it, or one of its runs, changed for the last time."""
        return max(self.row.updated_at if self.row is not None else 0.0, self.state_updated_at)

    @property
    def state_updated_at(self) -> float:
        """When its newest run began or ended, or a client wrote its state."""
        newest, written = self.newest, None if self.row is None else self.row.written
        by_run = self.created_at if newest is None else newest.ended_at or newest.started_at
        return by_run if written is None else max(by_run, written.get("at", 0.0))

    @property
    def error(self) -> dict[str, str] | None:
        """The error of its newest run, if that has failed."""
        if self.status != "error" or self.newest is None:
            return None
        kind, _, message = (self.newest.error or self.newest.cause or "Error").partition(": ")
        return {"error": kind, "message": message}


def thread_json(known: KnownThread, values: Any, interrupts: Mapping[str, Any]) -> dict[str, Any]:
    """Return a thread as clients read it."""
    return {
        "thread_id": known.thread_id,
        "created_at": timestamp(known.created_at),
        "updated_at": timestamp(known.updated_at),
        "state_updated_at": timestamp(known.state_updated_at),
        "metadata": dict(known.metadata),
        "status": known.status,
        "config": {"configurable": {}, **(known.row.config if known.row is not None else {})},
        "values": values,
        "error": known.error,
        "interrupts": dict(interrupts),
    }


THREAD_FIELDS: Final = (
    "thread_id",
    "created_at",
    "updated_at",
    "state_updated_at",
    "metadata",
    "status",
    "config",
    "context",
    "values",
    "error",
    "interrupts",
)


def timestamp(seconds: float) -> str:
    """Return a time as ISO 8601 in UTC."""
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat()
