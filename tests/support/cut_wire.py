"""A provider on this machine that gives prepared answers, and the clients that ask it.

Each wire speaks one provider's protocol: a streamed or whole answer with tool calls, and with or without the reason for its
end. The tests give the arguments of the calls as the text that goes over the wire.
"""

from __future__ import annotations

import binascii
import itertools
import json
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

_ids = itertools.count(1)
Calls = list[tuple[str, str, str]]
"""The id, the name and the arguments of each call."""


@dataclass
class Answer:
    """The next answer of the server."""

    body: bytes
    kind: str = "text/event-stream"


@dataclass
class Wire:
    """A server, its answers to come, and the requests that it got."""

    url: str
    answers: list[Answer] = field(default_factory=list)
    asked: list[Any] = field(default_factory=list)


@contextmanager
def wire() -> Iterator[Wire]:
    """Run a server that gives one answer after the other to all requests."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers.get("content-length") or 0)
            found.asked.append(json.loads(self.rfile.read(length) or b"null"))
            answer = found.answers.pop(0)
            self.send_response(200)
            self.send_header("content-type", answer.kind)
            self.send_header("content-length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    found = Wire(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def sse(*events: Any, named: bool = False, done: bool = False) -> Answer:
    lines = []
    for event in events:
        if named:
            lines.append(f"event: {event['type']}\n")
        lines.append(f"data: {json.dumps(event)}\n\n")
    return Answer("".join([*lines, "data: [DONE]\n\n" if done else ""]).encode())


def whole(value: Any) -> Answer:
    return Answer(json.dumps(value).encode(), "application/json")


def halves(text: str) -> list[str]:
    return [text[: len(text) // 2], text[len(text) // 2 :]]


# --- the protocols ------------------------------------------------------------------------------------------------------


def chat(calls: Calls, reason: str | None, *, stream: bool, text: str = "") -> Answer:
    """Write OpenAI's chat completions, a protocol that a dozen other providers speak as well."""
    about = {"id": f"chatcmpl-{next(_ids)}", "created": 1, "model": "m"}
    if not stream:
        asked = [{"id": id, "type": "function", "function": {"name": name, "arguments": args}} for id, name, args in calls]
        message: Any = {"role": "assistant", "content": text or None}
        if asked:
            message["tool_calls"] = asked
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        choice = {"index": 0, "message": message, "finish_reason": reason}
        return whole({**about, "object": "chat.completion", "choices": [choice], "usage": usage})
    deltas: list[Any] = [{"role": "assistant", "content": text}]
    for index, (id, name, args) in enumerate(calls):
        begun = {"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": ""}}
        deltas.append({"tool_calls": [begun]})
        deltas += [{"tool_calls": [{"index": index, "function": {"arguments": half}}]} for half in halves(args)]
    chunks = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    if reason:
        chunks.append({"index": 0, "delta": {}, "finish_reason": reason})
    events = [{**about, "object": "chat.completion.chunk", "choices": [chunk]} for chunk in chunks]
    return sse(*events, done=bool(reason))


def mistral(calls: Calls, reason: str | None, *, stream: bool, text: str = "") -> Answer:
    """Write Mistral's chat completions. In a stream, each call comes in one piece."""
    if not stream:
        return chat(calls, reason, stream=False, text=text)
    asked = [
        {"index": index, "id": id, "function": {"name": name, "arguments": args}}
        for index, (id, name, args) in enumerate(calls)
    ]
    about = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    first = {"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": None}
    last = {"index": 0, "delta": {"content": "", "tool_calls": asked}, "finish_reason": reason}
    return sse({**about, "choices": [first]}, {**about, "choices": [last]}, done=bool(reason))


def responses(calls: Calls, reason: str | None, *, stream: bool, text: str = "") -> Answer:
    """Write OpenAI's Responses."""
    about: Any = {"id": f"resp_{next(_ids)}", "object": "response", "created_at": 1, "model": "m", "tools": [], "output": []}
    about |= {"parallel_tool_calls": True, "tool_choice": "auto", "error": None, "incomplete_details": None}
    items: list[Any] = []
    if text:
        part = {"type": "output_text", "text": text, "annotations": []}
        items.append(
            {"type": "message", "id": f"msg_{next(_ids)}", "role": "assistant", "status": "completed", "content": [part]}
        )
    status = "incomplete" if reason == "max_output_tokens" else "completed"
    for place, (id, name, args) in enumerate(calls):
        of_item = "incomplete" if status == "incomplete" and place == len(calls) - 1 else "completed"
        item = {"type": "function_call", "id": f"fc_{id}", "call_id": id, "name": name, "arguments": args}
        items.append({**item, "status": of_item})
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    usage |= {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    ended = {**about, "status": status, "output": items, "usage": usage}
    if status == "incomplete":
        ended["incomplete_details"] = {"reason": reason}
    if not stream:
        return whole(ended)
    events: list[Any] = [{"type": "response.created", "response": {**about, "status": "in_progress"}}]
    for index, item in enumerate(items):
        if item["type"] == "message":
            events.append({"type": "response.output_item.added", "output_index": index, "item": {**item, "content": []}})
            part = {"type": "output_text", "text": "", "annotations": []}
            place = {"item_id": item["id"], "output_index": index, "content_index": 0}
            events.append({"type": "response.content_part.added", **place, "part": part})
            events.append({"type": "response.output_text.delta", **place, "delta": text, "logprobs": []})
            continue
        begun = {**item, "arguments": "", "status": "in_progress"}
        events.append({"type": "response.output_item.added", "output_index": index, "item": begun})
        for half in halves(item["arguments"]):
            place = {"item_id": item["id"], "output_index": index}
            events.append({"type": "response.function_call_arguments.delta", **place, "delta": half})
        if item["status"] == "completed" and reason:
            events.append({"type": "response.output_item.done", "output_index": index, "item": item})
    if reason:
        events.append({"type": f"response.{status}", "response": ended})
    return sse(*({**event, "sequence_number": at} for at, event in enumerate(events)), named=True)


def anthropic(calls: Calls, reason: str | None, *, stream: bool, text: str = "") -> Answer:
    """Write Anthropic's messages."""
    about: Any = {"id": f"msg_{next(_ids)}", "type": "message", "role": "assistant", "model": "m", "stop_sequence": None}
    if not stream:
        content: list[Any] = [{"type": "text", "text": text}] if text else []
        content += [{"type": "tool_use", "id": id, "name": name, "input": _read(args)} for id, name, args in calls]
        usage = {"input_tokens": 1, "output_tokens": 1}
        return whole({**about, "content": content, "stop_reason": reason, "usage": usage})
    begun = {**about, "content": [], "stop_reason": None, "usage": {"input_tokens": 1, "output_tokens": 1}}
    events: list[Any] = [{"type": "message_start", "message": begun}]
    index = 0
    if text:
        events.append({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}})
        events.append({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}})
        events.append({"type": "content_block_stop", "index": 0})
        index = 1
    for place, (id, name, args) in enumerate(calls):
        block = {"type": "tool_use", "id": id, "name": name, "input": {}}
        events.append({"type": "content_block_start", "index": index + place, "content_block": block})
        for half in halves(args):
            delta = {"type": "input_json_delta", "partial_json": half}
            events.append({"type": "content_block_delta", "index": index + place, "delta": delta})
        if reason or place < len(calls) - 1:
            events.append({"type": "content_block_stop", "index": index + place})
    if reason:
        delta = {"stop_reason": reason, "stop_sequence": None}
        events.append({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 2}})
        events.append({"type": "message_stop"})
    return sse(*events, named=True)


def gemini(calls: Calls, reason: str | None, *, stream: bool, text: str = "") -> Answer:
    """Write Google's protocol. It sends each call whole, so only the rest of the answer can be missing."""
    parts: list[Any] = [{"text": text}] if text else []
    parts += [{"functionCall": {"name": name, "args": _read(args)}} for _, name, args in calls]
    usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
    ended: Any = {"index": 0, "content": {"role": "model", "parts": parts}}
    if not stream:
        return whole({"candidates": [{**ended, **({"finishReason": reason} if reason else {})}], "usageMetadata": usage})
    events = [{"candidates": [ended], "usageMetadata": usage}]
    if reason:
        last = {"index": 0, "content": {"role": "model", "parts": [{"text": ""}]}, "finishReason": reason}
        events.append({"candidates": [last], "usageMetadata": usage})
    return sse(*events)


def ollama(calls: Calls, reason: str | None, *, stream: bool, text: str = "") -> Answer:
    """Write Ollama's lines. It sends each call whole as well."""
    asked = [{"function": {"name": name, "arguments": _read(args)}} for _, name, args in calls]
    message = {"role": "assistant", "content": text, "tool_calls": asked}
    about = {"model": "m", "created_at": "2026-01-01T00:00:00Z"}
    end = {"done": True, "done_reason": reason, "total_duration": 1, "eval_count": 1, "prompt_eval_count": 1}
    lines: list[Any] = [{**about, "message": message, "done": False}]
    if reason:
        lines.append({**about, "message": {"role": "assistant", "content": ""}, **end})
    return Answer("".join(json.dumps(line) + "\n" for line in lines).encode(), "application/x-ndjson")


def bedrock(calls: Calls, reason: str | None, *, stream: bool, text: str = "") -> Answer:
    """Write Bedrock's Converse, which has frames of its own in a stream."""
    metrics = {"usage": {"inputTokens": 1, "outputTokens": 1, "totalTokens": 2}, "metrics": {"latencyMs": 1}}
    if not stream:
        content: list[Any] = [{"text": text}] if text else []
        content += [{"toolUse": {"toolUseId": id, "name": name, "input": _read(args)}} for id, name, args in calls]
        return whole({"output": {"message": {"role": "assistant", "content": content}}, "stopReason": reason, **metrics})
    events: list[tuple[str, Any]] = [("messageStart", {"role": "assistant"})]
    if text:
        events.append(("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": text}}))
        events.append(("contentBlockStop", {"contentBlockIndex": 0}))
    for index, (id, name, args) in enumerate(calls, start=1 if text else 0):
        start = {"toolUse": {"toolUseId": id, "name": name}}
        events.append(("contentBlockStart", {"contentBlockIndex": index, "start": start}))
        pieces = [{"contentBlockIndex": index, "delta": {"toolUse": {"input": half}}} for half in halves(args)]
        events += [("contentBlockDelta", piece) for piece in pieces]
        events.append(("contentBlockStop", {"contentBlockIndex": index}))
    if reason:
        events += [("messageStop", {"stopReason": reason}), ("metadata", metrics)]
    return Answer(b"".join(_frame(name, event) for name, event in events), "application/vnd.amazon.eventstream")


def _frame(name: str, event: Any) -> bytes:
    fields = {":event-type": name, ":content-type": "application/json", ":message-type": "event"}
    headers = b""
    for key, value in fields.items():
        headers += bytes([len(key)]) + key.encode() + b"\x07" + struct.pack(">H", len(value)) + value.encode()
    payload = json.dumps(event).encode()
    start = struct.pack(">II", 16 + len(headers) + len(payload), len(headers))
    start += struct.pack(">I", binascii.crc32(start))
    message = start + headers + payload
    return message + struct.pack(">I", binascii.crc32(message))


def _read(args: str) -> Any:
    try:
        return json.loads(args)
    except ValueError:
        return {}


# --- the clients --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Client:
    """A real client package: how it is created, which protocol its provider speaks, and how that protocol states why an
    answer ended."""

    name: str
    make: Callable[[str], Any]
    say: Callable[..., Answer]
    done: str
    full: str
    as_text: bool = True
    """Whether arguments come as text, so that a part of them can arrive."""
    fails_early: bool = False
    """Whether the client raises when a stream ends early."""


def _openai(url: str) -> Any:
    package = pytest.importorskip("langchain_openai")
    return package.ChatOpenAI(model="m", api_key="k", base_url=f"{url}/v1", max_retries=0, use_responses_api=False)


def _openai_responses(url: str) -> Any:
    package = pytest.importorskip("langchain_openai")
    return package.ChatOpenAI(model="m", api_key="k", base_url=f"{url}/v1", max_retries=0, use_responses_api=True)


def _anthropic(url: str) -> Any:
    return pytest.importorskip("langchain_anthropic").ChatAnthropic(model="m", api_key="k", base_url=url, max_retries=0)


def _google(url: str) -> Any:
    package = pytest.importorskip("langchain_google_genai")
    return package.ChatGoogleGenerativeAI(model="gemini-2.5-flash", google_api_key="k", base_url=url, max_retries=1)


def _ollama(url: str) -> Any:
    return pytest.importorskip("langchain_ollama").ChatOllama(model="m", base_url=url)


def _deepseek(url: str) -> Any:
    package = pytest.importorskip("langchain_deepseek")
    return package.ChatDeepSeek(model="m", api_key="k", api_base=f"{url}/v1", max_retries=0)


def _mistral(url: str) -> Any:
    return pytest.importorskip("langchain_mistralai").ChatMistralAI(model="m", api_key="k", endpoint=f"{url}/v1")


def _groq(url: str) -> Any:
    return pytest.importorskip("langchain_groq").ChatGroq(model="m", api_key="k", base_url=url, max_retries=0)


def _bedrock(url: str) -> Any:
    package = pytest.importorskip("langchain_aws")
    options = {"aws_access_key_id": "k", "aws_secret_access_key": "k", "region_name": "us-east-1", "endpoint_url": url}
    return package.ChatBedrockConverse(model="anthropic.claude-3-5-sonnet-20240620-v1:0", provider="anthropic", **options)


def _azure(url: str) -> Any:
    package = pytest.importorskip("langchain_openai")
    options = {"azure_endpoint": url, "api_version": "2025-01-01", "max_retries": 0}
    return package.AzureChatOpenAI(azure_deployment="m", model="m", api_key="k", **options)


CLIENTS = [
    Client("openai", _openai, chat, "tool_calls", "length"),
    Client("openai-responses", _openai_responses, responses, "completed", "max_output_tokens"),
    Client("anthropic", _anthropic, anthropic, "tool_use", "max_tokens"),
    Client("google-genai", _google, gemini, "STOP", "MAX_TOKENS", as_text=False),
    Client("ollama", _ollama, ollama, "stop", "length", as_text=False),
    Client("deepseek", _deepseek, chat, "tool_calls", "length"),
    Client("mistralai", _mistral, mistral, "tool_calls", "length"),
    Client("groq", _groq, chat, "tool_calls", "length"),
    Client("aws", _bedrock, bedrock, "tool_use", "max_tokens", fails_early=True),
    Client("azure", _azure, chat, "tool_calls", "length"),
]
