"""Checks of the arguments that callers give. An error names the argument, what it must be, and what it was."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from datetime import timedelta
from typing import Any, TypeAlias, get_args

from ..errors import ArgumentsConflict, InvalidArgument, UnknownOption
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
    """Return the id of a thread as text, or raise `InvalidArgument`.

    UTF-8 cannot encode half of a surrogate pair, and the id with "?" in its place would name another thread.
    """
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
    """Raise `UnknownOption` for a value that is not one of the values of the Literal `of`."""
    one_of(name, value, get_args(of))


def one_of(name: str, value: Any, choices: Collection[str]) -> None:
    """Raise `UnknownOption` for a value that is not among the choices."""
    if value not in choices:
        raise UnknownOption(name=name, what="value", unknown=[value], known=choices)


def options(name: str, given: Iterable[str], known: Collection[str], what: str = "option") -> None:
    """Raise `UnknownOption` for names that are not known."""
    if unknown := [one for one in given if one not in known]:
        raise UnknownOption(name=name, what=what, unknown=unknown, known=known)


def once(name: str, given: Iterable[str]) -> None:
    """Raise `ArgumentsConflict` for the name of an option that is given twice. The error shows no value."""
    seen: set[str] = set()
    for one in given:
        if one in seen:
            raise ArgumentsConflict(name=name, expected="it once", found=f"the option {one!r} twice")
        seen.add(one)


def positive(**values: float) -> None:
    """Raise `InvalidArgument` for a value that is not a finite number above 0."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
            raise InvalidArgument(name=name, expected="a finite number above 0", value=value)


def seconds(name: str, value: float | None) -> float | None:
    """Return the seconds to wait, or None to wait without a limit.

    None also stands for more seconds than a thread can wait.
    """
    if value is not None:
        value = _span(name, value)
    return None if value is None or value >= _LONGEST else value


def before(name: str, ago: Age, now: int) -> int | None:
    """Return the moment that was `ago` before `now`, in milliseconds since 1970.

    A moment before 1970 becomes 1970, because no event is that old.
    """
    if ago is None:
        return None
    past = _span(name, ago.total_seconds() if isinstance(ago, timedelta) else ago)
    return max(0, now - round(min(past * 1000, now)))


def _span(name: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
        raise InvalidArgument(name=name, expected="a number of seconds, 0 or more", value=value)
    return value


_LONGEST = 1e8
_MOST = (1 << 63) - 1  # Larger than any possible count, and the largest integer that SQLite can store.
