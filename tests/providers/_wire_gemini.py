"""Google's generateContent, as google-genai speaks it: the format, and what the real server refuses."""

from __future__ import annotations

import base64
import json
from typing import Any

from tests.providers._answers import Answer, Frame, Say, Search, Think
from tests.providers._server import Scene

STATUS = {400: "INVALID_ARGUMENT", 500: "INTERNAL", 529: "UNAVAILABLE"}
DATA = ("text", "functionCall", "functionResponse", "inlineData", "fileData", "executableCode", "codeExecutionResult")


class Gemini:
    """The format and the rules of the Gemini API."""

    content_type = "text/event-stream"
    broken = b'data: {"<html>502 Bad Gateway\r\n\r\n'

    def render(self, answer: Answer, body: dict[str, Any], scene: Scene) -> list[Frame]:
        frames = [Frame(b"", "head")]  # an event that has no part is not sent
        texts = thoughts = calls = searches = 0
        for piece in answer:
            if isinstance(piece, Say):
                frames += [
                    Frame(_parts({"text": text}), f"text{texts}:{at}", text) for at, text in enumerate(piece.fragments)
                ]
                frames.append(Frame(b"", f"text{texts}.end"))
                texts += 1
            elif isinstance(piece, Think):
                for at, text in enumerate(piece.fragments):
                    frames.append(Frame(_parts({"text": text, "thought": True}), f"think{thoughts}:{at}"))
                frames.append(Frame(b"", f"think{thoughts}.end"))
                thoughts += 1
            elif isinstance(piece, Search):
                code = {"executableCode": {"language": "PYTHON", "code": f"print({piece.query!r})"}}
                result = {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": piece.found}}
                frames.append(Frame(_parts(code), f"search{searches}:0"))
                frames.append(Frame(_parts(result), f"found{searches}.end"))
                searches += 1
            else:
                call = {"functionCall": {"name": piece.name, "args": piece.args}}
                if calls == 0:
                    call["thoughtSignature"] = base64.b64encode(b"signature").decode()
                frames.append(Frame(_parts(call), f"call{calls}.end"))
                calls += 1
        return frames

    def end(self, reason: str, scene: Scene) -> bytes:
        content = {"role": "model", "parts": [{"text": ""}]}
        return _event({"content": content, "finishReason": "MAX_TOKENS" if reason == "length" else "STOP", "index": 0})

    def problem(self, status: int, message: str) -> bytes:
        # Google answers 503 where others answer 529.
        return json.dumps({"error": {"code": status, "message": message, "status": STATUS[status]}}).encode()

    def event_of_error(self, overloaded: bool) -> bytes:
        code, message = (
            (529, "The model is overloaded. Please try again later.")
            if overloaded
            else (500, "An internal error has occurred.")
        )
        return b"data: " + self.problem(code, message) + b"\r\n\r\n"

    # --- the rules

    def check(self, body: dict[str, Any], scene: Scene) -> str | None:
        contents = body["contents"]
        called: list[str] = []
        role_before = ""
        for at, content in enumerate(contents):
            where = f"GenerateContentRequest.contents[{at}].parts"
            parts = content.get("parts")
            if not parts:
                return f"* {where}: contents.parts must not be empty."
            for place, part in enumerate(parts):
                if not any(part.get(name) for name in DATA):
                    return f"* {where}[{place}].data: required oneof field 'data' must have one initialized field"
            calls = [part["functionCall"]["name"] for part in parts if part.get("functionCall")]
            answers = [part["functionResponse"]["name"] for part in parts if part.get("functionResponse")]
            if answers and not called:
                return "Please ensure that function response turn comes immediately after a function call turn."
            if called and len(answers) != len(called):
                return (
                    "Please ensure that the number of function response parts is equal to the number of function"
                    " call parts of the function call turn."
                )
            if calls and role_before not in ("user", "function"):
                return (
                    "Please ensure that function call turn comes immediately after a user turn or after a function"
                    " response turn."
                )
            called, role_before = calls, content.get("role", "user")
        if called:
            return (
                "Please ensure that the number of function response parts is equal to the number of function"
                " call parts of the function call turn."
            )
        return None


def _parts(*parts: dict[str, Any]) -> bytes:
    return _event({"content": {"role": "model", "parts": list(parts)}, "index": 0})


def _event(candidate: dict[str, Any]) -> bytes:
    usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
    data = {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "gemini", "responseId": "r"}
    return b"data: " + json.dumps(data, ensure_ascii=False).encode() + b"\r\n\r\n"
