"""Pure: the messages of a run in the order of its thread, each with its origin.

Rule: `transcript` decides what the messages are. This module adds the origin and the place of each, and inserts the
synthetic results that a settlement wrote.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias

from ..events import Event, Run
from ..events.run_state import as_mapping
from ..messages.cut_answers import known_of, recorded_cut
from ..messages.cut_calls import Cut
from ..messages.marks import MARK
from ..messages.plain_text import Asked, asked_of, text_of, thinking_of
from ..messages.tool_requests import Request, requested
from ..messages.tool_results import CallKnowledge, State, answer, answer_id
from ..messages.transcript import transcript

Origin: TypeAlias = Literal["input", "streamed", "partial", "recovered", "synthetic", "tool"]
Fact: TypeAlias = tuple[int, int, str, str]
"""A tool call: the seq of its first and of its last event (0: it has not ended), its outcome, and the text of that."""

_STATES: Final[Mapping[str, State]] = {"error": "failed", "interrupted": "waiting"}


@dataclass(frozen=True, slots=True, kw_only=True)
class DisplayedMessage:
    """One message of the thread."""

    kind: str
    """human, ai, tool, system ..."""
    origin: Origin
    text: str
    thinking: str = ""
    asked: tuple[Asked, ...] = ()
    reason: str | None = None
    """Why the answer was cut off."""
    state: State | None = None
    """Of a synthetic result: what was known of the tool call when the result was written."""
    call_id: str | None = None
    """The model call that produced it."""
    tool_call_id: str | None = None
    name: str | None = None
    failed: bool = False
    """The status of a tool message is "error"."""
    outdated: bool = False
    """It is synthetic, and the real result arrived later."""
    settled_seq: int | None = None
    """The seq of the settlement that wrote it last; None if no settlement wrote it."""
    dropped: tuple[Asked, ...] = ()
    """Tool requests in a cut-off answer, which are not part of the thread."""


class _Asking:
    """The part of an AI message that the text of a synthetic result depends on."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self.id = fields.get("id")
        self.content = fields.get("content") or ""


class _Settled:
    """The messages that settlements wrote, by id: the place of each in the order of writing, its type, its latest origin."""

    def __init__(self, settled: Sequence[tuple[int, Mapping[str, Any]]]) -> None:
        self.places: dict[str, int] = {}
        self.origins: dict[str, str] = {}
        self.kinds: dict[str, str] = {}
        self.seqs: dict[str, int] = {}
        self.last_seqs: dict[str, int] = {}
        for seq, data in settled:
            for one in written_messages(data):
                id = one.get("id")
                if isinstance(id, str) and not one.get("inserted"):
                    self.places.setdefault(id, len(self.places))
                    self.seqs.setdefault(id, seq)
                    self.last_seqs[id] = seq
                    self.origins[id], self.kinds[id] = str(one.get("origin")), str(one.get("type"))
        self.left = {id for id, origin in self.origins.items() if origin == "recovered"}
        """Ids of recovered messages that no message of the transcript has: those messages had no id before."""

    def take(self, *ids: object) -> str | None:
        """Return the first of the ids that a settlement wrote, and mark it as found."""
        found = next((id for id in ids if isinstance(id, str) and id in self.places), None)
        if found is not None:
            self.left.discard(found)
        return found


def displayed_messages(
    run: Run,
    events: Sequence[Event],
    settled: Sequence[tuple[int, Mapping[str, Any]]],
    tools: Mapping[str, Fact],
) -> tuple[DisplayedMessage, ...] | None:
    """Return the messages of the run, or None if the events are not such as the journal records.

    `settled` has the seq and the data of each `run.settled`, `tools` each tool call by its id.
    """
    try:
        return _displayed_messages(run, events, settled, tools)
    except Exception:  # noqa: BLE001 - a program may append events that hold any JSON
        return None


def _displayed_messages(
    run: Run, events: Sequence[Event], settled: Sequence[tuple[int, Mapping[str, Any]]], tools: Mapping[str, Fact]
) -> tuple[DisplayedMessage, ...]:
    answered = [one for one in events if one.kind == "llm.ai.response"]
    call_of = {id(one.data.get("message")): str(one.call_id) for one in answered}
    cuts = {one.data["message"]["data"].get("id"): one.data.get("cut") for one in answered}
    wrote = _Settled(settled)
    placed: list[tuple[int, DisplayedMessage]] = []
    asked: dict[str, tuple[Mapping[str, Any], Request]] = {}
    answers: dict[object, str] = {}
    for message in transcript(run.run_id, events):
        fields = message["data"]
        for request in requested(fields) if message["type"] == "ai" else ():
            filled = answers[request.id] = answer_id(fields.get("id"), request)
            asked[filled] = fields, request
        asks_for = fields.get("tool_call_id")
        written = wrote.take(fields.get("id"), answers.get(asks_for) if isinstance(asks_for, str) else None)
        if written in asked and wrote.origins[written] == "synthetic":
            continue  # a late result: the synthetic one stands in the thread until the thread is settled again
        if written is not None:
            asked.pop(written, None)
        shown = _displayed(message, call_of.get(id(message)), wrote.origins.get(written or ""))
        shown = replace(shown, settled_seq=wrote.last_seqs.get(written or ""))
        placed.append((_place(wrote, written), shown))
    for filled, (fields, request) in asked.items():
        if wrote.take(filled) is not None:
            cut = recorded_cut(fields, cuts.get(fields.get("id")))
            placed.append((wrote.places[filled], _written_result(run, fields, request, wrote, tools, cut)))
    _find_left(placed, wrote)
    # A settlement adds at the end what it does not insert.
    placed.sort(key=lambda one: one[0])
    return tuple(one for _, one in placed)


def written_messages(data: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return what a `run.settled` says of the messages that the settlement wrote: id, type and origin of each."""
    written = data.get("messages")
    return [one for one in written if isinstance(one, Mapping)] if isinstance(written, (list, tuple)) else []


def _place(wrote: _Settled, id: str | None) -> int:
    return -1 if id is None else wrote.places[id]


def _written_result(
    run: Run,
    fields: Mapping[str, Any],
    request: Request,
    wrote: _Settled,
    tools: Mapping[str, Fact],
    cut: Cut | None,
) -> DisplayedMessage:
    """Return the result that a settlement wrote for a request that had no result in the events before it."""
    id = answer_id(fields.get("id"), request)
    fact, seq = tools.get(str(request.id)), wrote.seqs[id]
    now = _known(fact, seq, run.run_id, run.cause or ("error" if run.error else None))
    if cut is not None and now.state == "never_started":
        now = known_of(request.id, cut)
    is_synthetic, text = wrote.origins[id] == "synthetic", ""
    if is_synthetic:
        message: Any = _Asking(fields)
        with suppress(Exception):  # LangChain refuses a result for an id that is not UTF-8
            text = text_of(answer(message, request, now).content)
    return DisplayedMessage(
        kind="tool",
        origin="synthetic" if is_synthetic else "recovered",
        text=text,
        state=now.state if is_synthetic else None,
        tool_call_id=request.id,
        name=request.name,
        settled_seq=wrote.last_seqs[id],
        outdated=is_synthetic and fact is not None and fact[1] > seq and fact[2] == "result",
    )


def _known(fact: Fact | None, seq: int, run_id: str, cause: str | None) -> CallKnowledge:
    """Return what the events before a settlement, at `seq`, say of a tool call."""
    state: State = "never_started"
    error = None
    if fact is not None and fact[0] <= seq:
        state = "started"
        if 0 < fact[1] <= seq:
            state = _STATES.get(fact[2], "started")
            error = fact[3] if state == "failed" else None
    return CallKnowledge(state=state, error=error, run_id=run_id, cause=cause)


def _displayed(message: Mapping[str, Any], call_id: str | None, written: str | None) -> DisplayedMessage:
    kind, fields = str(message["type"]), message["data"]
    mark = as_mapping(as_mapping(fields.get("additional_kwargs")).get(MARK))
    tool_call_id = fields.get("tool_call_id")
    origin: Origin = "streamed" if kind == "ai" else "tool" if kind == "tool" else "input"
    if mark.get("origin") == "partial":
        origin = "partial"
    elif written == "recovered":
        origin = "recovered"
    reason, name = mark.get("reason"), fields.get("name")
    asked = asked_of(fields) if kind == "ai" else ()
    return DisplayedMessage(
        kind=kind,
        origin=origin,
        text=text_of(fields.get("content")),
        thinking=thinking_of(fields.get("content"), fields.get("additional_kwargs")),
        asked=asked,
        reason=reason if isinstance(reason, str) else None,
        call_id=mark.get("call_id") if isinstance(mark.get("call_id"), str) else call_id,
        tool_call_id=tool_call_id if isinstance(tool_call_id, str) else None,
        name=name if isinstance(name, str) else None,
        failed=fields.get("status") == "error",
        dropped=() if asked else tuple(_dropped(mark.get("calls"))),
    )


def _dropped(calls: object) -> list[Asked]:
    found = calls if isinstance(calls, list) else []
    return [Asked(id=None, name=str(one.get("name") or "tool"), args="", whole=bool(one.get("final"))) for one in found]


def _find_left(placed: list[tuple[int, DisplayedMessage]], wrote: _Settled) -> None:
    """Find the recovered messages that had no id before a settlement wrote them.

    A thread lacks messages only at the end of a run, so they are the last ones of their kind.
    """
    left: dict[str, list[str]] = {}
    for id in sorted(wrote.left, key=wrote.places.__getitem__):
        left.setdefault(wrote.kinds[id], []).append(id)
    for at in range(len(placed) - 1, -1, -1):
        place, one = placed[at]
        if place < 0 and one.origin in ("input", "streamed", "tool") and left.get(one.kind):
            id = left[one.kind].pop()
            placed[at] = wrote.places[id], replace(one, origin="recovered", settled_seq=wrote.last_seqs[id])
