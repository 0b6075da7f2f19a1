"""What a provider is to say, in no provider's format: `_wire_*.py` put it into theirs.

Each fragment has a name, by which a cut finds it: "text0:1" is the second fragment of the first text.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, TypeAlias


@dataclass(frozen=True)
class Say:
    """A text, in the fragments in which it is sent."""

    fragments: tuple[str, ...]


@dataclass(frozen=True)
class Think:
    """Thinking, in the fragments in which it is sent. `redacted`: the provider shows only that there was some."""

    fragments: tuple[str, ...]
    redacted: bool = False


@dataclass(frozen=True)
class Search:
    """A tool that the provider runs by itself."""

    query: str
    found: str


@dataclass(frozen=True)
class Call:
    """A request for a tool of ours, its arguments in three fragments."""

    name: str
    args: dict[str, str] = field(default_factory=dict)

    def fragments(self) -> list[str]:
        text = json.dumps(self.args, ensure_ascii=False)
        third = max(1, len(text) // 3)
        # The first cut stands inside of the value: what is there can be completed to a call that looks whole.
        return [text[: 2 * third], text[2 * third : -1], text[-1:]]


Piece: TypeAlias = Say | Think | Search | Call
Answer: TypeAlias = tuple[Piece, ...]


@dataclass(frozen=True)
class Frame:
    """What is sent at once."""

    data: bytes
    at: str
    """The name of the fragment; "" for what is between them."""
    shows: str = ""
    """The text that the user sees of it."""
    close: bytes = b""
    """What closes the block that is open behind this frame, so that an answer can come to a well-formed end here."""


def shown(frames: list[Frame]) -> str:
    return "".join(frame.shows for frame in frames)


def sse(data: Any, event: str | None = None) -> bytes:
    """One server-sent event."""
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    head = f"event: {event}\n" if event else ""
    return f"{head}data: {text}\n\n".encode()


class Ids:
    """New ids for one scene: the same each time that the scene is played."""

    def __init__(self) -> None:
        self.count = 0

    def new(self, prefix: str, length: int = 9) -> str:
        self.count += 1
        return prefix + f"{self.count:0{length}d}"
