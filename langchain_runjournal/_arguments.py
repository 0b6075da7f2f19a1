"""Checks of what callers give: the name of the argument, what it must be, and what it was."""

from __future__ import annotations

from .errors import InvalidArgument


def text(name: str, value: str) -> str:
    if not isinstance(value, str) or not value:
        raise InvalidArgument(name=name, expected="a non-empty str (of a UUID: str(run_id))", value=value)
    return value


def count(name: str, value: int | None) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
        raise InvalidArgument(name=name, expected="an int of 0 or more", value=value)
    return value


def seconds(name: str, value: float | None) -> float | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0):
        raise InvalidArgument(name=name, expected="seconds, 0 or more", value=value)
    return value
