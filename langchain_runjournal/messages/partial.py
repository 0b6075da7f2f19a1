"""Pure: the part of a cut-off answer that may stand in a thread.

Rule: a partial answer holds the words as they were received, and nothing that a provider would refuse or a program could
execute. The journal keeps the rest.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, Protocol

from .content_blocks import SERVER_CALLS, in_one_form, is_hidden, is_result, paired, received
from .content_blocks import THINKING as THINKING
from .marks import MARK, partial_mark
from .message_data import Data
from .tool_requests import asking_blocks, unwrapped

_KEPT_METADATA: Final = ("model_name", "model", "model_provider", "output_version")


class AnswerSoFar(Protocol):
    """The answer of a call so far."""

    @property
    def content(self) -> Any:
        """Its text or its blocks."""

    @property
    def calls(self) -> list[dict[str, Any]]:
        """The tool calls that it was asking for, with their arguments as text."""

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The metadata that the provider sent with it."""

    @property
    def id(self) -> str | None:
        """The id of its message."""


def partial_message(
    answer: AnswerSoFar, *, reason: str, run_id: str | None = None, call_id: str | None = None
) -> Data | None:
    """Return the message to keep of a call that was cut off, as LangChain's own dict; None if it had said nothing yet."""
    content = _kept(answer.content, answer.metadata)
    if content is None:
        return None
    calls = [{"id": one.get("id"), "name": one.get("name"), "final": is_final(one.get("args"))} for one in answer.calls]
    metadata: Data = {key: answer.metadata[key] for key in _KEPT_METADATA if key in answer.metadata}
    data = {
        "type": "ai",
        "content": content,
        "id": answer.id,
        "response_metadata": {**metadata, "finish_reason": "interrupted"},
        "additional_kwargs": {MARK: partial_mark(reason, run_id, call_id, calls or None)},
    }
    return {"type": "ai", "data": data}


def is_final(args: Any) -> bool:
    """Return whether the arguments of a tool call are complete.

    The text is strictly parsed, because half a JSON value can pass for a whole one.
    """
    try:
        return isinstance(args, str) and isinstance(json.loads(args), dict)
    except (ValueError, RecursionError):
        return False


def is_visible(content: Any) -> bool:
    """Return whether a chunk with this content shows the user anything. An answer that stays blank does not count as one."""
    if isinstance(content, str):
        return bool(content) and not content.isspace()
    return isinstance(content, list) and any(_shows(block) for block in content)


def delta_is_visible(data: Data) -> bool:
    """Return whether a delta shows the user anything."""
    text = data.get("text")
    return is_visible(text) if isinstance(text, str) else is_visible(data.get("blocks"))


def _kept(content: str | list[Any], metadata: Mapping[str, Any]) -> str | list[Any] | None:
    found = taken_back(content, metadata)
    return found if is_visible(found) else None


def taken_back(content: str | list[Any], metadata: Mapping[str, Any], *, asks: bool = False) -> str | list[Any]:
    """Return what the provider accepts back of the content of an answer that was cut off. `asks`: the tool calls stay."""
    if isinstance(content, str):
        return content
    provider = metadata.get("model_provider")
    blocks = [block for one in content if (block := received(one, provider, asks=asks)) is not None]
    opened = [unwrapped(block) for block in blocks]
    pairs = paired(opened)
    kept: list[Any] = []
    follows = asks and not asking_blocks(blocks)  # packages send calls that stand elsewhere behind the content
    for place in reversed(range(len(blocks))):
        if place in pairs or _may_stay(opened[place], follows):
            kept.append(blocks[place])
            follows = follows or not _is_blank(blocks[place])
    kept.reverse()
    return in_one_form(kept, metadata)


def _may_stay(block: Any, follows: bool) -> bool:
    """Return whether a block that is in no pair can go back to the provider. `follows`: such a block comes behind it."""
    if isinstance(block, str):
        return True
    kind = block.get("type")
    if kind in THINKING:
        # A signature is the last part of a thought to arrive, and a thought may not be the last block of an answer.
        return follows and is_signed(block)
    return kind not in SERVER_CALLS and not is_result(block)


def _is_blank(block: Any) -> bool:
    """Return whether a block is text that packages leave out of the request."""
    return not is_visible([block]) and (isinstance(block, str) or block.get("type") == "text")


def is_signed(block: Mapping[str, Any]) -> bool:
    """Return whether the provider has signed a thought: it refuses thoughts without a signature."""
    if block.get("type") == "redacted_thinking":
        return bool(block.get("data"))
    inner = block.get("reasoning_content")
    places = (block, block.get("extras"), inner)
    return any(isinstance(place, Mapping) and bool(place.get("signature")) for place in places)


def _shows(block: Any) -> bool:
    if isinstance(block, str):
        return is_visible(block)
    inner = unwrapped(block)
    if not isinstance(inner, Mapping):
        return False
    return is_visible(inner.get("text")) if inner.get("type") == "text" else not is_hidden(inner)
