"""Pure: what the journal knows of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .event import Event
from .vocabulary import CONTINUES, RunStatus


class Begun(NamedTuple):
    """A run of a store, and when it began: before all runs of the store with a larger number."""

    number: int
    run_id: str
    thread_id: str | None


class _Source:
    """A way to read the events of a run. It is used to draw the run, and is not part of its value."""

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
    """Why the run was interrupted: stop, disconnect, timeout, shutdown, crash or superseded."""
    error: str | None = None
    started_at: float = 0.0
    """The wall clock of the first event, in seconds since 1970."""
    ended_at: float | None = None
    settled: bool = True
    """False while the thread of an ended run may lack what the journal holds. `problem` says why, and `given_up` whether the
    journal will try again. The journal never prunes such a run until it is settled or given up."""
    problem: str | None = None
    """Why the thread does not hold what the journal holds; None for a run that is settled."""
    given_up: bool = False
    """Whether the journal leaves the thread as it is: it cannot write the graph's state, or the conversation has
    continued."""
    stop: str | None = None
    """The cause of a stop request, from the moment of the request; None without one."""
    lost: int = 0
    """The number of events that the journal dropped because it could not write for too long."""
    owner: str | None = None
    """The journal that may append to the run. None while the run waits for a human: then no process works on it, and any
    journal may claim it."""
    epoch: int = 1
    """A number that grows by one with each claim."""
    last_seq: int = 0
    """The seq of the last durable event."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    usage: Mapping[str, Any] = field(default_factory=dict)
    """By model, the sum of the usage that the provider reported; `calls`, and how many of them are `incomplete`, which means
    without a report."""

    @property
    def continues(self) -> str | None:
        """The run that this one resumes, if `start_run` began it with a resume."""
        found = self.metadata.get(CONTINUES)
        return found if isinstance(found, str) else None

    @property
    def ended(self) -> bool:
        """Whether the run has its `run.end`."""
        return self.status.ended

    @property
    def done(self) -> bool:
        """Whether the run has ended, and nothing is left to do for its thread."""
        return self.ended and (self.settled or self.given_up)

    def _repr_html_(self) -> str:
        """Return the timeline of the run, for notebooks; a summary where its events can no longer be read."""
        return self._repr_mimebundle_()["text/html"]

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """Return the timeline of the run for notebooks: as HTML, and as an SVG image for viewers that show no HTML.

        `include` and `exclude` are the MIME types that a notebook asks for; it removes the others itself.
        """
        from ..view import bundle, summary

        read = getattr(self, "_events", None)
        events = None if read is None else read()
        return {"text/html": summary(self)} if events is None else bundle(self, events)


def with_events(run: Run, read: Callable[[], list[Event] | None]) -> Run:
    """Return the same run with a way to read its events."""
    object.__setattr__(run, "_events", read)
    return run
