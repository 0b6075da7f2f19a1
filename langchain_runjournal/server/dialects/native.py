"""Pure: the native dialect. A frame is an event, as `Event.to_dict` returns it, without an SSE event name: so
`EventSource.onmessage` gets it.

Controls have the event names `reset` and `interrupted`, and no id.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from json.encoder import encode_basestring
from operator import attrgetter
from typing import Any, Final, overload

from ...common import strict_json
from ...common.text import is_utf8
from ...events import DELTA, Event, Run
from ...events.encoding import encode_text
from ..frames import Frame, FrameBlock, Payload, one_line, run_name
from .protocol import Control

_JOINED: Final = ("text", "thinking", "reasoning", "args", "json")
"""The keys of deltas whose texts LangChain joins."""
_CALL: Final = attrgetter("call_id")
_BARE: Final = attrgetter("bare")


class NativeProjector:
    """Turns each event into one frame."""

    def __init__(self, run: Run) -> None:
        self._run_id = run.run_id

    def event(self, event: Event) -> Sequence[Payload]:
        """Return the event as a frame."""
        return (Payload(_json_of(event)),)

    def block(self, events: Sequence[Event], *, merge: bool) -> NativeBlock:
        """Return the frames of events; with `merge`, one frame for adjacent deltas of a call."""
        return NativeBlock(merged(events) if merge else events)

    def control(self, what: Control, detail: str | None = None) -> Sequence[Payload]:
        """Return a frame for what no event says. That a run is over, or waits for a human, its events say."""
        if what == "over" or what == "paused":
            return ()
        about = {"run_id": self._run_id} if self._run_id else {}
        if detail is not None:
            about["reason"] = detail
        return (Payload(strict_json.dumps(about), what),)


@dataclass(frozen=True, slots=True)
class Native:
    """The dialect of `EventSource`, `fetch`, curl and httpx-sse."""

    name: str = "native"
    has_ids: bool = True
    folds: bool = False
    holds: bool = True

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of its streams, beside those that every stream has."""
        return {}

    def projector(self, run: Run) -> NativeProjector:
        """Return a projector for one run."""
        return NativeProjector(run)


NATIVE: Final = Native()


class NativeBlock(FrameBlock):
    """The frames of events of one run."""

    __slots__ = ("_bytes", "_events")

    def __init__(self, events: Sequence[Event]) -> None:
        self._events = events
        self._bytes: bytes | None = None

    def __len__(self) -> int:
        return len(self._events)

    @overload
    def __getitem__(self, at: int) -> Frame: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Frame]: ...
    def __getitem__(self, at: int | slice) -> Frame | Sequence[Frame]:
        return [_frame(event) for event in self._events[at]] if isinstance(at, slice) else _frame(self._events[at])

    def encode(self) -> bytes:
        """Return the bytes of all frames."""
        if self._bytes is None:
            try:
                self._bytes = one_line(_text(self._events)).encode()
            except UnicodeEncodeError:  # half of a surrogate pair, which `_frame` escapes
                self._bytes = b"".join([frame.encode() for frame in self])
        return self._bytes


def _frame(event: Event) -> Frame:
    return Frame(f"{run_name(event.run_id)}:{event.seq}", None, _json_of(event))


def _json_of(event: Event) -> str:
    if isinstance(event.bare, str) and isinstance(event.call_id, str):
        # A token, nearly every event: written by hand, which takes a fifth of the time.
        about = f'"seq":{event.seq},"kind":"{event.kind}","at":{event.at!r},"call_id":{encode_text(event.call_id)}'
        return one_line(f'{{"run_id":{encode_text(event.run_id)},{about},"data":{{"text":{encode_text(event.bare)}}}}}')
    text = strict_json.dumps(event.to_dict())
    # Half of a surrogate pair, which a cut stream can deliver, has no UTF-8: it is rare, so all of it is escaped.
    return one_line(text) if is_utf8(text) else json.dumps(json.loads(text), separators=(",", ":"))


def _text(events: Sequence[Event]) -> str:
    """Return the frames of events as text. A delta that is plain text, as nearly every event is, takes no JSON encoder."""
    if not events:
        return ""
    run_id, quoted = events[0].run_id, encode_basestring
    name = f"id: {run_name(run_id)}:"
    seq_of, at_of = f'\ndata: {{"run_id":{quoted(run_id)},"seq":', f',"kind":"{DELTA}","at":'
    parts: list[str] = []
    for call_id, several in groupby(events, _CALL):
        about = f',"call_id":{"null" if call_id is None else quoted(call_id)},"data":{{"text":'
        parts += [
            f"{name}{(seq := event.seq)}{seq_of}{seq}{at_of}{event.at!r}{about}{quoted(value)}}}}}\n\n"
            if type(value := event.bare) is str
            else f"{name}{event.seq}\ndata: {_json_of(event)}\n\n"
            for event in several
        ]
    return "".join(parts)


def merged(events: Sequence[Event]) -> list[Event]:
    """Return the events with adjacent deltas of a call as one, which has the seq and the time of the last.

    The text of such a delta is their joined text. Only deltas are merged whose joined text means the same: plain text, or
    text of one content block, or arguments of one tool call.
    """
    if len(events) > 1 and set(map(type, map(_BARE, events))) == {str} and len(set(map(_CALL, events))) == 1:
        # Nearly every page of a long run is the plain text of one call.
        return [_joined(events[-1], (events[-1].call_id, "text", None), list(map(_BARE, events)))]
    found: list[Event] = []
    texts: list[str] = []
    kept: tuple[str | None, str, Any] | None = None
    last: Event | None = None
    for event in events:
        key, text = _joinable(event)
        if last is not None and (key is None or key != kept):
            found.append(_joined(last, kept, texts))
            texts = []
        last, kept = event, key
        texts.append(text)
    return found if last is None else [*found, _joined(last, kept, texts)]


def _joinable(event: Event) -> tuple[tuple[str | None, str, Any] | None, str]:
    """Return what a delta must have in common with the next one to be joined to it, and its text."""
    value = event.bare
    if event.kind != DELTA:
        return None, ""
    if isinstance(value, str):
        return (event.call_id, "text", None), value
    if len(value) == 2 and "index" in value:
        key = next((key for key in _JOINED if isinstance(value.get(key), str)), None)
        index = value["index"]
        if key is not None and isinstance(index, (int, str)):
            return (event.call_id, key, index), value[key]
    return None, ""


def _joined(last: Event, key: tuple[str | None, str, Any] | None, texts: Sequence[str]) -> Event:
    if key is None or len(texts) < 2:
        return last
    _, name, index = key
    text = "".join(texts)
    data: Mapping[str, Any] = {name: text} if index is None else {name: text, "index": index}
    return Event(run_id=last.run_id, kind=DELTA, data=data, call_id=last.call_id, seq=last.seq, at=last.at)
