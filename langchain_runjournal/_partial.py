"""Pure: what of a cut-off answer may stand in a thread.

Rule: the words as they were received, and nothing that a provider would refuse or a program could execute. Whatever is left
out stays in the journal.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, Protocol

from ._requests import ASKING
from ._translate import Data

MARK: Final = "runjournal"
"""Where in `additional_kwargs` a message says that it comes from here."""
_KEPT_METADATA: Final = ("model_name", "model", "model_provider", "output_version")
THINKING: Final = frozenset({"thinking", "redacted_thinking", "reasoning", "reasoning_content"})
"""The blocks of a content in which a model thinks, and does not speak."""
_REQUESTS: Final = ASKING | {"input_json_delta", "mcp_call"}
_SERVER_REQUESTS: Final = frozenset({"server_tool_use", "server_tool_call", "server_tool_call_chunk", "mcp_tool_use"})


class Said(Protocol):
    """What a call has said so far."""

    @property
    def content(self) -> Any:
        """Its text or its blocks."""

    @property
    def calls(self) -> list[dict[str, Any]]:
        """The tool calls that it was asking for, with their arguments as text."""

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What the provider said of it."""

    @property
    def id(self) -> str | None:
        """The id of its message."""


def partial_message(said: Said, *, reason: str, run_id: str | None = None, call_id: str | None = None) -> Data | None:
    """The message that is kept of a call that was cut off, as LangChain's own dict; None if it had said nothing yet."""
    content = _kept(said.content)
    if content is None:
        return None
    mark: Data = {"v": 1, "origin": "partial", "reason": reason, "run_id": run_id, "call_id": call_id}
    mark = {key: value for key, value in mark.items() if value is not None}
    calls = [{"id": one.get("id"), "name": one.get("name"), "final": is_final(one.get("args"))} for one in said.calls]
    if calls:
        # Told, not asked for: a request that nobody will answer makes the provider refuse the thread.
        mark["calls"] = calls
    metadata: Data = {key: said.metadata[key] for key in _KEPT_METADATA if key in said.metadata}
    data = {
        "type": "ai",
        "content": content,
        "id": said.id,
        "response_metadata": {**metadata, "finish_reason": "interrupted"},
        "additional_kwargs": {MARK: mark},
    }
    return {"type": "ai", "data": data}


def is_final(args: Any) -> bool:
    """Whether the arguments of a tool call have come to their end, strictly: half a JSON can pass for a whole one."""
    try:
        return isinstance(args, str) and isinstance(json.loads(args), dict)
    except (ValueError, RecursionError):
        return False


def is_visible(content: Any) -> bool:
    """Whether a chunk with this content shows the user anything. What is blank until the end is no answer."""
    if isinstance(content, str):
        return bool(content) and not content.isspace()
    return isinstance(content, list) and any(_shows(block) for block in content)


def delta_is_visible(data: Data) -> bool:
    """Whether a delta shows the user anything."""
    text = data.get("text")
    return is_visible(text) if isinstance(text, str) else is_visible(data.get("blocks"))


def _kept(content: str | list[Any]) -> str | list[Any] | None:
    if isinstance(content, str):
        return content if is_visible(content) else None
    blocks = [block for block in content if isinstance(block, Mapping)]
    answered = {_answers(block) for block in blocks} - {None}
    asked = {block.get("id") for block in blocks if block.get("type") in _SERVER_REQUESTS}
    kept: list[Any] = []
    follows = False
    for block in reversed(content):
        if _may_stay(block, answered & asked, follows):
            kept.append(_cleaned(block))
            follows = True
    kept.reverse()
    return kept if is_visible(kept) else None


def _may_stay(block: Any, paired: set[Any], follows: bool) -> bool:
    """Whether a block can be sent back to the provider. `follows`: something that can comes behind it."""
    if isinstance(block, str):
        return block != ""
    kind = str(block.get("type"))
    if kind in THINKING:
        # A signature is the last thing that a thought gets, and a thought may not be the last thing that is said.
        return follows and is_signed(block)
    if kind in _SERVER_REQUESTS:
        return block.get("id") in paired
    if _answers(block):
        return _answers(block) in paired
    if kind == "text":
        return bool(block.get("text"))
    return kind not in _REQUESTS


def is_signed(block: Mapping[str, Any]) -> bool:
    """Whether the provider has vouched for a thought: it refuses those that it has not."""
    if block.get("type") == "redacted_thinking":
        return bool(block.get("data"))
    inner = block.get("reasoning_content")
    places = (block, block.get("extras"), inner)
    return any(isinstance(place, Mapping) and bool(place.get("signature")) for place in places)


def _cleaned(block: Any) -> Any:
    """The block without its place in the stream, and a text without the item id that only the provider's own record has."""
    if isinstance(block, str):
        return block
    dropped = ("index", "id") if block.get("type") == "text" else ("index",)
    return {key: value for key, value in block.items() if key not in dropped}


def _shows(block: Any) -> bool:
    if isinstance(block, str):
        return is_visible(block)
    if not isinstance(block, Mapping):
        return False
    kind = block.get("type")
    if kind == "text":
        return is_visible(block.get("text"))
    hidden = kind in THINKING or kind in _REQUESTS or kind in _SERVER_REQUESTS
    return not hidden and not _answers(block)


def _answers(block: Mapping[str, Any]) -> Any:
    """The id of the request that a block is the result of, if it is one."""
    return block.get("tool_use_id") or block.get("tool_call_id")


def origin_of(message: Any) -> str | None:
    """How a message came to be: partial, recovered or synthetic; None for one that is not of our making."""
    return origin_in(getattr(message, "additional_kwargs", None))


def origin_in(kwargs: Any) -> str | None:
    """The same, by the `additional_kwargs` of a message."""
    mark = kwargs.get(MARK) if isinstance(kwargs, Mapping) else None
    origin = mark.get("origin") if isinstance(mark, Mapping) else None
    return origin if isinstance(origin, str) else None
