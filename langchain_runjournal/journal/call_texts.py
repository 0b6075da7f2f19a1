"""The texts of one model call while they are streamed: what of them is written now, and what is held back.

Rule: a text is known by where it goes in the message, however its deltas are shaped. What was held back is written as one
more delta of that text, when the text goes on or ends; so deltas are cut in other places, and add up to the same message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from ..common.json_text import JsonText, Stream
from . import event_texts as _texts
from .event_texts import Data, Path

Ask: TypeAlias = Callable[[Path, str, str, bool], "tuple[str, str]"]
"""Asks the redaction: (path, text, what came before, may it grow) -> what is written now, and what is held back."""
_Key: TypeAlias = tuple[Any, ...]

_WORDS: Final = ("text", "thinking", "reasoning")
_JSON: Final = ("args", "input", "arguments", "partial_json")
_WHOLE: Final = ("open", "finish")
_SAME: Final = ("id", "index", "usage", "restart")


class Growing:
    """One text that comes in pieces."""

    __slots__ = ("_ask", "_before", "_held", "_path", "has_changed")

    def __init__(self, ask: Ask, path: Path) -> None:
        self._ask, self._path = ask, path
        self._held = self._before = ""
        self.has_changed = False

    def feed(self, piece: str, *, more: bool) -> str:
        """Return what may be written now."""
        text = self._held + piece
        if not text:
            return ""
        done, rest = self._ask(self._path, text, self._before, more)
        gone = text[: len(text) - len(rest)]
        self._before = (self._before + gone)[-_BEFORE:]
        self._held = rest
        self.has_changed = self.has_changed or done != gone
        return done


class CallTexts:
    """What one call has said so far, as far as it is needed to go on."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._streams: dict[_Key, Growing | JsonText] = {}
        self._ids: dict[Any, str] = {}
        self._twice: set[Any] = set()
        """The tool calls whose arguments are also in `partial_json`."""
        self._said: dict[tuple[Any, str], str] = {}

    # --- deltas -------------------------------------------------------------------------------------------------------

    def delta(self, value: str | Mapping[str, Any]) -> Iterator[str | Data]:
        """Yield what is written in place of a delta: nothing, if all of it is held back."""
        self._said = {}
        if isinstance(value, str):
            if text := self._feed(("text",), value, ("text",)):
                yield text
            return
        if value.get("restart"):
            yield from self.end()
        finish = value.get("finish")
        if isinstance(finish, Mapping):
            yield from self._end_block(finish.get("index"))
        for chunk in _dicts(value.get("tool_calls")):
            yield from self._begin_call(chunk)
        known = set(self._streams)
        found = {key: self._field(key, one, value) for key, one in value.items()}
        is_short = len(value) == 2 and value.get("index") is not None
        # The first of a text is written in any case: it says where among the blocks the text stands.
        if any(one not in ("", [], {}) for key, one in found.items() if not is_short or key != "index") or (
            is_short and set(self._streams) != known
        ):
            yield found

    def _field(self, key: str, value: Any, delta: Mapping[str, Any]) -> Any:
        index = delta.get("index")
        if key in _SAME:
            return value
        if key in _WORDS and isinstance(value, str):
            return self._feed(("text",) if key == "text" and index is None else (key, index), value, (key,))
        if key in ("args", "json") and isinstance(value, str):
            if key == "json":
                self._twice.add(index)
            return self._args(index, value)
        if key in ("blocks", "tool_calls") and isinstance(value, list):
            return [self._element(one, (key,)) for one in value]
        if key == "kwargs":
            return self._parts(value, (key,))
        if key == "metadata" and isinstance(value, Mapping):
            return _texts.metadata(value, (key,), self._whole)
        return (_texts.block if key in _WHOLE else _texts.free)(value, (key,), self._whole)

    def _element(self, value: Any, trail: _Key) -> Any:
        """Redact a content block, or a chunk of a tool call."""
        if isinstance(value, str):
            return self._feed(("text",), value, ("blocks",))
        if not isinstance(value, Mapping):
            return _texts.free(value, trail, self._whole)
        index = value.get("index")
        found: Data = {}
        for key, one in value.items():
            path = (*trail, index if isinstance(index, int) else 0, key)
            if key == _texts.SPELLED:
                continue
            if key == "signature" and any(self._has_changed((word, index)) for word in _WORDS):
                continue  # of other words than are written: no provider would take them with it
            if _texts.is_structure(key, value):
                found[key] = one
            elif key in _WORDS and isinstance(one, str):
                found[key] = self._feed((key, index) if index is not None else ("block", key), one, path)
            elif key in ("args", "partial_json") and isinstance(one, str):
                if key == "partial_json":
                    self._twice.add(index)
                found[key] = self._args(index, one) if index is not None else _texts.json_text(one, path, self._whole)
            else:
                found[key] = self._part(key, one, value, (*trail, ("#", index)))
        return found

    def _parts(self, value: Any, trail: _Key) -> Any:
        """Pieces of texts somewhere deeper in a delta: LangChain puts strings in one place together."""
        if isinstance(value, str):
            return self._feed(trail, value, _path_of(trail), is_json=trail[-1] in _JSON)
        if isinstance(value, list):
            return [
                self._parts(one, (*trail, ("#", one.get("index") if isinstance(one, Mapping) else None))) for one in value
            ]
        if not isinstance(value, Mapping) or _texts.is_bytes(value):
            return _texts.free(value, _path_of(trail), self._whole)
        return {key: self._part(key, one, value, trail) for key, one in value.items() if key != _texts.SPELLED}

    def _part(self, key: str, value: Any, block: Mapping[str, Any], trail: _Key) -> Any:
        if _texts.is_structure(key, block):
            return value
        if key in _JSON and not isinstance(value, str):
            return _texts.free(value, _path_of((*trail, key)), self._whole)  # of a tool: everything in it is text
        return self._parts(value, (*trail, key))

    def _args(self, index: Any, piece: str) -> str:
        # The same piece may come twice in one delta: as arguments, and in an `input_json_delta` block.
        if (index, piece) not in self._said:
            self._said[index, piece] = self._feed(("args", index), piece, ("args",), is_json=True)
        return self._said[index, piece]

    def _feed(self, key: _Key, piece: str, path: Path, *, is_json: bool = False) -> str:
        stream = self._streams.get(key)
        if stream is None:
            stream = JsonText(lambda: self._growing(path)) if is_json else self._growing(path)
            self._streams[key] = stream
        return stream.feed(piece, more=True)

    def _growing(self, path: Path) -> Growing:
        return Growing(self._ask, path)

    def _whole(self, path: Path, text: str) -> str:
        return self._ask(path, text, "", False)[0]

    def _has_changed(self, key: _Key) -> bool:
        stream = self._streams.get(key)
        return isinstance(stream, Growing) and stream.has_changed

    # --- endings ------------------------------------------------------------------------------------------------------

    def end(self) -> Iterator[str | Data]:
        """Yield what was held back, as deltas: nothing more comes of these texts."""
        for key in list(self._streams):
            yield from self._end(key)

    def _end(self, key: _Key) -> Iterator[str | Data]:
        stream: Stream = self._streams.pop(key)
        if text := stream.feed("", more=False):
            yield self._shape(key, text)

    def _end_block(self, index: Any) -> Iterator[str | Data]:
        for key in [key for key in self._streams if key[1:2] == (index,) or ("#", index) in key]:
            yield from self._end(key)

    def _begin_call(self, chunk: Mapping[str, Any]) -> Iterator[str | Data]:
        """Another call under an index that one had before."""
        index, id = chunk.get("index"), chunk.get("id")
        if isinstance(id, str) and id:
            if self._ids.get(index, id) != id and ("args", index) in self._streams:
                yield from self._end(("args", index))
            self._ids[index] = id

    def _shape(self, key: _Key, text: str) -> str | Data:
        """Return a delta that adds to the text of a key."""
        first = key[0]
        if key == ("text",):
            return text
        if first == "block":
            return {"blocks": [{"type": key[1], key[1]: text}]}
        if first == "args":
            return {"json" if key[1] in self._twice else "args": text, "index": key[1]}
        if first in _WORDS:
            return {first: text, "index": key[1]}
        found: Any = text
        for step in reversed(key):
            if isinstance(step, str):
                found = {step: found}
            else:
                found = [found if step[1] is None or not isinstance(found, dict) else {**found, "index": step[1]}]
        return dict(found)


def _dicts(value: Any) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []


def _path_of(trail: _Key) -> Path:
    return tuple(step if isinstance(step, str) else step[1] if isinstance(step[1], int) else 0 for step in trail)


_BEFORE: Final = 256
