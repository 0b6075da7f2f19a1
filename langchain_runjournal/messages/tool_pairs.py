"""Pure: which tool requests and results of a history belong together.

Rule: a real result answers the nearest call before it with its id that has no real one yet; a synthetic one the nearest that
has none at all. So an id that comes again in a later turn is another call, and a real result takes precedence over a
synthetic one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from .marks import origin_of
from .tool_requests import Request, requested


@dataclass(slots=True)
class PairedRequest:
    """A request at its place, and the place of the message that answers it, if there is one."""

    place: int
    request: Request
    result: int | None = None
    synthetic: bool = False


@dataclass(slots=True)
class Pairing:
    """The requests by the place of their message, and the places of the results that answer no request."""

    slots: dict[int, list[PairedRequest]] = field(default_factory=dict)
    duplicates: set[int] = field(default_factory=set)
    orphans: set[int] = field(default_factory=set)


def is_ai(message: Any) -> bool:
    """Return whether a message comes from a model."""
    return message.type in ("ai", "AIMessageChunk")


def is_human(message: Any) -> bool:
    """Return whether a message comes from the user."""
    return message.type in ("human", "HumanMessageChunk")


def is_tool(message: Any) -> bool:
    """Return whether a message is the result of a tool call."""
    return message.type in ("tool", "ToolMessageChunk")


def end_of_results(messages: Sequence[Any], place: int) -> int:
    """Return the place right behind the message at `place` and the tool results that follow it directly."""
    end = place + 1
    while end < len(messages) and is_tool(messages[end]):
        end += 1
    return end


def requests(message: Any) -> list[Request]:
    """Return the tool calls that a message asks for; none for a message that is not from a model."""
    return requested(vars(message)) if is_ai(message) else []


def walk(messages: Sequence[Any]) -> Pairing:
    """Pair the requests of a history with their results, from its beginning to its end."""
    found = Pairing()
    waiting: dict[str, list[PairedRequest]] = {}
    for place, message in enumerate(messages):
        if is_ai(message):
            slots = [PairedRequest(place, request) for request in requested(vars(message))]
            if slots:
                found.slots[place] = slots
            for slot in slots:
                if slot.request.id is not None:
                    waiting.setdefault(slot.request.id, []).append(slot)
        elif is_tool(message):
            if message.tool_call_id in waiting:
                _pair(found, waiting[message.tool_call_id], place, origin_of(message) == "synthetic")
            else:
                found.orphans.add(place)
    return found


def _pair(found: Pairing, waiting: list[PairedRequest], place: int, synthetic: bool) -> None:
    free = [slot for slot in waiting if slot.result is None] if synthetic else waiting
    if not free:
        found.duplicates.add(place)
        return
    # Of several requests in one message with one id, the first one.
    slot = next(slot for slot in free if slot.place == free[-1].place)
    if slot.result is not None:
        found.duplicates.add(slot.result)
    slot.result, slot.synthetic = place, synthetic
    if not synthetic:
        waiting.remove(slot)


def open_requests(messages: Sequence[Any]) -> list[tuple[int, Request]]:
    """Return the requests without a result, each with the place of its AI message, including those that no tool can run."""
    return [(place, slot.request) for place, slots in walk(messages).slots.items() for slot in slots if slot.result is None]
