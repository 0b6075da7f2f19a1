"""Pure: what a text, and a moment written as one, may hold."""

from __future__ import annotations

from typing import Final

FAR_FUTURE: Final = 253_402_300_800.0
"""The first second of the year 10000, in seconds since 1970. A larger number is not a moment but a wrong unit."""


def is_utf8(text: str) -> bool:
    """Whether the text can be written as UTF-8: not if it holds half of a surrogate pair."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
