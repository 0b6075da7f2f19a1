"""Pure: an AI message without some of its tool calls.

Rule: a call is removed from all places where it stands, and with it the thinking that led to nothing else, because a
provider refuses a thought that nothing follows. A message that has nothing left to say is removed as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..messages.content_blocks import SIDECAR, THINKING, in_one_form
from ..messages.partial import is_visible
from ..messages.tool_requests import ASKING, block_id, only_invalid, raw_calls, requested, unwrapped


def without(message: Any, gone: Iterable[int]) -> Any | None:
    """Return a copy of an AI message without the requests at these indexes; None if nothing would be left of it."""
    fields = vars(message)
    asked = requested(fields)
    doomed = set(gone)
    lost = {request.id for request in asked if request.index in doomed}
    # A call that appears twice under one id stands only once outside of `tool_calls`.
    lost_everywhere = lost - {request.id for request in asked if request.index not in doomed}
    calls = fields.get("tool_calls") or []
    places = {place: len(calls) + nth for nth, place in enumerate(only_invalid(fields))}
    changes: dict[str, Any] = {
        # These come first among the requests, in the same order.
        "tool_calls": [call for index, call in enumerate(calls) if index not in doomed],
        "invalid_tool_calls": [
            call
            for place, call in enumerate(fields.get("invalid_tool_calls") or [])
            if (places[place] not in doomed if place in places else call.get("id") not in lost)
        ],
        "content": _content(message.content, lost_everywhere, message.response_metadata),
        "additional_kwargs": _kwargs(message.additional_kwargs, lost_everywhere),
    }
    if fields.get("tool_call_chunks"):
        changes["tool_call_chunks"] = []
    left = message.model_copy(update=changes)
    return left if requested(vars(left)) or _says(left.content) else None


def _kwargs(kwargs: Mapping[str, Any], lost: set[str | None]) -> dict[str, Any]:
    raw = raw_calls(kwargs)
    left = {key: value for key, value in kwargs.items() if key not in ("tool_calls", "function_call")}
    calls = [call for call in raw if block_id(call) not in lost]
    if calls:
        left["tool_calls"] = calls
    return left


def _content(content: Any, lost: set[str | None], metadata: Mapping[str, Any]) -> Any:
    if not isinstance(content, list):
        return content
    kept: list[Any] = []
    follows, apart = "nothing", False
    for block in reversed(content):
        inner = unwrapped(block)
        kind = inner.get("type") if isinstance(inner, Mapping) else "text"
        if kind == SIDECAR or kind == "input_json_delta" or (kind in ASKING and block_id(inner) in lost):
            apart = True
        elif kind not in THINKING:
            kept.append(block)
            if kind != "text" or is_visible([block]):  # adapters leave out blank text
                follows, apart = "words", False
        elif follows == "words" or (follows == "thought" and not apart):
            kept.append(block)
            follows, apart = "thought", False
    kept.reverse()
    return in_one_form(kept, metadata)


def _says(content: Any) -> bool:
    """Return whether a content without requests has anything in it that can stand alone."""
    if not isinstance(content, list):
        return is_visible(content)
    return any(_stands(block) for block in content)


def _stands(block: Any) -> bool:
    inner = unwrapped(block)
    if isinstance(inner, Mapping) and inner.get("type") not in ("text", *THINKING):
        return True
    return is_visible([inner])
