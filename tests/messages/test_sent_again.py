"""Answers that their client took for whole although they were cut off: what of them goes back to the provider."""

from __future__ import annotations

import asyncio
import copy
import json
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langchain_runjournal import is_synthetic, repair_tool_pairs
from langchain_runjournal.guard.projection import is_whole
from langchain_runjournal.messages.cut_calls import find_cut

RESP: dict[str, Any] = {"id": "resp_1", "model_provider": "openai"}
LIMIT: dict[str, Any] = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
CLAUDE: dict[str, Any] = {"model_provider": "anthropic"}
THOUGHT: dict[str, Any] = {"type": "reasoning", "id": "rs_1", "summary": []}
SEARCH: dict[str, Any] = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}}
TEXT: dict[str, Any] = {"type": "text", "text": "Rice ", "id": "msg_1"}
ASKS: dict[str, Any] = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "look", "arguments": "{}"}
CALL: dict[str, Any] = {"type": "tool_call", "id": "c1", "name": "look", "args": {}}
SIGNED: dict[str, Any] = {"type": "thinking", "thinking": "Hm", "signature": "s"}
REDACTED: dict[str, Any] = {"type": "redacted_thinking", "data": "x"}
SERVER: dict[str, Any] = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
FOUND: dict[str, Any] = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
SAID: dict[str, Any] = {"type": "text", "text": "Rice "}


def thread(answer: AIMessage) -> list[BaseMessage]:
    """A thread in which the answer stands, with the results of its calls."""
    results = [ToolMessage("seen", tool_call_id=call["id"]) for call in answer.tool_calls]
    return [HumanMessage("rice?", id="u1"), answer, *results, HumanMessage("and then?", id="u2")]


def sent(answer: AIMessage) -> AIMessage | None:
    """What is sent of it. What is stored stays as it is, and the same comes out each time, also of what has come out."""
    given = thread(answer)
    before = copy.deepcopy(given)
    found = repair_tool_pairs(given)
    assert given == before
    assert repair_tool_pairs(given) == found
    assert repair_tool_pairs(found) is found
    assert [one for one in found if one.type != "ai"] == [one for one in given if one.type != "ai"]
    answers = [one for one in found if isinstance(one, AIMessage)]
    return answers[0] if answers else None


@pytest.mark.parametrize("end", [{}, {"status": "in_progress"}], ids=["early", "in progress"])
@pytest.mark.parametrize("version", ["responses/v1", "v0"])
def test_nothing_of_a_cut_response_refers_to_its_items(version: str, end: Any) -> None:
    """No id, no thought, no search of OpenAI's, and no id of the response to go on from; the words and the call are sent."""
    adapter = pytest.importorskip("langchain_openai")
    content: list[Any] = [THOUGHT, SEARCH, TEXT, ASKS]
    more: dict[str, Any] = {"id": "resp_1"}
    if version == "v0":
        content = [SAID]
        kept = {"reasoning": THOUGHT, "tool_outputs": [SEARCH], "__openai_function_call_ids__": {"c1": "fc_1"}}
        more = {"id": "msg_1", "additional_kwargs": {**kept, "refusal": "I cannot say more."}}
    answer = AIMessage(content, tool_calls=[CALL], response_metadata={**RESP, **end}, **more)
    form = sent(answer)
    assert form is not None
    whole = AIMessage([SAID], response_metadata={"id": "resp_0", "model_provider": "openai", "status": "completed"})
    model = adapter.ChatOpenAI(
        model="gpt-5", api_key="none", output_version=version, use_responses_api=True, use_previous_response_id=True
    )
    results = [ToolMessage("seen", tool_call_id="c1"), HumanMessage("and?")]
    payload = model._get_request_payload([HumanMessage("hi"), whole, HumanMessage("rice?"), form, *results])
    assert payload["previous_response_id"] == "resp_0"
    text = json.dumps(payload["input"])
    assert [id for id in ("rs_1", "ws_1", "msg_1", "fc_1", "resp_1") if id in text] == []
    kinds = [one.get("role", one["type"]) for one in payload["input"]]
    assert [one for one in kinds if one != "message"] == [
        "user",
        *["assistant"] * (2 if version == "v0" else 1),
        "function_call",
        "function_call_output",
        "user",
    ]
    assert "Rice " in text
    assert ("I cannot say more." in text) == (version == "v0")


@pytest.mark.parametrize(
    ("content", "calls", "expected"),
    [
        ([SIGNED, SAID], [], [SIGNED, SAID]),
        ([SAID, SIGNED], [], [SAID]),
        ([REDACTED], [], None),
        ([{"type": "non_standard", "value": REDACTED}], [], None),
        ([SIGNED], [CALL], [SIGNED]),
        ([SIGNED, SERVER], [], None),
        ([SIGNED, SAID, SERVER], [], [SIGNED, SAID]),
        ([SERVER, FOUND, SAID], [], [SERVER, FOUND, SAID]),
        (
            [SIGNED, SAID, {"type": "tool_use", "id": "c1", "name": "look", "input": {}}],
            [CALL],
            [SIGNED, SAID, {"type": "tool_use", "id": "c1", "name": "look", "input": {}}],
        ),
        ([], [], None),
        ("", [], None),
        ("", [CALL], ""),
        ("Rice ", [], "Rice "),
    ],
)
@pytest.mark.parametrize("end", [{}, {"stop_reason": "max_tokens"}], ids=["early", "limit"])
def test_a_cut_answer_is_sent_as_its_provider_takes_it(content: Any, calls: Any, expected: Any, end: Any) -> None:
    """No thought at its end or without a signature, no server's call without its result, or no message."""
    form = sent(AIMessage(content, tool_calls=calls, response_metadata={**CLAUDE, **end}))
    assert (None if form is None else form.content) == expected


def test_a_thought_without_its_signature_is_not_sent() -> None:
    """A provider vouches for it at its end."""
    form = sent(AIMessage([{"type": "thinking", "thinking": "Hm"}, SAID], response_metadata=CLAUDE))
    assert form is not None
    assert form.content == [SAID]


def test_items_beside_the_content_are_no_answer() -> None:
    """A search that OpenAI has never stored, with `output_version="v0"`; a refusal is one."""
    early = AIMessage([], additional_kwargs={"tool_outputs": [SEARCH], "reasoning": THOUGHT}, response_metadata=RESP)
    assert sent(early) is None
    refused = sent(AIMessage([], additional_kwargs={"refusal": "No."}, response_metadata=RESP))
    assert refused is not None
    assert refused.content == [{"type": "refusal", "refusal": "No."}]
    given = AIMessage([{"type": "refusal", "refusal": "No.", "id": "msg_1"}], response_metadata=RESP)
    assert sent(given) == given.model_copy(
        update={"content": refused.content, "response_metadata": {"model_provider": "openai"}}
    )


def test_a_response_at_its_limit_is_stored() -> None:
    """It is sent with its items, and the next one may follow it: behind words, and behind a call that was answered."""
    for content, calls in (([THOUGHT, SEARCH, TEXT], []), ([THOUGHT, TEXT, ASKS], [CALL])):
        given = AIMessage(content, tool_calls=calls, response_metadata={**RESP, **LIMIT})
        assert sent(given) is given


def test_the_ids_of_a_request_to_the_program_stay() -> None:
    """In LangChain's standard form the item's id stands beside that of the call."""
    call = {**CALL, "extras": {"item_id": "fc_1", "more": 1}}
    signatures = {"type": "function_call_signature", "index": 0, "signature": "s"}
    metadata = {**RESP, "output_version": "v1"}
    form = sent(AIMessage([TEXT, call, signatures], tool_calls=[CALL], response_metadata=metadata))
    assert form is not None
    assert form.content == [SAID, {**CALL, "extras": {"more": 1}}, signatures]
    assert form.response_metadata == {"model_provider": "openai", "output_version": "v1"}


@pytest.mark.parametrize(
    "metadata",
    [
        {**RESP, "status": "completed"},
        {"model_provider": "anthropic", "stop_reason": "end_turn"},
        {"model_provider": "google_genai", "finish_reason": "STOP"},
        {"model_provider": "mistralai", "finish_reason": "stop"},
        {"model_provider": "somebody"},
        {},
    ],
)
def test_a_whole_answer_passes_as_it_is(metadata: Any) -> None:
    """So does one of a provider that may give no reason. The list is the same object, found so by the quick look."""
    given = thread(AIMessage([THOUGHT, SEARCH, TEXT, REDACTED], response_metadata=metadata))
    assert repair_tool_pairs(given) is given
    assert is_whole(given)
    words = thread(AIMessage("Rice ", response_metadata={"model_provider": "anthropic"}))
    assert is_whole(words)
    assert repair_tool_pairs(words) is words


@pytest.mark.parametrize("provider", ["mistralai", "bedrock_converse", "google_genai", "ollama", "groq", "deepseek"])
def test_the_providers_are_known_by_the_names_in_their_messages(provider: str) -> None:
    """Two packages write another name there than LangChain gives."""
    assert sent(AIMessage("", response_metadata={"model_provider": provider})) is None


def test_where_nothing_is_left_the_bridge_stands() -> None:
    """Strict templates want an answer between two messages of the user."""
    given = thread(AIMessage("", response_metadata={"model_provider": "openai"}))
    found = repair_tool_pairs(given, bridge=True)
    assert [one.type for one in found] == ["human", "ai", "human"]
    assert is_synthetic(found[1])
    assert repair_tool_pairs(found, bridge=True) is found


def test_a_mark_says_it_where_the_provider_does_not() -> None:
    """A guard has marked the answer, by its arguments."""
    mark = {"runjournal": {"v": 1, "origin": "partial", "reason": "incomplete"}}
    given = AIMessage([SAID, SIGNED], additional_kwargs=mark, response_metadata={"model_provider": "somebody"})
    form = sent(given)
    assert form is not None
    assert form.content == [SAID]
    stopped = given.model_copy(update={"additional_kwargs": {"runjournal": {**mark["runjournal"], "reason": "stop"}}})
    assert sent(stopped) is stopped


def test_the_guard_sends_it_so_in_the_same_step() -> None:
    """The answer that was cut inside its call, when the model is called again right behind it, and in the next turn."""
    agents = pytest.importorskip("langchain.agents")
    from langchain_runjournal.guard import ToolPairGuard
    from tests.support.conversations import Recording

    call = {**ASKS, "arguments": '{"x": '}
    cut = AIMessage([THOUGHT, TEXT, call], tool_calls=[CALL], response_metadata=RESP, id="resp_1")
    assert find_cut(vars(cut)) is not None

    class Whole(Recording):
        """Answers in one piece."""

        def _generate(self, messages: Any = None, *args: Any, **kwargs: Any) -> Any:
            found = super()._generate(messages, *args, **kwargs)
            if len(self.seen) == 1:
                found.generations[0].message = cut
            return found

        async def _agenerate(self, messages: Any = None, *args: Any, **kwargs: Any) -> Any:
            return self._generate(messages, *args, **kwargs)

    from tests.support.agents import words

    model = Whole(scripts=[words("unused"), words("done")])
    agent = agents.create_agent(model, [], middleware=[ToolPairGuard()])
    state = asyncio.run(agent.ainvoke({"messages": [HumanMessage("rice?")]}))
    asyncio.run(agent.ainvoke({"messages": [*state["messages"], HumanMessage("and?")]}))
    assert [len(one) for one in model.seen] == [1, 3, 5]
    for messages in model.seen[1:]:
        answer = next(one for one in messages if one.type == "ai")
        assert [block["type"] for block in answer.content] == ["text", "function_call"]
        assert all("id" not in block for block in answer.content)
        assert "id" not in answer.response_metadata
    assert model.seen[1] == model.seen[2][:3]
