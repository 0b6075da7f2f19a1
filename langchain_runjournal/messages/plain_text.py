"""Pure: the words of a model call or a tool as text for readers. Every function accepts any JSON, and none raises."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ..common import strict_json as _json
from ..events import visible_text
from .content_blocks import THINKING
from .partial import is_final, partial_message
from .stream_assembly import Streamed
from .tool_requests import requested

_THOUGHTS: Final = ("thinking", "reasoning", "text")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One tool call that a model asks for."""

    id: str | None
    name: str
    args: str
    whole: bool
    """Whether its arguments are complete."""


def text_of(content: object) -> str:
    """Return the words of a content, and in brackets the names of the parts that are not text."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, (list, tuple)):
        return spoken(content)
    words = visible_text({"blocks": list(content)})
    others = [_named(block) for block in content if not isinstance(block, str) and not _is_said(block)]
    return "\n".join(part for part in (words, *others) if part)


def thinking_of(content: object, kwargs: object = None) -> str:
    """Return the thoughts of a model before and while it spoke; some providers send them in the `additional_kwargs`."""
    found = [_thought(block) for block in content if _kind(block) in THINKING] if isinstance(content, (list, tuple)) else []
    beside = kwargs.get("reasoning_content") if isinstance(kwargs, Mapping) else None
    return "\n\n".join(part for part in (*found, beside) if part and isinstance(part, str))


def spoken(value: object) -> str:
    """Return a value as a person would write it down."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(_json.plain(value), ensure_ascii=False)
    except (ValueError, TypeError, RecursionError):
        return "(cannot be shown)"


def custom_words(data: Mapping[str, Any]) -> str:
    """Return what a program reported of itself (`run.custom`): its value, behind the name if it has one."""
    dropped = data.get("dropped")
    words = spoken(data.get("value")) if dropped is None else f"(dropped: {spoken(dropped)})"
    return f"{spoken(data['name'])}: {words}" if data.get("name") else words


def asked_of(fields: Mapping[str, Any]) -> tuple[Asked, ...]:
    """Return the tool calls that a whole message with these fields asks for."""
    try:
        found = requested(fields)
    except Exception:  # noqa: BLE001 - a value that is not a message asks for nothing
        return ()
    calls = [*_mappings(fields.get("tool_calls")), *_mappings(fields.get("invalid_tool_calls"))]
    args = {call.get("id"): call.get("args") for call in reversed(calls) if isinstance(call.get("id"), str)}
    return tuple(
        Asked(id=one.id, name=one.name or "tool", args=spoken(args.get(one.id, "")), whole=one.valid) for one in found
    )


def streamed(deltas: Sequence[str | Mapping[str, Any]], call_id: str) -> tuple[Any, tuple[Asked, ...]]:
    """Return the content that the deltas of a call add up to, and its tool requests; nothing if the deltas are not such as
    the journal records."""
    try:
        found = Streamed(deltas, call_id)
        return found.content, tuple(_asked(call) for call in _mappings(found.calls))
    except Exception:  # noqa: BLE001 - a program may append deltas that hold any JSON
        return "", ()


def shows(deltas: Sequence[str | Mapping[str, Any]], call_id: str) -> bool:
    """Return whether the deltas of a call add up to anything that the journal keeps if the call is cut off."""
    try:
        return partial_message(Streamed(deltas, call_id), reason="") is not None
    except Exception:  # noqa: BLE001 - as above
        return False


def _asked(call: Mapping[str, Any]) -> Asked:
    id, args = call.get("id"), call.get("args")
    return Asked(
        id=id if isinstance(id, str) else None,
        name=spoken(call.get("name") or "tool"),
        args="" if args is None else spoken(args),
        whole=is_final(args),
    )


def _kind(block: object) -> str:
    return str(block.get("type")) if isinstance(block, Mapping) else ""


def _is_said(block: object) -> bool:
    """Return whether a block is shown elsewhere: as words, as thinking or as a request."""
    kind = _kind(block)
    return kind == "text" or kind in THINKING or "tool" in kind or kind in ("function_call", "input_json_delta")


def _named(block: object) -> str:
    return f"[{_kind(block) or 'something else'}]"


def _thought(block: Mapping[str, Any]) -> str:
    inner = block.get("reasoning_content")
    for place in (block, inner if isinstance(inner, Mapping) else {}):
        for key in _THOUGHTS:
            said = place.get(key)
            if isinstance(said, str) and said:
                return said
    summary = [one.get("text") for one in _mappings(block.get("summary"))]
    return "\n".join(one for one in summary if isinstance(one, str))


def _mappings(value: object) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, (list, tuple)) else []
