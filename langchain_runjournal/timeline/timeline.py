"""Pure: the events of a run -> all that its page shows.

Rule: the order of events is that of their seq. Their clock only says where to draw them. An event may hold any JSON. Times
are seconds since the run began. `transcript`, `stream_assembly` and `partial` decide what a message is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from ..events import DELTA, Event, Run
from ..events import run_state as _run_state
from ..events.run_state import as_mapping
from ..messages.attempts import Attempts
from ..messages.plain_text import shows, spoken, text_of
from .calls import ModelCall, OpenModel, OpenTool, ToolCall, as_strings, as_text, model_call, tool_call
from .conversation import DisplayedMessage, displayed_messages
from .time_axis import Axis, Clock, lanes

_WORDS: Final = ("text", "thinking", "reasoning", "args", "json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """An event about the run itself: its kind without `run.`, and its data."""

    kind: str
    at: float
    seq: int
    data: Mapping[str, Any]
    late: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """One run, as a page shows it."""

    run: Run
    """The run that the caller gave, with the end that its events have if the run was read before its end."""
    began: float
    """Wall clock, in seconds since 1970; 0 if no event has a time."""
    length: float
    """How long it took, late events included."""
    ended: float | None
    """When its `run.end` was recorded; None without one."""
    cut: float | None
    """When it was cut off, if it was."""
    events: int
    models: tuple[ModelCall, ...]
    tools: tuple[ToolCall, ...]
    marks: tuple[Mark, ...]
    messages: tuple[DisplayedMessage, ...]
    is_unreadable: bool
    """An event holds data that the journal does not record, so there are no `messages`."""
    axis: Axis
    is_dead: bool
    """It has not ended, and its owner is dead."""

    def marks_of(self, kind: str) -> list[Mark]:
        """Return the marks of one kind, in their order."""
        return [mark for mark in self.marks if mark.kind == kind]

    @property
    def lanes(self) -> int:
        """The number of rows that the tool calls need, so that no two overlap."""
        return max((tool.lane for tool in self.tools), default=-1) + 1

    @property
    def model_lanes(self) -> int:
        """The number of rows that the model calls need."""
        return max((call.lane for call in self.models), default=-1) + 1


def timeline(run: Run, events: Iterable[Event], *, is_dead: bool = False) -> Timeline:
    """Return what a page shows of a run. Never raises because of what its events hold. `is_dead`: its owner is dead."""
    found = list(events)
    reader = _Reader(run, is_dead)
    for event in found:
        reader.read(event)
    return reader.finish(found)


class _Reader:
    """The state of a run after the events that were read so far."""

    def __init__(self, run: Run, is_dead: bool) -> None:
        self.given = run
        self.is_dead = is_dead
        self.run: Run | None = None
        self.clock = Clock()
        self.models: dict[str | None, OpenModel] = {}
        self.tools: dict[str | None, OpenTool] = {}
        self.tool_of: dict[str, OpenTool] = {}
        self.marks: list[Mark] = []
        self.attempts = Attempts()
        self.over: float | None = None
        """When the run ended."""
        self.worked = 0.0
        """The time of the last event before the end that is not a mark."""
        self.stalled: float | None = None
        """The time of the first event after `worked` that says that the run was cut off."""
        self.cut: float | None = None
        """When the run was cut off; known only at the end."""

    def read(self, event: Event) -> None:
        now = self.clock.tick(event.at)
        if event.kind == DELTA:
            self._delta(event, now)
            return
        if self.run is None:
            self.run = _run_state.begin(event.run_id, event.at)
        data = event.data
        self.attempts.keep(as_strings(data.get("unused")))
        match event.kind:
            case "llm.start":
                self._start(event, data, now)
            case "llm.ai.response":
                self._respond(event, data, now)
            case "llm.ai.partial":
                self._cut_off(event, data, now)
            case "llm.error":
                call = self._model(event, now)
                call.error, call.ended = as_text(data.get("error")) or "error", now
                self._works(now)
            case "tool.start":
                self._begin_tool(event, data, now)
            case "llm.tool.result" | "tool.error":
                self._end_tool(event, data, now)
            case "llm.human.input":
                self._works(now)
            case "task.end":
                self._end_task(data)
                self._works(now)
            case "run.custom":
                self._mark(event, data, now)
                self._works(now)
            case _:
                self._mark(event, data, now)

    # --- marks --------------------------------------------------------------------------------------------------------

    def _mark(self, event: Event, data: Mapping[str, Any], now: float) -> None:
        kind = event.kind.removeprefix("run.")
        if self.run is not None:
            self.run = _run_state.advance(self.run, event)
        late = self.over is not None
        self.marks.append(Mark(kind=kind, at=now, seq=event.seq, data=data, late=late))
        if kind in ("settled", "end") or (kind == "checkpoint" and "before" in data):
            self._stalls(now)
        if kind == "end" and self.over is None:
            self.over = now

    def _works(self, now: float) -> None:
        if self.over is None:
            self.worked, self.stalled = now, None

    def _stalls(self, now: float) -> None:
        if self.over is None and self.stalled is None:
            self.stalled = now

    # --- model calls --------------------------------------------------------------------------------------------------

    def _model(self, event: Event, now: float) -> OpenModel:
        call = self.models.get(event.call_id)
        if call is None:
            call = self.models[event.call_id] = OpenModel(str(event.call_id), now, event.seq, late=self.over is not None)
        return call

    def _delta(self, event: Event, now: float) -> None:
        call = self._model(event, now)
        if self.over is not None or call.closed:
            return
        value = event.bare
        call.deltas.append(value)
        call.times.append(now)
        self.worked, self.stalled = now, None
        if isinstance(value, str):
            call.characters += len(value)
            return
        call.characters += sum(len(text) for key in _WORDS if isinstance(text := value.get(key), str))
        if isinstance(value.get("blocks"), list):
            call.characters += len(event.text)
        usage = value.get("usage")
        if isinstance(usage, Mapping):
            call.usage = usage

    def _start(self, event: Event, data: Mapping[str, Any], now: float) -> None:
        call = self._model(event, now)
        call.data = data
        call.late = call.closed = call.late or bool(data.get("late"))
        self.attempts.begin(call.call_id, as_strings(data.get("replaces")))
        self._works(now)

    def _respond(self, event: Event, data: Mapping[str, Any], now: float) -> None:
        call = self._model(event, now)
        if self.over is not None or data.get("late"):
            return
        call.role = as_text(data.get("role")) or call.role
        call.cause = as_text(as_mapping(data.get("cut")).get("cause"))
        call.ended, call.message = now, as_mapping(as_mapping(data.get("message")).get("data"))
        call.usage = as_mapping(data.get("usage")) or as_mapping(call.message.get("usage_metadata")) or call.usage
        self._works(now)

    def _cut_off(self, event: Event, data: Mapping[str, Any], now: float) -> None:
        call = self._model(event, now)
        if self.over is None:
            call.partial, call.closed = True, True
            call.cause, call.error = as_text(data.get("cause")), as_text(data.get("error")) or call.error
            call.ended = now if call.ended is None else call.ended
            self._stalls(now)

    def _end_task(self, data: Mapping[str, Any]) -> None:
        """Apply the output of a task, which decides which calls were answers."""
        self.attempts.keep(as_strings(data.get("kept")))
        self.attempts.show(as_strings(data.get("shown")))
        for id in as_strings(data.get("gave")):
            if id in self.models:
                self.models[id].role = "answer"

    def _speaks(self, call_id: str) -> bool:
        call = self.models.get(call_id)
        return call is not None and (call.message is not None or shows(call.deltas, call_id))

    def _answers(self, call_id: str) -> bool:
        call = self.models.get(call_id)
        return call is not None and (call.role or as_text(call.data.get("role")) or "answer") == "answer"

    # --- tool calls ---------------------------------------------------------------------------------------------------

    def _begin_tool(self, event: Event, data: Mapping[str, Any], now: float) -> None:
        tool = self.tools[event.call_id or f"tool {event.seq}"] = OpenTool(str(event.call_id), now, event.seq, data)
        id = data.get("tool_call_id")
        if isinstance(id, str):
            self.tool_of[id] = tool
        self._works(now)

    def _end_tool(self, event: Event, data: Mapping[str, Any], now: float) -> None:
        message = as_mapping(as_mapping(data.get("message")).get("data"))
        id = data.get("tool_call_id")
        tool = self.tools.get(event.call_id) if event.call_id is not None else None
        if tool is None and isinstance(id, str):
            tool = self.tool_of.get(id)
        if tool is None:
            # A result without a `tool.start`: an unknown tool, a human's refusal.
            key = event.call_id or f"tool {event.seq}"
            about = {**data, "name": message.get("name")}
            tool = self.tools[key] = OpenTool(str(event.call_id), now, event.seq, about, ran=False)
            if isinstance(id, str):
                self.tool_of[id] = tool
        if tool.ended is None or event.call_id is not None:
            tool.ended, tool.ended_seq, tool.late = now, event.seq, self.over is not None
        if event.kind == "tool.error":
            tool.outcome = "interrupted" if data.get("interrupted") else "error"
            tool.text = as_text(data.get("error")) or ""
        else:
            tool.outcome = "error" if message.get("status") == "error" else "result"
            tool.text = text_of(message.get("content")) if message else spoken(data.get("output"))
        self._works(now)

    # --- the whole ----------------------------------------------------------------------------------------------------

    def finish(self, events: Sequence[Event]) -> Timeline:
        run = self._run()
        end = self.clock.now
        self.cut = self._cut(run)
        axis = self.clock.axis()
        is_known = self.over is not None and run.cause != "crash"
        models = list(self.models.values())
        tools = list(self.tools.values())
        spans = [(call.began, self._end_of(call.ended, call.late)) for call in models]
        model_lanes = lanes(spans, axis)
        calls = tuple(
            model_call(
                call,
                span,
                lane,
                axis,
                over=self.over is not None,
                is_known=is_known,
                replaced=self.attempts.is_outdone(call.call_id, self._speaks, self._answers),
                unused=self.attempts.is_unused(call.call_id),
            )
            for call, span, lane in zip(models, spans, model_lanes, strict=True)
        )
        tool_spans = [(tool.began, self._end_of(tool.ended, tool.began > (self.over or end))) for tool in tools]
        tool_lanes = lanes(tool_spans, axis)
        made = tuple(
            tool_call(tool, span[1], lane, is_known=is_known)
            for tool, span, lane in zip(tools, tool_spans, tool_lanes, strict=True)
        )
        facts = {id: (tool.seq, tool.ended_seq, tool.outcome, tool.text) for id, tool in self.tool_of.items()}
        settled = [(mark.seq, mark.data) for mark in self.marks if mark.kind == "settled"]
        messages = displayed_messages(run, events, settled, facts)
        return Timeline(
            run=run,
            began=self.clock.began,
            length=end,
            ended=self.over,
            cut=self.cut,
            events=len(events),
            models=calls,
            tools=made,
            marks=tuple(self.marks),
            messages=messages or (),
            is_unreadable=messages is None,
            axis=axis,
            is_dead=self.is_dead and self.over is None,
        )

    def _run(self) -> Run:
        """Return the given run, with the end that the events have if the run was read before its end."""
        seen = self.run
        if seen is not None and seen.ended and not self.given.ended:
            return replace(self.given, **{name: getattr(seen, name) for name in _ENDING})
        return self.given

    def _cut(self, run: Run) -> float | None:
        if str(run.status) not in ("interrupted", "failed"):
            return None
        # After a crash, the process that recovers the run records its end, at any later time.
        return self.worked if run.cause == "crash" or self.stalled is None else self.stalled

    def _end_of(self, ended: float | None, late: bool) -> float:
        """Return the time at which the page lets a call end, also one that has not ended."""
        if ended is not None:
            return ended
        if late or self.over is None:
            return self.clock.now
        return self.over if self.cut is None else self.cut


_ENDING: Final = ("status", "cause", "error", "ended_at", "settled", "problem", "given_up", "usage")
