"""OpenAI's Responses: the format, what the server remembers of its items, and what it refuses."""

from __future__ import annotations

import json
import re
from typing import Any

from tests.providers._answers import Answer, Call, Frame, Say, Search, Think, sse
from tests.providers._server import Scene

PREFIXES = {"message": "msg", "reasoning": "rs", "function_call": "fc", "web_search_call": "ws"}
OUTPUTS = frozenset({"reasoning", "function_call", "web_search_call"})


class Responses:
    """The format and the rules of the Responses API."""

    content_type = "text/event-stream"
    broken = b'event: response.output_text.delta\ndata: {"<html>502 Bad Gateway\n\n'

    def render(self, answer: Answer, body: dict[str, Any], scene: Scene) -> list[Frame]:
        encrypted = "reasoning.encrypted_content" in (body.get("include") or ())
        response = _Response(scene, body.get("store") is not False, encrypted)
        frames = [Frame(response.event("response.created", response=response.as_dict("in_progress")), "head")]
        texts = thoughts = searches = calls = 0
        for piece in answer:
            if isinstance(piece, Say):
                frames += response.text(piece, f"text{texts}")
                texts += 1
            elif isinstance(piece, Think):
                frames += response.think(piece, f"think{thoughts}")
                thoughts += 1
            elif isinstance(piece, Search):
                frames += response.search(piece, searches)
                searches += 1
            else:
                frames += response.call(piece, f"call{calls}")
                calls += 1
        scene.memory["open"] = response
        return frames

    def end(self, reason: str, scene: Scene) -> bytes:
        response: _Response = scene.memory.pop("open")
        response.leave_out(scene)
        if response.stored:
            scene.memory.setdefault("responses", {})[response.id] = response.calls
            scene.memory.setdefault("items", set()).update(item["id"] for item in response.items)
        kind = "incomplete" if reason == "length" else "completed"
        return response.event(f"response.{kind}", response=response.as_dict(kind))

    def problem(self, status: int, message: str) -> bytes:
        kind = "invalid_request_error" if status == 400 else "server_error"
        return json.dumps({"error": {"message": message, "type": kind, "param": "input", "code": None}}).encode()

    def event_of_error(self, overloaded: bool) -> bytes:
        code, message = ("server_is_overloaded", "Overloaded") if overloaded else ("server_error", "The server had an error")
        data = {"type": "error", "code": code, "message": message, "param": None, "sequence_number": 99}
        return sse(data, event="error")

    # --- the rules

    def check(self, body: dict[str, Any], scene: Scene) -> str | None:
        before = body.get("previous_response_id")
        responses = scene.memory.get("responses", {})
        if before is not None and before not in responses:
            return f"Previous response with id '{before}' not found."
        calls = {} if before is None else dict.fromkeys(responses[before], False)
        items, ids = body["input"], set()
        for at, item in enumerate(items):
            id, kind = item.get("id"), item.get("type", "message")
            if id is not None:
                if id in ids:
                    return f"Duplicate item found with id {id}. Remove duplicate items from your input and try again."
                ids.add(id)
            found = self.check_item(at, item, kind, scene, ids) or self.check_thought(items, at, kind)
            if found:
                return found
            if kind == "function_call":
                calls[item["call_id"]] = False
            if kind == "function_call_output":
                if item["call_id"] not in calls:
                    return f"No tool call found for function call output with call_id {item['call_id']}."
                calls[item["call_id"]] = True
        unanswered = [id for id, answered in calls.items() if not answered]
        return f"No tool output found for function call {unanswered[0]}." if unanswered else None

    def check_item(self, at: int, item: dict[str, Any], kind: str, scene: Scene, ids: set[str]) -> str | None:
        id = item.get("id")
        if kind == "message":
            parts = item["content"]
            if item["role"] == "assistant" and not isinstance(parts, str):
                for place, part in enumerate(parts):
                    if not isinstance(part, dict) or part.get("type") not in ("output_text", "refusal"):
                        return (
                            f"Invalid value: '{part}'. Supported values are: 'output_text' and 'refusal'."
                            f" (input[{at}].content[{place}])"
                        )
        elif kind == "function_call":
            if not isinstance(item.get("call_id"), str):
                return f"Invalid type for 'input[{at}].call_id': expected a string, but got null instead."
            if not re.fullmatch("[a-zA-Z0-9_-]+", item.get("name") or ""):
                return (
                    f"Invalid 'input[{at}].name': string does not match pattern. Expected a string that matches the"
                    " pattern '^[a-zA-Z0-9_-]+$'."
                )
            if not isinstance(item.get("arguments"), str):
                return f"Invalid type for 'input[{at}].arguments': expected a string, but got an object instead."
        elif kind not in (*PREFIXES, "function_call_output"):
            return f"Invalid value: '{kind}'. Supported values are: {', '.join(PREFIXES)} and others. (input[{at}])"
        if id is None:
            return None
        if kind in PREFIXES and not id.startswith(PREFIXES[kind] + "_"):
            return f"Invalid 'input[{at}].id': '{id}'. Expected an ID that begins with '{PREFIXES[kind]}'."
        needed = scene.memory.get("needs", {}).get(id)
        if needed is not None and needed not in ids:
            return f"Item '{id}' of type '{kind}' was provided without its required 'reasoning' item: '{needed}'."
        if id not in scene.memory.get("items", ()) and (
            kind == "message" or (kind == "reasoning" and not item.get("encrypted_content"))
        ):
            return (
                f"Item with id '{id}' not found. Items are not persisted when `store` is set to false. Try again with"
                " `store` set to true, or remove this item from your input."
            )
        return None

    def check_thought(self, items: list[dict[str, Any]], at: int, kind: str) -> str | None:
        if kind != "reasoning":
            return None
        behind = items[at + 1] if at + 1 < len(items) else {}
        if behind.get("type") in OUTPUTS or behind.get("role") == "assistant":
            return None
        return f"Item '{items[at].get('id')}' of type 'reasoning' was provided without its required following item."


class _Response:
    """One response, while it is written."""

    def __init__(self, scene: Scene, stored: bool, encrypted: bool) -> None:
        self.scene, self.stored, self.encrypted = scene, stored, encrypted
        self.id = scene.ids.new("resp_")
        self.items: list[dict[str, Any]] = []
        self.names: list[str] = []
        self.calls: list[str] = []
        self.thought: str | None = None
        self.number = 0

    def event(self, kind: str, **data: Any) -> bytes:
        self.number += 1
        return sse({"type": kind, "sequence_number": self.number, **data}, event=kind)

    def as_dict(self, status: str) -> dict[str, Any]:
        usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
        usage |= {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
        head = {"id": self.id, "object": "response", "created_at": 1, "model": "m", "status": status, "error": None}
        head |= {"incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None, "tools": []}
        head |= {"parallel_tool_calls": True, "tool_choice": "auto", "metadata": {}, "instructions": None}
        return {
            **head,
            "output": self.items if status != "in_progress" else [],
            "usage": usage if status != "in_progress" else None,
        }

    def leave_out(self, scene: Scene) -> None:
        """Forget the items that were not begun, if the answer ended before them."""
        if scene.said is not None:
            begun = {name.replace(".", ":").partition(":")[0] for name in scene.said}
            self.items = [item for item, name in zip(self.items, self.names, strict=True) if name in begun]
            self.calls = [item["call_id"] for item in self.items if item["type"] == "function_call"]
            scene.said = None

    def begin(self, kind: str, name: str, /, **data: Any) -> tuple[int, dict[str, Any]]:
        """A new item: its place, and itself."""
        item = {"id": self.scene.ids.new(PREFIXES[kind] + "_"), "type": kind, **data}
        if kind == "reasoning":
            self.thought = item["id"]
        elif self.thought is not None:
            self.scene.memory.setdefault("needs", {})[item["id"]] = self.thought
        self.items.append(item)
        self.names.append(name)
        return len(self.items) - 1, item

    def added(self, place: int, item: dict[str, Any]) -> bytes:
        return self.event("response.output_item.added", output_index=place, item=item)

    def done(self, place: int, item: dict[str, Any]) -> bytes:
        return self.event("response.output_item.done", output_index=place, item=item)

    def text(self, piece: Say, name: str) -> list[Frame]:
        place, item = self.begin("message", name, role="assistant", status="in_progress", content=[])
        where = {"item_id": item["id"], "output_index": place, "content_index": 0}
        part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        begun = self.added(place, dict(item)) + self.event("response.content_part.added", **where, part=part)
        frames = [Frame(begun, "")]
        said = ""
        for at, text in enumerate(piece.fragments):
            said += text
            whole = {**part, "text": said}
            close = self.event("response.output_text.done", **where, text=said, logprobs=[])
            close += self.event("response.content_part.done", **where, part=whole)
            close += self.done(place, {**item, "status": "incomplete", "content": [whole]})
            delta = self.event("response.output_text.delta", **where, delta=text, logprobs=[])
            frames.append(Frame(delta, f"{name}:{at}", text, close))
        item.update(status="completed", content=[{**part, "text": said}])
        return [*frames, Frame(close, f"{name}.end")]

    def think(self, piece: Think, name: str) -> list[Frame]:
        place, item = self.begin("reasoning", name, summary=[])
        where = {"item_id": item["id"], "output_index": place, "summary_index": 0}
        part = {"type": "summary_text", "text": ""}
        begun = self.added(place, dict(item)) + self.event("response.reasoning_summary_part.added", **where, part=part)
        frames = [Frame(begun, "")]
        secret = {"encrypted_content": "encrypted-" + item["id"]} if self.encrypted else {}
        said = ""
        for at, text in enumerate(piece.fragments):
            said += text
            close = self.done(place, {**item, **secret, "summary": [{**part, "text": said}]})
            delta = self.event("response.reasoning_summary_text.delta", **where, delta=text)
            frames.append(Frame(delta, f"{name}:{at}", close=close))
        item.update(summary=[{**part, "text": said}], **secret)
        return [*frames, Frame(close, f"{name}.end")]

    def search(self, piece: Search, count: int) -> list[Frame]:
        action = {"type": "search", "query": piece.query}
        place, item = self.begin("web_search_call", f"search{count}", status="in_progress", action=action)
        where = {"item_id": item["id"], "output_index": place}
        done = self.done(place, {**item, "status": "completed"})
        begun = self.added(place, dict(item)) + self.event("response.web_search_call.in_progress", **where)
        item["status"] = "completed"
        return [
            Frame(begun, f"search{count}:0", close=done),
            Frame(self.event("response.web_search_call.searching", **where), f"search{count}:1", close=done),
            Frame(self.event("response.web_search_call.completed", **where) + done, f"found{count}.end"),
        ]

    def call(self, piece: Call, name: str) -> list[Frame]:
        call_id = self.scene.ids.new("call_")
        place, item = self.begin("function_call", name, status="in_progress", call_id=call_id, name=piece.name, arguments="")
        self.calls.append(call_id)
        where = {"item_id": item["id"], "output_index": place}
        frames = [
            Frame(self.added(place, dict(item)), f"{name}.name", close=self.done(place, {**item, "status": "incomplete"}))
        ]
        said = ""
        for at, text in enumerate(piece.fragments()):
            said += text
            close = self.event("response.function_call_arguments.done", **where, arguments=said, name=piece.name)
            close += self.done(place, {**item, "status": "incomplete", "arguments": said})
            delta = self.event("response.function_call_arguments.delta", **where, delta=text)
            frames.append(Frame(delta, f"{name}:{at}", close=close))
        item.update(status="completed", arguments=said)
        return [*frames, Frame(close, f"{name}.end")]
