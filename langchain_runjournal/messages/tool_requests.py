"""Pure: which tool calls an AI message asks for.

Rule: one call counts once, in however many places it stands: LangChain's own lists, the content as the provider sent it, and
the raw call that some adapters keep in `additional_kwargs`. A call that the provider runs itself is not a request: the
provider answers it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

ASKING: Final = frozenset(
    {"tool_use", "tool_call", "tool_call_chunk", "invalid_tool_call", "function_call", "custom_tool_call", "computer_call"}
)
"""The content blocks that ask the program, and not the provider, to do something."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One tool call that an AI message asks for.

    `index` is its place among the requests of the message. `valid` is False for one that no tool can run: LangChain could
    not read its arguments, they were cut off, or it has no id or no name.
    """

    id: str | None
    name: str | None
    index: int
    valid: bool


@dataclass(slots=True)
class _Found:
    id: Any
    name: Any
    valid: bool


def requested(fields: Mapping[str, Any]) -> list[Request]:
    """Return the tool calls that a message with these fields asks for.

    `tool_calls` come first, in their order, then those of `only_invalid`, then the calls that stand elsewhere only.
    """
    invalid = fields.get("invalid_tool_calls") or ()
    found = [_Found(call.get("id"), call.get("name"), True) for call in fields.get("tool_calls") or ()]
    found += [_Found(call.get("id"), call.get("name"), False) for call in (invalid[at] for at in only_invalid(fields))]
    raw = [*asking_blocks(fields.get("content")), *raw_calls(fields.get("additional_kwargs"))]
    raw += fields.get("tool_call_chunks") or ()
    if raw:
        _compare(found, raw)
    return [_request(index, one) for index, one in enumerate(found)]


def request_ids(fields: Mapping[str, Any]) -> list[str]:
    """Return the ids of the tool calls that a message with these fields asks for, even if their arguments are not JSON."""
    return [request.id for request in requested(fields) if request.id is not None]


def only_invalid(fields: Mapping[str, Any]) -> list[int]:
    """Return the places of those `invalid_tool_calls` that are not among the `tool_calls` as well."""
    invalid = fields.get("invalid_tool_calls")
    if not invalid:
        return []
    known = {call.get("id") for call in fields.get("tool_calls") or ()} - {None}
    return [place for place, call in enumerate(invalid) if call.get("id") not in known]


def _compare(found: list[_Found], raw: list[Mapping[str, Any]]) -> None:
    """Add the raw calls that are nowhere else, and mark as invalid those whose arguments are cut off in their raw form."""
    named = {one.id: one for one in reversed(found)}
    for block in raw:
        id, arguments = block_id(block), arguments_of(block)
        if id is None:
            continue  # without an id it may be any of the calls that are known
        cut = isinstance(arguments, str) and bool(arguments.strip()) and not is_whole_json(arguments)
        if id not in named:
            named[id] = _Found(id, _name(block), block.get("type") not in ("invalid_tool_call", "computer_call"))
            found.append(named[id])
        if cut:
            # LangChain's parser makes a whole call of half a one.
            named[id].valid = False


def _request(index: int, one: _Found) -> Request:
    id = one.id if isinstance(one.id, str) else None
    name = one.name if isinstance(one.name, str) and one.name else None
    return Request(id=id, name=name, index=index, valid=one.valid and id is not None and name is not None)


def asking_blocks(content: Any) -> list[Mapping[str, Any]]:
    """Return the blocks of a content that are requests."""
    if not isinstance(content, list):
        return []
    opened = (unwrapped(block) for block in content)
    return [block for block in opened if isinstance(block, Mapping) and block.get("type") in ASKING]


def unwrapped(block: Any) -> Any:
    """Return the provider's block inside of one that LangChain has no standard form for; any other block as it is."""
    if isinstance(block, Mapping) and block.get("type") == "non_standard" and isinstance(block.get("value"), Mapping):
        return block["value"]
    return block


def raw_calls(kwargs: Any) -> list[Mapping[str, Any]]:
    """Return the calls in `additional_kwargs`, in the form of OpenAI's chat completions."""
    calls = kwargs.get("tool_calls") if isinstance(kwargs, Mapping) else None
    return [call for call in calls if isinstance(call, Mapping)] if isinstance(calls, list) else []


def block_id(block: Mapping[str, Any]) -> str | None:
    """Return the id that the result of a request has to name. OpenAI gives the item another one beside it."""
    id = block.get("call_id") or block.get("id")
    return id if isinstance(id, str) else None


def _name(block: Mapping[str, Any]) -> Any:
    inner = block.get("function")
    if isinstance(inner, Mapping):
        return inner.get("name")
    return "computer" if block.get("type") == "computer_call" else block.get("name")


def arguments_of(block: Mapping[str, Any]) -> Any:
    """Return the arguments as they were received, if the block still has them.

    (The `input` of a custom tool is any text.)
    """
    inner = block.get("function")
    if isinstance(inner, Mapping):
        return inner.get("arguments")
    if block.get("type") == "tool_use" and isinstance(block.get("input"), str):
        return block["input"]  # from Bedrock, in a stream
    return block.get("partial_json") or block.get("arguments") or block.get("args")


def is_whole_json(text: str) -> bool:
    """Return whether a text is a whole JSON value.

    A line break inside of a string counts as valid, because some models write it so. The value need not be an object: some
    models send `null` or `[]` for no arguments. Half an object is never a whole value.
    """
    try:
        json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return False
    return True
