"""Pure: events -> what a run says of itself.

Rule: a run is the fold of its marks, in the order of their seq, and of nothing else, and any JSON will do as data.
Whoever has the same events has the same run, whether they came from the store, from a spool, or from memory.
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
    """The run as it is just before its first event."""
    return Run(run_id=run_id, started_at=at, owner=owner)


def advance(run: Run, event: Event) -> Run:
    """The run after `event`. Anything but a mark, and any late mark but a settlement, changes nothing."""
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
    """The run as readers see it: while it waits for a human, it is nobody's. Its last owner still fences others off."""
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
    """What an end or a settlement says of the thread."""
    if data.get("settled") is not False:
        return {"settled": True, "given_up": False, "problem": None}
    problem = _text(data.get("problem") or data.get("reason"), None)
    return {"settled": False, "given_up": data.get("given_up") is True, "problem": problem}


def _text(value: object, default: str | None) -> str | None:
    # Half of a surrogate pair can be in an event, which is JSON, but in no column of a database.
    return default if value is None else str(value).encode("utf-8", "replace").decode()


def _thread(value: object, default: str | None) -> str | None:
    """The thread that a run names; none if it can be no column: with a sign in its place, it might be another one's."""
    return default if value is None or not is_utf8(str(value)) else str(value)


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def as_mapping(value: object) -> Mapping[str, Any]:
    """It, if it is a mapping, and else an empty one."""
    return value if isinstance(value, Mapping) else {}


def _status(value: object) -> RunStatus:
    """The status of an end. One that this release does not know is an end all the same."""
    if value is None:
        return RunStatus.COMPLETED
    known = [status for status in RunStatus if status == value and status.ended]
    return known[0] if known else RunStatus.FAILED
