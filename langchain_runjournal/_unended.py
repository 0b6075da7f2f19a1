"""Pure: answers that were cut off and taken for whole ones, as a request may hold them.

Rule: a view for one request, never stored. A body that ends early but cleanly, or a token limit reached in the middle of a
thought, makes a message that LangChain takes for whole and the graph stores. It can hold what the provider refuses from then
on: thoughts with nothing behind them, no content at all, the ids of items and of a response that were never stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ._blocks import ITEM_KWARGS
from ._cut_calls import ended_because
from ._pairs import is_ai
from ._partial import MARK, is_visible, kept, origin_of
from ._requests import requested

_PROVIDERS: Final = frozenset({"anthropic", "azure", "deepseek", "google_genai", "groq", "mistralai", "ollama", "openai"})
"""The `model_provider` of the packages that write down why an answer ended, in each answer that came to its end."""
_WELL: Final = frozenset({"stop", "tool_calls", "end_turn", "tool_use", "STOP", "completed"})
"""The reasons of most answers."""
_THOUGHTS: Final = frozenset({"reasoning", "reasoning_content", MARK})
"""What `additional_kwargs` may have of a message that says nothing. (Audio and a refusal are something.)"""


def sendable(messages: list[Any]) -> tuple[list[Any], list[str | None]]:
    """The messages, without those of the model that say nothing because they were cut off, and with copies of those that
    say something and hold what the provider refuses; and the ids of both. The same list if there is neither."""
    out = [_sendable(one) if is_ai(one) and is_suspect(one) else one for one in messages]
    changed = [other.id for one, other in zip(out, messages, strict=True) if one is not other]
    return ([one for one in out if one is not None], changed) if changed else (messages, [])


def is_suspect(message: Any) -> bool:
    """Whether an AI message may be such an answer. Quick, because it is asked of each one in a long and healthy thread."""
    content = message.content
    if type(content) is str and (content or message.tool_calls):
        return False
    metadata = message.response_metadata
    if (
        metadata.get("stop_reason") in _WELL
        or metadata.get("finish_reason") in _WELL
        or metadata.get("status") == "completed"
    ):
        return False
    return _cause(message) is not None


def _cause(message: Any) -> str | None:
    metadata = message.response_metadata
    if not metadata or origin_of(message) == "partial":
        return None
    return ended_because(metadata, expects=metadata.get("model_provider") in _PROVIDERS)


def _sendable(message: Any) -> Any | None:
    """The message, a copy of it, or None if it says nothing."""
    if not requested(vars(message)) and not is_visible(message.content) and not set(message.additional_kwargs) - _THOUGHTS:
        return None
    is_stored = _cause(message) == "length"
    if is_stored and (requested(vars(message)) or _ends_in_words(message.content)):
        return message
    metadata = {key: value for key, value in message.response_metadata.items() if is_stored or key != "id"}
    kwargs = {key: value for key, value in message.additional_kwargs.items() if is_stored or key not in ITEM_KWARGS}
    changes = {"content": _content(message, metadata), "additional_kwargs": kwargs}
    # As a partial answer has it: a second look finds nothing to do.
    return message.model_copy(update={**changes, "response_metadata": {**metadata, "finish_reason": "interrupted"}})


def _ends_in_words(content: Any) -> bool:
    """Whether the limit was reached in a text: then all that stands before it has come to its end."""
    return isinstance(content, str) or is_visible(content[-1:])


def _content(message: Any, metadata: Mapping[str, Any]) -> Any:
    if isinstance(message.content, str):
        return message.content
    found = kept(message.content, metadata)
    return "" if found is None else found
