"""Messages as LangChain's objects, loaded from what the journal holds."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..common import binary as _binary
from ..common import packed as _packed
from . import forms as _forms
from .marks import MARK, mark_in, origin_of
from .message_data import Data

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage

logger = logging.getLogger("langchain_runjournal")


def is_partial(message: BaseMessage) -> bool:
    """Return whether a message is what was left of an answer that was cut off.

    ``message.additional_kwargs["runjournal"]["reason"]`` says why it was cut off.
    """
    return origin_of(message) == "partial"


def is_synthetic(message: BaseMessage) -> bool:
    """Return whether the journal has made a message.

    Such a message is the result of a tool whose real result can never arrive, or, in a request only, the answer that
    `ToolPairGuard` and `repair_tool_pairs` put where a model refuses to have none (`bridge`).
    """
    return origin_of(message) == "synthetic"


def as_messages(found: Sequence[Any]) -> list[BaseMessage]:
    """Return what a state holds as messages: a list that only grows may hold messages in any form."""
    return _forms.read(found)


def load(run_id: str, found: Iterable[Data]) -> list[BaseMessage]:
    """Return LangChain's objects, with the values that JSON does not hold.

    A value that cannot come back equal is None, and the mark of the message says why
    (``additional_kwargs["runjournal"]["left_out"]``). The function leaves out a message that cannot be read any more, with a
    warning, and returns the rest.
    """
    from langchain_core.messages import messages_from_dict

    messages: list[BaseMessage] = []
    for data in found:
        try:
            fields, left_out = _packed.read(_binary.read(data))
            if left_out:
                fields["additional_kwargs"] = _marked(fields.get("additional_kwargs"), left_out)
            messages += messages_from_dict([{"type": data["type"], "data": fields}])
        except Exception:
            logger.warning("could not read a message of run %s; its event still holds the message", run_id, exc_info=True)
    return messages


def _marked(kwargs: Any, left_out: Mapping[str, str]) -> dict[str, Any]:
    kwargs = dict(kwargs or {})
    return {**kwargs, MARK: {"v": 1, **mark_in(kwargs), _packed.LEFT_OUT: dict(left_out)}}
