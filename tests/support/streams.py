"""Streams in the shapes of the providers, as their integrations yield them: shortened, with every kind of chunk."""

from __future__ import annotations

import json
from typing import Any

from langchain_core.messages import AIMessageChunk
from langchain_core.messages.tool import tool_call_chunk

USAGE = {"input_tokens": 12, "output_tokens": 34, "total_tokens": 46}


def _chunk(content: Any = "", calls: list[dict[str, Any]] | None = None, **fields: Any) -> AIMessageChunk:
    chunks = [tool_call_chunk(**{"name": None, "args": None, "id": None, "index": None, **call}) for call in calls or ()]
    return AIMessageChunk(content=content, tool_call_chunks=chunks, **fields)


def openai() -> list[AIMessageChunk]:
    """Return chat completions: text, then two tool calls in fragments, then the reason, then the usage."""
    meta = {"model_provider": "openai"}
    id = "chatcmpl-7"
    return [
        _chunk(response_metadata=meta, id=id),
        _chunk("Let me", response_metadata=meta, id=id),
        _chunk(" look\n", response_metadata=meta, id=id),
        _chunk("it up…", response_metadata=meta, id=id),
        _chunk(calls=[{"name": "rm", "args": "", "id": "call_1", "index": 0}], response_metadata=meta, id=id),
        _chunk(calls=[{"args": '{"path": "/tm', "index": 0}], response_metadata=meta, id=id),
        _chunk(calls=[{"args": 'p/a"}', "index": 0}], response_metadata=meta, id=id),
        _chunk(calls=[{"name": "ls", "args": "", "id": "call_2", "index": 1}], response_metadata=meta, id=id),
        _chunk(calls=[{"args": "{}", "index": 1}], response_metadata=meta, id=id),
        _chunk(response_metadata={**meta, "finish_reason": "tool_calls", "model_name": "gpt-x"}, id=id),
        _chunk(usage_metadata=USAGE, response_metadata=meta, id=id),
    ]


def anthropic() -> list[AIMessageChunk]:
    """Return content blocks: thinking with a signature, text, a tool call, a search of the server's own, text again."""
    meta = {"model_provider": "anthropic"}

    def block(**fields: Any) -> AIMessageChunk:
        return _chunk([fields], response_metadata=meta)

    def fragment(text: str, index: int) -> AIMessageChunk:
        content = [{"type": "input_json_delta", "partial_json": text, "index": index}]
        return _chunk(content, [{"args": text, "index": index}], response_metadata=meta)

    return [
        _chunk(
            [],
            response_metadata={**meta, "model_name": "claude-x"},
            usage_metadata={**USAGE, "output_tokens": 0},
            id="msg_1",
        ),
        block(type="thinking", thinking="", index=0),
        block(type="thinking", thinking="The user ", index=0),
        block(type="thinking", thinking="wants it gone.", index=0),
        block(type="thinking", thinking="", signature="c2lnbmVk", index=0),
        block(type="text", text="I will ", index=1),
        block(type="text", text="delete it. ", index=1),
        block(type="server_tool_use", id="srv_1", name="web_search", input={}, index=2),
        _chunk([{"type": "input_json_delta", "partial_json": '{"query": "rm"}', "index": 2}], response_metadata=meta),
        block(
            type="web_search_tool_result", tool_use_id="srv_1", content=[{"type": "web_search_result", "url": "u"}], index=3
        ),
        block(type="text", text="Found. ", index=4, citations=[{"type": "web_search_result_location", "url": "u"}]),
        block(type="text", text="So:", index=4),
        _chunk(
            [{"type": "tool_use", "id": "toolu_1", "name": "rm", "input": {}, "index": 5}],
            [{"name": "rm", "args": "", "id": "toolu_1", "index": 5}],
            response_metadata=meta,
        ),
        fragment('{"path": "/tmp/a', 5),
        fragment('bc", "dry', 5),
        fragment('_run": true}', 5),
        _chunk([], response_metadata={**meta, "stop_reason": "tool_use"}, usage_metadata=USAGE),
    ]


def gemini() -> list[AIMessageChunk]:
    """Return parts: a thought without a signature, text as a string and in parts, a whole call with its signature beside
    it."""
    meta = {"model_provider": "google_genai"}
    return [
        _chunk([{"type": "thinking", "thinking": "Hm. "}], response_metadata=meta, id="lc_run--x"),
        _chunk("Well, ", response_metadata=meta),
        _chunk([{"type": "text", "text": "here "}], response_metadata=meta),
        _chunk("it is", response_metadata=meta),
        _chunk(
            calls=[{"name": "find", "args": '{"q": "x"}', "id": "f1", "index": None}],
            additional_kwargs={"function_call": {"name": "find", "arguments": '{"q": "x"}'}},
            response_metadata=meta,
        ),
        _chunk("", response_metadata={**meta, "finish_reason": "STOP"}, usage_metadata=USAGE),
    ]


def responses() -> list[AIMessageChunk]:
    """Return OpenAI Responses: reasoning items, ids that come late and change, text blocks with item ids, a refusal, a
    call."""
    meta = {"model_provider": "openai"}
    return [
        _chunk([], response_metadata={**meta, "id": "resp_1", "object": "response"}, id="resp_1"),
        _chunk([{"type": "reasoning", "id": "rs_1", "summary": [], "index": 0}], response_metadata=meta),
        _chunk(
            [{"type": "reasoning", "summary": [{"index": 0, "type": "summary_text", "text": "First "}], "index": 0}],
            response_metadata=meta,
        ),
        _chunk(
            [{"type": "reasoning", "summary": [{"index": 0, "type": "summary_text", "text": "this"}], "index": 0}],
            response_metadata=meta,
        ),
        _chunk([{"type": "text", "text": "", "index": 1, "id": "msg_a"}], response_metadata=meta, id="msg_a"),
        _chunk([{"type": "text", "text": "All ", "index": 1}], response_metadata=meta, id="msg_a"),
        _chunk([{"type": "text", "text": "right", "index": 1}], response_metadata=meta, id="msg_b"),
        _chunk(
            [{"type": "text", "annotations": [{"type": "url_citation", "url": "u"}], "index": 1}], response_metadata=meta
        ),
        _chunk(
            [{"type": "function_call", "name": "go", "arguments": "", "call_id": "call_9", "id": "fc_1", "index": 2}],
            [{"name": "go", "args": "", "id": "call_9", "index": 2}],
            response_metadata=meta,
        ),
        _chunk(
            [{"type": "function_call", "arguments": '{"to":', "index": 2}],
            [{"args": '{"to":', "index": 2}],
            response_metadata=meta,
        ),
        _chunk(
            [{"type": "function_call", "arguments": ' "x"}', "index": 2}],
            [{"args": ' "x"}', "index": 2}],
            response_metadata=meta,
        ),
        _chunk([], response_metadata={**meta, "status": "completed"}, usage_metadata=USAGE),
    ]


def standard() -> list[AIMessageChunk]:
    """Return what `output_version="v1"` makes of blocks: standard types, textual indexes, signatures among the extras."""
    meta = {"model_provider": "anthropic", "output_version": "v1"}
    return [
        _chunk([], response_metadata=meta),
        _chunk([{"type": "reasoning", "reasoning": "Hm", "index": "lc_rs_0"}], response_metadata=meta),
        _chunk([{"type": "reasoning", "extras": {"signature": "s"}, "index": "lc_rs_0"}], response_metadata=meta),
        _chunk([{"type": "text", "text": "One ", "index": "lc_txt_1"}], response_metadata=meta),
        _chunk([{"type": "text", "text": "two", "index": "lc_txt_1"}], response_metadata=meta),
        _chunk(
            [{"type": "tool_call_chunk", "name": "go", "args": '{"a"', "id": "t", "index": "lc_tc_2"}],
            [{"name": "go", "args": '{"a"', "id": "t", "index": 2}],
            response_metadata=meta,
        ),
        _chunk(
            [{"type": "tool_call_chunk", "args": ": 1}", "index": "lc_tc_2"}],
            [{"args": ": 1}", "index": 2}],
            response_metadata=meta,
        ),
        _chunk([], response_metadata=meta, usage_metadata=USAGE),
    ]


def odd() -> list[AIMessageChunk]:
    """Return what no provider should send and some do: blanks, half a surrogate pair, other scripts, reasoning on the
    side."""
    return [
        _chunk("\n\n"),
        _chunk("", additional_kwargs={"reasoning_content": "hm "}),
        _chunk("", additional_kwargs={"reasoning_content": "hm"}),
        _chunk("日本\u2028"),
        _chunk("\ud83d"),
        _chunk("👍\x00\x7f"),
    ]


def long_argument() -> tuple[str, list[AIMessageChunk]]:
    """Return a tool call whose argument is 50 kB of escapes, in fragments that end anywhere, also inside an escape."""
    args = json.dumps({"path": "/tmp/a", "text": "äö" * 4_200})
    step = 997  # not a multiple of the length of an escape
    chunks = [_chunk("Writing. "), _chunk(calls=[{"name": "write", "args": "", "id": "w1", "index": 0}])]
    chunks += [_chunk(calls=[{"args": args[at : at + step], "index": 0}]) for at in range(0, len(args), step)]
    return args, chunks


STREAMS = {function.__name__: function for function in (openai, anthropic, gemini, responses, standard, odd)}
