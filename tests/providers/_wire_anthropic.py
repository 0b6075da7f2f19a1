"""Anthropic's messages: the format, and what the real server refuses."""

from __future__ import annotations

import json
import re
from typing import Any

from tests.providers._answers import Answer, Call, Frame, Say, Search, Think, sse
from tests.providers._server import Scene

REASONS = {"stop": "end_turn", "calls": "tool_use", "length": "max_tokens"}
BLOCKS = {
    "text": {"text", "citations", "cache_control"},
    "thinking": {"thinking", "signature"},
    "redacted_thinking": {"data"},
    "tool_use": {"id", "name", "input", "cache_control", "caller"},
    "tool_result": {"tool_use_id", "content", "is_error", "cache_control"},
    "server_tool_use": {"id", "name", "input", "cache_control", "caller"},
    "web_search_tool_result": {"tool_use_id", "content", "cache_control", "caller"},
    "image": {"source", "cache_control"},
    "document": {"source", "title", "context", "citations", "cache_control"},
}


class Anthropic:
    """The format and the rules of the Messages API."""

    content_type = "text/event-stream"
    broken = b'event: content_block_delta\ndata: {"<html>502 Bad Gateway\n\n'

    def render(self, answer: Answer, body: dict[str, Any], scene: Scene) -> list[Frame]:
        usage = {"input_tokens": 1, "output_tokens": 1}
        head = {"id": scene.ids.new("msg_"), "type": "message", "role": "assistant", "model": "claude", "content": []}
        head |= {"stop_reason": None, "stop_sequence": None, "usage": usage}
        frames = [Frame(_event("message_start", message=head), "head")]
        counts = {"text": 0, "think": 0, "search": 0, "found": 0, "call": 0}
        index = 0
        for piece in answer:
            for kind, block, deltas, ending in self.blocks(piece, scene):
                stop = _event("content_block_stop", index=index)
                name = f"{kind}{counts[kind]}"
                start = Frame(_event("content_block_start", index=index, content_block=block), f"{name}.name", close=stop)
                frames.append(start)
                for at, (delta, text) in enumerate(deltas):
                    data = _event("content_block_delta", index=index, delta=delta)
                    frames.append(Frame(data, f"{name}:{at}", text, stop))
                more = [_event("content_block_delta", index=index, delta=delta) for delta in ending]
                frames += [Frame(data, "", close=stop) for data in more]
                frames.append(Frame(stop, f"{name}.end"))
                counts[kind] += 1
                index += 1
        return frames

    def blocks(
        self, piece: Any, scene: Scene
    ) -> list[tuple[str, dict[str, Any], list[tuple[dict[str, Any], str]], list[Any]]]:
        """The blocks of a piece: its kind, its beginning, its deltas with what they show, and what ends it."""
        if isinstance(piece, Say):
            deltas = [({"type": "text_delta", "text": text}, text) for text in piece.fragments]
            return [("text", {"type": "text", "text": ""}, deltas, [])]
        if isinstance(piece, Think) and piece.redacted:
            data = scene.ids.new("encrypted")
            scene.memory[data] = True
            return [("think", {"type": "redacted_thinking", "data": data}, [], [])]
        if isinstance(piece, Think):
            signature = scene.ids.new("signature")
            scene.memory[signature] = "".join(piece.fragments)
            deltas = [({"type": "thinking_delta", "thinking": text}, "") for text in piece.fragments]
            block = {"type": "thinking", "thinking": "", "signature": ""}
            return [("think", block, deltas, [{"type": "signature_delta", "signature": signature}])]
        if isinstance(piece, Call):
            id = scene.ids.new("toolu_")
            deltas = [({"type": "input_json_delta", "partial_json": text}, "") for text in piece.fragments()]
            return [("call", {"type": "tool_use", "id": id, "name": piece.name, "input": {}}, deltas, [])]
        assert isinstance(piece, Search)
        id = scene.ids.new("srvtoolu_")
        query = json.dumps({"query": piece.query}, ensure_ascii=False)
        deltas = [({"type": "input_json_delta", "partial_json": text}, "") for text in (query[:12], query[12:])]
        page = {
            "type": "web_search_result",
            "url": "https://example.org",
            "title": piece.found,
            "encrypted_content": "x",
            "page_age": None,
        }
        return [
            ("search", {"type": "server_tool_use", "id": id, "name": "web_search", "input": {}}, deltas, []),
            ("found", {"type": "web_search_tool_result", "tool_use_id": id, "content": [page]}, [], []),
        ]

    def end(self, reason: str, scene: Scene) -> bytes:
        delta = {"stop_reason": REASONS[reason], "stop_sequence": None}
        return _event("message_delta", delta=delta, usage={"output_tokens": 5}) + _event("message_stop")

    def problem(self, status: int, message: str) -> bytes:
        kind = {400: "invalid_request_error", 529: "overloaded_error"}.get(status, "api_error")
        return json.dumps({"type": "error", "error": {"type": kind, "message": message}}).encode()

    def event_of_error(self, overloaded: bool) -> bytes:
        kind, message = ("overloaded_error", "Overloaded") if overloaded else ("api_error", "Internal server error")
        return _event("error", error={"type": kind, "message": message})

    # --- the rules

    def check(self, body: dict[str, Any], scene: Scene) -> str | None:
        messages = body["messages"]
        seen: set[str] = set()
        for at, message in enumerate(messages):
            if message["role"] not in ("user", "assistant"):
                return f'messages: Unexpected role "{message["role"]}". Allowed roles are "user" or "assistant"'
            blocks = _as_blocks(message["content"])
            if not blocks:
                return (
                    f"messages.{at}: all messages must have non-empty content except for the optional final assistant"
                    " message"
                )
            for place, block in enumerate(blocks):
                found = self.check_block(f"messages.{at}.content.{place}", block, scene)
                if found:
                    return found
            for block in blocks:
                if block["type"] in ("tool_use", "server_tool_use"):
                    if block["id"] in seen:
                        return f"messages.{at}: `{block['type']}` ids must be unique"
                    seen.add(block["id"])
            if message["role"] == "assistant":
                found = self.check_assistant(at, blocks)
                if found:
                    return found
        return self.check_pairs(messages) or self.check_end(messages)

    def check_block(self, where: str, block: Any, scene: Scene) -> str | None:
        if not isinstance(block, dict):
            return f"{where}: Input should be a valid dictionary or object to extract fields from"
        kind = block.get("type")
        if kind not in BLOCKS:
            tags = ", ".join(map(repr, BLOCKS))
            return f"{where}: Input tag '{kind}' found using 'type' does not match any of the expected tags: {tags}"
        if extra := set(block) - BLOCKS[kind] - {"type"}:
            return f"{where}.{kind}.{sorted(extra)[0]}: Extra inputs are not permitted"
        if kind == "text":
            if not block.get("text"):
                return "messages: text content blocks must be non-empty"
            if not block["text"].strip():
                return "messages: text content blocks must contain non-whitespace text"
        if kind == "thinking":
            if not block.get("signature"):
                return f"{where}.thinking.signature: Field required"
            if scene.memory.get(block["signature"]) != block.get("thinking"):
                return f"{where}: Invalid `signature` in `thinking` block"
        if kind == "redacted_thinking" and block.get("data") not in scene.memory:
            return f"{where}: Invalid `data` in `redacted_thinking` block"
        if kind in ("tool_use", "server_tool_use"):
            if not isinstance(block.get("id"), str) or not re.fullmatch("[a-zA-Z0-9_-]+", block["id"]):
                return f"{where}.{kind}.id: String should match pattern '^[a-zA-Z0-9_-]+$'"
            if not block.get("name"):
                return f"{where}.{kind}.name: String should have at least 1 character"
            if not isinstance(block.get("input"), dict):
                return f"{where}.{kind}.input: Input should be a valid dictionary"
        return None

    def check_assistant(self, at: int, blocks: list[dict[str, Any]]) -> str | None:
        if blocks[-1]["type"] in ("thinking", "redacted_thinking"):
            return f"messages.{at}: The final block in an assistant message cannot be `{blocks[-1]['type']}`."
        asked = [block["id"] for block in blocks if block["type"] == "server_tool_use"]
        answered = [block["tool_use_id"] for block in blocks if block["type"] == "web_search_tool_result"]
        for id in asked:
            if id not in answered:
                return (
                    f"messages.{at}: `web_search` tool use with id `{id}` was found without a corresponding"
                    " `web_search_tool_result` block"
                )
        for id in answered:
            if id not in asked:
                return f"messages.{at}: unexpected `tool_use_id` found in `web_search_tool_result` blocks: {id}"
        return None

    def check_pairs(self, messages: list[dict[str, Any]]) -> str | None:
        due: list[str] = []
        for at, message in enumerate(messages):
            blocks = _as_blocks(message["content"])
            answered = []
            for block in blocks:
                if block["type"] != "tool_result":
                    break
                answered.append(block["tool_use_id"])
            late = [block["tool_use_id"] for block in blocks[len(answered) :] if block["type"] == "tool_result"]
            if missing := [id for id in due if id not in answered]:
                return (
                    f"messages.{at - 1}: `tool_use` ids were found without `tool_result` blocks immediately after:"
                    f" {', '.join(missing)}. Each `tool_use` block must have a corresponding `tool_result` block in the next"
                    " message."
                )
            if stray := [id for id in answered + late if id not in due]:
                return (
                    f"messages.{at}.content.0: unexpected `tool_use_id` found in `tool_result` blocks: {stray[0]}. Each"
                    " `tool_result` block must have a corresponding `tool_use` block in the previous message."
                )
            if len(set(answered + late)) < len(answered + late):
                return (
                    f"messages.{at}: each tool_use must have a single result. Found multiple `tool_result` blocks"
                    f" with id: {answered}"
                )
            due = [block["id"] for block in blocks if block["type"] == "tool_use"]
        if due:
            return (
                f"messages.{len(messages) - 1}: `tool_use` ids were found without `tool_result` blocks"
                f" immediately after: {due}"
            )
        return None

    def check_end(self, messages: list[dict[str, Any]]) -> str | None:
        if messages[0]["role"] != "user":
            return 'messages: first message must use the "user" role'
        if messages[-1]["role"] == "assistant":
            return "This model does not support assistant message prefill. The conversation must end with a user message."
        return None


def _as_blocks(content: Any) -> list[Any]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _event(kind: str, **data: Any) -> bytes:
    return sse({"type": kind, **data}, event=kind)
