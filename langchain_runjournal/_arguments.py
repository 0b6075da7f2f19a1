"""Checks of what callers give: the name of the argument, what it must be, and what it was."""

from __future__ import annotations

import math
from typing import Any, get_args

from .errors import InvalidArgument


def text(name: str, value: str) -> str:
    if not isinstance(value, str) or not value:
        raise InvalidArgument(name=name, expected="a non-empty str (of a UUID: str(run_id))", value=value)
    return value


def count(name: str, value: int | None) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
        raise InvalidArgument(name=name, expected="an int of 0 or more", value=value)
    return value


def choice(name: str, value: Any, of: Any) -> None:
    """One of the values of a Literal."""
    choices = [f'"{one}"' for one in get_args(of)]
    if value not in get_args(of):
        raise InvalidArgument(name=name, expected=f"{', '.join(choices[:-1])} or {choices[-1]}", value=value)


def positive(**values: float) -> None:
    """Finite numbers above 0."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
            raise InvalidArgument(name=name, expected="a finite number above 0", value=value)


def seconds(name: str, value: float | None) -> float | None:
    """A time, or None. More than a thread can wait is for ever."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
        raise InvalidArgument(name=name, expected="seconds, 0 or more", value=value)
    return value if value < _LONGEST else None


_LONGEST = 1e8
