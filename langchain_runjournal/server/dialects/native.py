"""Pure: the native dialect. A frame is an event, as `Event.to_dict` returns it, without an SSE event name: so
`EventSource.onmessage` gets it.

Controls have the event names `reset` and `interrupted`, and no id.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ...common import strict_json
from ...events import DELTA, Event, Run
from ...events.encoding import encode_text
from ..frames import Payload, one_line
from .protocol import Control

_JOINED: Final = ("text", "thinking", "reasoning", "args", "json")
"""The keys of deltas whose texts LangChain joins."""


class NativeProjector:
    """Turns each event into one frame."""

    def __init__(self, run: Run) -> None:
        self._run_id = run.run_id
        self._run_json = encode_text(run.run_id)

    def event(self, event: Event) -> Sequence[Payload]:
        """Return the event as a frame."""
        if isinstance(event.bare, str) and isinstance(event.call_id, str):
            # A token, nearly every event: written by hand, which takes a fifth of the time.
            about = f'"seq":{event.seq},"kind":"{event.kind}","at":{event.at!r},"call_id":{encode_text(event.call_id)}'
            text = f'{{"run_id":{self._run_json},{about},"data":{{"text":{encode_text(event.bare)}}}}}'
            return (Payload(one_line(text)),)
        return (Payload(one_line(strict_json.dumps(event.to_dict()))),)

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

    def projector(self, run: Run) -> NativeProjector:
        """Return a projector for one run."""
        return NativeProjector(run)


NATIVE: Final = Native()


def merged(events: Iterable[Event]) -> list[Event]:
    """Return the events with adjacent deltas of a call as one, which has the seq and the time of the last.

    The text of such a delta is their joined text. Only deltas are merged whose joined text means the same: plain text, or
    text of one content block, or arguments of one tool call.
    """
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
