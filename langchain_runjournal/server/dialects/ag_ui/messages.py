"""Pure: the messages of a thread as those of AG-UI.

Rule: the ids follow from the ids of the thread alone. So a message that was streamed, one of a snapshot, and one that the
client sends back are the same message.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from ....common import strict_json
from ....messages.marks import MARK, mark_in
from ....messages.message_data import Data
from ..answer import file_part, tool_inputs, words_of

_PARTS: Final = ("image", "audio", "video")
_MARKED: Final = ("origin", "reason", "run_id", "calls")


class Names:
    """The ids under which a page knows the tool calls: their own, or, if an earlier message has a call with that id,
    another. A page looks for a call in all of its messages."""

    def __init__(self) -> None:
        self._by_call: dict[tuple[str, str], str] = {}
        self._taken: set[str] = set()
        self._last: dict[str, str] = {}

    def of(self, message_id: str, given: str) -> str:
        """Return the id of the call that a message asks for under the id `given`."""
        key = message_id, given
        if key not in self._by_call:
            name, count = given, 1
            while name in self._taken:
                count += 1
                name = f"{given}~{count}"
            self._taken.add(name)
            self._by_call[key] = name
        self._last[given] = self._by_call[key]
        return self._by_call[key]

    def release(self, kept: Collection[str]) -> None:
        """Free the ids of the calls of all messages but these.

        The thread may have a message that was streamed under another id, because the node has given it none: its calls keep
        their ids.
        """
        for key in [one for one in self._by_call if one[0] not in kept]:
            self._taken.discard(self._by_call.pop(key))

    def last(self, given: str) -> str:
        """Return the id of the last call that was asked for under the id `given`."""
        return self._last.get(given, given)


def ui_messages(thread_id: str | None, messages: Iterable[Data], names: Names | None = None) -> list[Data]:
    """Return messages of a thread, which are LangChain's own dicts, in the form of AG-UI. Messages that are for the model
    alone, such as those of the system, are left out."""
    found: dict[str, Data] = {}
    names = names or Names()
    for at, one in enumerate(messages):
        fields, id = one["data"], str(one["data"].get("id") or f"{thread_id or ''}:{at}")
        if one["type"] == "human":
            added = [user_message(fields, id)]
        elif one["type"] == "ai":
            added = answer_messages(fields, id, names)
        elif one["type"] == "tool":
            added = [result_message(fields, names.last(str(fields.get("tool_call_id"))))]
        else:
            continue
        for message in added:
            found[message["id"]] = message
    return list(found.values())


def user_message(fields: Mapping[str, Any], id: str) -> Data:
    """Return a message of the user."""
    return {"id": id, "role": "user", "content": _content(fields.get("content"))}


def reasoning_id(message_id: str, number: int) -> str:
    """Return the id of a thought of an answer."""
    return f"{message_id}:reasoning:{number}"


def answer_messages(fields: Mapping[str, Any], id: str, names: Names) -> list[Data]:
    """Return what an answer is on a page: its thoughts, and one message with its words and its tool calls."""
    found: list[Data] = []
    answer: Data = {"id": id, "role": "assistant"}
    words = words_of(fields)
    for kind, text in words:
        if kind == "reasoning":
            number = sum(one["role"] == "reasoning" for one in found)
            found.append({"id": reasoning_id(id, number), "role": "reasoning", "content": text})
        elif "content" in answer:
            answer["content"] += text
        else:
            answer["content"] = text
            found.append(answer)
    calls = [call_message(names.of(id, one.id), one.name, one.input) for one in tool_inputs(fields)]
    if calls:
        answer["toolCalls"] = calls
    metadata = _metadata(fields)
    if metadata:
        answer["metadata"] = metadata
    if "content" not in answer and (calls or metadata or not found):
        answer |= {} if calls else {"content": ""}
        found.append(answer)
    return found


def call_message(id: str, name: str, args: Any) -> Data:
    """Return a tool call. `args`: an object, or the text of arguments that are not valid JSON."""
    text = args if isinstance(args, str) else strict_json.dumps({} if args is None else args)
    return {"id": id, "type": "function", "function": {"name": name, "arguments": text}}


def result_message(fields: Mapping[str, Any], call_id: str) -> Data:
    """Return the result of a tool call. Its id follows from that of the call: a tool often returns a message without one."""
    content = _content(fields.get("content"))
    found: Data = {"id": f"{call_id}:result", "role": "tool", "toolCallId": call_id, "content": content}
    if fields.get("status") == "error":
        said = content if isinstance(content, str) else "".join(str(one.get("text", "")) for one in content)
        found["error"] = said or "error"
    metadata = _metadata(fields)
    return {**found, "metadata": metadata} if metadata else found


def _metadata(fields: Mapping[str, Any]) -> Data:
    """Return what a page gets to know of a message that this package has made or marked."""
    mark = mark_in(fields.get("additional_kwargs"))
    found = {key: mark[key] for key in _MARKED if mark.get(key) is not None}
    return {MARK: strict_json.plain(found)} if "origin" in found else {}


def _content(content: Any) -> Any:
    """Return a text, or the parts of a content of blocks that are texts or files."""
    if isinstance(content, str) or not isinstance(content, list):
        return content if isinstance(content, str) else "" if content is None else strict_json.dumps(content)
    parts: list[Data] = []
    for block in content:
        text = block if isinstance(block, str) else block.get("text") if isinstance(block, Mapping) else None
        if isinstance(text, str) and (isinstance(block, str) or block.get("type") == "text"):
            parts.append({"type": "text", "text": text})
        elif (file := file_part(block)) is not None:
            parts.append(_media(file["url"], file["mediaType"]))
        elif block:
            parts.append({"type": "text", "text": strict_json.dumps(block)})
    if len(parts) == 1 and parts[0]["type"] == "text":
        return parts[0]["text"]
    return parts or ""


def _media(url: str, media: str) -> Data:
    kind = next((one for one in _PARTS if media.startswith(f"{one}/")), "document")
    if url.startswith("data:"):
        return {"type": kind, "source": {"type": "data", "value": url.partition(",")[2], "mimeType": media}}
    return {"type": kind, "source": {"type": "url", "value": url, "mimeType": media}}
