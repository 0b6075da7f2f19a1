"""Pure: which strings of an event are text, and which are structure that the journal reads again.

Rule: what is not known to be structure is text. Structure is left as it is, or nothing could be folded, shown or settled:
kinds of messages and blocks, ids, the names of tools, models and nodes, status and cause, the marks of the journal. Inside
of what a model or a program gave (arguments, results, metadata), everything is text but the keys, and so are numbers.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from ..common.binary import KEY as BYTES
from ..common.json_text import JsonText
from ..common.packed import LEFT_OUT, PACKED, texts_in
from ..common.strict_json import FLOATS

Data: TypeAlias = dict[str, Any]
Path: TypeAlias = tuple[str | int, ...]
Change: TypeAlias = Callable[[Path, str], str]
"""Returns what is written in place of a text."""

_EVENT: Final = frozenset(
    {
        *("thread_id", "parent_run_id", "name", "status", "cause", "usage", "tool_call_id", "late", "inside", "goto"),
        *("model", "provider", "role", "node", "checkpoint_ns", "step", "task", "task_step", "attempt", "replaces"),
        *("gave", "kept", "shown", "checkpoint_id", "base", "stored", "resumed", "applied", "given", "before", "after"),
        *("outcome", "reason", "cut", "events", "completed", "interrupted", "settled", "given_up", "rolled_back", "id"),
        *("ns", "dropped", "size", "source"),
    }
)
"""Keys of events whose values are structure."""
_MESSAGE: Final = frozenset({"type", "id", "tool_call_id", "status", "usage_metadata", "example"})
_METADATA: Final = frozenset(
    {
        *("finish_reason", "stop_reason", "stop_sequence", "done_reason", "model", "model_name", "model_provider", "id"),
        *("system_fingerprint", "service_tier", "object", "output_version", "token_usage", "usage"),
    }
)
_BLOCK: Final = frozenset(
    {
        *("type", "id", "index", "call_id", "tool_call_id", "tool_use_id", "status", "role", "mime_type", "media_type"),
        *("source_type", "signature", "thoughtSignature", "thought_signature", "output_version", "model_provider"),
    }
)
_NAMED: Final = ("tool", "function", "mcp", "server")
"""What the type of a block begins with or holds whose name is that of a tool."""
_SPOKEN: Final = ("thinking", "reasoning")
SPELLED: Final = "logprobs"
"""What repeats the words of an answer token by token, so that no redaction knows a text in it again: it is left out."""
_OUR_MARK: Final = "runjournal"
REDACTED: Final = "holds what was redacted"


def is_structure(key: str, block: Mapping[str, Any]) -> bool:
    """Whether the value of a key is structure in a content block, or in a chunk of one."""
    if key == "name":
        kind = str(block.get("type"))
        return "args" in block or "arguments" in block or any(one in kind for one in _NAMED)
    return key in _BLOCK


def event_data(kind: str, data: Mapping[str, Any], change: Change) -> Data:
    """Return the data of an event, other than a delta, with all its texts changed."""
    found: Data = {}
    for key, value in data.items():
        path: Path = (key,)
        if key == "metadata":
            found[key] = (
                {name: one if _is_ours(name) else free(one, (*path, name), change) for name, one in value.items()}
                if (isinstance(value, Mapping))
                else free(value, path, change)
            )
        elif key == "message":
            found[key] = message(value, path, change)
        elif key in ("messages", "others") and isinstance(value, list):
            # Of a settlement, ids.
            found[key] = value if kind == "run.settled" else [message(m, (*path, at), change) for at, m in enumerate(value)]
        elif key == "interrupts" and isinstance(value, list):
            found[key] = [_interrupt(one, (*path, at), change) for at, one in enumerate(value)]
        else:
            found[key] = value if key in _EVENT else free(value, path, change)
    return found


def _is_ours(name: str) -> bool:
    return name in ("thread_id", "checkpoint_ns", "checkpoint_id", "run_id") or name.startswith(
        (_OUR_MARK, "langgraph_", "ls_")
    )


def _interrupt(value: Any, path: Path, change: Change) -> Any:
    if not isinstance(value, Mapping):
        return free(value, path, change)
    return {key: one if key == "id" else free(one, (*path, key), change) for key, one in value.items()}


def message(value: Any, path: Path, change: Change) -> Any:
    """Return a message, LangChain's dict of `type` and `data`, with all its texts changed."""
    if not isinstance(value, Mapping) or not isinstance(value.get("data"), Mapping):
        return free(value, path, change)
    fields = _fields(str(value.get("type")), value["data"], (*path, "data"), change)
    found = {
        key: one if key == "type" else free(one, (*path, key), change)
        for key, one in value.items()
        if key not in ("data", PACKED, FLOATS)
    }
    if floats := [one for one in value.get(FLOATS) or () if SPELLED not in one]:
        found[FLOATS] = floats
    found["data"] = fields
    for field, packed in (value.get(PACKED) or {}).items():
        if _hides_text(packed, (*path, PACKED, field), change) or fields.get(field) != value["data"].get(field):
            found.setdefault(LEFT_OUT, {})[field] = REDACTED
        else:
            found.setdefault(PACKED, {})[field] = packed
    return found


def _hides_text(packed: Mapping[str, Any], path: Path, change: Change) -> bool:
    """Whether a value that is kept in binary form holds a text that is to be changed."""
    raw = next((one for key, one in packed.items() if key not in ("types", "tuples")), "")
    text = b64decode(str(raw)).decode("utf-8", "ignore")
    if change(path, text) != text:
        return True
    try:
        # In binary form, what stands in front of a text may be a letter.
        return any(change(path, one) != one for one in texts_in(packed) if one)
    except Exception:  # noqa: BLE001 - no reader can unpack it either
        return True


def _fields(kind: str, data: Mapping[str, Any], path: Path, change: Change) -> Data:
    found: Data = {}
    for key, value in data.items():
        here = (*path, key)
        if key in _MESSAGE or (key == "name" and kind not in ("human", "system", "chat")):
            found[key] = value
        elif key == "content":
            found[key] = content(value, here, change)
        elif key == "response_metadata" and isinstance(value, Mapping):
            found[key] = metadata(value, here, change)
        elif key in ("tool_calls", "invalid_tool_calls", "additional_kwargs"):
            found[key] = block(value, here, change)
        else:
            found[key] = free(value, here, change)
    return found


def metadata(value: Mapping[str, Any], path: Path, change: Change) -> Data:
    """Return what a provider says of a response, with all its texts changed."""
    return {
        key: one if key in _METADATA else free(one, (*path, key), change) for key, one in value.items() if key != SPELLED
    }


def content(value: Any, path: Path, change: Change) -> Any:
    """Return the content of a message with all its texts changed."""
    return change(path, value) if isinstance(value, str) else block(value, path, change)


def block(value: Any, path: Path, change: Change) -> Any:
    """Return a content block, a tool call, or a list of them, with all texts changed. Signed words that change lose their
    signature: no provider would take them with it."""
    if isinstance(value, list):
        return [block(one, (*path, at), change) for at, one in enumerate(value)]
    if not isinstance(value, Mapping) or is_bytes(value):
        return free(value, path, change)
    found: Data = {}
    for key, one in value.items():
        here = (*path, key)
        if key == SPELLED:
            continue
        if is_structure(key, value) or key == _OUR_MARK:
            found[key] = one
        elif key in ("args", "input", "arguments", "partial_json") or key == "artifact":
            found[key] = json_text(one, here, change) if isinstance(one, str) else free(one, here, change)
        else:
            found[key] = block(one, here, change)
    if any(found.get(key) != value.get(key) for key in _SPOKEN):
        found.pop("signature", None)
    return found


def free(value: Any, path: Path, change: Change) -> Any:
    """Return a value in which everything is text, but for keys. A number that is changed becomes a string."""
    if isinstance(value, str):
        return change(path, value)
    if isinstance(value, Mapping):
        if is_bytes(value):
            return _bytes(value, path, change)
        return {key: free(one, (*path, key), change) for key, one in value.items()}
    if isinstance(value, list):
        return [free(one, (*path, at), change) for at, one in enumerate(value)]
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        text = json.dumps(value)
        changed = change(path, text)
        return value if changed == text else changed
    return value


def is_bytes(value: Mapping[str, Any]) -> bool:
    """Whether a mapping stands for bytes."""
    return len(value) == 1 and isinstance(value.get(BYTES), str)


def _bytes(value: Mapping[str, Any], path: Path, change: Change) -> Any:
    """Bytes that are text are changed as text; others stay."""
    try:
        text = b64decode(value[BYTES]).decode()
    except ValueError:
        return value
    changed = change(path, text)
    return value if changed == text else {BYTES: b64encode(changed.encode()).decode("ascii")}


def json_text(text: str, path: Path, change: Change) -> str:
    """Return a text that should be JSON, with the strings and numbers in it changed; as it is where none changes."""
    seen = _Seen(path, change)
    found = JsonText(lambda: seen).feed(text, more=False)
    return found if seen.has_changed else text


class _Seen:
    """Changes whole texts, and remembers whether one has changed. `JsonText` never asks it twice for one string."""

    def __init__(self, path: Path, change: Change) -> None:
        self._path, self._change = path, change
        self.has_changed = False

    def feed(self, piece: str, *, more: bool) -> str:
        if not piece:
            return ""
        found = self._change(self._path, piece)
        self.has_changed = self.has_changed or found != piece
        return found
