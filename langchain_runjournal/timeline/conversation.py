"""Pure: the messages of a run in the order of its thread, each with where it comes from.

Rule: what they are, the transcript says; here they only get their origin and their place, and the results that a settlement
has made up stand among them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias

from ..events import DELTA, Event, Run
from ..events.run_state import as_mapping
from ..messages import transcript as _transcript
from ..messages.marks import MARK
from ..messages.plain_text import Asked, asked_of, plain, text_of, thinking_of
from ..messages.tool_requests import Request, requested
from ..messages.tool_results import CallKnowledge, State, answer, answer_id

Origin: TypeAlias = Literal["input", "streamed", "partial", "recovered", "synthetic", "tool"]
Fact: TypeAlias = tuple[int, int, str, str]
"""What is known of a tool call: the seq of its beginning and of its end (0: none), its outcome, and the text of that."""

_WITH_MESSAGE: Final = ("llm.human.input", "llm.ai.response", "llm.tool.result")
_NO_MESSAGE: Final = object()
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
    """Why it was cut off, or what is known of a call that has no result."""
    call_id: str | None = None
    """The model call that said it."""
    tool_call_id: str | None = None
    name: str | None = None
    failed: bool = False
    """A tool says so of itself."""
    outdated: bool = False
    """It was made up, and the real result has come since."""
    dropped: tuple[Asked, ...] = ()
    """What a cut-off answer was about to ask for, and does not any more."""


class _Asking:
    """A message, as far as its answers depend on it."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self.id = fields.get("id")
        self.content = fields.get("content") or ""


class _Settled:
    """What settlements have written, by id: its place among all that they wrote, its type, and what it is by now."""

    def __init__(self, settled: Sequence[tuple[int, Mapping[str, Any]]]) -> None:
        self.places: dict[str, int] = {}
        self.origins: dict[str, str] = {}
        self.kinds: dict[str, str] = {}
        self.seqs: dict[str, int] = {}
        for seq, data in settled:
            written = data.get("messages")
            for one in written if isinstance(written, (list, tuple)) else ():
                id = one.get("id") if isinstance(one, Mapping) else None
                if isinstance(id, str) and not one.get("inserted"):
                    self.places.setdefault(id, len(self.places))
                    self.seqs.setdefault(id, seq)
                    self.origins[id], self.kinds[id] = str(one.get("origin")), str(one.get("type"))
        self.left = {id for id, origin in self.origins.items() if origin == "recovered"}
        """What has not been found among the messages by its id: it had none before."""

    def take(self, *ids: object) -> str | None:
        """The first of the ids that a settlement has written."""
        found = next((id for id in ids if isinstance(id, str) and id in self.places), None)
        if found is not None:
            self.left.discard(found)
        return found


def told(
    run: Run,
    events: Sequence[Event],
    settled: Sequence[tuple[int, Mapping[str, Any]]],
    known: Mapping[str, Fact],
) -> tuple[tuple[DisplayedMessage, ...], int]:
    """The messages, and how many events could not be read for them."""
    found, unread = _messages(run.run_id, events)
    said_by = {id(one.data.get("message")): str(one.call_id) for one in events if one.kind == "llm.ai.response"}
    wrote = _Settled(settled)
    placed: list[tuple[int, DisplayedMessage]] = []
    asked: dict[str, tuple[Mapping[str, Any], Request]] = {}
    answers: dict[object, str] = {}
    for message in found:
        fields = message["data"]
        for request in _requests(fields) if message["type"] == "ai" else ():
            filled = answers[request.id] = answer_id(fields.get("id"), request)
            asked[filled] = fields, request
        asks_for = fields.get("tool_call_id")
        written = wrote.take(fields.get("id"), answers.get(asks_for) if isinstance(asks_for, str) else None)
        if written in asked and wrote.origins[written] == "synthetic":
            continue  # it has come later: the one that was made up stands there until the thread is settled again
        if written is not None:
            asked.pop(written, None)
        shown = _told(message, said_by.get(id(message)), wrote.origins.get(written or ""))
        placed.append((_place(wrote, written), shown))
    for filled, (fields, request) in asked.items():
        if wrote.take(filled) is not None:
            placed.append((wrote.places[filled], _made_up(run, fields, request, wrote, known)))
    _find_left(placed, wrote)
    # What a settlement does not insert, it adds at the end.
    placed.sort(key=lambda one: one[0])
    return tuple(one for _, one in placed), unread


def _place(wrote: _Settled, id: str | None) -> int:
    return -1 if id is None else wrote.places[id]


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
    return [event for event in events if _can_be_told(run_id, event)]


def _words_only(run_id: str, events: Sequence[Event]) -> Sequence[Event]:
    return [event for event in _readable(run_id, events) if event.kind != DELTA or isinstance(event.bare, str)]


def _can_be_told(run_id: str, event: Event) -> bool:
    if event.kind == DELTA:
        return bool(plain([event.bare], "?"))
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


def _made_up(
    run: Run, fields: Mapping[str, Any], request: Request, wrote: _Settled, known: Mapping[str, Fact]
) -> DisplayedMessage:
    """The result that a settlement has written for a request that has none in the events from before."""
    id = answer_id(fields.get("id"), request)
    fact, seq = known.get(str(request.id)), wrote.seqs[id]
    now = _known(fact, seq, run.run_id, run.cause or ("error" if run.error else None))
    made_up, text = wrote.origins[id] == "synthetic", ""
    if made_up:
        message: Any = _Asking(fields)
        with suppress(Exception):  # a request that no message can answer
            text = text_of(answer(message, request, now).content)
    return DisplayedMessage(
        kind="tool",
        origin="synthetic" if made_up else "recovered",
        text=text,
        reason=now.state if made_up else None,
        tool_call_id=request.id,
        name=request.name,
        outdated=made_up and fact is not None and fact[1] > seq and fact[2] == "result",
    )


def _known(fact: Fact | None, seq: int, run_id: str, cause: str | None) -> CallKnowledge:
    """What was known of a call when it was settled."""
    state: State = "never_started"
    error = None
    if fact is not None and fact[0] <= seq:
        state = "started"
        if 0 < fact[1] <= seq:
            state = _STATES.get(fact[2], "started")
            error = fact[3] if state == "failed" else None
    return CallKnowledge(state=state, error=error, run_id=run_id, cause=cause)


def _told(message: Mapping[str, Any], call_id: str | None, written: str | None) -> DisplayedMessage:
    kind, fields = str(message["type"]), message["data"]
    mark = as_mapping(as_mapping(fields.get("additional_kwargs")).get(MARK))
    tool_call_id = fields.get("tool_call_id")
    origin: Origin = "streamed" if kind == "ai" else "tool" if kind == "tool" else "input"
    if mark.get("origin") == "partial":
        origin = "partial"
    elif written == "recovered":
        origin = "recovered"
    reason, name = mark.get("reason"), fields.get("name")
    return DisplayedMessage(
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


def _find_left(placed: list[tuple[int, DisplayedMessage]], wrote: _Settled) -> None:
    """A message that had no id got one when it was written: what a thread lacks is always the end of a run."""
    left: dict[str, list[str]] = {}
    for id in sorted(wrote.left, key=wrote.places.__getitem__):
        left.setdefault(wrote.kinds[id], []).append(id)
    for at in range(len(placed) - 1, -1, -1):
        place, one = placed[at]
        if place < 0 and one.origin in ("input", "streamed", "tool") and left.get(one.kind):
            placed[at] = wrote.places[left[one.kind].pop()], replace(one, origin="recovered")
