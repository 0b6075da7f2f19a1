"""Pure: the state of a run as the fold of its events.

Rule: only the marks of a run count, in the order of their seq, and their data may be any JSON. The same events give the same
run, whether they come from the store, from a spool, or from memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..common.text import is_utf8
from .event import Event
from .run import Run
from .vocabulary import RunStatus


def begin(run_id: str, at: float, owner: str | None = None) -> Run:
    """Return the run as it is just before its first event."""
    return Run(run_id=run_id, started_at=at, owner=owner)


def advance(run: Run, event: Event) -> Run:
    """Return the run after `event`. Only a mark changes it, and of the late marks only a settlement."""
    data = event.data
    match event.kind:
        case "run.start":
            return replace(
                run,
                thread_id=_thread(data.get("thread_id"), run.thread_id),
                name=_text(data.get("name"), run.name),
                metadata=as_mapping(data.get("metadata")) or run.metadata,
                status=run.status if run.ended else RunStatus.RUNNING,
            )
        case "run.pause":
            usage = as_mapping(data.get("usage")) or run.usage
            return run if run.ended else replace(run, status=RunStatus.PAUSED, usage=usage)
        case "run.stop":
            return run if run.ended or run.stop else replace(run, stop=_text(data.get("cause"), "stop"))
        case "run.settled":
            return replace(run, **_standing(data))
        case "run.lost":
            return replace(run, lost=run.lost + _number(data.get("events")))
        case "run.end":
            return run if run.ended else _ended(run, event.at, data)
        case _:
            return run


def shown(run: Run) -> Run:
    """Return the run as readers see it: without an owner while it waits for a human. Its last owner still fences others."""
    return replace(run, owner=None) if run.status == RunStatus.PAUSED else run


def _ended(run: Run, at: float, data: Any) -> Run:
    return replace(
        run,
        status=_status(data.get("status")),
        cause=_text(data.get("cause"), None),
        error=_text(data.get("error"), None),
        ended_at=at,
        usage=as_mapping(data.get("usage")),
        **_standing(data),
    )


def _standing(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an end or a settlement says of the thread."""
    if data.get("settled") is not False:
        return {"settled": True, "given_up": False, "problem": None}
    problem = _text(data.get("problem") or data.get("reason"), None)
    return {"settled": False, "given_up": data.get("given_up") is True, "problem": problem}


def _text(value: object, default: str | None) -> str | None:
    # An event, which is JSON, can hold half of a surrogate pair. A column of a database cannot.
    return default if value is None else str(value).encode("utf-8", "replace").decode()


def _thread(value: object, default: str | None) -> str | None:
    """Return the thread that a run names; the default if a column cannot hold its id.

    With a sign in place of half of a surrogate pair, it could be the id of another thread.
    """
    return default if value is None or not is_utf8(str(value)) else str(value)


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def as_mapping(value: object) -> Mapping[str, Any]:
    """Return a mapping as it is, and an empty one for any other value."""
    return value if isinstance(value, Mapping) else {}


def _status(value: object) -> RunStatus:
    """Return the status of an end. An unknown status, from a later release, is an end as well."""
    if value is None:
        return RunStatus.COMPLETED
    known = [status for status in RunStatus if status == value and status.ended]
    return known[0] if known else RunStatus.FAILED
