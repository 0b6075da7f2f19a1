"""Pure: bytes in events. JSON cannot hold them: Gemini's audio in `additional_kwargs`, Bedrock's pictures in a content.

Rule: where an event becomes JSON, bytes become an object with the one key `runjournal_bytes`. Where messages are loaded,
that object becomes bytes again. In an event, in an export and in a page the bytes stay base64.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, Final

KEY: Final = "runjournal_bytes"


def written(value: bytes | bytearray | memoryview) -> dict[str, str]:
    """Return bytes as a JSON object."""
    return {KEY: base64.b64encode(value).decode("ascii")}


def read(value: Any) -> Any:
    """Return the value with bytes in place of the JSON objects that stand for them; the same object where there are none."""
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
        return value  # this package has not written it
