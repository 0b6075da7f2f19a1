"""What the providers' own adapters make of a history, with and without repair, held against the providers' rules.

Nothing is sent: an adapter turns messages into a request, and the rules that the provider would apply to it are here. An
adapter that is not installed is skipped.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langchain_runjournal import JournalCallbackHandler, RunJournal, is_partial
from langchain_runjournal.guard.projection import project
from langchain_runjournal.messages.tool_results import CallKnowledge
from tests.support import wires as _wires
from tests.support.histories import became, history

pytestmark = pytest.mark.guarantee("tool pairs")

Messages = list[BaseMessage]


# --- the rules ----------------------------------------------------------------------------------------------------------


def anthropic_problems(messages: Messages) -> list[str]:
    """Every tool_use is answered at the beginning of the next message, once; nothing else is; the user has the last word."""
    adapter = pytest.importorskip("langchain_anthropic")
    payload = adapter.ChatAnthropic(model="claude-sonnet-4-5", api_key="none")._get_request_payload(messages)
    found = []
    due: list[str] = []
    for message in payload["messages"]:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        answered = []
        for at, block in enumerate(blocks):
            if block["type"] == "tool_result":
                answered.append(block["tool_use_id"])
                if at >= len(answered):
                    found.append("a result behind something else")
            if block["type"] == "text" and not block["text"].strip():
                found.append("blank text")
        if sorted(answered) != sorted(due):
            found.append(f"results of {answered} where {due} were due")
        found += [f"invalid block {block['type']}" for block in blocks if not _is_anthropics(block["type"])]
        served = [block["id"] for block in blocks if block["type"] == "server_tool_use"]
        found += [f"no result of {id}" for id in served if id not in {block.get("tool_use_id") for block in blocks}]
        calls = [block for block in blocks if block["type"] == "tool_use"]
        if not all(call["name"] for call in calls):
            found.append("a call that is no call")
        due = [call["id"] for call in calls]
        if not blocks or blocks[-1]["type"] in ("thinking", "redacted_thinking"):
            found.append("nothing but thought at the end")
    if due or payload["messages"][-1]["role"] != "user":
        found.append("the user has not the last word")
    return found


def _is_anthropics(kind: str) -> bool:
    own = ("text", "image", "thinking", "redacted_thinking", "tool_use", "tool_result", "server_tool_use")
    return kind in own or kind.endswith("_tool_result")


def chat_problems(messages: Messages) -> list[str]:
    """Tool messages stand directly behind the message with their calls, one for each; arguments are JSON."""
    adapter = pytest.importorskip("langchain_openai")
    model = adapter.ChatOpenAI(model="gpt-4.1", api_key="none", use_responses_api=False)
    found = []
    due: list[str] = []
    for message in model._get_request_payload(messages)["messages"]:
        if message["role"] == "tool":
            if message["tool_call_id"] not in due:
                found.append(f"result of {message['tool_call_id']} where {due} were due")
            else:
                due.remove(message["tool_call_id"])
            continue
        if due:
            found.append(f"no result of {due}")
        calls = message.get("tool_calls") or []
        due = [call["id"] for call in calls]
        functions = [call["function"] for call in calls]
        if not all(one["name"] and _is_json(one["arguments"]) for one in functions):
            found.append("a call that is no call")
        if message["role"] == "assistant" and not calls and not message["content"]:
            found.append("an empty answer")
    return found + (["no result at the end"] if due else [])


def responses_problems(messages: Messages, **options: Any) -> list[str]:
    """Every call has one output behind it, every output a call before it, every thought the item that it led to, and every
    item of OpenAI's own tools the thought that led to it. `options` are ChatOpenAI's."""
    adapter = pytest.importorskip("langchain_openai")
    model = adapter.ChatOpenAI(model="gpt-5", api_key="none", use_responses_api=True, **options)
    items = model._get_request_payload(messages)["input"]
    found = []
    due: list[str] = []
    for before, item, behind in zip([{}, *items], items, [*items[1:], {}], strict=False):
        kind = item.get("type", "message")
        if kind == "function_call":
            due.append(item["call_id"])
            if not item["name"] or not _is_json(item["arguments"]):
                found.append("a call that is no call")
        elif kind == "function_call_output":
            if item["call_id"] in due:
                due.remove(item["call_id"])
            else:
                found.append(f"no tool call found for {item['call_id']}")
        elif kind == "reasoning" and behind.get("type") not in ("message", "function_call", *_wires.ITEMS):
            found.append("reasoning without its following item")
        elif kind in _wires.ITEMS and before.get("type") != "reasoning":
            found.append(f"{kind} was provided without its required 'reasoning' item")
        elif kind == "message" and item["role"] == "assistant":
            if any(not part["text"] for part in item["content"]):
                found.append("an empty answer")
            if "id" in item:
                found.append(f"item {item['id']} of a response that was never stored")
        elif kind not in ("message", "reasoning", "custom_tool_call", "custom_tool_call_output", *_wires.ITEMS):
            found.append(f"invalid value: {kind}")
    return found + [f"no tool output found for {id}" for id in due]


def gemini_problems(messages: Messages) -> list[str]:
    """As many responses as calls, in the turn right behind, of the same names in the same order; and nothing empty."""
    adapter = pytest.importorskip("langchain_google_genai.chat_models")
    found = []
    due: list[str] = []
    for turn in adapter._parse_chat_history(messages, model="gemini-3-pro")[1]:
        answered = [part.function_response.name for part in turn.parts if part.function_response]
        if answered != due:
            found.append(f"responses {answered} where {due} were due")
        due = [part.function_call.name for part in turn.parts if part.function_call]
        if any(part.text == "" and not part.function_call for part in turn.parts if part.text is not None):
            found.append("an empty part")
    return found + (["no response at the end"] if due else [])


def _is_json(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


RULES: dict[str, Callable[[Messages], list[str]]] = {
    "anthropic": anthropic_problems,
    "chat": chat_problems,
    "responses": responses_problems,
    "gemini": gemini_problems,
}
ALL = "anthropic chat responses gemini"

# --- the histories ------------------------------------------------------------------------------------------------------

# The providers that refuse the history as it is. Some adapters leave out what they cannot pair; then the call is lost, but
# the request is taken.
BROKEN = [
    ("U A(c1) U", ALL),
    ("U a(c1) U", ALL),
    ("U A(c1,c2,c3) T(c1) U", ALL),
    ("U A(c1,c2) T(c1) U T(c2) U", "anthropic chat"),
    ("U A(c1) U T(c1)", "anthropic chat"),
    ("U A(c1) A(c2) T(c2) U", ALL),
    ("U T(zz) U", "anthropic chat responses"),
    ("U A(c1) T(c1) T(c1) U", "anthropic chat responses"),
    ("U A(c1) T(c1) A T(c1) U", "anthropic chat responses"),
    ("U A(c1) T*(c1) U A T(c1) U", "anthropic chat responses"),
    ("U A(!c1) U", "anthropic chat responses"),
    ("U A(c1,!c2) T(c1) U", "anthropic chat responses"),
    ("U A(?c1) T(c1) U", "anthropic chat responses"),
    ("U a(!c1) U", ALL),
    ("U A~", "anthropic"),
    ("U A(c1) U A~", ALL),
]
WHOLE = ["U", "U A(c1,c2) T(c1) T(c2) U", "U A(c1,c2) T(c2) T(c1)", "U A U A(c1) T(c1) A U", "U A~ U"]


def _in_the_words_of(provider: str, messages: Messages) -> Messages:
    """The same history with its requests in the content as well, as that provider's model would have given them."""
    native = []
    for message in messages:
        if isinstance(message, AIMessage) and (message.tool_calls or message.invalid_tool_calls):
            blocks = _blocks(provider, message)
            metadata = {"model_provider": {"chat": "openai", "responses": "openai"}.get(provider, provider)}
            message = message.model_copy(update={"content": blocks, "response_metadata": metadata})
        native.append(message)
    return native


def _blocks(provider: str, message: AIMessage) -> list[dict[str, Any]]:
    calls = [(call, json.dumps(call["args"])) for call in message.tool_calls]
    calls += [(call, call["args"]) for call in message.invalid_tool_calls]
    text = [{"type": "text", "text": message.content}] if message.content else []
    if provider == "anthropic":
        thought = {"type": "thinking", "thinking": "hm", "signature": "s"}
        asked = [
            {"type": "tool_use", "id": c["id"], "name": c["name"], "input": {}, "partial_json": raw} for c, raw in calls
        ]
        return [thought, *text, *asked]
    asked = []
    for call, raw in calls:
        asked.append({"type": "reasoning", "id": f"rs_{call['id']}", "summary": []})
        item = {"type": "function_call", "id": f"fc_{call['id']}", "call_id": call["id"], "name": call["name"]}
        asked.append({**item, "arguments": raw})
    return [*text, *asked]


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    # Adapters report what they leave out.
    caplog.set_level(logging.CRITICAL)


def _sent(messages: Messages, dangling: Any = "synthesize") -> Messages:
    return project(
        messages, lambda message, request: CallKnowledge(), dangling=dangling, orphans="drop", notes=True
    ).messages


def _problems(provider: str, messages: Messages) -> list[str]:
    try:
        return RULES[provider](messages)
    except (ValueError, TypeError, KeyError) as error:
        return [f"the adapter refuses: {error!r}"]


@pytest.mark.parametrize("provider", list(RULES))
@pytest.mark.parametrize(("text", "refused"), BROKEN, ids=[text for text, _ in BROKEN])
def test_what_the_provider_refuses_is_taken_after_repair(provider: str, text: str, refused: str) -> None:
    """Whatever was broken, and whether the calls are answered or stripped."""
    given = history(text)
    assert bool(_problems(provider, given)) == (provider in refused.split())
    assert _problems(provider, _sent(given)) == []
    assert _problems(provider, _sent(given, "strip")) == []


@pytest.mark.parametrize("provider", ["anthropic", "responses"])
@pytest.mark.parametrize(("text", "refused"), BROKEN, ids=[text for text, _ in BROKEN])
def test_also_in_the_words_of_the_provider(provider: str, text: str, refused: str) -> None:
    """With calls and thoughts in the content, as the provider's own model gives them."""
    given = _in_the_words_of(provider, history(text))
    assert bool(_problems(provider, given)) == (provider in refused.split())
    assert _problems(provider, _sent(given)) == []
    assert _problems(provider, _sent(given, "strip")) == []


@pytest.mark.parametrize("provider", list(RULES))
@pytest.mark.parametrize("text", WHOLE)
def test_what_is_whole_is_taken_as_it_is(provider: str, text: str) -> None:
    """The rules here pass what a provider takes."""
    given = history(text)
    assert _problems(provider, given) == []
    assert became(given, _sent(given)) == became(given, given).replace("0 1 2", "0 1 2'" if "~" in text else "0 1 2")


def test_gemini_gets_results_of_one_tool_in_the_order_of_the_calls() -> None:
    """N13: it has no ids to tell them apart."""
    adapter = pytest.importorskip("langchain_google_genai.chat_models")
    given = history("U A(c1,c2,c3) T(c3) T(c1) U")
    turn = adapter._parse_chat_history(_sent(given), model="gemini-3-pro")[1][2]
    said = [str(part.function_response.response) for part in turn.parts]
    assert len(said) == 3
    assert "result 3" in said[0]
    assert "No result was recorded" in said[1]
    assert "result 2" in said[2]


def test_an_id_that_comes_again_is_answered_again() -> None:
    """Local models count from zero in each turn; chat completions pair by place, and so do we."""
    given = history("U A(c1) T(c1) U A(c1) U")
    assert chat_problems(given) != []
    assert chat_problems(_sent(given)) == []


def test_a_result_of_a_custom_tool_has_openais_own_form() -> None:
    """Also one that was made up."""
    adapter = pytest.importorskip("langchain_openai")
    block = {"type": "custom_tool_call", "id": "ctc_1", "call_id": "c1", "name": "search", "input": "free text"}
    given = [*history("U"), AIMessage([block], tool_calls=[{"id": "c1", "name": "search", "args": {"__arg1": "free text"}}])]
    model = adapter.ChatOpenAI(model="gpt-5", api_key="none", use_responses_api=True)
    last = model._get_request_payload(_sent(given))["input"][-1]
    assert (last["type"], last["call_id"]) == ("custom_tool_call_output", "c1")
    assert "No result was recorded" in last["output"]


def test_an_error_is_told_as_one() -> None:
    """Anthropic is told that a made-up result is an error, and not only in words."""
    adapter = pytest.importorskip("langchain_anthropic")
    payload = adapter.ChatAnthropic(model="claude-sonnet-4-5", api_key="none")._get_request_payload(
        _sent(history("U A(c1)"))
    )
    (block,) = payload["messages"][-1]["content"]
    assert block["is_error"] is True


def test_a_result_without_content_is_taken() -> None:
    """G14: the adapters and providers know what to do with it, so it is left as it is."""
    given = [*history("U A(c1)"), ToolMessage("", tool_call_id="c1", name="search"), *history("U")]
    assert _sent(given) is given
    assert [_problems(provider, given) for provider in RULES] == [[], [], [], []]


# --- what a cut leaves of a real package's stream -------------------------------------------------------------------------


def _partials(model: Any, **options: Any) -> Iterator[AIMessage]:
    """The partial message, if there is one, for a cut after each chunk of the model's answer."""
    after = 0
    while True:
        after += 1
        with RunJournal(":memory:") as journal:
            run_id = uuid4()
            stream = model.stream("?", {"callbacks": [JournalCallbackHandler(journal)], "run_id": run_id}, **options)
            chunks = [chunk for _, chunk in zip(range(after), stream, strict=False)]
            stream.close()
            last = journal.transcript(str(run_id))[-1]
            if len(chunks) < after:
                return  # the stream has come to its end: nothing was cut
            if is_partial(last):
                assert isinstance(last, AIMessage)
                yield last


@pytest.mark.parametrize("version", [None, "v0", "responses/v1", "v1"])
@pytest.mark.parametrize("kind", list(_wires.ITEMS))
def test_a_cut_leaves_no_item_of_openais_own_tools(version: str | None, kind: str) -> None:
    """OpenAI refuses such an item without its reasoning item, in any later request; a message has words or a picture."""
    model = _wires.responses(_wires.openai_events([kind], ["Rice ", "takes"]), output_version=version)
    left = list(_partials(model))
    asked = HumanMessage("and then?")
    assert [responses_problems([asked, one, asked], store=store) for one in left for store in (None, False)] == (
        [[], []] * len(left)
    )
    pictured = [one for one in left if "aW1hZ2U=" in str(one.content)]
    assert {one.text for one in left if one not in pictured or one.text} == {"Rice ", "Rice takes"}
    assert bool(pictured) == (kind == "image_generation_call" and version != "v0")


@pytest.mark.parametrize("version", ["responses/v1", "v1"])
def test_what_a_cut_leaves_follows_the_last_stored_response(version: str) -> None:
    """With `use_previous_response_id`, a response that was cut off is not named, and its words are sent."""
    model = _wires.responses(_wires.openai_events(["web_search_call"], ["Rice "]), output_version=version)
    *_, left = _partials(model)
    whole = AIMessage([{"type": "text", "text": "Yes."}], response_metadata={"id": "resp_0", "model_provider": "openai"})
    model.use_previous_response_id = True
    payload = model._get_request_payload([HumanMessage("?"), whole, HumanMessage("rice?"), left, HumanMessage("?")])
    assert payload["previous_response_id"] == "resp_0"
    assert [one["role"] for one in payload["input"]] == ["user", "assistant", "user"]


SERVED = [(_wires.SIGNED, []), (_wires.SEARCH, ['{"query":', '"rice"}']), (_wires.FOUND, []), (_wires.TEXT, ["Foun", "d"])]
SEALED = [(_wires.TEXT, ["Well"]), (_wires.SEALED, []), (_wires.TEXT, [" then"]), (_wires.SEALED, []), (_wires.TEXT, ["\n"])]


@pytest.mark.parametrize("version", ["v0", "v1"])
@pytest.mark.parametrize("blocks", [SERVED, SEALED, SEALED[1:2]], ids=["search", "sealed", "only sealed"])
def test_a_cut_of_anthropics_leaves_what_it_takes(version: str, blocks: Any) -> None:
    """Its own tools go as pairs or not at all, never as chunks; a sealed thought does not count as an answer."""
    model = _wires.anthropic(_wires.anthropic_events(*blocks), output_version=version)
    left = list(_partials(model, tools=[{"type": "web_search_20250305", "name": "web_search"}]))
    asked = HumanMessage("and then?")
    assert [anthropic_problems([asked, one, asked]) for one in left] == [[]] * len(left)
    assert all(one.text for one in left)
    if blocks is SERVED:
        sent = model._get_request_payload([asked, left[-1], asked])["messages"][1]["content"]
        kinds = [block["type"] for block in sent]
        # The first block of all is mixed up with an empty text by LangChain's standard form.
        assert kinds[-3:] == ["server_tool_use", "web_search_tool_result", "text"]
        assert sent[-3]["input"] == {"query": "rice"}
        assert "partial_json" not in sent[-3]


@pytest.mark.parametrize("metadata", [{}, {"output_version": "v1"}])
def test_strings_among_blocks_reach_every_provider(metadata: dict[str, Any]) -> None:
    """Text that stood behind a thought which is gone is sent: not refused, and not left out."""
    said = ["Rice ", {"type": "text", "text": "takes "}, "20 minutes", {"type": "thinking", "thinking": "hm"}]
    call = {"type": "tool_call", "id": "c", "name": "f", "args": {}}
    asking = AIMessage([*said, call], tool_calls=[{"id": "c", "name": "f", "args": {}}], response_metadata=metadata)
    (left,) = project(
        [asking], lambda message, request: CallKnowledge(), dangling="strip", orphans="drop", notes=False
    ).messages
    assert left.text == "Rice takes 20 minutes"
    # Packages read a text letter by letter where they look for standard blocks.
    assert isinstance(left.content, list) == bool(metadata)
    assert all(isinstance(block, dict) for block in left.content) or not metadata
    model = pytest.importorskip("langchain_openai").ChatOpenAI(model="gpt-5", api_key="none", use_responses_api=True)
    items = model._get_request_payload([left])["input"]
    assert "".join(part["text"] for item in items for part in item["content"]) == left.text
