"""Checks of what callers give: the name of the argument, what it must be, and what it was."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from datetime import timedelta
from typing import Any, TypeAlias, get_args

from ..errors import InvalidArgument, UnknownOption
from .text import is_utf8

_UTF8 = "text that UTF-8 can encode, without half of a surrogate pair"

Age: TypeAlias = float | timedelta | None


def text(name: str, value: str) -> str:
    """Return a non-empty string that UTF-8 can encode, or raise `InvalidArgument`."""
    if not isinstance(value, str) or not value:
        raise InvalidArgument(name=name, expected="a non-empty str (for a UUID: str(run_id))", value=value)
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
    one_of(name, value, get_args(of))


def one_of(name: str, value: Any, choices: Collection[str]) -> None:
    """Raise `UnknownOption` for a value that is not among the choices."""
    if value not in choices:
        raise UnknownOption(name=name, what="value", unknown=[value], known=choices)


def options(name: str, given: Iterable[str], known: Collection[str], what: str = "option") -> None:
    """Raise `UnknownOption` for names that are not known."""
    if unknown := [one for one in given if one not in known]:
        raise UnknownOption(name=name, what=what, unknown=unknown, known=known)


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
        raise InvalidArgument(name=name, expected="a number of seconds, 0 or more", value=value)
    return value


_LONGEST = 1e8
_MOST = (1 << 63) - 1  # more than there can be, and the largest number that SQLite knows
