"""Pure: ids for tool calls without one.

Rule: some servers give calls without ids. LangChain runs no tool for such a call, and its packages send it on with `id:
null`, which OpenAI and others refuse in every later request. The new id depends only on the message and the call, so that it
is the same each time. Results without an id belong to such calls if there are as many of them, in their order.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from .tool_pairs import end_of_results, is_ai
from .tool_requests import ASKING, block_id, raw_calls, unwrapped

_ITEMS: Final = ("function_call", "custom_tool_call", "computer_call")
"""The blocks in which `id` is that of the item, and `call_id` that of the call."""


def with_ids(messages: Sequence[Any]) -> list[Any]:
    """Return the messages with copies in place of those that have a call without an id, and of the results of such calls."""
    out = list(messages)
    for place, message in enumerate(messages):
        made = _made(message) if is_ai(message) and _lacks(message) else []
        if not made:
            continue
        out[place] = _with_ids(message, made)
        results = [at for at in range(place + 1, end_of_results(messages, place)) if not messages[at].tool_call_id]
        if len(results) == len(made):
            for at, id in zip(results, made, strict=True):
                out[at] = messages[at].model_copy(update={"tool_call_id": id})
    return out


def _calls(message: Any) -> list[Mapping[str, Any]]:
    return [*message.tool_calls, *message.invalid_tool_calls]


def _lacks(message: Any) -> bool:
    return any(_is_bare(call) for call in _calls(message))


def _is_bare(call: Mapping[str, Any]) -> bool:
    # An id does not help a call without a name: no provider accepts it.
    return call.get("id") is None and bool(call.get("name"))


def _made(message: Any) -> list[str]:
    return [_id(message.id, place, call) for place, call in enumerate(_calls(message)) if _is_bare(call)]


def _id(message_id: str | None, place: int, call: Mapping[str, Any]) -> str:
    name = json.dumps([message_id, place, call.get("name"), call.get("args")], sort_keys=True, default=str)
    # OpenAI accepts at most 40 characters.
    return f"call_{hashlib.sha1(name.encode(), usedforsecurity=False).hexdigest()[:24]}"


def _with_ids(message: Any, made: list[str]) -> Any:
    fresh = iter(made)
    changes: dict[str, Any] = {
        "tool_calls": [_named(call, fresh) for call in message.tool_calls],
        "invalid_tool_calls": [_named(call, fresh) for call in message.invalid_tool_calls],
    }
    raw = raw_calls(message.additional_kwargs)
    if sum(block_id(call) is None for call in raw) == len(made):
        fresh = iter(made)
        calls = [call if block_id(call) is not None else {**call, "id": next(fresh)} for call in raw]
        changes["additional_kwargs"] = {**message.additional_kwargs, "tool_calls": calls}
    content = message.content
    if isinstance(content, list) and sum(_asks_without_id(block) for block in content) == len(made):
        fresh = iter(made)
        changes["content"] = [_block(block, next(fresh)) if _asks_without_id(block) else block for block in content]
    return message.model_copy(update=changes)


def _named(call: Mapping[str, Any], fresh: Iterator[str]) -> Mapping[str, Any]:
    return {**call, "id": next(fresh)} if _is_bare(call) else call


def _asks_without_id(block: Any) -> bool:
    inner = unwrapped(block)
    return isinstance(inner, Mapping) and inner.get("type") in ASKING and block_id(inner) is None


def _block(block: Any, id: str) -> Any:
    inner = unwrapped(block)
    named = {**inner, "call_id" if inner.get("type") in _ITEMS else "id": id}
    return named if inner is block else {**block, "value": named}
