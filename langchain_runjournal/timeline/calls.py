"""Pure: one model or tool call of a run, while its events are read (`OpenModel`, `OpenTool`) and as a page shows it."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from ..events.run_state import as_mapping
from ..messages.plain_text import Asked, asked_of, spoken, streamed, text_of, thinking_of
from .time_axis import Axis

ModelOutcome: TypeAlias = Literal["complete", "partial", "error", "open"]
ToolOutcome: TypeAlias = Literal["result", "error", "interrupted", "open"]

_BINS: Final = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCall:
    """One model call. `open`: it has not ended, and has streamed nothing that a partial answer would keep."""

    call_id: str
    model: str
    role: str
    node: str | None
    namespace: str | None
    """The checkpoint namespace of its task in LangGraph."""
    step: int | None
    inside: str | None
    """The tool call in which it runs."""
    attempt: int
    replaces: tuple[str, ...]
    """The ids of the calls that it replaces: it is a retry of them, or a fallback for them."""
    replaced: bool
    """A later attempt replaces it."""
    unused: bool
    """A task kept its answer to itself."""
    late: bool
    seq: int
    """The seq of its first event."""
    began: float
    first: float | None
    """When its first token arrived."""
    last: float | None
    """When its last token arrived."""
    ended: float
    """When it ended; for a call that has not ended, when the run was cut off, or its last event."""
    lasts: float | None
    """How long it took. None if that is unknown: it is running, or its process was killed."""
    outcome: ModelOutcome
    cause: str | None
    error: str | None
    deltas: int
    characters: int
    silence: float
    """The longest wait between two tokens, or between the last token and the end."""
    flow: tuple[int, ...]
    """The number of tokens in each of several equal parts of the picture between `first` and `last`."""
    usage: Mapping[str, Any]
    cost: float | None
    """In US dollars, if the provider reported it."""
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
    node: str | None
    namespace: str | None
    step: int | None
    inside: str | None
    ran: bool
    """Whether a tool ran: a result may have no `tool.start`."""
    seq: int
    began: float
    ended: float
    lasts: float | None
    """Both `ended` and `lasts` are as in `ModelCall`."""
    outcome: ToolOutcome
    late: bool
    """It ended after the run."""
    text: str
    """Its result or its error."""
    lane: int


@dataclass(slots=True)
class OpenModel:
    """A model call whose events are being read."""

    call_id: str
    began: float
    seq: int
    data: Mapping[str, Any] = field(default_factory=dict)
    role: str | None = None
    """The role that a later event gave it."""
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
    """A tool call whose events are being read."""

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
    """Return a model call as a page shows it. `is_known`: a call without an end ended with its run, at a known time."""
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
        namespace=as_text(data.get("checkpoint_ns")),
        step=_as_step(data.get("step")),
        inside=as_text(data.get("inside")),
        replaces=tuple(as_strings(data.get("replaces"))),
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
        cost=reported_cost(call.usage, (message or {}).get("response_metadata")),
        text=text_of(content),
        thinking=thinking_of(content, (message or {}).get("additional_kwargs")),
        asked=asked_of(message) if message is not None else tuple(calls or ()),
        lane=lane,
    )


def tool_call(tool: OpenTool, ended: float, lane: int, *, is_known: bool) -> ToolCall:
    """Return a tool call as a page shows it; `is_known` as in `model_call`."""
    data = tool.data
    return ToolCall(
        call_id=tool.call_id,
        tool_call_id=as_text(data.get("tool_call_id")),
        name=as_text(data.get("name")) or "tool",
        args=data.get("args"),
        node=as_text(data.get("node")),
        namespace=as_text(data.get("checkpoint_ns")),
        step=_as_step(data.get("step")),
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


def reported_cost(usage: Mapping[str, Any], metadata: object) -> float | None:
    """Return the cost of a call in US dollars, where a provider or a gateway reported it; the journal has no price list.

    It is looked for beside the tokens and in the metadata of the response: `cost`, `total_cost` or `response_cost`.
    """
    about = as_mapping(metadata)
    for holder in (usage, about, as_mapping(about.get("token_usage")), as_mapping(about.get("usage"))):
        for name in ("cost", "total_cost", "response_cost"):
            found = holder.get(name)
            found = as_mapping(found).get("total_cost", found)
            if isinstance(found, (int, float)) and not isinstance(found, bool) and 0 <= found < 1e9:
                return float(found)
    return None


def _as_step(value: object) -> int | None:
    return value if isinstance(value, int) else None


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
    # At least four tokens a part on average: with one or two, the shape would show chance.
    bins = [0] * max(1, min(_BINS, len(times) // 4, round((last - first) * 2 * _BINS)))
    scale = len(bins) / (last - first) if last > first else 0.0
    for at in times:
        bins[min(len(bins) - 1, int((axis.place(at) - first) * scale))] += 1
    return tuple(bins)


def as_text(value: object) -> str | None:
    """Return any value as text; None stays None."""
    return None if value is None else value if isinstance(value, str) else spoken(value)


def as_strings(value: object) -> list[str]:
    """Return the strings in a list; an empty list for any other value."""
    return [one for one in value if isinstance(one, str)] if isinstance(value, (list, tuple)) else []
