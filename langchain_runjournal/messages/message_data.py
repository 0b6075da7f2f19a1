"""Pure: a message as LangChain's own dict, ``{"type": ..., "data": {...}}``, which is the form that events hold."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from ..common import packed as _packed

Data: TypeAlias = dict[str, Any]
"""A JSON object: the data of an event, or a message in it."""

RUN_ID_PREFIX: Final = "lc_run--"
"""The prefix of the message ids that LangChain makes from the id of the call, if the provider gives none."""


def message_data(message: Any) -> Data:
    """Return a message as LangChain's own dict, ``{"type": ..., "data": {...}}``.

    A message that was joined from chunks becomes the whole message. `packed` keeps the values beside a tool's words that
    JSON does not hold.
    """
    data = message.model_dump(warnings=False)
    kind = str(data.get("type", ""))
    if kind.endswith("MessageChunk"):
        kind = "ai" if kind == "AIMessageChunk" else kind.removesuffix("MessageChunk").lower()
        data["type"] = kind
        for key in ("tool_call_chunks", "chunk_position"):
            data.pop(key, None)
    found: Data = {"type": kind, "data": data}
    if data.get("artifact") is not None:
        _packed.keep(found, "artifact", message.artifact)
    return found


def text_message(text: str, call_id: str) -> Data:
    """Return the words of a plain text model as a message."""
    return {"type": "ai", "data": {"type": "ai", "content": text, "id": f"{RUN_ID_PREFIX}{call_id}"}}
