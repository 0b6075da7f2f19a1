"""Pure: the message that answers a tool request, and its words where the real result is missing."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from ..common.packed import LEFT_OUT
from .causes import CAUSES_OF_TURN
from .marks import MARK, mark_in, new_mark
from .message_data import RUN_ID_PREFIX
from .tool_requests import Request, asking_blocks, block_id

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage, ToolMessage

State = Literal["never_started", "started", "failed", "waiting", "cut", "beside_cut", "unknown"]

_NAMESPACE: Final = bytes.fromhex("6f0f4a1f3c0e5d0c9a53d1c85b0a7d21")


@dataclass(frozen=True, slots=True, kw_only=True)
class CallKnowledge:
    """What is known of a call without a result.

    `result` is the real result, if any place has it; `error` goes with the state "failed"; `cause` is why the run ended,
    None if that is not recorded.
    """

    state: State = "unknown"
    result: ToolMessage | None = None
    error: str | None = None
    run_id: str | None = None
    cause: str | None = None


def stable_id(prefix: str, name: str) -> str:
    """Return the same id for the same name, for ever: `prefix` and a UUID of version 5."""
    digest = bytearray(hashlib.sha1(_NAMESPACE + name.encode("utf-8", "surrogatepass"), usedforsecurity=False).digest()[:16])
    digest[6] = digest[6] & 0x0F | 0x50
    digest[8] = digest[8] & 0x3F | 0x80
    text = digest.hex()
    return f"{prefix}{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def answer_id(message_id: str | None, request: Request) -> str:
    """Return the id of the message that answers this request of the message `message_id`, if it has none of its own."""
    name = "|".join(str(part) for part in (message_id, request.index, request.id) if part is not None)
    return stable_id("rjs-", name)


def answer(message: BaseMessage, request: Request, known: CallKnowledge, replaces: ToolMessage | None = None) -> ToolMessage:
    """Return the message that answers a request of `message`: the real result if it is known, else a synthetic one.

    Its id depends only on the request, so that a real result that is written later replaces a synthetic one. A real result
    that has an id keeps it, unless it `replaces` a synthetic one that stands in the thread.
    """
    from langchain_core.messages import ToolMessage

    id = answer_id(message.id, request)
    mark = new_mark("synthetic", reason=known.state, run_id=known.run_id, call_id=call_id_of(message.id))
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
    """Return the part of a real result's mark that says which fields could not come back."""
    mark = mark_in(real.additional_kwargs)
    return {LEFT_OUT: mark[LEFT_OUT]} if LEFT_OUT in mark else {}


def call_id_of(message_id: str | None) -> str | None:
    """Return the id of the model call, if the id of its message is made from it."""
    id = message_id or ""
    return id[len(RUN_ID_PREFIX) :][:36] if id.startswith(RUN_ID_PREFIX) else None


def _content(message: BaseMessage, request: Request, known: CallKnowledge) -> str | list[str | dict[Any, Any]]:
    text = known_text(known)
    for block in asking_blocks(message.content):
        if block.get("type") == "custom_tool_call" and block_id(block) == request.id:
            # OpenAI accepts no other form of result for a tool whose input is free text.
            return [{"type": "custom_tool_call_output", "output": text}]
    return text


def known_text(known: CallKnowledge) -> str:
    """Return what is known of a call, in words that never change (see `causes`)."""
    ended = CAUSES_OF_TURN.get(known.cause or "", "the turn was interrupted")
    match known.state:
        case "never_started":
            return f"Not executed: {ended} before this call started."
        case "started":
            because = f" ({ended})" if known.cause in CAUSES_OF_TURN else ""
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
