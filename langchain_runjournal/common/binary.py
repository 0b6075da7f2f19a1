"""Pure: bytes in events, which JSON cannot hold: Gemini's audio in `additional_kwargs`, Bedrock's pictures in a content.

Rule: they are written where an event becomes JSON, as an object with one key of ours, and read where messages come back.
In an event, in an export and in a page they stay base64.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, Final

KEY: Final = "runjournal_bytes"


def written(value: bytes | bytearray | memoryview) -> dict[str, str]:
    """Bytes as JSON."""
    return {KEY: base64.b64encode(value).decode("ascii")}


def read(value: Any) -> Any:
    """The value with its bytes as bytes; the same object where it has none."""
    if isinstance(value, Mapping):
        if len(value) == 1 and isinstance(value.get(KEY), str):
            return _decoded(value)
        changed = {key: new for key, item in value.items() if (new := read(item)) is not item}
        return {**value, **changed} if changed else value
    if isinstance(value, list):
        items = [read(item) for item in value]
        return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
    return value


def _decoded(value: Mapping[str, str]) -> Any:
    try:
        return base64.b64decode(value[KEY], validate=True)
    except (binascii.Error, ValueError):
        return value  # not written here
