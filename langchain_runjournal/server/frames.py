"""Pure: frames of server-sent events, and their ids.

Rule: an event becomes 0 or more frames. The last frame of an event has the id `<run>:<seq>`, those before it
`<run>:<seq>.1`, `<run>:<seq>.2` and so on. A frame that stands for nothing durable has no id, so it never moves a cursor.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple
from urllib.parse import quote

HEARTBEAT: Final = b": hb\n"
"""A comment line, without a blank line behind it: after a frame with an id, LangGraph's client makes an event of a blank
line."""
RETRY: Final = b"retry: 1000\n"
"""The milliseconds after which an `EventSource` reconnects, as a field of the first frame: httpx-sse makes an event of a
blank line behind this field."""


_LINE_ENDS: Final = {0x85: "\\u0085", 0x2028: "\\u2028", 0x2029: "\\u2029"}


def one_line(json_text: str) -> str:
    """Return a JSON text without characters that some clients, but not server-sent events, take for the end of a line."""
    return json_text if json_text.isascii() else json_text.translate(_LINE_ENDS)


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
