"""Pure: the mark of a message that this package has made or changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from .message_data import Data

MARK: Final = "runjournal"
"""The key of the mark in `additional_kwargs`."""


def new_mark(origin: str, **fields: Any) -> Data:
    """Return a mark with these fields, in the format of today."""
    return {"v": 1, "origin": origin, **fields}


def partial_mark(reason: str, run_id: str | None, call_id: str | None, calls: list[Data] | None) -> Data:
    """Return the mark of an answer that was cut off, without the fields that are None.

    `calls` names the tool calls of the answer, each with whether its arguments are `final`. As requests without a result,
    they would make the provider refuse the thread.
    """
    mark = new_mark("partial", reason=reason, run_id=run_id, call_id=call_id, calls=calls)
    return {key: value for key, value in mark.items() if value is not None}


def origin_of(message: Any) -> str | None:
    """Return the origin of a message: partial, recovered, synthetic or note; None for one that has no mark of ours."""
    return origin_in(getattr(message, "additional_kwargs", None))


def origin_in(kwargs: Any) -> str | None:
    """Return the origin that the `additional_kwargs` of a message name, or None."""
    origin = mark_in(kwargs).get("origin")
    return origin if isinstance(origin, str) else None


def mark_in(kwargs: Any) -> Mapping[str, Any]:
    """Return the mark in the `additional_kwargs` of a message, or an empty mapping."""
    mark = kwargs.get(MARK) if isinstance(kwargs, Mapping) else None
    return mark if isinstance(mark, Mapping) else {}
