"""Pure: the events of one run, and the steps that its checkpointer holds, become the payloads of frames.

Rule: an event says what of the checkpointer is needed to show it (`wants`), and is then shown with it (`show`). So the same
events and checkpoints give the same payloads, live and at any later time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from ....events import DELTA, Event
from .messages import Messages
from .place import Payload, base_metadata, named
from .run_events import RunEvents
from .states import States
from .steps import Step, Task, Written, has_ended, json_line, shows

ALL: Final = ("values", "updates", "messages-tuple", "messages", "custom", "tasks", "checkpoints", "debug", "events")
"""The modes of streams."""
_STORED: Final = frozenset({"values", "updates", "tasks", "checkpoints", "debug", "messages-tuple", "messages", "events"})
"""The modes that need what the checkpointer holds."""
_OVER: Final = frozenset({"run.pause", "run.end"})
_ERROR: Final = "The run has failed."


@dataclass(frozen=True, kw_only=True)
class Request:
    """What of the request for a run decides how its stream looks."""

    modes: Collection[str]
    """All modes whose frames are numbered: those of the run, and those that the reader has asked for."""
    subgraphs: bool = False
    known: Mapping[str, Any] = field(default_factory=dict)
    """The ids of the graph, the assistant, the thread and the run, under the names that clients know."""
    graph: str = ""
    input: Any = None
    stops: Collection[str] = ()
    """The nodes before which the run stops, "*" for all."""
    stops_after: Collection[str] = ()
    """Those behind which it stops."""
    begins_at: str | None = None
    """The checkpoint that the request names, if the run begins there without any input."""
    continues: bool = False
    """Whether the run begins with a state that is stored, and not with an input."""


@dataclass(frozen=True, kw_only=True)
class Want:
    """What is needed to show an event."""

    step: tuple[str, str | None] | None = None
    """The namespace and the id of the checkpoint that is shown; without an id, the newest one."""
    ended: tuple[str, str | None] | None = None
    """Those of the checkpoint whose tasks have ended; without an id, the parent of `step`."""
    wrote: Literal["ended", "asked"] | None = None
    """What is known of the tasks of that checkpoint: all have ended, or some have asked a human and the others have ended.
    What they have written is stored, or about to be."""
    answered: str | None = None
    """The run that is continued: its last checkpoint is shown."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """What was found."""

    step: Step | None = None
    ended: Step | None = None
    written: Written = field(default_factory=Written)
    inner: Mapping[str, Step] = field(default_factory=dict)
    """By the ids of tasks that are graphs: their last steps."""


NOTHING: Final = Found()


class Projector:
    """The stream of one run."""

    def __init__(self, request: Request, about: Mapping[str, Any]) -> None:
        """`about`: the metadata with which the run began."""
        known = request.known
        base = base_metadata(about, known)
        modes, subgraphs = request.modes, request.subgraphs
        self._request = request
        self._messages = Messages(base, modes, subgraphs=subgraphs)
        self._states = States(base, modes, subgraphs=subgraphs, stops=request.stops)
        self._events = RunEvents(base, modes, run_id=str(known.get("run_id")), graph=request.graph, input=request.input)
        self._needs_steps = not _STORED.isdisjoint(modes)
        self.last: dict[str, str] = {}
        """By namespace, the last checkpoint that the run has stored."""
        self._activity: dict[str, int] = {}
        """By the namespace of a task, its last event. Tasks that run side by side are shown in this order."""
        self._places: dict[str, str] = {}
        self._is_resumed = request.continues
        """Whether the tasks that run in the outermost graph are of a step that another run began."""
        self._shown: str | None = None
        """The checkpoint whose values were shown last."""
        self._is_open = True
        """Whether tasks of the outermost graph may have ended without having been shown."""
        self._has_gone = False
        """Whether the checkpointer lacked a checkpoint."""
        self.is_over = False

    # --- what an event needs ------------------------------------------------------------------------------------------

    def wants(self, event: Event) -> Want | None:
        """Return what is needed to show an event, or None."""
        if not self._needs_steps or event.kind == DELTA:
            return None
        data = event.data
        match event.kind:
            case "run.start" if self._request.continues:
                if self._request.begins_at is not None:
                    return Want(step=("", self._request.begins_at), ended=("", self._request.begins_at))
                answered = (data.get("metadata") or {}).get("runjournal_continues")
                return None if answered is None else Want(answered=str(answered))
            case "run.checkpoint" if "checkpoint_id" in data:
                space = str(data.get("checkpoint_ns") or "")
                if space and not (self._request.subgraphs or data.get("source") == "loop"):
                    return None
                ended = (space, self.last.get(space)) if data.get("source") == "loop" else None
                return Want(step=(space, str(data["checkpoint_id"])), ended=ended, wrote="ended")
            case "run.pause":
                place = self.last.get("") or data.get("checkpoint_id")
                asked = ("", place) if data.get("interrupts") else None
                return None if place is None else Want(step=("", place), ended=asked, wrote="asked")
            case "run.settled":
                before = self.last.get("") or data.get("before")
                after = data.get("after")
                shown = ("", after) if after and after != self._shown else None
                return Want(step=shown, ended=("", before) if before else None)
            case "run.end":
                is_unshown = self._has_gone or (self._shown is None and data.get("status") == "completed")
                newest: tuple[str, str | None] | None = ("", None) if is_unshown else None
                place = self.last.get("") if self._is_open else None
                if data.get("status") == "completed":
                    place = self.last.get("") if "events" in self._request.modes else None
                return Want(step=newest, ended=None if place is None else ("", place))
        return None

    # --- showing ------------------------------------------------------------------------------------------------------

    def skip(self, event: Event) -> None:
        """Pass over an event that the reader has."""
        self._note(event)
        self._messages.event(event, quiet=True)
        self._events.event(event, quiet=True)
        if event.kind == "run.checkpoint":
            self._stored(event)
            if not event.data.get("checkpoint_ns") and event.data.get("source") in ("loop", "fork"):
                self._shown = event.data.get("checkpoint_id")
        elif event.kind in ("run.pause", "run.settled"):
            self._is_open = False

    def show(self, event: Event, found: Found = NOTHING) -> list[Payload]:
        """Return the payloads of an event."""
        if event.kind == DELTA:
            return [*self._events.event(event), *self._messages.event(event)]
        self._note(event)
        match event.kind:
            case "run.start":
                return list(self._begin(found, event.at))
            case "run.checkpoint":
                return list(self._checkpoint(event, found))
            case "run.custom":
                return [*self._custom(event), *self._events.event(event)]
            case "run.pause":
                return [*self._cut(found, event.at), *self._question(event, found)]
            case "run.settled":
                return [*self._cut(found, event.at), *self._values(found.step)]
            case "run.end":
                return list(self._end(event, found))
        return [*self._events.event(event), *self._messages.event(event)]

    def _note(self, event: Event) -> None:
        if isinstance(event.bare, str):
            return
        call, place = event.call_id, event.bare.get("checkpoint_ns")
        if event.kind != "run.checkpoint" and isinstance(place, str):
            self._activity[place] = event.seq
            if call is not None:
                self._places[call] = place
        elif call in self._places and event.kind != DELTA:
            self._activity[self._places[call]] = event.seq
        self.is_over = self.is_over or event.kind in _OVER

    def _stored(self, event: Event) -> None:
        data = event.data
        if "checkpoint_id" in data:
            space = str(data.get("checkpoint_ns") or "")
            self.last[space] = str(data["checkpoint_id"])
            if not space:
                self._is_open, self._is_resumed = True, False

    def _begin(self, found: Found, at: float) -> Iterator[Payload]:
        yield Payload("metadata", "metadata", json_line({"run_id": self._request.known.get("run_id"), "attempt": 1}))
        yield from self._events.begin()
        if found.step is not None:
            self.last[""] = found.step.id
            yield from self._values(found.step)
            yield from self._states.step(found.step, at, goes_on=True, written=found.written.asked())
            yield from self._events.step(found.step)

    def _checkpoint(self, event: Event, found: Found) -> Iterator[Payload]:
        if "checkpoint_id" not in event.data:
            return
        source, space = event.data.get("source"), str(event.data.get("checkpoint_ns") or "")
        step, before = found.step, found.ended
        written = found.written.at_end(is_resumed=self._is_resumed and not space)
        if source == "loop":
            yield from self._ended(found, written, event.at)
        self._stored(event)
        if step is None:
            self._has_gone = self._has_gone or (self._needs_steps and not space)
            return
        writes = list(found.written.by_task.values())
        is_first = before is None or before.source == "input" or not writes
        is_new = source == "fork" and self._shown is None
        if is_new or (source == "loop" and (is_first or shows(writes, step.shape))):
            yield from self._values(step)
        if not space:
            self._shown, self._has_gone = step.id, False
        goes_on = not before or not any(task.id in written.by_task and self._stops_after(task) for task in before.tasks)
        yield from self._states.step(step, event.at, goes_on=goes_on)
        if goes_on:
            yield from self._events.step(step)

    def _stops_after(self, task: Task) -> bool:
        return not task.is_hidden and not {task.name, "*"}.isdisjoint(self._request.stops_after)

    def _cut(self, found: Found, at: float) -> Iterator[Payload]:
        """Yield what is said of the tasks that had ended when the run was cut off, or waited for a human."""
        yield from self._ended(found, found.written.at_cut(), at)

    def _ended(self, found: Found, written: Written, at: float) -> Iterator[Payload]:
        """Yield what is said of the tasks of a step that have ended, in the order in which they were last heard of."""
        step = found.ended
        if step is None:
            return
        if not step.namespace:
            self._is_open = False
        for task in sorted(step.tasks, key=lambda one: self._activity.get(one.namespace(step.namespace), 0)):
            writes = written.by_task.get(task.id)
            if writes is None or task.is_hidden:
                continue
            if has_ended(writes):
                yield from self._messages.given(step, task, writes, found.inner.get(task.id))
            yield from self._states.ended(step, task, writes, at)
            yield from self._events.ended(step, task, writes)

    def _values(self, step: Step | None) -> Iterator[Payload]:
        if step is not None:
            if not step.namespace:
                self._shown = step.id
            yield from self._states.values(step)

    def _question(self, event: Event, found: Found) -> Iterator[Payload]:
        asked: Sequence[Any] = event.data.get("interrupts") or []
        interrupts = [{"value": one.get("value"), "id": one.get("id")} for one in asked if isinstance(one, Mapping)]
        yield from self._states.question(found.step, interrupts)

    def _custom(self, event: Event) -> Iterator[Payload]:
        data = event.data
        if data.get("name") is None and "value" in data:
            space = "|".join(str(part) for part in data.get("ns") or ())
            yield Payload("custom", named("custom", space, subgraphs=self._request.subgraphs), json_line(data["value"]))

    def _end(self, event: Event, found: Found) -> Iterator[Payload]:
        data = event.data
        is_whole = data.get("status") == "completed"
        if self._is_open and not is_whole:
            yield from self._cut(found, event.at)
        yield from self._values(found.step)
        if is_whole:
            yield from self._events.end(found.step or found.ended)
        if data.get("status") == "failed":
            yield Payload("error", "error", json_line(error_json(data.get("error"))))


def error_json(error: Any) -> dict[str, str]:
    """Return how an error is shown. `error`: its class and its text, as the journal has them."""
    kind, colon, message = str(error or "").partition(": ")
    if kind.isidentifier():
        return {"error": kind, "message": message if colon else kind}
    return {"error": "Error", "message": str(error) if error else _ERROR}
