"""Pure: events -> what a run says of itself.

Rule: a run is the fold of its marks, in the order of their seq, and of nothing else. Whoever has the same events has the
same run, whether they came from the store, from a spool that a killed process left behind, or from memory.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .events import Event, Run, RunStatus


def begin(run_id: str, at: float, owner: str | None = None) -> Run:
    """The run as it is just before its first event."""
    return Run(run_id=run_id, started_at=at, owner=owner)


def advance(run: Run, event: Event) -> Run:
    """The run after `event`. Anything but a mark, and any late mark but a settlement, changes nothing."""
    data = event.data
    match event.kind:
        case "run.start":
            return replace(
                run,
                thread_id=_text(data.get("thread_id"), run.thread_id),
                name=_text(data.get("name"), run.name),
                metadata=data.get("metadata") or run.metadata,
                status=run.status if run.ended else RunStatus.RUNNING,
            )
        case "run.pause":
            return run if run.ended else replace(run, status=RunStatus.PAUSED)
        case "run.stop":
            return run if run.ended or run.stop else replace(run, stop=_text(data.get("cause"), "stop"))
        case "run.settled":
            return replace(run, settled=True)
        case "run.lost":
            return replace(run, lost=run.lost + int(data.get("events") or 0))
        case "run.end":
            return run if run.ended else _ended(run, event.at, data)
        case _:
            return run


def _ended(run: Run, at: float, data: Any) -> Run:
    return replace(
        run,
        status=RunStatus(data.get("status") or RunStatus.COMPLETED),
        cause=_text(data.get("cause"), None),
        error=_text(data.get("error"), None),
        ended_at=at,
        settled=data.get("settled") is not False,
        usage=data.get("usage") or {},
    )


def _text(value: object, default: str | None) -> str | None:
    return default if value is None else str(value)
