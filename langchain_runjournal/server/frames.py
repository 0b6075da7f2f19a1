"""Pure: frames of server-sent events, and their ids.

Rule: an event becomes 0 or more frames. The last frame of an event has the id `<run>:<seq>`, those before it
`<run>:<seq>.1`, `<run>:<seq>.2` and so on. A frame that stands for nothing durable has no id, so it never moves a cursor.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple
from urllib.parse import quote

from ..common.text import is_utf8

HEARTBEAT: Final = b": hb\n"
"""A comment line, without a blank line behind it: after a frame with an id, LangGraph's client makes an event of a blank
line."""
RETRY: Final = b"retry: 1000\n"
"""The milliseconds after which an `EventSource` reconnects, as a field of the first frame: httpx-sse makes an event of a
blank line behind this field."""


_LINE_ENDS: Final = {0x85: "\\u0085", 0x2028: "\\u2028", 0x2029: "\\u2029"}


def one_line(json_text: str) -> str:
    """Return a JSON text without characters that some clients, but not server-sent events, take for the end of a line."""
    if json_text.isascii() or not ("\x85" in json_text or "\u2028" in json_text or "\u2029" in json_text):
        return json_text
    return json_text.translate(_LINE_ENDS)


def encodable(json_text: str) -> str:
    """Return a JSON text in which half of a surrogate pair, which no encoder accepts, is escaped."""
    return json_text if is_utf8(json_text) else json.dumps(json.loads(json_text), separators=(",", ":"))


class Payload(NamedTuple):
    """What a frame says, before it has an id."""

    data: str
    """One line of text, in most dialects JSON."""
    event: str | None = None
    """The name of the SSE event; None for `message`."""


class Frame(NamedTuple):
    """One frame of a stream."""

    id: str | None
    event: str | None
    data: str

    def text(self, *, ids: bool = True) -> str:
        """Return the frame as text."""
        head = f"id: {self.id}\n" if ids and self.id is not None else ""
        name = "" if self.event is None else f"event: {self.event}\n"
        return f"{head}{name}data: {self.data}\n\n"

    def encode(self) -> bytes:
        """Return the bytes of the frame."""
        return self.text().encode()


class FrameBlock(Sequence[Frame]):
    """Frames that are encoded together, faster than one by one, and once for all readers."""

    __slots__ = ()

    @abstractmethod
    def encode(self) -> bytes:
        """Return the bytes of all frames: those that `Frame.encode` returns."""


def encoded(frames: Sequence[Frame], *, ids: bool) -> bytes:
    """Return the bytes of frames, with their ids or without."""
    if ids:
        return frames.encode() if isinstance(frames, FrameBlock) else "".join([frame.text() for frame in frames]).encode()
    return "".join([frame.text(ids=False) for frame in frames]).encode()


@lru_cache(1_000)
def run_name(run_id: str) -> str:
    """Return a run id as it stands in the id of a frame: ASCII, without line breaks or NUL. A UUID stays as it is."""
    return quote(run_id, safe="-_.~:", errors="replace")


def number(run_id: str, seq: int, payloads: Sequence[Payload]) -> list[Frame]:
    """Return the frames of one event, with their ids."""
    name, last = run_name(run_id), len(payloads)
    if last == 1:
        return [Frame(f"{name}:{seq}", payloads[0].event, payloads[0].data)]
    return [
        Frame(f"{name}:{seq}" if at == last else f"{name}:{seq}.{at}", payload.event, payload.data)
        for at, payload in enumerate(payloads, 1)
    ]


def control(payloads: Sequence[Payload]) -> list[Frame]:
    """Return frames without ids."""
    return [Frame(None, payload.event, payload.data) for payload in payloads]
