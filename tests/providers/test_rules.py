"""What the server refuses, without a client: each rule once, in the words of the provider."""

from __future__ import annotations

from typing import Any

import pytest

from tests.providers._server import Scene, Wire
from tests.providers._wire_anthropic import Anthropic
from tests.providers._wire_chat import Chat, DeepSeek, Groq, Strict
from tests.providers._wire_gemini import Gemini
from tests.providers._wire_mistral import Mistral
from tests.providers._wire_ollama import Ollama
from tests.providers._wire_responses import Responses

USER = {"role": "user", "content": "Hello"}
SAID = {"role": "assistant", "content": "Well."}


def calls(*ids: Any, arguments: Any = "{}", name: str = "look", **more: Any) -> dict[str, Any]:
    """An answer with calls, as chat completions have it."""
    functions = [{"id": id, "type": "function", "function": {"name": name, "arguments": arguments}} for id in ids]
    return {"role": "assistant", "content": None, "tool_calls": functions, **more}


def result(id: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": "sunny"}


def uses(*ids: str) -> dict[str, Any]:
    """An answer with calls, as Anthropic has it."""
    return said(*({"type": "tool_use", "id": id, "name": "look", "input": {}} for id in ids))


def results(*ids: str, first: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    return {
        "role": "user",
        "content": [*first, *({"type": "tool_result", "tool_use_id": id, "content": "sunny"} for id in ids)],
    }


def said(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def item(kind: str, id: str | None = None, **more: Any) -> dict[str, Any]:
    """An item of the Responses API."""
    return {"type": kind, **({"id": id} if id else {}), **more}


def turn(role: str, *parts: dict[str, Any]) -> dict[str, Any]:
    """A content of Gemini."""
    return {"role": role, "parts": list(parts)}


ASKED = item("message", role="user", content="Hello")
FUNCTION = item("function_call", call_id="c1", name="look", arguments="{}")
OUTPUT = item("function_call_output", call_id="c1", output="sunny")
SERVER_TOOL = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}
SERVER_RESULT = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}
HELLO, CALLED = turn("user", {"text": "Hello"}), turn("model", {"functionCall": {"name": "look", "args": {}}})
ANSWERED = turn("user", {"functionResponse": {"name": "look", "response": {}}})

TAKEN: list[tuple[Wire, list[dict[str, Any]]]] = [
    (Chat(), [USER, calls("c1", "c2"), result("c2"), result("c1"), USER]),
    (Chat(), [USER, USER]),
    (Strict(), [USER, calls("c1"), result("c1"), SAID, USER]),
    (Groq(), [USER, {"role": "assistant", "content": [text("Well.")]}, USER]),
    (Anthropic(), [USER, uses("t1"), results("t1"), USER]),
    (Anthropic(), [USER, said(SERVER_TOOL, SERVER_RESULT, text("Well.")), USER]),
    (Responses(), [ASKED, FUNCTION, OUTPUT, ASKED]),
    (Gemini(), [HELLO, CALLED, ANSWERED, HELLO]),
    (Mistral(), [USER, calls("abcdefghi"), result("abcdefghi"), SAID, USER]),
    (Mistral(), [USER, USER]),
    (Ollama(), [USER, calls("c1", arguments={}), result("c1"), USER]),
]
REFUSED: list[tuple[Wire, list[dict[str, Any]], str]] = [
    (Chat(), [USER, calls("c1", "c2"), result("c1"), USER], "did not have response messages: c2"),
    (Chat(), [USER, calls("c1"), USER, result("c1")], "did not have response messages: c1"),
    (Chat(), [USER, result("c1")], "must be a response to a preceeding message"),
    (Chat(), [USER, calls("c1"), result("c1"), result("c1")], "must be a response to a preceeding message"),
    (Chat(), [USER, calls(None), USER], "tool_calls[0].id': expected a string, but got null"),
    (Chat(), [USER, calls("c1", name="")], "function.name'"),
    (Chat(), [USER, {**calls(), "content": "Well."}], "tool_calls': empty array"),
    (Chat(), [USER, {"role": "assistant", "content": None}], "expected a string, got null"),
    (Chat(), [USER, said("Well.")], "expected an object, but got a string"),
    (Chat(), [USER, said()], "empty array"),
    (Chat(), [USER, said({"type": "thinking", "thinking": "?"})], "Supported values are"),
    (DeepSeek(), [USER, calls("c1"), USER], "insufficient tool messages"),
    (DeepSeek(), [USER, said("Well.")], "Failed to deserialize"),
    (Groq(), [USER, said("Well.")], "value must be a string"),
    (Strict(), [USER, USER], "must alternate"),
    (Strict(), [USER, calls("c1"), result("c1"), USER], "must alternate"),
    (Anthropic(), [USER, uses("t1"), USER], "without `tool_result` blocks immediately after: t1"),
    (Anthropic(), [USER, uses("t1"), results("t1", first=(text("and"),))], "without `tool_result` blocks immediately after"),
    (Anthropic(), [USER, uses("t1"), results("t1", "t2")], "unexpected `tool_use_id` found in `tool_result` blocks: t2"),
    (Anthropic(), [USER, uses("t1")], "without `tool_result` blocks immediately after"),
    (Anthropic(), [USER, uses("t1"), results("t1"), uses("t1"), results("t1")], "ids must be unique"),
    (Anthropic(), [USER, said(), USER], "must have non-empty content"),
    (Anthropic(), [USER, said(text("")), USER], "must be non-empty"),
    (Anthropic(), [USER, said(text(" \n")), USER], "must contain non-whitespace"),
    (Anthropic(), [USER, said({**text("Well."), "index": 0}), USER], "text.index: Extra inputs are not permitted"),
    (
        Anthropic(),
        [USER, said({"type": "thinking", "thinking": "?"}, text("W")), USER],
        "thinking.signature: Field required",
    ),
    (
        Anthropic(),
        [USER, said({"type": "thinking", "thinking": "?", "signature": "s"}, text("W")), USER],
        "Invalid `signature`",
    ),
    (Anthropic(), [USER, said({"type": "redacted_thinking", "data": "x"}, text("W")), USER], "Invalid `data`"),
    (Anthropic(), [USER, said(SERVER_TOOL, text("W")), USER], "without a corresponding `web_search_tool_result`"),
    (Anthropic(), [USER, said(SERVER_RESULT, text("W")), USER], "found in `web_search_tool_result` blocks: s1"),
    (Anthropic(), [USER, said({"type": "server_tool_call_chunk"}, text("W")), USER], "tag 'server_tool_call_chunk'"),
    (Anthropic(), [USER, SAID], "does not support assistant message prefill"),
    (Responses(), [ASKED, FUNCTION, ASKED], "No tool output found for function call c1"),
    (Responses(), [ASKED, OUTPUT], "No tool call found for function call output with call_id c1"),
    (Responses(), [ASKED, item("reasoning", encrypted_content="x"), ASKED], "without its required following item"),
    (Responses(), [ASKED, item("reasoning", "rs_0", summary=[]), FUNCTION, OUTPUT], "Item with id 'rs_0' not found"),
    (Responses(), [ASKED, item("message", "msg_0", role="assistant", content="W")], "Item with id 'msg_0' not found"),
    (
        Responses(),
        [ASKED, item("web_search_call", "ws_1", status="completed")],
        "without its required 'reasoning' item: 'rs_1'",
    ),
    (Responses(), [ASKED, item("message", "lc_1", role="assistant", content="W")], "Expected an ID that begins with 'msg'"),
    (Responses(), [ASKED, {**FUNCTION, "call_id": None}], "call_id': expected a string, but got null"),
    (Gemini(), [HELLO, CALLED, HELLO], "number of function response parts is equal"),
    (Gemini(), [HELLO, CALLED, turn("user", *ANSWERED["parts"] * 2)], "number of function response parts is equal"),
    (Gemini(), [HELLO, ANSWERED], "comes immediately after a function call turn"),
    (Gemini(), [HELLO, turn("model", {"text": "W"}), CALLED, ANSWERED], "call turn comes immediately after a user turn"),
    (Gemini(), [HELLO, turn("model"), HELLO], "contents.parts must not be empty"),
    (Gemini(), [HELLO, turn("model", {"text": ""}), HELLO], "required oneof field 'data'"),
    (Mistral(), [USER, calls("abcdefghi"), result("abcdefghi"), USER], "Unexpected role 'user' after role 'tool'"),
    (Mistral(), [USER, result("abcdefghi")], "Unexpected role 'tool' after role 'user'"),
    (Mistral(), [USER, calls("abcdefghi"), USER], "Not the same number of function calls and responses"),
    (Mistral(), [USER, calls("call_1"), result("call_1")], "must be a-z, A-Z, 0-9, with a length of 9"),
    (Mistral(), [USER, {"role": "assistant", "content": ""}, USER], "must have either content or tool_calls"),
    (Mistral(), [USER, said("Well."), USER], "Input should be a valid dictionary"),
    (Mistral(), [USER, SAID], "Expected last role User or Tool"),
    (Ollama(), [USER, said(text("Well."))], "cannot unmarshal array"),
    (Ollama(), [USER, calls("c1", content="")], "cannot unmarshal string"),
]


def answer(wire: Wire, messages: list[dict[str, Any]], **more: Any) -> str | None:
    scene = Scene(wire, memory={"needs": {"ws_1": "rs_1"}})
    return wire.check({"messages": messages, "input": messages, "contents": messages, **more}, scene)


@pytest.mark.parametrize(("wire", "messages"), TAKEN, ids=lambda one: type(one).__name__)
def test_a_history_in_order_is_taken(wire: Wire, messages: list[dict[str, Any]]) -> None:
    """What the provider's documentation shows."""
    assert answer(wire, messages) is None


@pytest.mark.parametrize(("wire", "messages", "words"), REFUSED, ids=lambda one: one if isinstance(one, str) else None)
def test_a_history_that_is_not_is_refused(wire: Wire, messages: list[dict[str, Any]], words: str) -> None:
    """HTTP 400, and why."""
    assert words in (answer(wire, messages) or "taken")


def test_a_response_that_was_not_stored_cannot_be_gone_on_with() -> None:
    """Only one that came to its end is."""
    assert "Previous response with id 'resp_1' not found" in (
        answer(Responses(), [ASKED], previous_response_id="resp_1") or ""
    )
