"""Pure: the mark of a message that this package has made or changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

MARK: Final = "runjournal"
"""The key of the mark in `additional_kwargs`."""


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
