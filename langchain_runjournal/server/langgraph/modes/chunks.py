"""Pure: what the deltas of a model call become: chunks of its message, as LangGraph streams them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from langchain_core.messages import AIMessageChunk
from langchain_core.messages.tool import tool_call_chunk

from ....messages.message_data import RUN_ID_PREFIX
from ..plain import message_json
from .steps import json_line

_WORDS: Final = ("text", "thinking", "reasoning")


class Chunks:
    """The chunks of one model call."""

    def __init__(self, call_id: str) -> None:
        self.call_id = call_id
        self.id = f"{RUN_ID_PREFIX}{call_id}"
        """The id of the message, as far as it is known."""
        self._text: tuple[str, str] | None = None

    def text(self, words: str) -> str:
        """Return the JSON of a chunk of plain text. Nearly all chunks are of this kind, so only the words are encoded."""
        if self._text is None:
            head, mark, tail = json_line(message_json(AIMessageChunk(content="\x00", id=self.id))).partition('"\\u0000"')
            if not mark:  # an encoder that writes it in another way
                return json_line(message_json(AIMessageChunk(content=words, id=self.id)))
            self._text = head, tail
        return f"{self._text[0]}{json_line(words)}{self._text[1]}"

    def chunk(self, delta: Mapping[str, Any]) -> AIMessageChunk | None:
        """Return the chunk that a delta stands for; None for one that readers of chunks do not get."""
        if isinstance(delta.get("id"), str) and delta["id"] != self.id:
            self.id, self._text = delta["id"], None
        fields = _fields(delta)
        if not any(fields.values()):
            return None
        return AIMessageChunk(id=self.id, **{"content": "", **fields})

    def last(self) -> AIMessageChunk:
        """Return the chunk that says that there are no more."""
        return AIMessageChunk(content="", id=self.id, chunk_position="last")


def _fields(delta: Mapping[str, Any]) -> dict[str, Any]:
    index = delta.get("index")
    if index is not None and len(delta) == 2:
        for key in _WORDS:
            if key in delta:
                return {"content": [{"type": key, key: delta[key], "index": index}]}
        words = delta.get("args", delta.get("json"))
        if not isinstance(words, str):
            return {}
        calls = [tool_call_chunk(args=words, index=index)]
        if "args" in delta:
            return {"tool_call_chunks": calls}
        return {"tool_call_chunks": calls, "content": [{"type": "input_json_delta", "partial_json": words, "index": index}]}
    found: dict[str, Any] = {}
    for key, field in (("text", "content"), ("blocks", "content"), ("kwargs", "additional_kwargs")):
        if delta.get(key):
            found[field] = delta[key]
    if isinstance(delta.get("tool_calls"), list):
        found["tool_call_chunks"] = [_call(one) for one in delta["tool_calls"] if isinstance(one, Mapping)]
    if isinstance(delta.get("metadata"), Mapping):
        found["response_metadata"] = delta["metadata"]
    if isinstance(delta.get("usage"), Mapping):
        found["usage_metadata"] = delta["usage"]
    return found


def _call(call: Mapping[str, Any]) -> Any:
    return tool_call_chunk(name=call.get("name"), args=call.get("args"), id=call.get("id"), index=call.get("index"))
