"""OpenAI's chat completions, and the many that speak them: the format, and the rules of each."""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

from tests.providers._answers import Answer, Call, Frame, Say, Think, sse
from tests.providers._server import Scene

REASONS = {"stop": "stop", "calls": "tool_calls", "length": "length"}


class Chat:
    """OpenAI."""

    content_type = "text/event-stream"
    broken = b'data: {"<html>502 Bad Gateway\n\n'
    thought: str | None = None
    """The field in which thinking is sent."""

    def render(self, answer: Answer, body: dict[str, Any], scene: Scene) -> list[Frame]:
        frames = [Frame(self.chunk({"role": "assistant", "content": ""}), "head")]
        texts = thoughts = calls = 0
        for piece in answer:
            if isinstance(piece, Say):
                for at, text in enumerate(piece.fragments):
                    frames.append(Frame(self.chunk({"content": text}), f"text{texts}:{at}", text))
                frames.append(Frame(b"", f"text{texts}.end"))
                texts += 1
            elif isinstance(piece, Think):
                for at, text in enumerate(piece.fragments):
                    frames.append(Frame(self.chunk(self.thinking(text)), f"think{thoughts}:{at}"))
                frames.append(Frame(b"", f"think{thoughts}.end"))
                thoughts += 1
            elif isinstance(piece, Call):
                frames += self.call(piece, calls, scene)
                calls += 1
            else:
                raise NotImplementedError(piece)
        return frames

    def thinking(self, text: str) -> dict[str, Any]:
        assert self.thought is not None
        return {self.thought: text}

    def call(self, piece: Call, index: int, scene: Scene) -> list[Frame]:
        begun = {
            "index": index,
            "id": self.call_id(scene),
            "type": "function",
            "function": {"name": piece.name, "arguments": ""},
        }
        frames = [Frame(self.chunk({"tool_calls": [begun]}), f"call{index}.name")]
        for at, text in enumerate(piece.fragments()):
            more = {"index": index, "function": {"arguments": text}}
            frames.append(Frame(self.chunk({"tool_calls": [more]}), f"call{index}:{at}"))
        return [*frames, Frame(b"", f"call{index}.end")]

    def call_id(self, scene: Scene) -> str:
        return scene.ids.new("call_", 24)

    def chunk(self, delta: dict[str, Any], reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        return sse({**head, "choices": [choice]})

    def end(self, reason: str, scene: Scene) -> bytes:
        return self.chunk({}, REASONS[reason]) + sse("[DONE]")

    def problem(self, status: int, message: str) -> bytes:
        kind = "invalid_request_error" if status == 400 else "server_error"
        return json.dumps({"error": {"message": message, "type": kind, "param": None, "code": None}}).encode()

    def event_of_error(self, overloaded: bool) -> bytes:
        message = "The engine is currently overloaded" if overloaded else "The server had an error processing your request"
        return sse({"error": {"message": message, "type": "server_error", "param": None, "code": None}})

    # --- the rules

    def check(self, body: dict[str, Any], scene: Scene) -> str | None:
        messages = body["messages"]
        due: list[str] = []
        for at, message in enumerate(messages):
            role = message.get("role")
            if role not in ("system", "developer", "user", "assistant", "tool"):
                return (
                    f"Invalid value: '{role}'. Supported values are: 'system', 'assistant', 'user', 'function',"
                    " 'tool', and 'developer'."
                )
            if role == "tool":
                if message.get("tool_call_id") not in due:
                    return (
                        "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with"
                        f" 'tool_calls'. (messages[{at}])"
                    )
                due.remove(message["tool_call_id"])
            elif due:
                return self.unanswered(due)
            found = self.check_content(at, message) or (self.check_assistant(at, message) if role == "assistant" else None)
            if found:
                return found
            if role == "assistant":
                due = [call["id"] for call in message.get("tool_calls") or ()]
        return self.unanswered(due) if due else self.check_order(messages)

    def unanswered(self, due: list[str]) -> str:
        return (
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'."
            f" The following tool_call_ids did not have response messages: {', '.join(due)}"
        )

    def check_content(self, at: int, message: dict[str, Any]) -> str | None:
        content = message.get("content")
        if content is None:
            if message["role"] == "assistant" and message.get("tool_calls"):
                return None
            return f"Invalid value for 'content': expected a string, got null. (messages[{at}].content)"
        if isinstance(content, list):
            if not content:
                return (
                    f"Invalid 'messages[{at}].content': empty array. Expected an array with minimum length 1, but got"
                    " an empty array instead."
                )
            allowed = ("text", "refusal") if message["role"] == "assistant" else ("text", "image_url", "input_audio", "file")
            for place, part in enumerate(content):
                if not isinstance(part, dict):
                    return (
                        f"Invalid type for 'messages[{at}].content[{place}]': expected an object, but got a string instead."
                    )
                if part.get("type") not in allowed:
                    return (
                        f"Invalid value: '{part.get('type')}'. Supported values are: {allowed}."
                        f" (messages[{at}].content[{place}])"
                    )
        return None

    def check_assistant(self, at: int, message: dict[str, Any]) -> str | None:
        calls = message.get("tool_calls")
        if calls is None:
            return None
        if not calls:
            return (
                f"Invalid 'messages[{at}].tool_calls': empty array. Expected an array with minimum length 1, but"
                " got an empty array instead."
            )
        for place, call in enumerate(calls):
            where = f"messages[{at}].tool_calls[{place}]"
            if not isinstance(call.get("id"), str):
                return f"Invalid type for '{where}.id': expected a string, but got null instead."
            name = call.get("function", {}).get("name")
            if not isinstance(name, str) or not re.fullmatch(r"[a-zA-Z0-9_-]+", name):
                return (
                    f"Invalid '{where}.function.name': string does not match pattern. Expected a string that matches"
                    " the pattern '^[a-zA-Z0-9_-]+$'."
                )
            if not isinstance(call["function"].get("arguments"), str):
                return f"Invalid type for '{where}.function.arguments': expected a string, but got an object instead."
        return None

    def check_order(self, messages: list[dict[str, Any]]) -> str | None:
        return None


class Strict(Chat):
    """A model under vLLM whose chat template wants user and assistant to alternate (Devstral, Gemma and others)."""

    def check_order(self, messages: list[dict[str, Any]]) -> str | None:
        turns = [one["role"] for one in messages if one["role"] != "system"]
        # As the template of Mistral's models does it: requests for tools and their results do not count.
        said = [
            one for one in messages if one["role"] == "user" or (one["role"] == "assistant" and not one.get("tool_calls"))
        ]
        for at, one in enumerate(said):
            if (one["role"] == "user") != (at % 2 == 0):
                return (
                    "After the optional system message, conversation roles must alternate user and assistant roles"
                    " except for tool calls and results."
                )
        for one, behind in itertools.pairwise(turns):
            if one == "tool" and behind == "user":
                return "Unexpected role 'user' after role 'tool'"
        return None


class DeepSeek(Chat):
    """DeepSeek: thinking in `reasoning_content`, and content that is a text."""

    thought = "reasoning_content"

    def unanswered(self, due: list[str]) -> str:
        return (
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'."
            " (insufficient tool messages following tool_calls message)"
        )

    def check_content(self, at: int, message: dict[str, Any]) -> str | None:
        content = message.get("content")
        if isinstance(content, list) and not all(isinstance(part, dict) for part in content):
            return (
                f"Failed to deserialize the JSON body into the target type: messages[{at}]: data did not match"
                " any variant of untagged enum"
            )
        return super().check_content(at, message)


class Groq(Chat):
    """Groq: thinking in `reasoning`."""

    thought = "reasoning"

    def check_content(self, at: int, message: dict[str, Any]) -> str | None:
        role, content = message["role"], message.get("content")
        if isinstance(content, list) and role == "assistant" and not all(isinstance(part, dict) for part in content):
            return (
                f"'messages.{at}' : for 'role:assistant' the following must be satisfied[('messages.{at}.content' : one of"
                f" the following must be satisfied[('messages.{at}.content' : value must be a string)])]"
            )
        return super().check_content(at, message)

    def event_of_error(self, overloaded: bool) -> bytes:
        message = "Over capacity" if overloaded else "Internal server error"
        return sse({"error": {"message": message, "type": "internal_server_error"}}, event="error")
