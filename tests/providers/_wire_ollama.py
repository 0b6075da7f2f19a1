"""Ollama's chat: one JSON object a line, and a server that takes almost anything that has the right types."""

from __future__ import annotations

import json
from typing import Any

from tests.providers._answers import Answer, Frame, Say, Think
from tests.providers._server import Scene


class Ollama:
    """The format and the rules of Ollama's /api/chat."""

    content_type = "application/x-ndjson"
    broken = b'{"<html>502 Bad Gateway\n'

    def render(self, answer: Answer, body: dict[str, Any], scene: Scene) -> list[Frame]:
        frames = [Frame(self.line(content=""), "head")]
        texts = thoughts = calls = 0
        for piece in answer:
            if isinstance(piece, Say):
                frames += [
                    Frame(self.line(content=text), f"text{texts}:{at}", text) for at, text in enumerate(piece.fragments)
                ]
                frames.append(Frame(b"", f"text{texts}.end"))
                texts += 1
            elif isinstance(piece, Think):
                for at, text in enumerate(piece.fragments):
                    frames.append(Frame(self.line(content="", thinking=text), f"think{thoughts}:{at}"))
                frames.append(Frame(b"", f"think{thoughts}.end"))
                thoughts += 1
            else:
                call = {"function": {"name": piece.name, "arguments": piece.args}}  # type: ignore[union-attr]
                frames.append(Frame(self.line(content="", tool_calls=[call]), f"call{calls}.end"))
                calls += 1
        return frames

    def line(self, done: bool = False, **message: Any) -> bytes:
        head = {
            "model": "m",
            "created_at": "2026-01-01T00:00:00Z",
            "message": {"role": "assistant", **message},
            "done": done,
        }
        return json.dumps(head, ensure_ascii=False).encode() + b"\n"

    def end(self, reason: str, scene: Scene) -> bytes:
        data = json.loads(self.line(done=True, content=""))
        data |= {"done_reason": "length" if reason == "length" else "stop", "prompt_eval_count": 1, "eval_count": 1}
        return json.dumps(data).encode() + b"\n"

    def problem(self, status: int, message: str) -> bytes:
        return json.dumps({"error": message}).encode()

    def event_of_error(self, overloaded: bool) -> bytes:
        message = (
            "server busy, please try again. maximum pending requests exceeded" if overloaded else "an error was encountered"
        )
        return self.problem(500, message) + b"\n"

    # --- the rules: Go's types, and roles that it knows

    def check(self, body: dict[str, Any], scene: Scene) -> str | None:
        for message in body["messages"]:
            if message["role"] not in ("system", "user", "assistant", "tool"):
                return f'invalid role: {message["role"]}, role must be one of ["system", "user", "assistant", "tool"]'
            if not isinstance(message.get("content") or "", str):
                return "json: cannot unmarshal array into Go struct field ChatRequest.messages.content of type string"
            for call in message.get("tool_calls") or ():
                if not isinstance(call["function"]["arguments"], dict):
                    return (
                        "json: cannot unmarshal string into Go struct field"
                        " ChatRequest.messages.tool_calls.function.arguments of type api.ToolCallFunctionArguments"
                    )
        return None
