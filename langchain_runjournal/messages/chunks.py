"""Pure: what one chunk or one event of a stream adds to the answer of a model: a delta.

A delta (`llm.ai.delta`) holds what one chunk adds, in as few words as possible:

    {"text": "..."}                   text of a message whose content is a string
    {"text": "...", "index": 0}       text of a content block; the same with `thinking` and `reasoning`
    {"args": "...", "index": 0}       a fragment of the arguments of a tool call
    {"json": "...", "index": 2}       the same, which an `input_json_delta` block repeats (Anthropic)
    {"text", "blocks", "tool_calls", "kwargs", "metadata", "usage", "id", "finish", "restart", ...}
                                      anything else: the fields of the chunk that are not empty and have changed
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from ..events.encoding import encode_text
from .message_data import Data

_SPOKEN: Final = ("text", "thinking", "reasoning")
_TOOL_CHUNKS: Final = ("tool_call_chunk", "server_tool_call_chunk")


def short_json(content: Any, calls: Any) -> str | None:
    """Return the JSON of a delta for the shapes of nearly every chunk of blocks or of tool arguments; None for other shapes.

    The JSON is written by hand because this runs for every token: the general way costs three times as much.
    """
    if calls:
        if len(calls) != 1:
            return None
        call = calls[0]
        args, index = call["args"], call["index"]
        if call["name"] is not None or call["id"] is not None or type(args) is not str or type(index) is not int:
            return None
        if not content:
            return f'{{"args":{encode_text(args)},"index":{index}}}'
        if content == [{"type": "input_json_delta", "partial_json": args, "index": index}]:
            return f'{{"json":{encode_text(args)},"index":{index}}}'
        return None
    if type(content) is not list or len(content) != 1:
        return None
    block = content[0]
    if type(block) is not dict or len(block) != 3:
        return None
    kind, index = block.get("type"), block.get("index")
    if kind not in _SPOKEN or type(index) is not int:
        return None
    words = block.get(kind)
    return f'{{"{kind}":{encode_text(words)},"index":{index}}}' if type(words) is str else None


def chunk_delta(fields: Mapping[str, Any], last_id: str | None, last_metadata: Mapping[str, Any] | None) -> Data:
    """Return what a chunk of a chat model adds. `fields` is its message, field by field."""
    data: Data = {}
    content = fields.get("content")
    if content:
        data["text" if isinstance(content, str) else "blocks"] = content
    if fields.get("tool_call_chunks"):
        data["tool_calls"] = fields["tool_call_chunks"]
    elif fields.get("tool_calls"):
        # A model that does not stream tool calls sends them whole.
        data["tool_calls"] = [_whole_call(call, index) for index, call in enumerate(fields["tool_calls"])]
    if fields.get("additional_kwargs"):
        data["kwargs"] = fields["additional_kwargs"]
    if fields.get("usage_metadata"):
        data["usage"] = fields["usage_metadata"]
    metadata = fields.get("response_metadata")
    if metadata and metadata != last_metadata:
        data["metadata"] = metadata
    if fields.get("id") and fields["id"] != last_id:
        data["id"] = fields["id"]
    return data


def _whole_call(call: Mapping[str, Any], index: int) -> Data:
    return {"name": call.get("name"), "args": json.dumps(call.get("args")), "id": call.get("id"), "index": index}


def stream_event_delta(event: Mapping[str, Any]) -> Data:
    """Return what an event of the v3 protocol adds; an empty delta if it only repeats."""
    index = event.get("index", 0)
    match event.get("event"):
        case "message-start":
            return {key: event[key] for key in ("id", "metadata", "usage") if event.get(key)}
        case "content-block-start":
            return _block_start(event.get("content") or {}, index)
        case "content-block-delta":
            return _block_delta(event.get("delta") or {}, index)
        case "content-block-finish":
            return _block_finish(event.get("content") or {}, index)
        case "message-finish":
            return {key: event[key] for key in ("usage", "metadata") if event.get(key)}
        case _:
            return {"event": dict(event)}


def _block_start(block: Mapping[str, Any], index: Any) -> Data:
    kind = block.get("type")
    if kind in ("text", "reasoning"):
        return {"blocks": [{**block, "index": index}]}
    if kind in _TOOL_CHUNKS:
        # The index of the event, not of the call: the deltas that follow name this one.
        return {"tool_calls": [{**block, "args": block.get("args") or "", "index": index}]}
    # Its contents come with the finish.
    return {"open": {**block, "index": index}}


def _block_delta(delta: Mapping[str, Any], index: Any) -> Data:
    match delta.get("type"):
        case "text-delta":
            return {"text": delta.get("text", ""), "index": index}
        case "reasoning-delta":
            return {"reasoning": delta.get("reasoning", ""), "index": index}
        case "tool-call-delta" if isinstance(delta.get("args"), str):
            return {"args": delta["args"], "index": index}
        case _:
            return {"delta": dict(delta), "index": index}


def _block_finish(block: Mapping[str, Any], index: Any) -> Data:
    kind = block.get("type")
    if kind in ("text", "reasoning"):
        # All words have arrived; the rest (a signature, annotations) comes only now.
        block = {key: value for key, value in block.items() if key != kind}
        if len(block) == 1:
            return {}
    return {"finish": {**block, "index": index}}
