"""Pure: JSON text that comes in pieces, whose strings and numbers are changed on the way.

Rule: a string is decoded before it is looked at, so no escape hides anything, and encoded again behind. Keys stay. What
turns out not to be JSON is changed as plain text from there on; nothing passes unseen.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Final, Protocol

_RUN: Final = re.compile(r'[^"\\]+')
_ESCAPE: Final = re.compile(r'\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|["\\/bfnrt])')
_CUT_ESCAPE: Final = re.compile(
    r"\\(?:u[0-9a-fA-F]{0,3}|u[dD][89abAB][0-9a-fA-F]{2}(?:\\(?:u(?:[dD](?:[c-fC-F][0-9a-fA-F]?)?)?)?)?)?\Z"
)
_SPACE: Final = re.compile(r"[ \t\r\n]+")
_TOKEN: Final = re.compile(r"([-+.0-9A-Za-z]+)[ \t\r\n]*")
_NUMBER: Final = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_WORDS: Final = frozenset({"true", "false", "null"})
_LONGEST_TOKEN: Final = 1_000
_NOT_JSON: Final = -1


class Stream(Protocol):
    """A text that comes in pieces, and is changed."""

    def feed(self, piece: str, *, more: bool) -> str:
        """Return what may be written now. `more`: whether the text can still grow."""


class JsonText:
    """One JSON object or array after another, in pieces."""

    def __init__(self, begin: Callable[[], Stream]) -> None:
        """`begin`: makes the stream for a string, a number, or text that is not JSON."""
        self._begin = begin
        self._nested: list[str] = []
        self._expects = "top"  # a value | a key | : | , | the end
        self._string: Stream | None = None
        self._parts: list[str] = []
        self._in_key = False
        self._plain: Stream | None = None
        self._left = ""
        self._is_ascii = False

    def feed(self, piece: str, *, more: bool) -> str:
        """Return what of the text may be written now."""
        if self._plain is not None:
            return self._plain.feed(piece, more=more)
        here = 0
        text, self._left = self._left + piece, ""
        done: list[str] = []
        at: int | None = 0
        while at is not None and 0 <= at < len(text):
            here = at
            step = self._in_string if self._string is not None or self._in_key else self._outside
            at = step(text, at, done, more)
        if self._string is not None:
            done.append(self._say(self._string, more=more and at != _NOT_JSON))
        if at == _NOT_JSON:
            self._string, self._plain = None, self._begin()
            done.append(self._plain.feed(text[here:], more=more))
        elif at is None and more:
            self._left = text[here:]
        elif at is None:
            done.append(text[here:])
        return "".join(done)

    def _say(self, string: Stream, *, more: bool) -> str:
        piece = "".join(self._parts)
        self._parts.clear()
        return json.dumps(string.feed(piece, more=more), ensure_ascii=self._is_ascii)[1:-1]

    def _in_string(self, text: str, at: int, done: list[str], more: bool) -> int | None:
        """Return where to continue; None to wait for more, `_NOT_JSON` where this is something else."""
        if text[at] == '"':
            if self._string is not None:
                done.append(self._say(self._string, more=False))
                self._string, self._expects = None, self._after()
            else:
                self._in_key, self._expects = False, ":"
            done.append('"')
            return at + 1
        found = _RUN.match(text, at) or _ESCAPE.match(text, at)
        is_cut = _CUT_ESCAPE.match(text, at) is not None
        if found is None or (more and is_cut):
            return None if is_cut else _NOT_JSON
        part = found.group()
        if self._string is None:
            done.append(part)
        elif part[0] == "\\":
            self._is_ascii = self._is_ascii or part[1] == "u"
            self._parts.append(json.loads(f'"{part}"'))
        else:
            self._parts.append(part)
        return found.end()

    def _outside(self, text: str, at: int, done: list[str], more: bool) -> int | None:
        sign, expects = text[at], self._expects
        if (space := _SPACE.match(text, at)) is not None:
            done.append(space.group())
            return space.end()
        if sign in "{[" and expects in ("top", "value", "first value"):
            self._nested.append(sign)
            self._expects = "first key" if sign == "{" else "first value"
        elif sign in "}]" and self._nested and expects in (",", f"first {_INSIDE[self._nested[-1]]}"):
            if (self._nested.pop() == "{") != (sign == "}"):
                return _NOT_JSON
            self._expects = self._after()
        elif sign == '"' and expects in ("value", "first value"):
            self._string = self._begin()
        elif sign == '"' and expects in ("key", "first key"):
            self._in_key = True
        elif sign == ":" and expects == ":":
            self._expects = "value"
        elif sign == "," and expects == ",":
            self._expects = _INSIDE[self._nested[-1]]
        else:
            return self._token(text, at, done, more) if expects in ("value", "first value") else _NOT_JSON
        done.append(sign)
        return at + 1

    def _token(self, text: str, at: int, done: list[str], more: bool) -> int | None:
        """Take a number or a word. Not before what follows shows that it is one."""
        found = _TOKEN.match(text, at)
        if found is None or len(found[1]) > _LONGEST_TOKEN:
            return _NOT_JSON
        if more and found.end() == len(text):
            return None
        token, is_last = found[1], found.end() == len(text)
        if not is_last and text[found.end()] not in ",]}":
            return _NOT_JSON
        if token not in _WORDS:
            if _NUMBER.fullmatch(token) is None:
                return _NOT_JSON
            changed = self._begin().feed(token, more=False)
            token = token if changed == token else json.dumps(changed, ensure_ascii=False)
        done += (token, found.group()[len(found[1]) :])
        self._expects = ","
        return found.end()

    def _after(self) -> str:
        return "," if self._nested else "top"


_INSIDE: Final = {"{": "key", "[": "value"}
