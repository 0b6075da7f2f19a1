"""Pure: the events of a run -> all that a picture of it needs.

Rule: the order of events is that of their seq; their clock only says where to draw them, and any JSON will do as data. Times
are seconds since the run began. What a message is, is decided elsewhere (`transcript`, `stream_assembly`, `partial`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ..events import DELTA, Event, Run
from ..events import run_state as _fold
from ..events.run_state import as_mapping
from ..messages.attempts import Attempts
from ..messages.plain_text import shows, spoken, text_of
from .calls import ModelCall, OpenModel, OpenTool, ToolCall, as_strings, as_text, model_call, tool_call
from .conversation import DisplayedMessage, told
from .time_axis import Axis, Clock, lanes

_WORDS: Final = ("text", "thinking", "reasoning", "args", "json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Something that was said of the run itself: its kind without `run.`, and its data."""

    kind: str
    at: float
    seq: int
    data: Mapping[str, Any]
    late: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """One run, to be drawn."""

    run: Run
    """As its events tell it, and where they are silent, as it was given."""
    began: float
    """Wall clock, in seconds since 1970; 0 if no event has a time."""
    length: float
    """How long it took, with what came late."""
    ended: float | None
    """When its end was told; None if it was not."""
    cut: float | None
    """Where it was cut off, if it was."""
    events: int
    models: tuple[ModelCall, ...]
    tools: tuple[ToolCall, ...]
    marks: tuple[Mark, ...]
    messages: tuple[DisplayedMessage, ...]
    unread: int
    """Events that hold something else than they should, and are not among the messages."""
    axis: Axis
    is_gone: bool
    """It has not ended, and nobody works on it any more."""

    def marks_of(self, kind: str) -> list[Mark]:
        """Those of one kind, in their order."""
        return [mark for mark in self.marks if mark.kind == kind]

    @property
    def lanes(self) -> int:
        """How many tools were drawn beside each other."""
        return max((tool.lane for tool in self.tools), default=-1) + 1

    @property
    def model_lanes(self) -> int:
        """How many model calls were."""
        return max((call.lane for call in self.models), default=-1) + 1


def timeline(run: Run, events: Iterable[Event], *, is_gone: bool = False) -> Timeline:
    """What there is to draw of a run. Never raises because of what its events hold. `is_gone`: its process is."""
    found = list(events)
    reader = _Reader(run, is_gone)
    for event in found:
        reader.read(event)
    return reader.finish(found)


class _Reader:
    """What has been read of a run so far."""

    def __init__(self, run: Run, is_gone: bool) -> None:
        self.given = run
        self.is_gone = is_gone
        self.run: Run | None = None
        self.clock = Clock()
        self.models: dict[str | None, OpenModel] = {}
        self.tools: dict[str | None, OpenTool] = {}
        self.tool_of: dict[str, OpenTool] = {}
        self.marks: list[Mark] = []
        self.attempts = Attempts()
        self.over: float | None = None
        self.worked = 0.0
        """When something happened last that was no mark."""
        self.cut: float | None = None
        """When it was noticed first, after that, that it goes no further."""
        self.stands: float | None = None
        """Where it was cut off."""

    def read(self, event: Event) -> None:
        now = self.clock.tick(event.at)
        if event.kind == DELTA:
            self._delta(event, now)
            return
        if self.run is None:
            self.run = _fold.begin(event.run_id, event.at)
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
            case _:
                self._mark(event, data, now)

    # --- marks --------------------------------------------------------------------------------------------------------

    def _mark(self, event: Event, data: Mapping[str, Any], now: float) -> None:
        kind = event.kind.removeprefix("run.")
        if self.run is not None:
            self.run = _fold.advance(self.run, event)
        late = self.over is not None
        self.marks.append(Mark(kind=kind, at=now, seq=event.seq, data=data, late=late))
        if kind in ("settled", "end") or (kind == "checkpoint" and "before" in data):
            self._stands_still(now)
        if kind == "end" and self.over is None:
            self.over = now

    def _works(self, now: float) -> None:
        if self.over is None:
            self.worked, self.cut = now, None

    def _stands_still(self, now: float) -> None:
        if self.over is None and self.cut is None:
            self.cut = now

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
        self.worked, self.cut = now, None
        if isinstance(value, str):
            call.characters += len(value)
            return
        call.characters += sum(len(said) for key in _WORDS if isinstance(said := value.get(key), str))
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
            self._stands_still(now)

    def _end_task(self, data: Mapping[str, Any]) -> None:
        """What a task gave back decides which calls were answers."""
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
        id = data.get("tool_call_id") or message.get("tool_call_id")
        tool = self.tools.get(event.call_id) if event.call_id is not None else None
        if tool is None and isinstance(id, str):
            tool = self.tool_of.get(id)
        if tool is None:
            # An unknown tool, a human's refusal: a result that no tool has reported.
            key = event.call_id or f"tool {event.seq}"
            about = {**data, "tool_call_id": id, "name": data.get("name") or message.get("name")}
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
        run = self._told_run()
        end = self.clock.now
        self.stands = self._cut(run)
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
        known = {id: (tool.seq, tool.ended_seq, tool.outcome, tool.text) for id, tool in self.tool_of.items()}
        settled = [(mark.seq, mark.data) for mark in self.marks if mark.kind == "settled"]
        messages, unread = told(run, events, settled, known)
        return Timeline(
            run=run,
            began=self.clock.began,
            length=end,
            ended=self.over,
            cut=self.stands,
            events=len(events),
            models=calls,
            tools=made,
            marks=tuple(self.marks),
            messages=messages,
            unread=unread,
            axis=axis,
            is_gone=self.is_gone and self.over is None,
        )

    def _told_run(self) -> Run:
        """A run that was read before its last events did not know them yet."""
        seen = self.run
        if seen is not None and seen.ended and not self.given.ended:
            return Run(
                run_id=self.given.run_id,
                **{name: getattr(seen, name) for name in _TOLD},
                **{name: getattr(self.given, name) for name in _GIVEN},
            )
        return self.given

    def _cut(self, run: Run) -> float | None:
        if str(run.status) not in ("interrupted", "failed"):
            return None
        # After a crash, the end is told by whoever finds the run, at any time.
        return self.worked if run.cause == "crash" or self.cut is None else self.cut

    def _end_of(self, ended: float | None, late: bool) -> float:
        """Where something ends that may not have ended."""
        if ended is not None:
            return ended
        if late or self.over is None:
            return self.clock.now
        return self.over if self.stands is None else self.stands


_TOLD: Final = ("status", "cause", "error", "ended_at", "settled", "problem", "given_up", "usage")
_GIVEN: Final = ("thread_id", "name", "started_at", "stop", "lost", "owner", "epoch", "last_seq", "metadata")
