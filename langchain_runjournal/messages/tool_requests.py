"""Pure: which tool calls an AI message asks for.

Rule: one call is counted once, in however many places it stands: LangChain's own lists, the content as the provider gave
it, and the raw call that some adapters keep in `additional_kwargs`. What the provider runs itself is no request: it
answers that itself.
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

    `index` is its place among the requests of the message. `valid` is False for one that nobody can run: LangChain could
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
    """The tool calls that a message with these fields asks for: `tool_calls` in their order, then those of `only_invalid`,
    then whatever stands elsewhere only."""
    invalid = fields.get("invalid_tool_calls") or ()
    found = [_Found(call.get("id"), call.get("name"), True) for call in fields.get("tool_calls") or ()]
    found += [_Found(call.get("id"), call.get("name"), False) for call in (invalid[at] for at in only_invalid(fields))]
    raw = [*asking_blocks(fields.get("content")), *raw_calls(fields.get("additional_kwargs"))]
    raw += fields.get("tool_call_chunks") or ()
    if raw:
        _compare(found, raw)
    return [_request(index, one) for index, one in enumerate(found)]


def request_ids(fields: Mapping[str, Any]) -> list[str]:
    """The ids of the tool calls that a message with these fields asks for, also of those whose arguments are no JSON."""
    return [request.id for request in requested(fields) if request.id is not None]


def only_invalid(fields: Mapping[str, Any]) -> list[int]:
    """The places of those `invalid_tool_calls` that are not among the `tool_calls` as well."""
    invalid = fields.get("invalid_tool_calls")
    if not invalid:
        return []
    known = {call.get("id") for call in fields.get("tool_calls") or ()} - {None}
    return [place for place, call in enumerate(invalid) if call.get("id") not in known]


def _compare(found: list[_Found], raw: list[Mapping[str, Any]]) -> None:
    """Take in the calls as the provider gave them: those that are nowhere else, and what is cut off in them."""
    named = {one.id: one for one in reversed(found)}
    for block in raw:
        id, arguments = block_id(block), arguments_of(block)
        if id is None:
            continue  # without an id it may be any of those that are known
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
    """The blocks of a content that are requests."""
    if not isinstance(content, list):
        return []
    opened = (unwrapped(block) for block in content)
    return [block for block in opened if isinstance(block, Mapping) and block.get("type") in ASKING]


def unwrapped(block: Any) -> Any:
    """The block of the provider in one that LangChain has no standard form for; any other as it is."""
    if isinstance(block, Mapping) and block.get("type") == "non_standard" and isinstance(block.get("value"), Mapping):
        return block["value"]
    return block


def raw_calls(kwargs: Any) -> list[Mapping[str, Any]]:
    """The calls in `additional_kwargs`, as OpenAI's chat completions give them."""
    calls = kwargs.get("tool_calls") if isinstance(kwargs, Mapping) else None
    return [call for call in calls if isinstance(call, Mapping)] if isinstance(calls, list) else []


def block_id(block: Mapping[str, Any]) -> str | None:
    """The id that the result of a request has to name. OpenAI gives the item another one beside it."""
    id = block.get("call_id") or block.get("id")
    return id if isinstance(id, str) else None


def _name(block: Mapping[str, Any]) -> Any:
    inner = block.get("function")
    if isinstance(inner, Mapping):
        return inner.get("name")
    return "computer" if block.get("type") == "computer_call" else block.get("name")


def arguments_of(block: Mapping[str, Any]) -> Any:
    """The arguments as they were received, where the block still has them so. (The `input` of a custom tool is any text.)"""
    inner = block.get("function")
    if isinstance(inner, Mapping):
        return inner.get("arguments")
    if block.get("type") == "tool_use" and isinstance(block.get("input"), str):
        return block["input"]  # of Bedrock, in a stream
    return block.get("partial_json") or block.get("arguments") or block.get("args")


def is_whole_json(text: str) -> bool:
    """Whether a text is a whole JSON value. Some models leave line breaks in a string as they are: that is not cut off.

    Not only an object: some models send `null` or `[]` for no arguments. Half an object is never a whole value.
    """
    try:
        json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return False
    return True
