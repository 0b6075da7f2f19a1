"""A client of AG-UI 1.0: the rules by which its `verifyEvents` judges a stream, and what its reducer makes of one."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

FIELDS: dict[str, dict[str, Any]] = {
    "RUN_STARTED": {"threadId": str, "runId": str, "protocolVersion": str},
    "RUN_FINISHED": {"threadId": str, "runId": str, "outcome?": dict},
    "RUN_ERROR": {"message": str, "code": str},
    "STEP_STARTED": {"stepName": str},
    "STEP_FINISHED": {"stepName": str},
    "TEXT_MESSAGE_START": {"messageId": str, "role": str},
    "TEXT_MESSAGE_CONTENT": {"messageId": str, "delta": str},
    "TEXT_MESSAGE_END": {"messageId": str},
    "REASONING_START": {"messageId": str},
    "REASONING_MESSAGE_START": {"messageId": str, "role": str},
    "REASONING_MESSAGE_CONTENT": {"messageId": str, "delta": str},
    "REASONING_MESSAGE_END": {"messageId": str},
    "REASONING_END": {"messageId": str},
    "TOOL_CALL_START": {"toolCallId": str, "toolCallName": str, "parentMessageId": str},
    "TOOL_CALL_ARGS": {"toolCallId": str, "delta": str},
    "TOOL_CALL_END": {"toolCallId": str},
    "TOOL_CALL_RESULT": {
        "messageId": str,
        "toolCallId": str,
        "content": (str, list),
        "role": str,
        "metadata?": dict,
    },
    "STATE_SNAPSHOT": {"snapshot": object},
    "MESSAGES_SNAPSHOT": {"messages": list},
    "CUSTOM": {"name": str, "value": object, "metadata?": dict},
}
MESSAGE: dict[str, dict[str, Any]] = {
    "user": {"content": (str, list)},
    "assistant": {"content?": str, "toolCalls?": list, "metadata?": dict},
    "reasoning": {"content": str},
    "tool": {"content": (str, list), "toolCallId": str, "error?": str, "metadata?": dict},
}
OPENS = ("TEXT_MESSAGE", "REASONING_MESSAGE", "REASONING", "TOOL_CALL", "STEP")


def checked(fields: dict[str, Any], allowed: dict[str, Any]) -> None:
    known = {name.rstrip("?"): kind for name, kind in allowed.items()}
    assert set(fields) <= set(known), fields
    assert {name for name in allowed if not name.endswith("?")} <= set(fields), fields
    for name, value in fields.items():
        assert isinstance(value, known[name]), (name, value)


class Client:
    """A page: its messages outlive its streams."""

    def __init__(self, messages: Iterable[dict[str, Any]] = ()) -> None:
        self.messages: list[dict[str, Any]] = json.loads(json.dumps(list(messages)))
        self.customs: list[dict[str, Any]] = []
        self.state: Any = None
        self._begin()

    def _begin(self) -> None:
        self.open: set[tuple[str, str]] = set()
        self.end: dict[str, Any] | None = None
        self.has_started = False
        self.snapshots = 0

    def read(self, frames: Iterable[str]) -> Client:
        """Read a stream, or a part of one that was cut off."""
        self._begin()
        for frame in frames:
            self.add(frame)
        return self

    def add(self, frame: str) -> None:
        assert "\n" not in frame
        event = json.loads(frame)
        kind = event.pop("type")
        checked(event, FIELDS[kind])
        assert self.end is None, f"{kind} behind the end"
        assert self.has_started != (kind == "RUN_STARTED"), kind
        self.has_started = True
        prefix, _, what = kind.rpartition("_")
        if prefix in OPENS and what in ("START", "STARTED", "CONTENT", "ARGS", "END", "FINISHED"):
            self._open_or_close(prefix, what, event)
        if kind == "RUN_FINISHED":
            assert not self.open
        if kind in ("RUN_FINISHED", "RUN_ERROR"):
            self.end = {"type": kind, **event}
            return
        apply = getattr(self, f"_{kind.lower()}", None)
        if apply is not None:
            apply(event)

    def _open_or_close(self, prefix: str, what: str, event: dict[str, Any]) -> None:
        name = next(event[key] for key in ("messageId", "toolCallId", "stepName") if key in event)
        key = (prefix, name)
        if what in ("START", "STARTED"):
            assert key not in self.open, key
            self.open.add(key)
        else:
            assert key in self.open, (key, what)
            if what in ("END", "FINISHED"):
                self.open.discard(key)

    # --- the reducer --------------------------------------------------------------------------------------------------

    def _find(self, id: str) -> dict[str, Any] | None:
        return next((one for one in self.messages if one["id"] == id), None)

    def _owner(self, call_id: str) -> dict[str, Any] | None:
        return next((one for one in self.messages if any(c["id"] == call_id for c in one.get("toolCalls", ()))), None)

    def _text_message_start(self, event: dict[str, Any]) -> None:
        found = self._find(event["messageId"])
        assert found is None or found["role"] == "assistant"
        if found is None:
            self.messages.append({"id": event["messageId"], "role": "assistant", "content": ""})

    def _text_message_content(self, event: dict[str, Any]) -> None:
        found = self._find(event["messageId"])
        assert found is not None
        found["content"] = found.get("content", "") + event["delta"]

    def _reasoning_message_start(self, event: dict[str, Any]) -> None:
        if self._find(event["messageId"]) is None:
            self.messages.append({"id": event["messageId"], "role": "reasoning", "content": ""})

    _reasoning_message_content = _text_message_content

    def _tool_call_start(self, event: dict[str, Any]) -> None:
        owner = self._owner(event["toolCallId"])
        if owner is not None:
            (call,) = [one for one in owner["toolCalls"] if one["id"] == event["toolCallId"]]
            assert owner["id"] == event["parentMessageId"]
            assert call["function"]["name"] == event["toolCallName"]
            return
        parent = self._find(event["parentMessageId"])
        if parent is None:
            parent = {"id": event["parentMessageId"], "role": "assistant"}
            self.messages.append(parent)
        assert parent["role"] == "assistant"
        call = {"id": event["toolCallId"], "type": "function", "function": {"name": event["toolCallName"], "arguments": ""}}
        parent.setdefault("toolCalls", []).append(call)

    def _tool_call_args(self, event: dict[str, Any]) -> None:
        owner = self._owner(event["toolCallId"])
        assert owner is not None
        (call,) = [one for one in owner["toolCalls"] if one["id"] == event["toolCallId"]]
        call["function"]["arguments"] += event["delta"]

    def _tool_call_result(self, event: dict[str, Any]) -> None:
        assert self._find(event["messageId"]) is None, "a client would have the result twice"
        message = {"id": event["messageId"], "role": "tool", "toolCallId": event["toolCallId"], "content": event["content"]}
        message |= {"metadata": event["metadata"]} if "metadata" in event else {}
        owner = self._owner(event["toolCallId"])
        at = len(self.messages) if owner is None else self.messages.index(owner) + 1
        while owner is not None and at < len(self.messages) and self.messages[at]["role"] == "tool":
            at += 1
        self.messages.insert(at, message)

    def _messages_snapshot(self, event: dict[str, Any]) -> None:
        self.snapshots += 1
        new = {}
        for one in event["messages"]:
            checked({key: value for key, value in one.items() if key not in ("id", "role")}, MESSAGE[one["role"]])
            assert one["id"] not in new
            new[one["id"]] = one
        has_thoughts = any(one["role"] == "reasoning" for one in event["messages"])
        kept = [one for one in self.messages if one["id"] in new or (one["role"] == "reasoning" and not has_thoughts)]
        self.messages = [new.get(one["id"], one) for one in kept]
        there = {one["id"] for one in self.messages}
        self.messages += [one for one in event["messages"] if one["id"] not in there]

    def _state_snapshot(self, event: dict[str, Any]) -> None:
        self.state = event["snapshot"]

    def _custom(self, event: dict[str, Any]) -> None:
        self.customs.append(event)

    def shown(self) -> list[dict[str, Any]]:
        """The messages without thoughts that were emptied, because they do not stand."""
        return [one for one in self.messages if one["role"] != "reasoning" or one["content"]]
