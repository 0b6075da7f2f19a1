"""Pure: the blocks of a content as the providers' packages write them, and which of them a provider accepts back.

Rule: a block is judged by what it holds, because LangChain wraps a block that it has no standard form for (`non_standard`).
A call that the provider ran itself goes back as a pair with its result. An item of OpenAI's Responses API does not go back
at all: OpenAI refuses an item without the reasoning item that led to it, and for a response that was cut off it has stored
neither of them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from .tool_requests import ASKING, unwrapped

THINKING: Final = frozenset({"thinking", "redacted_thinking", "reasoning", "reasoning_content"})
"""The blocks of a content in which a model thinks and does not speak."""
SERVER_CALLS: Final = frozenset(
    {"server_tool_use", "server_tool_call", "server_tool_call_chunk", "mcp_tool_use", "executable_code"}
)
"""The blocks that ask the provider itself to do something."""
_RESULTS: Final = ("_tool_result", "code_execution_result")
"""The endings of the kinds of their results, including those of results that name no request."""
_ITEMS: Final = frozenset(
    {"mcp_list_tools", "mcp_approval_request", "mcp_approval_response", "tool_search_output", "compaction"}
)
"""Items of OpenAI's Responses API that `_is_call` does not recognize by their name."""
_CALL_ITEMS: Final = frozenset({"function_call", "custom_tool_call"})
SIDECAR: Final = "function_call_signature"
"""Gemini's signatures of calls, which count the calls by place: useless when one call is removed."""
_ITEM_PROVIDERS: Final = frozenset({"openai", "azure", "xai"})
ITEM_KWARGS: Final = frozenset({"reasoning", "tool_outputs", "__openai_function_call_ids__"})
"""The keys of `additional_kwargs` that hold such items and their ids, with `output_version="v0"`."""
_ITEM_IDS: Final = ("ws_", "fs_", "ci_", "mcp_", "mcpl_", "ig_", "tsc_", "tso_")
"""The prefixes of the ids of OpenAI's items. Anthropic's begin with `srvtoolu_` and `mcptoolu_`."""


def is_result(block: Mapping[str, Any]) -> bool:
    """Return whether a block, unwrapped, is the result of a call."""
    return bool(_answers(block)) or str(block.get("type")).endswith(_RESULTS)


def _answers(block: Mapping[str, Any]) -> Any:
    """Return the id of the request that a block answers, if it names one."""
    return block.get("tool_use_id") or block.get("tool_call_id")


def paired(blocks: Sequence[Any]) -> set[int]:
    """Return the places of the provider's own calls that have a result, and the places of these results.

    `blocks` are unwrapped. Gemini's results name no call: each belongs to the call right before it.
    """
    kinds = [block.get("type") if isinstance(block, Mapping) else None for block in blocks]
    calls = {block.get("id"): at for at, block in enumerate(blocks) if kinds[at] in SERVER_CALLS}
    found: set[int] = set()
    for place, block in enumerate(blocks):
        if isinstance(block, Mapping) and is_result(block):
            named = calls.get(_answers(block)) if _answers(block) else None
            before = place - 1 if place and kinds[place - 1] in SERVER_CALLS and not _answers(block) else None
            call = before if named is None else named
            found |= {call, place} if call is not None else set()
    return found


def is_hidden(block: Mapping[str, Any]) -> bool:
    """Return whether a block, unwrapped, shows the user nothing: a thought, a call, or the result of one.

    A picture is shown.
    """
    kind = str(block.get("type"))
    if kind == "image_generation_call":
        return not block.get("result")
    return kind in THINKING or kind in SERVER_CALLS or kind in _ITEMS or _is_call(kind) or is_result(block)


def _is_call(kind: str) -> bool:
    """Return whether it is a request to the program, or a call of one of OpenAI's own tools (`web_search_call`, ...)."""
    return kind in ASKING or kind in ("input_json_delta", SIDECAR) or kind.endswith(("_call", "_call_output"))


def received(block: Any, provider: Any, *, asks: bool = False) -> Any | None:
    """Return the block as it may stand in a message that goes back to the provider; None for one that never may.

    `asks`: the requests to the program stay, because each of them has a result. The block loses its place in the stream and
    the ids of items. A picture that OpenAI has made becomes a standard image: the user has seen it, and OpenAI could not
    find it by its id.
    """
    if isinstance(block, str):
        return block or None
    inner = unwrapped(block)
    if not isinstance(inner, Mapping):
        return None
    kind = str(inner.get("type"))
    if asks and (kind in ASKING or kind == SIDECAR):
        return _request(inner) if inner is block else {**block, "value": _request(inner)}
    if kind == "image_generation_call":
        return _picture(inner)
    if kind in SERVER_CALLS or is_result(inner):
        if _is_item(inner, provider):
            return None
        inner = inner if kind != "server_tool_call_chunk" else _ended(inner)
    elif kind in _ITEMS or _is_call(kind) or (kind == "text" and not inner.get("text")):
        return None
    if inner is None:
        return None
    if block.get("type") == "non_standard":
        return {**_without(block, "index"), "value": _without(inner, "index")}
    if kind == "text":
        # LangChain has merged two blocks with one index here, where a package numbers a thought and a text alike.
        return _without(inner, "index", "id", "thinking", "reasoning")
    is_item = kind == "refusal" or (kind == "image" and str(inner.get("id")).startswith("ig_"))
    return _without(inner, "index", "id") if is_item else _without(inner, "index")


def _request(block: Mapping[str, Any]) -> dict[str, Any]:
    """Return a request to the program without the id of OpenAI's item; its result names the `call_id` beside it."""
    kept = _without(block, "id") if block.get("call_id") and block.get("type") in _CALL_ITEMS else dict(block)
    if isinstance(kept.get("extras"), Mapping) and "item_id" in kept["extras"]:
        kept["extras"] = _without(kept["extras"], "item_id")
    return kept


def _is_item(block: Mapping[str, Any], provider: Any) -> bool:
    """Return whether a call of a provider's tool, or its result, comes from an item of OpenAI's Responses API.

    The block is in LangChain's standard form.
    """
    id = _answers(block) or block.get("id")
    return provider in _ITEM_PROVIDERS or (isinstance(id, str) and id.startswith(_ITEM_IDS))


def _ended(block: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a server's tool call whose arguments are complete as a whole call. The provider refuses it as a chunk."""
    try:
        args = json.loads(block.get("args") or "{}")
    except (TypeError, ValueError, RecursionError):
        return None
    return {**block, "type": "server_tool_call", "args": args} if isinstance(args, dict) else None


def _picture(item: Mapping[str, Any]) -> dict[str, Any] | None:
    data = item.get("result")
    if not data:
        return None
    return {"type": "image", "base64": data, "mime_type": f"image/{item.get('output_format') or 'png'}"}


def _without(block: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {key: value for key, value in block.items() if key not in names}


def in_one_form(content: list[Any], metadata: Mapping[str, Any]) -> str | list[Any]:
    """Return a content without strings among its blocks: one string if it is only text, else text blocks for the strings.

    Some packages add up strings and blocks. Mistral and OpenAI refuse a request with such a list, and the packages of
    DeepSeek, Groq and OpenAI's Responses API drop the strings silently. A content in LangChain's standard form
    (`output_version="v1"`) stays a list: packages read a string there letter by letter.
    """
    if not any(isinstance(block, str) for block in content):
        return content
    if metadata.get("output_version") != "v1" and all(_is_plain(block) for block in content):
        return "".join(block if isinstance(block, str) else block["text"] for block in content)
    blocks: list[Any] = []
    grows = False
    for block in content:
        if not isinstance(block, str):
            blocks.append(block)
        elif grows:
            blocks[-1]["text"] += block
        elif block:
            blocks.append({"type": "text", "text": block})
        grows = isinstance(block, str) and (grows or bool(block))
    return blocks


def _is_plain(block: Any) -> bool:
    """Return whether a block is text and nothing more."""
    if isinstance(block, str):
        return True
    return isinstance(block, Mapping) and block.get("type") == "text" and set(block) == {"type", "text"}
