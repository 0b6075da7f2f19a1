"""What happened in a run, folded from its events in one pass: its calls, what it waits for, what was settled.

Nothing of the text is kept, so that a run of any length can be looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..events import DELTA, Event, Run
from ._words import content_text


@dataclass(slots=True)
class Call:
    """One call of a model or of a tool."""

    kind: str
    """"model" or "tool"."""
    name: str
    began: float
    role: str = ""
    """Of a model: "answer", "helper" or "subagent"."""
    inside: str | None = None
    args: Any = None
    call_id: str | None = None
    tool_call_id: str | None = None
    outcome: str = "open"
    """"open", "complete", "cut off", "failed", "replaced" or, of a tool, "waits for a human" or "not finished"."""
    why: str | None = None
    ended: float | None = None
    deltas: int = 0
    first: float | None = None
    """When the first delta came."""
    last: float | None = None
    late: bool = False
    usage: Mapping[str, Any] = field(default_factory=dict)

    def to_data(self) -> dict[str, Any]:
        """For a program."""
        return {
            "kind": self.kind,
            "name": self.name,
            "role": self.role or None,
            "inside": self.inside,
            "args": self.args,
            "call_id": self.call_id,
            "tool_call_id": self.tool_call_id,
            "outcome": self.outcome,
            "why": self.why,
            "started_at": self.began,
            "ended_at": self.ended,
            "deltas": self.deltas,
            "first_delta_at": self.first,
            "late": self.late,
            "usage": dict(self.usage),
        }


class Story:
    """See the module."""

    def __init__(self, events: Iterable[Event]) -> None:
        self.calls: list[Call] = []
        self.inputs: list[str] = []
        self.waits_for: list[Any] = []
        self.settlements: list[dict[str, Any]] = []
        self.problem: str | None = None
        """Why its thread could not be settled, of a run that has ended."""
        self.last_at: float | None = None
        self._models: dict[str | None, Call] = {}
        self._tools: dict[str, Call] = {}
        for event in events:
            self.read(event)

    def close(self, run: Run, is_abandoned: bool) -> None:
        """Nobody works on it any more, or maybe somebody does: what is open then."""
        for call in self.calls:
            if call.outcome == "open" and (run.ended or is_abandoned):
                # Of a process that was killed, nothing says so.
                call.outcome = "cut off" if call.kind == "model" else "not finished"
                call.why = run.cause
                call.ended = call.last or self.last_at

    def read(self, event: Event) -> None:
        """One more event."""
        self.last_at = event.at
        if event.kind == DELTA:
            call = self._begin(event)
            call.deltas += 1
            call.first, call.last = call.first or event.at, event.at
            return
        data = event.data
        for replaced in (*_list(data.get("replaces")), *_list(data.get("unused"))):
            if isinstance(replaced, str) and replaced in self._models:
                self._models[replaced].outcome = "replaced"
        match event.kind:
            case "llm.human.input":
                self.inputs.append(content_text(_message(data).get("content")))
            case "llm.start" | "llm.ai.response" | "llm.ai.partial" | "llm.error":
                self._of_model(event, data)
            case "tool.start" | "llm.tool.result" | "tool.error":
                self._of_tool(event, data)
            case _:
                self._of_run(event, data)

    def _of_run(self, event: Event, data: Mapping[str, Any]) -> None:
        match event.kind:
            case "run.start":
                self.waits_for = []
            case "run.pause":
                self.waits_for = [
                    one.get("value") if isinstance(one, Mapping) else one for one in _list(data.get("interrupts"))
                ]
            case "run.settled":
                self.settlements.append({**data, "at": event.at})
                self.problem = None
            case "run.end":
                self.problem = str(data["problem"]) if data.get("problem") else None
            case _:
                pass

    def model(self, call_id: str | None) -> Call:
        """A call of a model of which something has been read."""
        return self._models[call_id]

    def tool(self, event: Event) -> Call:
        """The call of a tool that an event which has been read speaks of."""
        return self._tools[str(event.data.get("tool_call_id"))]

    def _begin(self, event: Event) -> Call:
        call = self._models.get(event.call_id)
        if call is None:
            call = Call(kind="model", name="", began=event.at, role="answer", call_id=event.call_id)
            self._models[event.call_id] = call
            self.calls.append(call)
        return call

    def _of_model(self, event: Event, data: Mapping[str, Any]) -> None:
        call = self._begin(event)
        if event.kind == "llm.start":
            call.name, call.role = str(data.get("model") or ""), str(data.get("role") or "answer")
            call.inside, call.late = data.get("inside"), bool(data.get("late"))
            return
        call.ended = event.at
        if event.kind == "llm.ai.response":
            call.outcome = "complete"
            usage = _message(data).get("usage_metadata") or data.get("usage")
            call.usage = usage if isinstance(usage, Mapping) else {}
        elif event.kind == "llm.ai.partial":
            call.outcome, call.why = "cut off", data.get("error") or data.get("cause")
        else:
            call.outcome, call.why = "failed", data.get("error")

    def _of_tool(self, event: Event, data: Mapping[str, Any]) -> None:
        id = str(data.get("tool_call_id"))
        call = self._tools.get(id)
        if call is None or event.kind == "tool.start":
            name = data.get("name") or _message(data).get("name") or ""
            call = self._tools[id] = Call(
                kind="tool", name=str(name), began=event.at, tool_call_id=id, call_id=event.call_id
            )
            call.args, call.inside = data.get("args"), data.get("inside")
            self.calls.append(call)
        if event.kind == "tool.start":
            return
        call.ended, call.late = event.at, bool(data.get("late"))
        if event.kind == "tool.error":
            call.outcome = "waits for a human" if data.get("interrupted") else "failed"
            call.why = data.get("error")
        elif call.outcome != "failed":
            call.outcome = "failed" if _message(data).get("status") == "error" else "complete"


def _message(data: Mapping[str, Any]) -> Mapping[str, Any]:
    message = data.get("message")
    inner = message.get("data") if isinstance(message, Mapping) else None
    return inner if isinstance(inner, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else []
