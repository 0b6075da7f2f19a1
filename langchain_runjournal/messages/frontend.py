"""Pure: an answer that was cut off, for a page that knows nothing of the journal.

Rule: our words never get into a thread. This module makes a copy for the screen and does not change the original message.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ..errors import InvalidArgument
from .marks import MARK, mark_in, origin_of

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage

_M = TypeVar("_M", bound="BaseMessage | Mapping[str, Any]")

_EXPECTED: Final = 'a list of messages or of their dicts, such as `state["messages"]`; one message goes into a list'


def mark_partial(messages: Iterable[_M], marker: str = " …[stopped]") -> list[_M]:
    """Append `marker` to the text of each answer that was cut off, in copies; all other messages are the same objects.

    Use it for a page that shows a message's text and nothing else, and never for a thread or a model, which would take the
    marker for the model's own words. It accepts messages, and the dicts that `message_to_dict`, `model_dump` and the
    LangGraph API make of them. A dict without `additional_kwargs` does not say that it was cut off, and stays as it is. The
    function is idempotent.
    """
    if not isinstance(marker, str) or not marker:
        raise InvalidArgument(name="marker", expected='a non-empty str, such as " …[stopped]"', value=marker)
    # A message is iterable as well: it yields its fields.
    if not isinstance(messages, Iterable) or isinstance(messages, (str, bytes, Mapping)) or hasattr(messages, "content"):
        raise InvalidArgument(name="messages", expected=_EXPECTED, value=messages)
    return [_marked(message, marker) for message in messages]


def _marked(message: Any, marker: str) -> Any:
    if isinstance(message, Mapping):
        inner = message.get("data")
        if isinstance(inner, Mapping) and "content" not in message:
            marked = _marked(inner, marker)
            return message if marked is inner else {**message, "data": marked}
        changes = _changes(message.get("content"), message.get("additional_kwargs"), marker)
        return message if changes is None else {**message, **changes}
    if origin_of(message) != "partial":
        return message
    changes = _changes(message.content, message.additional_kwargs, marker)
    return message if changes is None else message.model_copy(update=changes)


def _changes(content: Any, kwargs: Any, marker: str) -> dict[str, Any] | None:
    mark = mark_in(kwargs)
    if mark.get("origin") != "partial" or "marker" in mark:
        return None
    return {"content": _with(content, marker), "additional_kwargs": {**kwargs, MARK: {**mark, "marker": marker}}}


def _with(content: Any, marker: str) -> Any:
    if not isinstance(content, list):
        return f"{content or ''}{marker}"
    last = content[-1] if content else None
    if isinstance(last, str):
        return [*content[:-1], last + marker]
    if isinstance(last, Mapping) and last.get("type") == "text" and isinstance(last.get("text"), str):
        return [*content[:-1], {**last, "text": last["text"] + marker}]
    return [*content, {"type": "text", "text": marker}]
