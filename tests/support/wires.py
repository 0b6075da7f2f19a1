"""The real client packages of OpenAI and Anthropic. Their answers come from lists of events, and nothing is sent."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

import pytest


def _played(package: Any, events: Sequence[dict[str, Any]]) -> Any:
    """Return an HTTP client of the kind that the package takes. It answers every request with these server-sent events."""
    kind = package.DefaultHttpxClient
    # Newer releases of these packages contain an HTTP client with another name.
    http = sys.modules[kind.__mro__[1].__module__.partition(".")[0]]
    body = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)

    def answer(request: Any) -> Any:
        return http.Response(200, headers={"content-type": "text/event-stream"}, text=body)

    return kind(transport=http.MockTransport(answer))


def responses(events: Sequence[dict[str, Any]], **options: Any) -> Any:
    """Return ChatOpenAI on the Responses API."""
    adapter = pytest.importorskip("langchain_openai")
    played = _played(pytest.importorskip("openai"), events)
    return adapter.ChatOpenAI(
        model="gpt-5", api_key="none", use_responses_api=True, max_retries=0, http_client=played, **options
    )


def anthropic(events: Sequence[dict[str, Any]], **options: Any) -> Any:
    """Return ChatAnthropic."""
    adapter = pytest.importorskip("langchain_anthropic")
    client = pytest.importorskip("anthropic")
    model = adapter.ChatAnthropic(model="claude-x", api_key="none", max_retries=0, **options)
    model.__dict__["_client"] = client.Anthropic(api_key="none", http_client=_played(client, events), max_retries=0)
    return model


# --- what they answer ---------------------------------------------------------------------------------------------------

_RESPONSE = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1,
    "model": "gpt-5",
    "output": [],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
}
ITEMS: dict[str, dict[str, Any]] = {
    "web_search_call": {"id": "ws_1", "status": "completed", "action": {"type": "search", "query": "rice"}},
    "file_search_call": {"id": "fs_1", "status": "completed", "queries": ["rice"], "results": None},
    "code_interpreter_call": {
        "id": "ci_1",
        "status": "completed",
        "code": "1+1",
        "container_id": "cntr_1",
        "outputs": [{"type": "logs", "logs": "2"}],
    },
    "mcp_list_tools": {"id": "mcpl_1", "server_label": "docs", "tools": []},
    "mcp_call": {"id": "mcp_1", "server_label": "docs", "name": "ask", "arguments": "{}", "output": "yes"},
    "mcp_approval_request": {"id": "mcpr_1", "server_label": "docs", "name": "ask", "arguments": "{}"},
    "image_generation_call": {"id": "ig_1", "status": "completed", "result": "aW1hZ2U="},
    "tool_search_call": {"id": "tsc_1", "status": "completed", "execution": "server", "arguments": {"query": "x"}},
    "compaction": {"id": "cmp_1", "encrypted_content": "sealed"},
}
"""What OpenAI's own tools leave in a response, by the kind of the item."""


def openai_events(kinds: Sequence[str], words: Sequence[str]) -> list[dict[str, Any]]:
    """Return a response with a reasoning item before each item of a tool, and words. It never completes."""
    events: list[dict[str, Any]] = [{"type": "response.created", "response": _RESPONSE}]
    for at, kind in enumerate(kinds):
        thought = {"type": "reasoning", "id": f"rs_{at}", "summary": []}
        sealed = {**thought, "encrypted_content": "sealed"}
        item = {"type": kind, **ITEMS[kind]}
        events += [
            {"type": "response.output_item.added", "output_index": 2 * at, "item": thought},
            {"type": "response.output_item.done", "output_index": 2 * at, "item": sealed},
            {"type": "response.output_item.added", "output_index": 2 * at + 1, "item": {**item, "status": "in_progress"}},
            {"type": "response.output_item.done", "output_index": 2 * at + 1, "item": item},
        ]
    place = {"output_index": 2 * len(kinds), "content_index": 0, "item_id": "msg_1"}
    if words:
        message = {"type": "message", "id": "msg_1", "role": "assistant", "status": "in_progress", "content": []}
        events.append({"type": "response.output_item.added", "output_index": 2 * len(kinds), "item": message})
    events += [{"type": "response.output_text.delta", "delta": word, "logprobs": [], **place} for word in words]
    return [{"sequence_number": number, **event} for number, event in enumerate(events)]


SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
SEALED = {"type": "redacted_thinking", "data": "sealed"}
SIGNED = {"type": "thinking", "thinking": "hm", "signature": "s"}
TEXT = {"type": "text", "text": "", "citations": None}


def anthropic_events(*blocks: tuple[dict[str, Any], Sequence[str]]) -> list[dict[str, Any]]:
    """Return a message with these blocks, each with the pieces that are added to it. The last one is not stopped."""
    usage = {"input_tokens": 1, "output_tokens": 1}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-x", "content": []}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**message, "stop_reason": None, "stop_sequence": None, "usage": usage}}
    ]
    for index, (block, pieces) in enumerate(blocks):
        kind, key = ("text_delta", "text") if block["type"] == "text" else ("input_json_delta", "partial_json")
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events += [{"type": "content_block_delta", "index": index, "delta": {"type": kind, key: piece}} for piece in pieces]
        if index + 1 < len(blocks):
            events.append({"type": "content_block_stop", "index": index})
    return events
