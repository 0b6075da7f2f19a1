"""Pure: the events of a run -> its messages.

Rule: a transcript is what the thread should hold of the run: the input of the caller, and the model's answers, each followed
by the results of its tool calls in the order of the calls. The journal keeps, and the transcript leaves out, calls that a
later attempt has replaced (see `attempts`), helper calls, and what happened inside of a tool. Nothing that a model says
after the end of its run counts: the user has seen the end. A tool's result counts whenever it comes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..common.packed import copied
from ..events import DELTA, Event, visible_text
from .attempts import Attempts
from .cut_answers import marked_as_cut
from .message_data import Data
from .partial import partial_message
from .stream_assembly import Streamed
from .tool_requests import request_ids


class Task(NamedTuple):
    """A task of the outermost graph, and the superstep in which that graph runs it."""

    id: str
    step: int


class Said(NamedTuple):
    """A message of a run, and the task in which it was said; None if the events do not name one."""

    message: Data
    task: Task | None = None
    graph: str = ""
    """The checkpoint namespace of the graph in which it was said; empty for the outermost graph."""
    cut: Data | None = None
    """The `cut` of the event of an answer that is not whole, though its call has ended."""


@dataclass(slots=True)
class TranscriptCall:
    """One model call, as its events describe it."""

    call_id: str
    role: str
    task: Task | None = None
    graph: str = ""
    deltas: list[str | Mapping[str, Any]] = field(default_factory=list)
    message: Data | None = None
    reason: str | None = None
    cut: Data | None = None
    closed: bool = False
    """Whether the user has seen the end of the call: then later deltas do not count."""
    results: dict[str, Data] = field(default_factory=dict)


class TranscriptReader:
    """The state of a run while its events are read, in their order."""

    def __init__(self, run_id: str, reason: str | None) -> None:
        self.run_id = run_id
        self.given_reason = reason
        self.inputs: list[Data] = []
        self.parts: list[TranscriptCall] = []
        self.calls: dict[str | None, TranscriptCall] = {}
        self.attempts = Attempts()
        self.requests: dict[str, TranscriptCall] = {}
        self.unasked: dict[str, TranscriptCall] = {}
        self.status = "running"
        self.has_completed = False
        """Whether its graph has reached its end, though the settlement of its thread may not."""
        self.cause: str | None = None
        self.ended = False

    def read(self, event: Event) -> None:
        """Read an event that is not a delta."""
        data = event.data
        self.attempts.keep(data.get("unused", ()))
        match event.kind:
            case "llm.human.input" if not self.ended:
                self.inputs.append(data["message"])
            case "llm.start" if not self.ended:
                self._start(event, data)
            case "llm.ai.response" if not self.ended and not data.get("late"):
                call = self.call_of(event)
                call.cut = data.get("cut")
                self._respond(call, data["message"], data.get("role"))
            case "llm.ai.partial" if not self.ended:
                call = self.call_of(event)
                call.reason, call.closed = "error" if data.get("error") else data.get("cause"), True
            case "llm.tool.result" if isinstance(data.get("message"), Mapping) and not data.get("inside"):
                self._answer(data["message"])
            case "task.end" if not self.ended:
                self._decide(data)
            case "run.checkpoint" if data.get("completed"):
                self.has_completed = True
            case "run.pause":
                self.status = "paused"
            case "run.end" if not self.ended:
                self.ended, self.status, self.cause = True, data.get("status", "completed"), data.get("cause")
            case _:
                pass

    def call_of(self, event: Event) -> TranscriptCall:
        """Return the call of the event. A call without a start event counts as an answer."""
        call = self.calls.get(event.call_id)
        if call is None:
            call = self.calls[event.call_id] = TranscriptCall(str(event.call_id), "answer")
            self.parts.append(call)
        return call

    def _start(self, event: Event, data: Mapping[str, Any]) -> None:
        call = self.call_of(event)
        call.closed = bool(data.get("late"))
        call.role = data.get("role", "answer")
        call.task = _task_of(data)
        call.graph = str(data.get("checkpoint_ns", "")).rpartition("|")[0]
        self.attempts.begin(call.call_id, data.get("replaces", ()))

    def _respond(self, call: TranscriptCall, message: Data, role: str | None) -> None:
        call.message, call.role = message, role or call.role
        call.deltas.clear()
        self._ask(call, message)

    def _ask(self, call: TranscriptCall, message: Data) -> None:
        for id in request_ids(message["data"]):
            if call.role == "answer" or id not in self.requests:
                self.requests[id] = call

    def _decide(self, data: Mapping[str, Any]) -> None:
        """Apply the end of a task: what it returned decides."""
        self.attempts.keep(data.get("kept", ()))
        self.attempts.show(data.get("shown", ()))
        for id in data.get("gave", ()):
            if id in self.calls:
                self.calls[id].role = "answer"
        for message in data.get("messages", ()):
            self._add(copied(message), message.get("before"), _task_of(data))

    def _add(self, message: Data, before: str | None, task: Task | None) -> None:
        """Add a message that a task has written itself, or one that replaces a model's words under the id of that answer."""
        id = message["data"].get("id")
        if message["type"] == "tool":
            self._answer(message)
            return
        live = (one for one in self.parts if one.message is not None and self._counts(one))
        call = next((one for one in live if id and one.message and one.message["data"].get("id") == id), None)
        if call is None:
            call = TranscriptCall("", "answer", task)
            places = [place for place, one in enumerate(self.parts) if before and one.call_id == before]
            self.parts.insert(places[0] if places else len(self.parts), call)
        call.message = message
        if message["type"] == "ai":
            self._ask(call, message)

    def _answer(self, message: Data) -> None:
        id = message["data"].get("tool_call_id")
        call = self.requests.get(id)
        if call is not None:
            call.results[id] = message
        elif id in self.unasked:
            self.unasked[id].message = message
        else:
            # An earlier run, which waited for a human, has asked for it.
            self.unasked[id] = TranscriptCall("", "answer", message=message)
            self.parts.append(self.unasked[id])

    @property
    def _reason(self) -> str | None:
        """Why the run ended, which explains more than why a part of it was cancelled."""
        if self.given_reason is not None:
            return self.given_reason
        return (self.cause or "error") if self.ended else None

    def said(self) -> list[Said]:
        """Return the messages of the events so far."""
        found = [Said(message) for message in self.inputs]
        for part in self.parts:
            found += [
                Said(message, part.task, part.graph, part.cut if message is part.message else None)
                for message in (self.messages_of(part) if self.stands(part) else ())
            ]
        return found

    def stands(self, call: TranscriptCall) -> bool:
        """Return whether a call answers the user, and nothing has taken the place of its answer."""
        return call.role == "answer" and self._counts(call) and not self._is_retold(call)

    def messages_of(self, call: TranscriptCall) -> list[Data]:
        """Return the message of a call, or the part that is kept of an answer that was cut off, and its tool results."""
        if call.message is not None:
            order = request_ids(call.message["data"]) if call.results else []
            return [call.message, *(call.results[id] for id in order if id in call.results)]
        if (self.has_completed or self.status == "completed") and call.call_id not in self.attempts.shown:
            return []  # the run continued without it
        partial = self._partial(call)
        return [partial] if partial is not None else []

    def _partial(self, call: TranscriptCall) -> Data | None:
        reason = "error" if call.reason == "error" else self._reason or call.reason or "running"
        said = Streamed(call.deltas, call.call_id)
        return partial_message(said, run_id=self.run_id, call_id=call.call_id, reason=reason)

    def _counts(self, call: TranscriptCall) -> bool:
        return self.attempts.counts(call.call_id, self._speaks, self._answers)

    def _is_retold(self, call: TranscriptCall) -> bool:
        """Return whether a message that its task returned instead contains the words of a call that was cut off."""
        partial = self._partial(call) if call.message is None and call.call_id in self.attempts.shown else None
        if partial is None:
            return False
        id, words = partial["data"]["id"], _words(partial)
        instead = [
            one.message for one in self.parts if not one.call_id and one.task == call.task and one.message is not None
        ]
        return any(words in _words(message) or (id and message["data"].get("id") == id) for message in instead)

    def _speaks(self, call_id: str) -> bool:
        call = self.calls.get(call_id)
        return call is not None and (call.message is not None or self._partial(call) is not None)

    def _answers(self, call_id: str) -> bool:
        call = self.calls.get(call_id)
        return call is not None and call.role == "answer"


def _words(message: Data) -> str:
    content = message["data"].get("content")
    return " ".join((content if isinstance(content, str) else visible_text({"blocks": content})).split())


def _task_of(data: Mapping[str, Any]) -> Task | None:
    id, step = data.get("task"), data.get("task_step")
    return Task(id, step) if isinstance(id, str) and isinstance(step, int) else None


def transcript(run_id: str, events: Iterable[Event], reason: str | None = None) -> list[Data]:
    """Return the messages of a run as LangChain's own dicts. `reason`: why it has ended, if the events do not say so yet."""
    return [_marked(one, run_id) for one in said(run_id, events, reason)]


def _marked(one: Said, run_id: str) -> Data:
    """Return the message, with a mark if it is an answer that was cut off inside of its tool calls.

    A settlement does not add this mark: in its thread, the message is the graph's own.
    """
    if one.cut is None:
        return one.message
    return {**one.message, "data": marked_as_cut(one.message["data"], one.cut, run_id)}


def said(run_id: str, events: Iterable[Event], reason: str | None = None) -> list[Said]:
    """Return the same messages, each with the task in which it was said."""
    reader = TranscriptReader(run_id, reason)
    call_id: str | None = None
    deltas: list[str | Mapping[str, Any]] | None = None
    for event in events:
        if event.kind == DELTA:
            if not reader.ended:
                if deltas is None or event.call_id != call_id:
                    call_id = event.call_id
                    call = reader.call_of(event)
                    deltas = [] if call.closed else call.deltas
                deltas.append(event.bare)
        else:
            reader.read(event)
    return reader.said()
