"""Checks of what callers give: the name of the argument, what it must be, and what it was."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any, TypeAlias, get_args

from ..errors import InvalidArgument
from .text import is_utf8

_UTF8 = "text that UTF-8 can encode (it holds half of a surrogate pair)"

Age: TypeAlias = float | timedelta | None


def text(name: str, value: str) -> str:
    """Return a non-empty string that UTF-8 can encode, or raise `InvalidArgument`."""
    if not isinstance(value, str) or not value:
        raise InvalidArgument(name=name, expected="a non-empty str (of a UUID: str(run_id))", value=value)
    if not is_utf8(value):
        raise InvalidArgument(name=name, expected=_UTF8, value=value)
    return value


def thread(name: str, value: object) -> str:
    """The id of a thread, as text. Half of a surrogate pair cannot be stored; a "?" in its place names another thread."""
    found = str(value)
    if not is_utf8(found):
        raise InvalidArgument(name=name, expected=_UTF8, value=found)
    return found


def count(name: str, value: int | None) -> int | None:
    """Return an int of 0 or more, or None, or raise `InvalidArgument`."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
        raise InvalidArgument(name=name, expected="an int of 0 or more", value=value)
    return None if value is None else min(value, _MOST)


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
    """A time to wait, or None. More than a thread can wait is for ever."""
    if value is not None:
        value = _span(name, value)
    return None if value is None or value >= _LONGEST else value


def before(name: str, ago: Age, now: int) -> int | None:
    """The moment that was so long ago, in milliseconds since 1970. What lies before that is 1970: nothing is as old."""
    if ago is None:
        return None
    past = _span(name, ago.total_seconds() if isinstance(ago, timedelta) else ago)
    return max(0, now - round(min(past * 1000, now)))


def _span(name: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
        raise InvalidArgument(name=name, expected="seconds, 0 or more", value=value)
    return value


_LONGEST = 1e8
_MOST = (1 << 63) - 1  # more than there can be, and the largest number that SQLite knows
