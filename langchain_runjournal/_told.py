"""Pure: the messages of a run in the order of its thread, each with where it comes from.

Rule: what they are, the transcript says; here they only get their origin, and the results that a settlement has made up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias

from . import _transcript
from ._pairs import Known, Request, State, answer, stable_id
from ._partial import MARK
from ._requests import requested
from ._spoken import Asked, asked_of, plain, text_of, thinking_of
from .events import DELTA, Event, Run

Origin: TypeAlias = Literal["input", "streamed", "partial", "recovered", "synthetic", "tool"]
Fact: TypeAlias = tuple[int, int, str, str]
"""What is known of a tool call: the seq of its beginning and of its end (0: none), its outcome, and the text of that."""

_WITH_MESSAGE: Final = ("llm.human.input", "llm.ai.response", "llm.tool.result")
_NO_MESSAGE: Final = object()
_STATES: Final[Mapping[str, State]] = {"error": "failed", "interrupted": "waiting"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """One message of the thread."""

    kind: str
    """human, ai, tool, system ..."""
    origin: Origin
    text: str
    thinking: str = ""
    asked: tuple[Asked, ...] = ()
    reason: str | None = None
    """Why it was cut off, or what is known of a call that has no result."""
    call_id: str | None = None
    """The model call that said it."""
    tool_call_id: str | None = None
    name: str | None = None
    failed: bool = False
    """A tool says so of itself."""
    dropped: tuple[Asked, ...] = ()
    """What a cut-off answer was about to ask for, and does not any more."""


class _Asking:
    """A message, as far as its answers depend on it."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self.id = fields.get("id")
        self.content = fields.get("content") or ""


class _Settled:
    """What settlements have written, by id; those without a place among the messages yet by their type."""

    def __init__(self, settled: Sequence[tuple[int, Mapping[str, Any]]]) -> None:
        self.origins: dict[str, str] = {}
        self.seqs: dict[str, int] = {}
        self.kinds: dict[str, str] = {}
        for seq, data in settled:
            written = data.get("messages")
            for one in written if isinstance(written, (list, tuple)) else ():
                id = one.get("id") if isinstance(one, Mapping) else None
                if isinstance(id, str):
                    self.origins[id], self.kinds[id] = str(one.get("origin")), str(one.get("type"))
                    self.seqs.setdefault(id, seq)

    def take(self, *ids: object) -> str | None:
        for id in ids:
            if isinstance(id, str) and id in self.origins:
                self.kinds.pop(id, None)
                return self.origins[id]
        return None

    def left(self, kind: str) -> int:
        """How many recovered messages of this type have not been found by their id: they had none before."""
        return sum(one == kind and self.origins[id] == "recovered" for id, one in self.kinds.items())


def told(
    run: Run,
    events: Sequence[Event],
    settled: Sequence[tuple[int, Mapping[str, Any]]],
    known: Mapping[str, Fact],
) -> tuple[tuple[Told, ...], int]:
    """The messages, and how many events could not be read for them."""
    found, unread = _messages(run.run_id, events)
    said_by = {id(one.data.get("message")): str(one.call_id) for one in events if one.kind == "llm.ai.response"}
    wrote = _Settled(settled)
    messages: list[Told] = []
    waiting: list[tuple[Mapping[str, Any], Request]] = []
    by_id: dict[object, str] = {}
    for message in found:
        fields = message["data"]
        if message["type"] != "tool":
            messages += _made_up(run, waiting, wrote, known)
            waiting = []
        requests = _requests(fields) if message["type"] == "ai" else []
        waiting += [(fields, request) for request in requests]
        by_id |= {request.id: _answer_id(fields, request) for request in requests}
        if message["type"] == "tool":
            # The results come in the order of their requests, and so do those that were made up.
            at = next((n for n, (_, request) in enumerate(waiting) if request.id == fields.get("tool_call_id")), None)
            if at is not None:
                messages += _made_up(run, waiting[:at], wrote, known)
                del waiting[: at + 1]
        messages.append(_told(message, said_by.get(id(message)), wrote, by_id))
    messages += _made_up(run, waiting, wrote, known)
    return tuple(_recovered(messages, wrote)), unread


def _messages(run_id: str, events: Sequence[Event]) -> tuple[list[dict[str, Any]], int]:
    """The transcript; without the events that are not what they should be, if there are any."""
    for choose in (_all, _readable, _words_only):
        some = choose(run_id, events)
        try:
            every = _transcript.transcript(run_id, some)
            found = [one for one in every if _is_message(one)]
            return found, len(events) - len(some) + len(every) - len(found)
        except Exception:  # noqa: BLE001, S112 - any JSON may be in them
            continue
    return [], len(events)


def _all(run_id: str, events: Sequence[Event]) -> Sequence[Event]:
    return events


def _readable(run_id: str, events: Sequence[Event]) -> Sequence[Event]:
    return [event for event in events if _is_readable(run_id, event)]


def _words_only(run_id: str, events: Sequence[Event]) -> Sequence[Event]:
    return [event for event in _readable(run_id, events) if event.kind != DELTA or isinstance(event._value, str)]


def _is_readable(run_id: str, event: Event) -> bool:
    if event.kind == DELTA:
        return bool(plain([event._value], "?"))
    if event.kind in _WITH_MESSAGE and not _is_message(event.data.get("message", _NO_MESSAGE)):
        return False
    try:
        _transcript.transcript(run_id, [event])
    except Exception:  # noqa: BLE001 - see above
        return False
    return True


def _is_message(found: object) -> bool:
    """Whether it can be shown. A tool may give something else than a message, and that is none of the conversation."""
    if found is _NO_MESSAGE:
        return True
    return isinstance(found, Mapping) and isinstance(found.get("type"), str) and isinstance(found.get("data"), Mapping)


def _requests(fields: Mapping[str, Any]) -> list[Request]:
    try:
        return requested(fields)
    except Exception:  # noqa: BLE001 - then it asks for nothing that can be told
        return []


def _answer_id(fields: Mapping[str, Any], request: Request) -> str:
    """The id that a settlement gives to an answer of its own (see `_pairs.answer`)."""
    parts = (fields.get("id"), request.index, request.id)
    return stable_id("rjs-", "|".join(str(part) for part in parts if part is not None))


def _made_up(
    run: Run, waiting: Sequence[tuple[Mapping[str, Any], Request]], wrote: _Settled, known: Mapping[str, Fact]
) -> list[Told]:
    """The results that a settlement has made up for requests that have none."""
    found = []
    for fields, request in waiting:
        id = _answer_id(fields, request)
        origin = wrote.take(id)
        if origin is None:
            continue
        reason = run.cause or ("error" if run.error else None)
        now = _known(known.get(str(request.id)), wrote.seqs[id], run.run_id, reason)
        text = ""
        try:
            message: Any = _Asking(fields)
            text = text_of(answer(message, request, now).content)
        except Exception:  # noqa: BLE001 - a request that no message can answer
            text = ""
        found.append(
            Told(
                kind="tool",
                origin="recovered" if origin == "recovered" else "synthetic",
                text=text,
                reason=now.state,
                tool_call_id=request.id,
                name=request.name,
            )
        )
    return found


def _known(fact: Fact | None, seq: int, run_id: str, cause: str | None) -> Known:
    """What was known of a call when it was settled."""
    state: State = "never_started"
    error = None
    if fact is not None and fact[0] <= seq:
        state = "started"
        if 0 < fact[1] <= seq:
            state = _STATES.get(fact[2], "started")
            error = fact[3] if state == "failed" else None
    return Known(state=state, error=error, run_id=run_id, cause=cause)


def _told(message: Mapping[str, Any], call_id: str | None, wrote: _Settled, by_id: Mapping[object, str]) -> Told:
    kind, fields = str(message["type"]), message["data"]
    mark = _mapping(_mapping(fields.get("additional_kwargs")).get(MARK))
    tool_call_id = fields.get("tool_call_id")
    answers = by_id.get(tool_call_id) if isinstance(tool_call_id, str) else None
    written = wrote.take(fields.get("id"), answers)
    origin: Origin = "streamed" if kind == "ai" else "tool" if kind == "tool" else "input"
    if mark.get("origin") == "partial":
        origin = "partial"
    elif written == "recovered":
        origin = "recovered"
    reason, name = mark.get("reason"), fields.get("name")
    return Told(
        kind=kind,
        origin=origin,
        text=text_of(fields.get("content")),
        thinking=thinking_of(fields.get("content"), fields.get("additional_kwargs")),
        asked=asked_of(fields) if kind == "ai" else (),
        reason=reason if isinstance(reason, str) else None,
        call_id=mark.get("call_id") if isinstance(mark.get("call_id"), str) else call_id,
        tool_call_id=tool_call_id if isinstance(tool_call_id, str) else None,
        name=name if isinstance(name, str) else None,
        failed=fields.get("status") == "error",
        dropped=tuple(_dropped(mark.get("calls"))),
    )


def _dropped(calls: object) -> list[Asked]:
    found = [one for one in calls if isinstance(one, Mapping)] if isinstance(calls, list) else []
    return [Asked(id=None, name=str(one.get("name") or "tool"), args="", whole=bool(one.get("final"))) for one in found]


def _recovered(messages: list[Told], wrote: _Settled) -> list[Told]:
    """A message that had no id got one when it was written: what a thread lacks is always the end of a run."""
    left = {kind: wrote.left(kind) for kind in ("human", "ai", "tool", "system")}
    for at in range(len(messages) - 1, -1, -1):
        one = messages[at]
        if left.get(one.kind) and one.origin in ("input", "streamed", "tool"):
            left[one.kind] -= 1
            messages[at] = replace(one, origin="recovered")
    return messages


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
