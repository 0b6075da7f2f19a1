"""A reader of UI message streams, as strict as the strictest client: it refuses what `ai` 5.0.59 refuses."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any

TOOL = {"toolCallId": str}
FIELDS: dict[str, dict[str, type]] = {
    "start": {"messageId": str, "messageMetadata": dict},
    "start-step": {},
    "finish-step": {},
    "text-start": {"id": str, "providerMetadata": dict},
    "text-delta": {"id": str, "delta": str},
    "text-end": {"id": str},
    "reasoning-start": {"id": str, "providerMetadata": dict},
    "reasoning-delta": {"id": str, "delta": str},
    "reasoning-end": {"id": str},
    "tool-input-start": {**TOOL, "toolName": str},
    "tool-input-delta": {**TOOL, "inputTextDelta": str},
    "tool-input-available": {**TOOL, "toolName": str, "input": object},
    "tool-input-error": {**TOOL, "toolName": str, "input": object, "errorText": str},
    "tool-output-available": {**TOOL, "output": object},
    "tool-output-error": {**TOOL, "errorText": str},
    "source-url": {"sourceId": str, "url": str, "title": str},
    "source-document": {"sourceId": str, "mediaType": str, "title": str},
    "file": {"url": str, "mediaType": str},
    "message-metadata": {"messageMetadata": dict},
    "finish": {"messageMetadata": dict},
    "error": {"errorText": str},
}
OPTIONAL = {"messageMetadata", "title"}


class UIMessage:
    """One assistant message, chunk by chunk."""

    def __init__(self) -> None:
        self.id: str | None = None
        self.metadata: dict[str, Any] = {}
        self.parts: list[dict[str, Any]] = []
        self.error: str | None = None
        self.is_finished = False
        self.is_done = False
        self._open: dict[str, dict[str, Any]] = {}
        self._tools: dict[str, dict[str, Any]] = {}
        self._step: list[str] | None = None

    def read(self, data: str) -> None:
        assert not self.is_done
        assert "\n" not in data
        if data == "[DONE]":
            self.is_done = True
            return
        chunk = json.loads(data)
        kind = chunk["type"]
        assert not self.is_finished, chunk
        if kind.startswith("data-"):
            assert set(chunk) == {"type", "id", "data"}, chunk
        else:
            allowed = FIELDS[kind]
            assert set(chunk) - {"type"} <= set(allowed), chunk
            assert set(allowed) - OPTIONAL <= set(chunk), chunk
            assert all(isinstance(chunk[key], allowed[key]) for key in chunk if key != "type"), chunk
        if kind not in ("start", "finish", "error"):
            assert self.id is not None, f"{kind} before start"
        self._apply(kind, chunk)

    def _apply(self, kind: str, chunk: dict[str, Any]) -> None:
        word, _, what = kind.partition("-")
        if kind == "start":
            assert self.id is None
            self.id, self.metadata = chunk["messageId"], dict(chunk["messageMetadata"])
        elif word in ("text", "reasoning"):
            self._say(word, what, chunk)
        elif word == "tool":
            self._use(what, chunk)
        elif kind == "start-step":
            assert self._step is None
            self._step = []
            self.parts.append({"type": "step-start"})
        elif kind == "finish-step":
            assert self._step is not None
            assert not self._open, "the clients drop what is open at the end of a step"
            self._step = None
        elif kind in ("finish", "message-metadata"):
            assert not self._open
            self.is_finished = kind == "finish"
            self.metadata |= chunk.get("messageMetadata", {})
            assert self.id is not None or "messageMetadata" not in chunk
        elif kind == "error":
            self.error, self.is_finished = chunk["errorText"], True
        elif word == "data":
            old = [one for one in self.parts if one["type"] == kind and one["id"] == chunk["id"]]
            if old:
                old[0]["data"] = chunk["data"]
            else:
                self.parts.append(chunk)
        else:
            self.parts.append(chunk)

    def _say(self, word: str, what: str, chunk: dict[str, Any]) -> None:
        if what == "start":
            assert self._step is not None
            assert chunk["id"] not in self._open
            assert chunk["id"] not in [one.get("id") for one in self.parts]
            self._open[chunk["id"]] = {"type": word, "text": "", "id": chunk["id"]}
            self.parts.append(self._open[chunk["id"]])
            assert chunk["providerMetadata"] == {"runjournal": {"part": chunk["id"]}}
        elif what == "delta":
            assert chunk["delta"]
            self._open[chunk["id"]]["text"] += chunk["delta"]
        else:
            assert self._open.pop(chunk["id"])["text"].strip()

    def _use(self, what: str, chunk: dict[str, Any]) -> None:
        id = chunk["toolCallId"]
        if what == "input-start":
            assert id not in self._tools
            assert self._step is not None
            self._step.append(id)
            self._tools[id] = {"type": f"tool-{chunk['toolName']}", "toolCallId": id, "raw": "", "state": "input-streaming"}
            self.parts.append(self._tools[id])
        elif what == "input-delta":
            assert self._tools[id]["state"] == "input-streaming"
            self._tools[id]["raw"] += chunk["inputTextDelta"]
        elif what in ("input-available", "input-error"):
            if id in self._tools:
                # Version 7 looks for the call in the step that is open.
                assert self._tools[id]["state"] == "input-streaming"
                assert self._step is not None
                assert id in self._step
            else:
                self._tools[id] = {"type": f"tool-{chunk['toolName']}", "toolCallId": id}
                self.parts.append(self._tools[id])
            state = "input-available" if what == "input-available" else "output-error"
            self._tools[id] |= {"state": state, "input": chunk["input"]}
            if "errorText" in chunk:
                self._tools[id]["errorText"] = chunk["errorText"]
        else:
            assert self._tools[id]["state"] != "input-streaming"
            self._tools[id].pop("errorText", None)
            state = "output-available" if what == "output-available" else "output-error"
            self._tools[id] |= {"state": state, **{key: chunk[key] for key in ("output", "errorText") if key in chunk}}

    def standing(self) -> list[dict[str, Any]]:
        """The parts that were not withdrawn."""
        withdrawn = [one["data"] for one in self.parts if one["type"] == "data-withdrawn"]
        gone = {id for one in withdrawn for id in (*one["parts"], *one["tools"])}
        return [one for one in self.parts if not gone & {one.get("id"), one.get("toolCallId"), one.get("sourceId")}]


def read(frames: Iterable[str]) -> UIMessage:
    """Return the message of a whole stream."""
    message = UIMessage()
    for data in frames:
        message.read(data)
    return message


def essence(parts: Iterable[dict[str, Any]], no_result: str) -> Counter[str]:
    """What parts say, whatever their order: parallel answers arrive in another order than they stand in the thread."""
    found: Counter[str] = Counter()
    for part in parts:
        if part["type"] in ("text", "reasoning"):
            found[f"{part['type']} {part['text']}"] += 1
        elif part["type"].startswith("tool-"):
            state, error = part["state"], part.get("errorText")
            if error == no_result:
                state, error = "input-available", None
            about = [part["type"], part["toolCallId"].partition("~")[0], state, part["input"], part.get("output"), error]
            found[json.dumps(about, sort_keys=True)] += 1
        elif part["type"] in ("source-url", "source-document", "file"):
            found[json.dumps({key: value for key, value in part.items() if key != "sourceId"}, sort_keys=True)] += 1
        elif part["type"] == "data-partial":
            found[f"partial {part['data']['cause']}"] += 1
    return found
