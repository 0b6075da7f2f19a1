"""Pure: the data of an event as JSON that every reader can decode: valid UTF-8, and not nested too deeply."""

from __future__ import annotations

import json
from collections.abc import Mapping
from json.encoder import encode_basestring, encode_basestring_ascii
from typing import Any

from ..common import strict_json as _json
from ..common.text import is_utf8
from .vocabulary import DELTA


def encode_value(kind: str, data: str | Mapping[str, Any]) -> str:
    """Return the JSON of one event's data, which is always valid UTF-8. Does not raise.

    Bytes are kept (see `binary`). Any other value that JSON cannot hold becomes text (see `strict_json`): a journal that
    refused an event because of one odd object would lose the rest of the event too.
    """
    if isinstance(data, str):
        return encode_text(data)
    value = dict(data) if kind == DELTA else [kind, data]
    try:
        text = _json.dumps_events(value)
        if _json.is_too_deep(text):
            raise RecursionError  # a reader must be able to decode it from deep in its own stack
    except (TypeError, ValueError, RecursionError):
        text = _json.dumps(_json.plain(value))
    # The text holds half of a surrogate pair. This is rare, so all of it is escaped.
    return text if is_utf8(text) else json.dumps(json.loads(text), separators=(",", ":"))


def encode_text(text: str) -> str:
    """Return the JSON of a string. Half of a surrogate pair, which a cut stream can deliver, is kept by escaping it."""
    return encode_basestring(text) if text.isascii() or is_utf8(text) else encode_basestring_ascii(text)
