"""Pure: one model or tool call of a run: while its events are read, and as it is drawn."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from ..messages.plain_text import Asked, asked_of, spoken, streamed, text_of, thinking_of
from .time_axis import Axis

ModelOutcome: TypeAlias = Literal["complete", "partial", "error", "open"]
ToolOutcome: TypeAlias = Literal["result", "error", "interrupted", "open"]

_BINS: Final = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCall:
    """One model call. `open`: it has said nothing that is kept, and has not ended."""

    call_id: str
    model: str
    role: str
    node: str | None
    inside: str | None
    """The tool call in which it happens."""
    attempt: int
    replaced: bool
    """A later call has taken its place."""
    unused: bool
    """Nobody was given its answer."""
    late: bool
    seq: int
    """Of its first event."""
    began: float
    first: float | None
    """When its first token came."""
    last: float | None
    """When its last one did."""
    ended: float
    """When it ended; if it has not, as far as the run has come."""
    lasts: float | None
    """How long it took. None if nobody knows: it goes on, or its process was killed."""
    outcome: ModelOutcome
    cause: str | None
    error: str | None
    deltas: int
    characters: int
    silence: float
    """The longest wait between two tokens, or for the end."""
    flow: tuple[int, ...]
    """Tokens, in equal parts of the picture between `first` and `last`."""
    usage: Mapping[str, Any]
    text: str
    thinking: str
    asked: tuple[Asked, ...]
    lane: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One tool call. `interrupted`: it waits for a human. `open`: it has not ended."""

    call_id: str
    tool_call_id: str | None
    name: str
    args: Any
    inside: str | None
    ran: bool
    """Whether a tool has run: a result may come without."""
    seq: int
    began: float
    ended: float
    lasts: float | None
    """Both as of a model call."""
    outcome: ToolOutcome
    late: bool
    """It ended after the run."""
    text: str
    """What came of it."""
    lane: int


@dataclass(slots=True)
class OpenModel:
    """A model call that is being read."""

    call_id: str
    began: float
    seq: int
    data: Mapping[str, Any] = field(default_factory=dict)
    role: str | None = None
    """What has been decided since it began."""
    late: bool = False
    closed: bool = False
    times: array[float] = field(default_factory=lambda: array("d"))
    deltas: list[str | Mapping[str, Any]] = field(default_factory=list)
    characters: int = 0
    ended: float | None = None
    message: Mapping[str, Any] | None = None
    partial: bool = False
    cause: str | None = None
    error: str | None = None
    usage: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class OpenTool:
    """A tool call that is being read."""

    call_id: str
    began: float
    seq: int
    data: Mapping[str, Any]
    ran: bool = True
    ended: float | None = None
    ended_seq: int = 0
    outcome: ToolOutcome = "open"
    late: bool = False
    text: str = ""


def model_call(
    call: OpenModel,
    span: tuple[float, float],
    lane: int,
    axis: Axis,
    *,
    over: bool,
    is_known: bool,
    replaced: bool,
    unused: bool,
) -> ModelCall:
    """A model call as it is drawn. `is_known`: what has not ended by itself ended with its run, and one knows when."""
    began, ended = span
    data, message = call.data, call.message
    content, calls = (message.get("content"), None) if message is not None else streamed(call.deltas, call.call_id)
    attempt = data.get("attempt")
    ended = max(ended, call.times[-1]) if call.times else ended
    return ModelCall(
        call_id=call.call_id,
        model=as_text(data.get("model")) or "model",
        role=call.role or as_text(data.get("role")) or "answer",
        node=as_text(data.get("node")),
        inside=as_text(data.get("inside")),
        attempt=attempt if isinstance(attempt, int) else 1,
        replaced=replaced,
        unused=unused,
        late=call.late,
        seq=call.seq,
        began=began,
        first=call.times[0] if call.times else None,
        last=call.times[-1] if call.times else None,
        ended=ended,
        lasts=ended - began if is_known or call.ended is not None else None,
        outcome=_outcome(call, over=over),
        cause=call.cause,
        error=call.error,
        deltas=len(call.times),
        characters=call.characters or len(text_of(content)),
        silence=_silence(call.times, ended),
        flow=_flow(call.times, axis),
        usage=call.usage,
        text=text_of(content),
        thinking=thinking_of(content, (message or {}).get("additional_kwargs")),
        asked=asked_of(message) if message is not None else tuple(calls or ()),
        lane=lane,
    )


def tool_call(tool: OpenTool, ended: float, lane: int, *, is_known: bool) -> ToolCall:
    """A tool call as it is drawn; `is_known` as of a model call."""
    data = tool.data
    return ToolCall(
        call_id=tool.call_id,
        tool_call_id=as_text(data.get("tool_call_id")),
        name=as_text(data.get("name")) or "tool",
        args=data.get("args"),
        inside=as_text(data.get("inside")),
        ran=tool.ran,
        seq=tool.seq,
        began=tool.began,
        ended=ended,
        lasts=ended - tool.began if is_known or tool.ended is not None else None,
        outcome=tool.outcome,
        late=tool.late,
        text=tool.text,
        lane=lane,
    )


def _outcome(call: OpenModel, *, over: bool) -> ModelOutcome:
    if call.message is not None:
        return "complete"
    if call.error is not None:
        return "error"
    return "partial" if call.partial or (over and call.times) else "open"


def _silence(times: array[float], ended: float) -> float:
    longest, before = 0.0, times[0] if times else ended
    for at in times:
        longest = max(longest, at - before)
        before = at
    return max(longest, ended - before)


def _flow(times: array[float], axis: Axis) -> tuple[int, ...]:
    if not times:
        return ()
    first, last = axis.place(times[0]), axis.place(times[-1])
    # As many as say something: with a token or two in each, the picture is of chance.
    bins = [0] * max(1, min(_BINS, len(times) // 4, round((last - first) * 2 * _BINS)))
    scale = len(bins) / (last - first) if last > first else 0.0
    for at in times:
        bins[min(len(bins) - 1, int((axis.place(at) - first) * scale))] += 1
    return tuple(bins)


def as_text(value: object) -> str | None:
    """Whatever it is, in words; None stays None."""
    return None if value is None else value if isinstance(value, str) else spoken(value)


def as_strings(value: object) -> list[str]:
    """The strings in it, if it is a list."""
    return [one for one in value if isinstance(one, str)] if isinstance(value, (list, tuple)) else []
