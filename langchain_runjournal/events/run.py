"""Pure: what the journal knows of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .event import Event
from .vocabulary import CONTINUES, RunStatus


class _Source:
    """Where the events of a run can be read, as of that moment: for its picture, and no part of its value."""

    __slots__ = ("_events",)

    _events: Callable[[], list[Event] | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run(_Source):
    """What the journal knows of a run, as of the moment it was read: a value, not a live view."""

    run_id: str
    thread_id: str | None = None
    name: str | None = None
    status: RunStatus = RunStatus.RUNNING
    cause: str | None = None
    """Why an interrupted run was: stop, disconnect, timeout, shutdown, crash or superseded."""
    error: str | None = None
    started_at: float = 0.0
    """Wall clock of the first event, in seconds since 1970."""
    ended_at: float | None = None
    settled: bool = True
    """False while an ended run's thread may lack what the journal holds. `problem` says why, and `given_up` whether anything
    will be tried again: until then, such a run is never pruned."""
    problem: str | None = None
    """Why its thread does not hold what the journal holds; None for a run that is settled."""
    given_up: bool = False
    """Whether its thread is left as it is: the graph's state cannot be written, or the conversation has gone on."""
    stop: str | None = None
    """The cause of a stop request, from the moment it was asked for; None if nobody asked."""
    lost: int = 0
    """Events that could not be kept because nothing could be written for too long."""
    owner: str | None = None
    """The journal that may append to it. None while it waits for a human: nobody works on it, and anybody may claim it."""
    epoch: int = 1
    """Grows by one with each claim."""
    last_seq: int = 0
    """The seq of its last durable event."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    usage: Mapping[str, Any] = field(default_factory=dict)
    """By model, the sum of what the provider reported; `calls`, and how many of them are `incomplete`: did not report."""

    @property
    def continues(self) -> str | None:
        """The run that this one took up, if `start_run` began it with a resume."""
        found = self.metadata.get(CONTINUES)
        return found if isinstance(found, str) else None

    @property
    def ended(self) -> bool:
        """Whether the run has had its `run.end`."""
        return self.status.ended

    @property
    def done(self) -> bool:
        """Whether it has ended, and nothing is left to do for its thread."""
        return self.ended and (self.settled or self.given_up)

    def _repr_html_(self) -> str:
        """The time line of the run, for notebooks; what it says of itself, where its events cannot be read any more."""
        from ..view import fragment, summary

        read = getattr(self, "_events", None)
        events = None if read is None else read()
        return summary(self) if events is None else fragment(self, events)


def with_events(run: Run, read: Callable[[], list[Event] | None]) -> Run:
    """The same run, which knows how to read its events."""
    object.__setattr__(run, "_events", read)
    return run
