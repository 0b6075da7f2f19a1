"""Pure: the limits of texts and moments that can be stored."""

from __future__ import annotations

from typing import Final

FAR_FUTURE: Final = 253_402_300_800.0
"""The first second of the year 10000, in seconds since 1970. A larger number is not a moment but a wrong unit."""


def is_utf8(text: str) -> bool:
    """Return whether UTF-8 can encode the text. It cannot encode half of a surrogate pair."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
