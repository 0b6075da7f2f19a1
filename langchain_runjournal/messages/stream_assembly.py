"""Pure: the answer of one model call so far, joined from its deltas, and the message that may be kept of it.

Rule: the time is linear in the input. Deltas are joined as LangChain adds chunks, but each part is collected and joined
once. Adding chunk by chunk is quadratic for tool calls, and LangChain parses their arguments each time, with a parser that
needs seconds where a long argument is cut inside of an escape, and that makes a valid call of half a one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from .message_data import RUN_ID_PREFIX, Data

_ALIKE: Final = frozenset({"type", "id", "index", "output_version", "model_provider"})
"""The fields that chunks repeat and do not continue."""
_SERVED: Final = "server_tool_call"
"""A call that the provider answers itself; while it arrives in pieces, it is a `server_tool_call_chunk`."""
_NUMBERS: Final = frozenset({"index", "created", "timestamp"})


class _Text(list[str]):
    """A string in pieces."""


class _Block:
    """A dict that grows: strings grow at their end, and dicts and lists inside likewise."""

    __slots__ = ("fields",)

    def __init__(self, first: Mapping[str, Any]) -> None:
        self.fields: dict[str, Any] = {key: _growing(key, value) for key, value in first.items()}

    def add(self, more: Mapping[str, Any]) -> None:
        fields = self.fields
        for key, value in more.items():
            if key == "type" and "type" in fields:
                continue
            old = fields.get(key)
            if old is None:
                fields[key] = _growing(key, value)
            elif type(old) is _Text and isinstance(value, str):
                old.append(value)
            elif _grows(old, value):
                old.add(value)
            elif type(old) is int and type(value) is int and key not in _NUMBERS:
                fields[key] = old + value
            elif value is not None and value != "":
                fields[key] = _growing(key, value)

    def finish(self) -> dict[str, Any]:
        return {key: _whole(value) for key, value in self.fields.items()}


class _Items:
    """A list that grows: an element continues the one that has its index, or else is appended."""

    __slots__ = ("items", "places")

    def __init__(self, first: Iterable[Any] = ()) -> None:
        self.items: list[Any] = []
        self.places: dict[int | str, list[_Block]] = {}
        self.add(first)

    def add(self, more: Iterable[Any]) -> None:
        for element in more:
            if not isinstance(element, Mapping):
                self.items.append(_growing("", element))
                continue
            index = element.get("index")
            if isinstance(index, int) or (isinstance(index, str) and index.startswith("lc_")):
                found = self._with(index, element.get("id"))
                if found is not None:
                    found.add(element)
                    continue
                self.items.append(block := _Block(element))
                self.places.setdefault(index, []).append(block)
            else:
                self.items.append(_Block(element))

    def words(self, index: Any, key: str, begin: Mapping[str, Any]) -> _Text:
        """Return the pieces of the string `key` of the block `index`, for appending."""
        block = self._with(index, None)
        if block is None:
            self.items.append(block := _Block({**begin, "index": index}))
            self.places.setdefault(index, []).append(block)
        words = block.fields.get(key)
        if type(words) is not _Text:
            words = block.fields[key] = _Text()
        return words

    def replace(self, element: Mapping[str, Any]) -> None:
        """Set the final form of a block."""
        block = self._with(element.get("index"), None)
        if block is None:
            self.add([element])
        else:
            block.fields.update({key: _growing(key, value) for key, value in element.items()})

    def add_text(self, text: str) -> None:
        """Add a string among the blocks."""
        if self.items and type(self.items[-1]) is _Text:
            self.items[-1].append(text)
        elif text:
            self.items.append(_Text([text]))

    def finish(self) -> list[Any]:
        return [_whole(item) for item in self.items]

    def _with(self, index: Any, id: Any) -> _Block | None:
        for block in self.places.get(index, ()):
            if not id or not block.fields.get("id") or block.fields["id"] == id:
                return block
        return None


def _grows(old: Any, value: Any) -> bool:
    return isinstance(value, Mapping) if type(old) is _Block else type(old) is _Items and isinstance(value, list)


def _growing(key: str, value: Any) -> Any:
    if isinstance(value, str):
        return value if key in _ALIKE else _Text([value])
    if isinstance(value, Mapping):
        return _Block(value)
    return _Items(value) if isinstance(value, list) else value


def _whole(value: Any) -> Any:
    if type(value) is _Text:
        return "".join(value)
    return value.finish() if isinstance(value, (_Block, _Items)) else value


class Streamed:
    """The answer of a call, as far as it has arrived."""

    def __init__(self, deltas: Iterable[str | Mapping[str, Any]], call_id: str) -> None:
        self.id = f"{RUN_ID_PREFIX}{call_id}"
        self._begin()
        self._add(deltas)

    def _begin(self) -> None:
        self._text = _Text()
        self._items: _Items | None = None
        self._calls = _Items()
        self.metadata: Data = {}

    def _add(self, deltas: Iterable[str | Mapping[str, Any]]) -> None:
        # Fragments come in long rows of one kind, so the next one goes where the last one went.
        key, index, words = "", None, _Text()
        for delta in deltas:
            if isinstance(delta, str):
                if self._items is None:
                    self._text.append(delta)
                else:
                    self._items.add_text(delta)
            elif len(delta) == 2 and key in delta and delta.get("index") == index:
                words.append(delta[key])
            elif len(delta) == 2 and delta.get("index") is not None and not _WORDS.isdisjoint(delta):
                key, index = next(name for name in delta if name != "index"), delta["index"]
                words = self._words(key, index)
                words.append(delta[key])
            else:
                self._grow(delta)
                key = ""

    def _words(self, key: str, index: Any) -> _Text:
        if key == "args":
            return self._calls.words(index, "args", {})
        return self._blocks().words(index, key, {"type": key})

    def _blocks(self) -> _Items:
        if self._items is None:
            self._items = _Items(["".join(self._text)] if self._text else [])
        return self._items

    def _grow(self, delta: Mapping[str, Any]) -> None:
        first = not (self._text or self._items or self._calls.items or self.metadata)
        if delta.get("restart"):
            self._begin()
        text, id = delta.get("text"), delta.get("id")
        if isinstance(text, str):
            if self._items is None:
                self._text.append(text)
            else:
                self._items.add_text(text)
        if isinstance(delta.get("json"), str):
            self._words("args", delta["index"]).append(delta["json"])
            self._blocks().words(delta["index"], "partial_json", {"type": "input_json_delta"}).append(delta["json"])
        if isinstance(delta.get("blocks"), list):
            self._blocks().add(delta["blocks"])
        if isinstance(delta.get("tool_calls"), list):
            self._calls.add(delta["tool_calls"])
        if isinstance(delta.get("finish"), Mapping):
            self._finish(delta["finish"])
        if isinstance(delta.get("metadata"), Mapping):
            self.metadata.update(delta["metadata"])
        # LangChain chooses among the ids of chunks in this way: the first that the provider gave, or else the first.
        if isinstance(id, str) and ((self.id.startswith("lc_") and not id.startswith("lc_")) or first):
            self.id = id

    def _finish(self, block: Mapping[str, Any]) -> None:
        if block.get("type") != _SERVED and str(block.get("type")).endswith("tool_call"):
            args = block.get("args")
            self._calls.replace({**block, "args": args if isinstance(args, str) else json.dumps(args)})
        else:
            self._blocks().replace(block)

    @property
    def content(self) -> str | list[Any]:
        """Its content, joined as LangChain would join it."""
        return "".join(self._text) if self._items is None else self._items.finish()

    @property
    def calls(self) -> list[Data]:
        """The tool calls that it has asked the program for, their arguments as text, finished or not."""
        return [call for call in self._calls.finish() if not str(call.get("type")).startswith(_SERVED)]


_WORDS: Final = frozenset({"args", "text", "thinking", "reasoning"})
