"""Pure: the mark of a message that this package has made or changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

MARK: Final = "runjournal"
"""Where in `additional_kwargs` a message says that it comes from here."""


def origin_of(message: Any) -> str | None:
    """How a message came to be: partial, recovered or synthetic; None for one that is not of our making."""
    return origin_in(getattr(message, "additional_kwargs", None))


def origin_in(kwargs: Any) -> str | None:
    """The same, by the `additional_kwargs` of a message."""
    origin = mark_in(kwargs).get("origin")
    return origin if isinstance(origin, str) else None


def mark_in(kwargs: Any) -> Mapping[str, Any]:
    """Return the mark in the `additional_kwargs` of a message, or an empty mapping."""
    mark = kwargs.get(MARK) if isinstance(kwargs, Mapping) else None
    return mark if isinstance(mark, Mapping) else {}
