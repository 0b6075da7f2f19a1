"""Pure: JSON as RFC 8259 defines it, and the forms of values that it cannot hold.

Rule: this package writes nothing that a strict parser refuses. JSON has neither NaN nor infinity: such a float becomes the
string "NaN", "Infinity" or "-Infinity", as in the JSON form of Protocol Buffers. A message (a mapping of `type` and `data`)
lists under `floats` the paths in its `data` where such a string stands for a float; `packed` reads it back from there.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

from .binary import written

WORDS: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
"""The strings that stand for the floats that JSON lacks."""
FLOATS: Final = "floats"
"""The key under which a message lists the paths of such strings."""
DEEPEST: Final = 100
"""The greatest depth of nesting. Deeper values become their repr, because a reader with a deep stack must be able to
follow."""
LONGEST_INT: Final = 10_000
"""In bits. Python refuses to write longer integers in decimal."""
_BRACKET: Final = re.compile(r"[\[\]{}]")
_Path = tuple[str | int, ...]


def _json_of(value: object) -> Any:
    """Encode bytes, and a LangChain message as LangChain's own dict with its artifact. Raise TypeError for other values."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return written(value)
    # The module is looked up and not imported: without it, there are no messages either.
    langchain = sys.modules.get("langchain_core.messages")
    if langchain is not None and isinstance(value, langchain.BaseMessage):
        from . import packed as _packed

        found: dict[str, Any] = langchain.message_to_dict(value)
        if found["data"].get("artifact") is not None:
            _packed.keep(found, "artifact", value.artifact)
        return found
    raise TypeError(f"{type(value).__name__} is not JSON")


dumps_events = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=_json_of, allow_nan=False).encode
"""Encode JSON values, bytes, and messages as LangChain's own dicts. Raise for anything else, NaN included."""
_dumps_strictly = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode
loads = json.JSONDecoder(parse_constant=str).decode
"""Decode JSON. The literals NaN and Infinity, which releases before this rule wrote, become the strings for them."""


def dumps(value: Any) -> str:
    """Encode any value as one line of JSON that a strict parser accepts. `plain` replaces what JSON cannot hold."""
    try:
        return _dumps_strictly(value)
    except (TypeError, ValueError, RecursionError):
        return _dumps_strictly(plain(value))


def standard(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return the mapping as a dict that `json.dumps` can encode: a copy, or the result of `plain`."""
    try:
        _dumps_strictly(value)
    except (TypeError, ValueError, RecursionError):
        found: dict[str, Any] = plain(value)
        return found
    return dict(value)


def plain(value: Any) -> Any:
    """Return the value with text in place of what JSON cannot hold. Does not raise.

    This includes values that are nested too deeply, or in themselves.
    """
    return _plain(value, 0, None)


def is_too_deep(text: str) -> bool:
    """Return whether JSON is nested more deeply than `DEEPEST`, or somewhat less: brackets in strings count."""
    if text.count("[") + text.count("{") <= DEEPEST:
        return False
    depth = deepest = 0
    for found in _BRACKET.finditer(text):  # not character by character: the text may have megabytes
        if found[0] in "[{":
            depth += 1
            deepest = max(deepest, depth)
        else:
            depth -= 1
    return deepest > DEEPEST


def word_of(value: float) -> str | None:
    """Return the string that stands for a float that JSON lacks; None for any other float."""
    if math.isfinite(value):
        return None
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


class _Message:
    """A message on its way to JSON: the paths in its `data` where strings stand for floats."""

    __slots__ = ("floats",)

    def __init__(self) -> None:
        self.floats: list[_Path] = []


def _plain(value: Any, depth: int, inside: tuple[_Message, _Path] | None) -> Any:
    if isinstance(value, float):
        return _float(value, inside)
    if value is None or isinstance(value, (str, bool)):
        return value
    if isinstance(value, int):
        return value if value.bit_length() < LONGEST_INT else hex(value)
    if depth < DEEPEST:
        if isinstance(value, Mapping):
            return _mapping(value, depth, inside)
        if isinstance(value, (list, tuple, set, frozenset)):
            return [_plain(item, depth + 1, _below(inside, at)) for at, item in enumerate(value)]
    with contextlib.suppress(Exception):  # neither bytes nor a message that can be encoded: its repr follows
        return _plain(_json_of(value), depth + 1, inside)
    return _text(value, repr)


def _float(value: float, inside: tuple[_Message, _Path] | None) -> Any:
    word = word_of(value)
    if word is not None and inside is not None:
        message, path = inside
        message.floats.append(path)
    return value if word is None else word


def _mapping(value: Mapping[Any, Any], depth: int, inside: tuple[_Message, _Path] | None) -> Any:
    if inside is None and isinstance(value.get("type"), str) and isinstance(value.get("data"), Mapping):
        message = _Message()
        found = {_key(key): _plain(item, depth + 1, None) for key, item in value.items() if key != "data"}
        found["data"] = _plain(value["data"], depth + 1, (message, ()))
        return {**found, FLOATS: [list(path) for path in message.floats]} if message.floats else found
    keys = {key: _key(key) for key in value}
    return {keys[key]: _plain(item, depth + 1, _below(inside, keys[key])) for key, item in value.items()}


def _below(inside: tuple[_Message, _Path] | None, step: str | int) -> tuple[_Message, _Path] | None:
    return None if inside is None else (inside[0], (*inside[1], step))


def _key(key: Any) -> str:
    """Return a key as the json module writes it; as text where that module refuses its type."""
    if isinstance(key, str):
        return key
    if key is None or isinstance(key, bool):
        return {None: "null", True: "true", False: "false"}[key]
    if isinstance(key, float):
        return word_of(key) or float.__repr__(key)
    return _text(key, str)


def _text(value: object, form: Callable[[object], str]) -> str:
    try:
        return form(value)
    except Exception:  # noqa: BLE001 - the repr and the str of a user's object may do anything
        return f"<{type(value).__name__}>"
