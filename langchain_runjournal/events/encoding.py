"""Pure: the data of an event as JSON that every reader can decode: valid UTF-8, and not nested too deeply."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from json.encoder import encode_basestring, encode_basestring_ascii
from typing import Any

from ..common import strict_json as _json
from ..common.text import is_utf8
from .vocabulary import DELTA


def encode_value(kind: str, data: str | Mapping[str, Any]) -> str:
    """The JSON of one event's data, in a form that is always valid UTF-8.

    Bytes are kept (see `binary`). Anything else that JSON cannot hold becomes text (see `strict_json`): a journal that
    refuses an event because of one odd object would lose the rest of it too. Does not raise.
    """
    if isinstance(data, str):
        return encode_text(data)
    value = dict(data) if kind == DELTA else [kind, data]
    try:
        text = _json.dumps_events(value)
        if text.count("[") + text.count("{") > _json.DEEPEST and _depth(text) > _json.DEEPEST:
            raise RecursionError  # a reader, somewhere else in its own stack, must be able to follow
    except (TypeError, ValueError, RecursionError):
        text = _json.dumps(_json.plain(value))
    # Escaping everything is the rare way out for half of a surrogate pair somewhere inside.
    return text if is_utf8(text) else json.dumps(json.loads(text), separators=(",", ":"))


def encode_text(text: str) -> str:
    """The JSON of a string. Half of a surrogate pair, as a cut stream can deliver it, stays what it is, escaped."""
    return encode_basestring(text) if text.isascii() or is_utf8(text) else encode_basestring_ascii(text)


_BRACKET = re.compile(r"[\[\]{}]")


def _depth(text: str) -> int:
    """How deeply the JSON is nested, or somewhat more: brackets in strings count."""
    depth = deepest = 0
    for found in _BRACKET.finditer(text):  # and not sign by sign: the text may be megabytes
        if found[0] in "[{":
            depth += 1
            deepest = max(deepest, depth)
        else:
            depth -= 1
    return deepest
