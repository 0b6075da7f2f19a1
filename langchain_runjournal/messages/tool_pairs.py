"""Pure: tool requests and their results: which belong together, and what answers a request that has none.

Rule: a real result answers the nearest call before it with its id that has no real one yet; a synthetic one the nearest
that has none at all. So an id that comes again in a later turn is another call, and a real result beats a synthetic one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from ..capture.callback_data import RUN_ID_PREFIX
from ..common.packed import LEFT_OUT
from .partial import MARK, origin_of
from .tool_requests import Request, asking_blocks, block_id, requested

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage, ToolMessage

__all__ = [
    "CallKnowledge",
    "PairedRequest",
    "Pairing",
    "Request",
    "State",
    "answer",
    "answer_id",
    "call_id_of",
    "is_ai",
    "is_human",
    "is_tool",
    "known_text",
    "open_requests",
    "requests",
    "stable_id",
    "walk",
]

State = Literal["never_started", "started", "failed", "waiting", "cut", "beside_cut", "unknown"]

_NAMESPACE: Final = bytes.fromhex("6f0f4a1f3c0e5d0c9a53d1c85b0a7d21")
_ENDED: Final = {
    "stop": "the user stopped the turn",
    "disconnect": "the connection to the user was lost",
    "timeout": "a time limit was reached",
    "shutdown": "the program was shut down",
    "crash": "the program ended unexpectedly",
    "superseded": "a newer message took the place of this turn",
    "error": "the turn ended with an error",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CallKnowledge:
    """What is known of a call that stands there without a response.

    `result` is the real one, if anybody has it; `error` goes with the state "failed"; `cause` is why the run ended, None
    where that is not recorded.
    """

    state: State = "unknown"
    result: ToolMessage | None = None
    error: str | None = None
    run_id: str | None = None
    cause: str | None = None


# --- pairing ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class PairedRequest:
    """A request at its place, and the place of the message that answers it, if one does."""

    place: int
    request: Request
    result: int | None = None
    synthetic: bool = False


@dataclass(slots=True)
class Pairing:
    """Who answers whom: the requests by the place of their message, and the places of results that answer nobody."""

    slots: dict[int, list[PairedRequest]] = field(default_factory=dict)
    duplicates: set[int] = field(default_factory=set)
    orphans: set[int] = field(default_factory=set)


def is_ai(message: Any) -> bool:
    """Whether a message comes from a model."""
    return message.type in ("ai", "AIMessageChunk")


def is_human(message: Any) -> bool:
    """Whether a message comes from the user."""
    return message.type in ("human", "HumanMessageChunk")


def is_tool(message: Any) -> bool:
    """Whether a message is the result of a tool call."""
    return message.type in ("tool", "ToolMessageChunk")


def requests(message: Any) -> list[Request]:
    """The tool calls that a message asks for; none for anything that is not an AI message."""
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
    # Of several in one message with one id, the first one.
    slot = next(slot for slot in free if slot.place == free[-1].place)
    if slot.result is not None:
        found.duplicates.add(slot.result)
    slot.result, slot.synthetic = place, synthetic
    if not synthetic:
        waiting.remove(slot)


def open_requests(messages: Sequence[Any]) -> list[tuple[int, Request]]:
    """The requests without a result, each with the place of its AI message; also those that nobody can run."""
    return [(place, slot.request) for place, slots in walk(messages).slots.items() for slot in slots if slot.result is None]


# --- answers ----------------------------------------------------------------------------------------------------------


def stable_id(prefix: str, name: str) -> str:
    """The same id for the same name, for ever: `prefix` and a UUID of version 5."""
    digest = bytearray(hashlib.sha1(_NAMESPACE + name.encode("utf-8", "surrogatepass"), usedforsecurity=False).digest()[:16])
    digest[6] = digest[6] & 0x0F | 0x50
    digest[8] = digest[8] & 0x3F | 0x80
    text = digest.hex()
    return f"{prefix}{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def answer_id(message_id: str | None, request: Request) -> str:
    """The id of the message that answers a request of the message with this id, if it has none of its own."""
    name = "|".join(str(part) for part in (message_id, request.index, request.id) if part is not None)
    return stable_id("rjs-", name)


def answer(message: BaseMessage, request: Request, known: CallKnowledge, replaces: ToolMessage | None = None) -> ToolMessage:
    """The message that answers a request of `message`: the real result if it is known, else one that says what is.

    Its id depends on nothing but the request, so that a real result that is written later takes the place of a synthetic
    one. A real result that has an id keeps it, unless it `replaces` a synthetic one that stands in the thread.
    """
    from langchain_core.messages import ToolMessage

    id = answer_id(message.id, request)
    mark: dict[str, Any] = {"v": 1, "origin": "synthetic", "reason": known.state}
    mark |= {"run_id": known.run_id, "call_id": call_id_of(message.id)}
    if known.result is None:
        return ToolMessage(
            content=_content(message, request, known),
            name=request.name,
            tool_call_id=request.id or "",
            status="error",
            id=id if replaces is None else replaces.id,
            additional_kwargs={MARK: mark},
        )
    real = known.result
    mark |= _left_out(real)
    changes: dict[str, Any] = {
        "id": (real.id or id) if replaces is None else replaces.id,
        "name": real.name or request.name,
        "tool_call_id": request.id or "",
        "additional_kwargs": {**real.additional_kwargs, MARK: {**mark, "origin": "recovered", "reason": known.cause}},
    }
    return real.model_copy(update=changes)


def _left_out(real: ToolMessage) -> dict[str, Any]:
    """What the mark of a real result already says: which fields could not come back."""
    mark = real.additional_kwargs.get(MARK)
    return {LEFT_OUT: mark[LEFT_OUT]} if isinstance(mark, dict) and LEFT_OUT in mark else {}


def call_id_of(message_id: str | None) -> str | None:
    """The id of the model call, where the id of its message is made from it."""
    id = message_id or ""
    return id[len(RUN_ID_PREFIX) :][:36] if id.startswith(RUN_ID_PREFIX) else None


def _content(message: BaseMessage, request: Request, known: CallKnowledge) -> str | list[str | dict[Any, Any]]:
    text = known_text(known)
    for block in asking_blocks(message.content):
        if block.get("type") == "custom_tool_call" and block_id(block) == request.id:
            # OpenAI takes no other form of result for a tool whose input is free text.
            return [{"type": "custom_tool_call_output", "output": text}]
    return text


def known_text(known: CallKnowledge) -> str:
    """What is known, in words that never change: the cache of a provider holds only what is said the same way again."""
    ended = _ENDED.get(known.cause or "", "the turn was interrupted")
    match known.state:
        case "never_started":
            return f"Not executed: {ended} before this call started."
        case "started":
            because = f" ({ended})" if known.cause in _ENDED else ""
            return (
                f"Interrupted while running{because}; no result was recorded. "
                "It may have partially or fully executed. Check before retrying."
            )
        case "failed":
            return f"The call failed: {known.error}" if known.error else "The call failed; its error was not recorded."
        case "waiting":
            return "Not executed: this call was waiting for a human's approval, and the conversation went on without it."
        case "cut" if known.cause == "length":
            return (
                "Not executed: the answer ran into its token limit inside this call, so its arguments are incomplete. "
                "Make the call again with all of its arguments; if they are long, split the work into smaller calls."
            )
        case "cut":
            return (
                "Not executed: the answer ended early, and the arguments of this call may be incomplete. "
                "Make the call again with all of its arguments."
            )
        case "beside_cut":
            return (
                "Not executed: another call of the same answer was cut off, so none of its calls was run. "
                "Make this call again if it is still needed."
            )
        case _:
            return "No result was recorded for this call. It may or may not have executed. Check before retrying."
