"""Pure: answers that were cut off and taken for whole ones, as a request may hold them.

Rule: this is a view for one request and is never stored. A body that ends early but cleanly, or a token limit reached in the
middle of a thought, makes a message that LangChain takes for whole and the graph stores. It can hold what the provider
refuses from then on: thoughts with nothing behind them, no content at all, the ids of items and of a response that were
never stored. `partial.taken_back` decides which parts of a content a provider accepts back, here as for every partial
answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from .content_blocks import ITEM_KWARGS
from .cut_calls import CUT_CAUSES, GIVES_REASON, CutCause, ended_because
from .marks import MARK, origin_of
from .message_data import Data
from .partial import is_visible, taken_back
from .tool_pairs import is_ai
from .tool_requests import requested

_PROVIDERS: Final = GIVES_REASON | {"mistralai", "bedrock_converse"}
"""The same providers by the `model_provider` of their messages, which two packages write in another way."""
_WELL: Final = frozenset({"stop", "tool_calls", "end_turn", "tool_use", "STOP", "completed"})
"""The reasons of most answers."""
_THOUGHTS: Final = frozenset({"reasoning", "reasoning_content", MARK})
"""The keys of `additional_kwargs` that a message may have without saying anything. (Audio and a refusal say something.)"""


def sendable(messages: list[Any]) -> tuple[list[Any], list[str | None]]:
    """Return the messages as the provider accepts them, and the ids of those that were left out or replaced.

    A message of the model that says nothing because it was cut off is left out. A copy replaces one that says something and
    holds what the provider refuses. Without either, return the same list.
    """
    out = [_sendable(one) if is_ai(one) and is_suspect(one) else one for one in messages]
    changed = [other.id for one, other in zip(out, messages, strict=True) if one is not other]
    return ([one for one in out if one is not None], changed) if changed else (messages, [])


def is_suspect(message: Any) -> bool:
    """Return whether an AI message may be such an answer.

    This is quick, as it runs for each message of a long and healthy thread.
    """
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


def _cause(message: Any) -> CutCause | None:
    """Return why the answer ended early, by the mark of a guard, or by what its provider reports or leaves out."""
    if origin_of(message) == "partial":
        reason = message.additional_kwargs[MARK].get("reason")
        return reason if reason in CUT_CAUSES else None
    metadata = message.response_metadata
    return ended_because(metadata, expects=metadata.get("model_provider") in _PROVIDERS) if metadata else None


def _sendable(message: Any) -> Any | None:
    """Return the message, a copy of it, or None if it says nothing."""
    cause = _cause(message)
    silent = _THOUGHTS if cause == "length" else _THOUGHTS | ITEM_KWARGS
    if not requested(vars(message)) and not is_visible(message.content) and not set(message.additional_kwargs) - silent:
        return None
    changes = changes_to(message, cause)
    return message.model_copy(update=changes) if changes else message


def changes_to(message: Any, cause: CutCause | None) -> Data:
    """Return the fields of the message that must change for its provider to accept it back. Its tool calls stay."""
    asks = bool(requested(vars(message)))
    if cause == "length" and (asks or _ends_in_words(message.content)):
        return {}
    content, kwargs, metadata = message.content, message.additional_kwargs, message.response_metadata
    fields: Data = {"content": taken_back(content, metadata, asks=asks)}
    if cause != "length":  # a response that ran into its limit is stored like any other
        is_response = str(metadata.get("id")).startswith("resp_")
        gone = ITEM_KWARGS | ({"refusal"} if is_response else set())
        fields["additional_kwargs"] = {key: value for key, value in kwargs.items() if key not in gone}
        if is_response:
            # Without its id, `use_previous_response_id` continues from the last response that is stored.
            fields["response_metadata"] = {key: value for key, value in metadata.items() if key != "id"}
            fields["content"] = _with_refusal(fields["content"], kwargs)
    return {key: value for key, value in fields.items() if value != getattr(message, key)}


def _ends_in_words(content: Any) -> bool:
    """Return whether the limit was reached in a text: then every block before it is complete."""
    return isinstance(content, str) or is_visible(content[-1:])


def _with_refusal(content: Any, kwargs: Mapping[str, Any]) -> Any:
    """Return the content with the refusal that `output_version="v0"` has beside it, where it would get the id of an item."""
    refusal = kwargs.get("refusal")
    return [*content, {"type": "refusal", "refusal": refusal}] if refusal and isinstance(content, list) else content
