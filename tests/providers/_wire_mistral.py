"""Mistral's chat completions: the same chunks as OpenAI's, and rules of its own."""

from __future__ import annotations

import json
import re
from typing import Any

from tests.providers._answers import Call, Frame
from tests.providers._server import Scene
from tests.providers._wire_chat import Chat

CHUNKS = frozenset({"text", "image_url", "document_url", "reference", "file", "thinking", "input_audio"})


class Mistral(Chat):
    """Mistral: whole calls with ids of nine characters, thinking in blocks, and an order that it insists on."""

    def thinking(self, text: str) -> dict[str, Any]:
        return {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": text}]}]}

    def call(self, piece: Call, index: int, scene: Scene) -> list[Frame]:
        function = {"name": piece.name, "arguments": json.dumps(piece.args, ensure_ascii=False)}
        call = {"index": index, "id": scene.ids.new("c", 8), "function": function}
        return [Frame(self.chunk({"tool_calls": [call]}), f"call{index}.end")]

    def problem(self, status: int, message: str) -> bytes:
        kind = "invalid_request_message_order" if "role" in message else "invalid_request_error"
        return json.dumps({"object": "error", "message": message, "type": kind, "param": None, "code": "3230"}).encode()

    def event_of_error(self, overloaded: bool) -> bytes:
        message = "Service tier capacity exceeded for this model." if overloaded else "Service unavailable."
        return b"data: " + self.problem(500, message) + b"\n\n"

    # --- the rules

    def check(self, body: dict[str, Any], scene: Scene) -> str | None:
        messages = body["messages"]
        before, due, answered = "", 0, 0
        for at, message in enumerate(messages):
            role = message["role"]
            found = self.check_content(at, message) or self.check_ids(message)
            if found:
                return found
            if role == "tool":
                if before not in ("assistant", "tool") or not due:
                    return f"Unexpected role 'tool' after role '{before}'"
                answered += 1
            else:
                if answered != due:
                    return "Not the same number of function calls and responses"
                if before == "tool" and role != "assistant":
                    return f"Unexpected role '{role}' after role 'tool'"
                due, answered = len(message.get("tool_calls") or ()), 0
            if role == "assistant" and not message.get("content") and not message.get("tool_calls"):
                return "Assistant message must have either content or tool_calls, but not none."
            before = role
        if answered != due:
            return "Not the same number of function calls and responses"
        if before not in ("user", "tool"):
            return f"Expected last role User or Tool (or Assistant with prefix True) for serving but got {before}"
        return None

    def check_content(self, at: int, message: dict[str, Any]) -> str | None:
        content = message.get("content")
        if not isinstance(content, list):
            return None
        for place, part in enumerate(content):
            if not isinstance(part, dict):
                return (
                    f"body.messages.{at}.{message['role']}.content.list.{place}: Input should be a valid dictionary"
                    " or object to extract fields from"
                )
            if part.get("type") not in CHUNKS:
                return (
                    f"body.messages.{at}.{message['role']}.content.list.{place}: Input tag '{part.get('type')}' found"
                    " using 'type' does not match"
                )
        return None

    def check_ids(self, message: dict[str, Any]) -> str | None:
        ids = [call.get("id") for call in message.get("tool_calls") or ()]
        if message["role"] == "tool":
            ids.append(message.get("tool_call_id"))
        for id in ids:
            if not isinstance(id, str) or not re.fullmatch("[a-zA-Z0-9]{9}", id):
                return f"Tool call id was {id} but must be a-z, A-Z, 0-9, with a length of 9."
        return None
