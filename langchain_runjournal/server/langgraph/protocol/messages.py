"""Pure: what models say, as the protocol has it: a message begins, its content blocks grow, and it is finished.

Rule: a message has the id that it has in the state. A call that was cut off is finished with what it has said: no client is
left with a message that goes on for ever.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from langchain_core.messages import AIMessageChunk, BaseMessage, messages_from_dict

from ....events import DELTA, Event
from ..modes.chunks import Chunks
from ..modes.place import graph_namespace
from ..modes.steps import json_line
from ..plain import values_json
from .said import Said, namespace_of, said

_GROWS: Final = {"text": ("text", "text-delta"), "reasoning": ("reasoning", "reasoning-delta")}
"""By the type of a block: the field that grows, and the type of what is added."""
_CALL_CHUNKS: Final = {"tool_call_chunk": "tool_call", "server_tool_call_chunk": "server_tool_call"}
_HEAVY: Final = frozenset({"args", "data", "output", "transcript", "value", "index"})
_ABOUT: Final = {"provider": "provider", "model": "model", "node": "langgraph_node"}
_MARK: Final = "\x00"
"""Stands for words where an event is encoded once for all words. No id has it."""
_INVALID: Final = "The arguments of the tool call are not complete JSON."


class CallMessages:
    """The messages of the model calls of one run."""

    def __init__(self) -> None:
        self._calls: dict[str, _Message] = {}

    def event(self, event: Event) -> list[Said]:
        """Return what is said of an event of a model call."""
        call_id = event.call_id or ""
        if event.kind == "llm.start":
            if event.data.get("checkpoint_ns") and not event.data.get("unstreamed"):
                self._calls[call_id] = _Message(event)
            return []
        call = self._calls.get(call_id)
        if call is None:
            return []
        if event.kind == DELTA:
            return list(call.words(event.bare) if isinstance(event.bare, str) else call.delta(event.bare))
        del self._calls[call_id]
        if event.kind == "llm.ai.response":
            return list(call.response(event.data))
        return list(call.finish({}))

    def end(self) -> list[Said]:
        """Return what finishes the messages that no event has finished: the run is over."""
        calls, self._calls = self._calls, {}
        return [one for call in calls.values() for one in call.finish({})]


class _Message:
    """The message of one model call."""

    def __init__(self, event: Event) -> None:
        data = event.data
        self._call_id = str(event.call_id)
        self._chunks = Chunks(self._call_id)
        self._node = data.get("node")
        self._namespace = namespace_of(graph_namespace(str(data.get("checkpoint_ns") or "")))
        self._about = {name: data[key] for key, name in _ABOUT.items() if data.get(key)}
        self._has_begun = False
        self._places: dict[tuple[str, Any], int] = {}
        """By the type of a block and its place in the content of the provider: its number on the wire."""
        self._blocks: dict[int, dict[str, Any]] = {}
        self._plain: _TextBlock | None = None

    def words(self, text: str) -> Iterator[Said]:
        """Yield what is said of plain text. Nearly all events are of this kind, so only the words are encoded."""
        if self._plain is None:
            yield from self._grow({"type": "text", "text": text}, None)
            self._plain = _TextBlock(self, self._places["text", None])
        else:
            yield from self._plain.grow(text)

    def delta(self, delta: Mapping[str, Any]) -> Iterator[Said]:
        """Yield what is said of any other delta."""
        chunk = self._chunks.chunk(delta)
        if chunk is not None:
            for at, block in enumerate(_blocks_of(chunk)):
                yield from self._grow(block, block.get("index", at))

    def response(self, data: Mapping[str, Any]) -> Iterator[Said]:
        """Yield what is said when the call has ended well."""
        message = messages_from_dict([data["message"]])[0]
        if not self._has_begun:
            yield from self._begin(message.id)
            for at, block in enumerate(_blocks_of(message)):
                self._blocks[at] = block
                yield self.said("content-block-start", index=at, content=_skeleton(block))
        finish: dict[str, Any] = {}
        if usage := getattr(message, "usage_metadata", None):
            finish["usage"] = usage
        about = {key: one for key, one in message.response_metadata.items() if isinstance(one, (str, int, float, bool))}
        yield from self.finish({**finish, "metadata": about})

    def finish(self, about: Mapping[str, Any]) -> Iterator[Said]:
        """Yield what finishes the message."""
        if self._plain is not None:
            self._blocks[self._plain.at]["text"] += "".join(self._plain.more)
            self._plain.more.clear()
        if self._has_begun:
            for at, block in self._blocks.items():
                yield self.said("content-block-finish", index=at, content=_whole(block))
            yield self.said("message-finish", **about)

    # --- parts --------------------------------------------------------------------------------------------------------

    def _begin(self, id: str | None = None) -> Iterator[Said]:
        if not self._has_begun:
            self._has_begun = True
            self._id = id or self._chunks.id
            start = {"role": "ai", "id": self._id}
            yield self.said("message-start", **start, **({"metadata": self._about} if self._about else {}))

    def _grow(self, block: dict[str, Any], place: Any) -> Iterator[Said]:
        yield from self._begin()
        kind = str(block.get("type"))
        at = self._places.setdefault((kind, place), len(self._places))
        known = self._blocks.get(at)
        if known is None:
            self._blocks[at] = dict(block)
            yield self.said("content-block-start", index=at, content=_skeleton(block))
        else:
            _add(known, block)
        added = _added(block)
        if added is not None:
            yield self.said("content-block-delta", index=at, delta=added)

    def said(self, event: str, **data: Any) -> Said:
        """Return an event of the message."""
        # Clients tell messages that are said side by side apart by `run_id` (JavaScript) and `message_id` (Python).
        whole = {"event": event, **values_json(data), "run_id": self._call_id, "message_id": self._id}
        return said("messages", self._namespace, whole, node=self._node)


class _TextBlock:
    """The block of plain text of a message, as it grows."""

    def __init__(self, message: _Message, at: int) -> None:
        self.at = at
        self.more: list[str] = []
        """What came behind the first words."""
        self._like = message.said("content-block-delta", index=at, delta={"type": "text-delta", "text": _MARK})
        self._head, self._tail = self._like.data.split(json_line(_MARK), 1)

    def grow(self, text: str) -> Iterator[Said]:
        """Yield what is said of more words."""
        self.more.append(text)
        if text:
            yield self._like._replace(data=f"{self._head}{json_line(text)}{self._tail}")


def _blocks_of(message: BaseMessage) -> list[dict[str, Any]]:
    try:
        blocks: list[Any] = list(message.content_blocks)
    except Exception:  # noqa: BLE001 - what a provider has sent is not known here, and the state has the whole message
        blocks = []
    if not isinstance(message, AIMessageChunk):
        blocks += [{**one, "type": "invalid_tool_call"} for one in getattr(message, "invalid_tool_calls", None) or ()]
    return [dict(one) for one in blocks if isinstance(one, Mapping)]


def _skeleton(block: Mapping[str, Any]) -> dict[str, Any]:
    """Return a block as it begins, without what grows or is large."""
    kind = block.get("type")
    if kind in _GROWS:
        field = _GROWS[kind][0]
        return {**{key: one for key, one in block.items() if key not in ("index", field, "annotations")}, field: ""}
    if kind in _CALL_CHUNKS:
        known = {key: block[key] for key in ("id", "name", "index") if key in block}
        return {"type": kind, **known, "args": ""}
    found = {key: one for key, one in block.items() if key not in _HEAVY}
    if kind in ("tool_call", "server_tool_call"):
        found["args"] = {}
    elif kind == "non_standard":
        found["value"] = {}
    return found


def _added(block: Mapping[str, Any]) -> dict[str, Any] | None:
    kind = block.get("type")
    if kind in _GROWS:
        field, added = _GROWS[kind]
        return {"type": added, field: block[field]} if block.get(field) else None
    if kind in _CALL_CHUNKS:
        return {"type": "tool-call-delta", "args": block["args"]} if block.get("args") else None
    if isinstance(block.get("data"), str):
        return {"type": "data-delta", "data": block["data"]}
    return None


def _add(known: dict[str, Any], block: Mapping[str, Any]) -> None:
    kind = block.get("type")
    grows = _GROWS[kind][0] if kind in _GROWS else "args" if kind in _CALL_CHUNKS else "data"
    for key, value in block.items():
        if key == grows and isinstance(value, str):
            known[key] = f"{known.get(key) or ''}{value}"
        elif value is not None:
            known[key] = value


def _whole(block: Mapping[str, Any]) -> dict[str, Any]:
    """Return a block as it is when it is finished."""
    found = {key: one for key, one in block.items() if key != "index"}
    kind = block.get("type")
    if kind not in _CALL_CHUNKS:
        return found
    words = block.get("args") or "{}"
    about = {"id": block.get("id"), "name": block.get("name")}
    try:
        args = json.loads(words)
    except ValueError:
        return {"type": "invalid_tool_call", **about, "args": words, "error": _INVALID}
    return {"type": _CALL_CHUNKS[str(kind)], **about, "args": args}
