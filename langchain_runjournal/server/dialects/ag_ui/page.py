"""Pure: what a client of AG-UI holds of a conversation, as it reads the events that are sent to it.

Rule: each event goes through here, and changes what the client is known to hold, as the client changes it. So what a client
that comes back lacks is known, and a snapshot is sent where no other event can say what has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ....messages.message_data import Data

Put = Callable[..., None]
"""Sends an event: its type, and its fields. Those that are None are left out."""
_GIVEN: Final = ("user", "tool")
_RESET: Final = {"id": "runjournal:reset", "role": "reasoning", "content": ""}
"""A thought after whose snapshot a client holds nothing else, and which the next snapshot removes."""


@dataclass(slots=True)
class _Call:
    name: str
    args: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Entry:
    """A message on the page. What grows is kept in pieces."""

    role: str
    text: list[str] | None = None
    calls: dict[str, _Call] = field(default_factory=dict)
    given: Data = field(default_factory=dict)
    """Of a message that does not grow, all of it; of others, the metadata."""

    def message(self, id: str) -> Data:
        if self.role in _GIVEN:
            return self.given
        found: Data = {"id": id, "role": self.role, **self.given}
        if self.text is not None:
            found["content"] = "".join(self.text)
        if self.calls:
            found["toolCalls"] = [
                {"id": one, "type": "function", "function": {"name": call.name, "arguments": "".join(call.args)}}
                for one, call in self.calls.items()
            ]
        return found


def _entry(message: Mapping[str, Any]) -> _Entry:
    if message["role"] in _GIVEN:
        return _Entry(message["role"], given=dict(message))
    calls = {
        one["id"]: _Call(one["function"]["name"], [one["function"]["arguments"]]) for one in message.get("toolCalls", ())
    }
    text = [message["content"]] if "content" in message else None
    given = {"metadata": message["metadata"]} if "metadata" in message else {}
    return _Entry(message["role"], text, calls, given)


class Page:
    """The messages of a page, and what is open on it."""

    def __init__(self, put: Put, messages: Iterable[Data] = ()) -> None:
        self._put = put
        self._entries: dict[str, _Entry] = {one["id"]: _entry(one) for one in messages}
        self._open: dict[tuple[str, str], Data] = {}
        """What was started and not ended, by its kind and its id: the fields of its start."""

    def messages(self) -> list[Data]:
        """Return the messages as the page holds them."""
        return [one.message(id) for id, one in self._entries.items()]

    def message(self, id: str) -> Data | None:
        """Return a message of the page."""
        entry = self._entries.get(id)
        return None if entry is None else entry.message(id)

    def hold(self, messages: Iterable[Data]) -> None:
        """Note messages that the client has sent itself."""
        for one in messages:
            self._entries.setdefault(one["id"], _entry(one))

    # --- answers ------------------------------------------------------------------------------------------------------

    def start_text(self, id: str) -> None:
        """Begin, or continue, the words of an answer."""
        entry = self._entries.setdefault(id, _Entry("assistant"))
        entry.text = entry.text or []
        self._begin("TEXT_MESSAGE", id, {"messageId": id, "role": "assistant"})

    def add_text(self, id: str, delta: str) -> None:
        """Add words to an answer that is open."""
        text = self._entries[id].text
        if text is not None:
            text.append(delta)
        self._put("TEXT_MESSAGE_CONTENT", messageId=id, delta=delta)

    def start_reasoning(self, id: str) -> None:
        """Begin, or continue, a thought."""
        entry = self._entries.setdefault(id, _Entry("reasoning", []))
        entry.text = entry.text or []
        self._begin("REASONING_MESSAGE", id, {"messageId": id, "role": "reasoning"})

    def add_reasoning(self, id: str, delta: str) -> None:
        """Add words to a thought that is open."""
        text = self._entries[id].text
        if text is not None:
            text.append(delta)
        self._put("REASONING_MESSAGE_CONTENT", messageId=id, delta=delta)

    def start_call(self, id: str, name: str, message_id: str) -> None:
        """Begin a tool call of an answer."""
        entry = self._entries.setdefault(message_id, _Entry("assistant"))
        entry.calls.setdefault(id, _Call(name))
        self._begin("TOOL_CALL", id, {"toolCallId": id, "toolCallName": name, "parentMessageId": message_id})

    def add_args(self, id: str, delta: str, message_id: str) -> None:
        """Add to the arguments of a tool call that is open."""
        self._entries[message_id].calls[id].args.append(delta)
        self._put("TOOL_CALL_ARGS", toolCallId=id, delta=delta)

    def end(self, kind: str, id: str) -> None:
        """End what was begun, if it is open. `kind`: TEXT_MESSAGE, REASONING_MESSAGE or TOOL_CALL."""
        if self._open.pop((kind, id), None) is not None:
            self._put(f"{kind}_END", **{"toolCallId" if kind == "TOOL_CALL" else "messageId": id})
            if kind == "REASONING_MESSAGE":
                self._put("REASONING_END", messageId=id)

    def _begin(self, kind: str, id: str, fields: Data) -> None:
        self._open[kind, id] = fields
        self._start(kind, fields)

    def _start(self, kind: str, fields: Data) -> None:
        if kind == "REASONING_MESSAGE":
            self._put("REASONING_START", messageId=fields["messageId"])
        self._put(f"{kind}_START" if kind != "STEP" else "STEP_STARTED", **fields)

    def add_result(self, message: Data) -> None:
        """Add the result of a tool call: behind the message that asks for it, and the results that stand there."""
        about = {key: message.get(key) for key in ("toolCallId", "content", "metadata")}
        self._put("TOOL_CALL_RESULT", messageId=message["id"], role="tool", **about)
        shown = {key: value for key, value in message.items() if key != "error"}
        items = [one for one in self._entries.items() if one[0] != message["id"]]
        at = next((at for at, (_, entry) in enumerate(items) if message["toolCallId"] in entry.calls), len(items) - 1) + 1
        while at < len(items) and items[at][1].role == "tool":
            at += 1
        self._entries = dict([*items[:at], (message["id"], _entry(shown)), *items[at:]])

    # --- steps --------------------------------------------------------------------------------------------------------

    def start_step(self, name: str) -> None:
        """Begin a step."""
        self._begin("STEP", name, {"stepName": name})

    def end_step(self, name: str) -> None:
        """End a step, if it is open."""
        if self._open.pop(("STEP", name), None) is not None:
            self._put("STEP_FINISHED", stepName=name)

    # --- all of it ----------------------------------------------------------------------------------------------------

    def end_all(self) -> None:
        """End all that is open, the steps last."""
        for kind, id in sorted(self._open, key=lambda one: one[0] == "STEP"):
            if kind == "STEP":
                self.end_step(id)
            else:
                self.end(kind, id)

    def open_again(self) -> None:
        """Begin again what is open: for a client that was not there when it began."""
        for kind, fields in sorted(
            ((kind, fields) for (kind, _), fields in self._open.items()), key=lambda one: one[0] != "STEP"
        ):
            self._start(kind, fields)

    def send_all(self) -> None:
        """Send all messages to a client of which nothing is known, so that it also takes their order."""
        has_thoughts = any(entry.role == "reasoning" for entry in self._entries.values())
        self._put("MESSAGES_SNAPSHOT", messages=[_RESET] if has_thoughts else [])
        self._put("MESSAGES_SNAPSHOT", messages=self.messages())

    def replace(self, wanted: list[Data]) -> None:
        """Send a snapshot, after which the page holds exactly these messages, in this order."""
        before = list(self._entries)
        ids = [one["id"] for one in wanted]
        thoughts = [id for id in before if self._entries[id].role == "reasoning" and id not in ids]
        if thoughts and not any(one["role"] == "reasoning" for one in wanted):
            # A client keeps all thoughts if a snapshot has none.
            wanted = [*wanted, {"id": thoughts[0], "role": "reasoning", "content": ""}]
            ids.append(thoughts[0])
        kept = [id for id in before if id in set(ids)]
        if [*kept, *(id for id in ids if id not in set(kept))] != ids:
            # A client leaves the messages that it has in their places, and adds the others at the end.
            same = next((at for at, (one, other) in enumerate(zip(before, ids, strict=False)) if one != other), 0)
            has_thoughts = any(entry.role == "reasoning" for entry in self._entries.values())
            self._snapshot([_RESET] if has_thoughts else wanted[:same])
        self._snapshot(wanted)

    def _snapshot(self, messages: list[Data]) -> None:
        self._put("MESSAGES_SNAPSHOT", messages=messages)
        self._entries = {one["id"]: _entry(one) for one in messages}
