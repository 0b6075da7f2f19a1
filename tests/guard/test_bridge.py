"""An answer where a model must have one: between a tool's result and the user's words, and between two of the user's."""

from __future__ import annotations

import asyncio
import logging
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver

from langchain_runjournal import errors, guard, is_synthetic, repair_tool_pairs
from langchain_runjournal.guard.bridge import BOTH, NOTHING, gaps, needed
from tests.guard.test_guard import THREAD, Watched, agent_of
from tests.messages.test_tool_pairs import HISTORIES, TURNS
from tests.support.agents import words
from tests.support.histories import history

middleware = pytest.importorskip("langchain.agents.middleware")


def shape(messages: list[BaseMessage]) -> str:
    """A letter for each message; `b` for a bridge."""
    return "".join("b" if one.type == "ai" and is_synthetic(one) else one.type[0] for one in messages)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("U A(c1) T(c1) U", "hatbh"),
        ("U A(c1,c2) T(c1) U", "hattbh"),
        ("U U", "hbh"),
        ("U U U", "hbhbh"),
        ("U A U", "hah"),
        ("U A(c1) T(c1) A U", "hatah"),
        ("U a(!c1) U", "hbh"),
        ("S U", "sh"),
        ("U A(c1) T(c1)", "hat"),
    ],
)
def test_an_answer_stands_where_one_must(text: str, expected: str) -> None:
    """In front of the user's words, and of nothing else; a call that leaves the request leaves a gap as well."""
    given_ = history(text)
    sent = repair_tool_pairs(given_, bridge=True)
    assert shape(sent) == expected
    assert shape(repair_tool_pairs(given_)) == expected.replace("b", "")
    for one in sent:
        if one.type == "ai" and is_synthetic(one):
            assert one.content == "(No answer was given here.)"
            assert one.id is not None
            assert one.id.startswith("rjb-")


@given(st.one_of(HISTORIES, TURNS))
def test_bridges_are_the_same_each_time_and_only_once(messages: list[BaseMessage]) -> None:
    """Deterministic and idempotent; the other messages are those of the request without them; no gap is left."""
    kept = list(messages)
    plain, sent = repair_tool_pairs(messages), repair_tool_pairs(messages, bridge=True)
    assert repair_tool_pairs(sent, bridge=True) is sent
    assert repair_tool_pairs(messages, bridge=True) == sent
    assert [one.id for one in sent if "b" not in shape([one])] == [one.id for one in plain]
    assert not {"hh", "th"} & {first + then for first, then in pairwise(shape(sent))}
    assert (sent is messages) == (plain is messages and "b" not in shape(sent))
    assert all(one is other for one, other in zip(messages, kept, strict=True))


def test_bridges_have_ids_of_their_own() -> None:
    """Also between messages without ids, so that a list with several of them is a list of different messages."""
    sent = repair_tool_pairs([HumanMessage("u") for _ in range(4)], bridge=True)
    assert len({one.id for one in sent if one.type == "ai"}) == 3


# --- which models ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("client", "name", "strict"),
    [
        ("mistralai-chat", "some-tuned-model", False),
        ("openai-chat", "mistralai/Devstral-Small-2-24B-Instruct-2512", True),
        ("openai-chat", "ministral-3b", True),
        ("openai-chat", "open-mixtral-8x22b", True),
        ("openai-chat", "codestral-latest", True),
        ("openai-chat", "pixtral-12b", True),
        ("openai-chat", "google/gemma-3-27b-it", True),
        ("openai-chat", "meta-llama/Llama-2-7b-chat-hf", True),
        ("amazon_bedrock_converse_chat", "mistral.mistral-large-2402-v1:0", True),
        ("openai-chat", "meta-llama/Llama-3.3-70B-Instruct", False),
        ("openai-chat", "gpt-5", False),
        ("anthropic-chat", "claude-sonnet-4-5", False),
        ("chat-ollama", "devstral", False),
        ("chat-google-generative-ai", "gemma-3-27b-it", False),
        (None, None, False),
    ],
)
def test_models_are_known_by_their_client_or_their_name(client: Any, name: Any, strict: bool) -> None:
    """Mistral's on every server, and models whose chat template refuses; not on servers that use no such template."""
    behind = {"tool"} if client == "mistralai-chat" else BOTH if strict else NOTHING
    assert needed(SimpleNamespace(_llm_type=client, model_name=name)) == behind
    assert needed(SimpleNamespace(_llm_type=client, model=name)) == behind
    assert needed(SimpleNamespace(_llm_type=client, model_id=name)) == behind


def test_a_model_that_is_wrapped_is_known() -> None:
    """`with_retry` hides the client and its name."""
    openai = pytest.importorskip("langchain_openai")
    model = openai.ChatOpenAI(model="devstral-small-2", api_key="none")
    assert needed(model.with_retry()) == needed(model.bind(stop=["x"]).with_retry()) == BOTH


def test_a_model_that_cannot_be_asked_needs_none() -> None:
    """A wrapper that makes its model only when it is called may fail; the request goes on."""

    class Wrapper:
        def __getattr__(self, name: str) -> Any:
            raise ImportError(name)

    assert needed(Wrapper()) == NOTHING


def test_the_real_clients_are_known() -> None:
    """By what the packages call themselves."""
    openai = pytest.importorskip("langchain_openai")
    assert needed(openai.ChatOpenAI(model="devstral-small-2", api_key="none")) == BOTH
    assert needed(openai.ChatOpenAI(model="gpt-5", api_key="none")) == NOTHING
    anthropic = pytest.importorskip("langchain_anthropic")
    assert needed(anthropic.ChatAnthropic(model="claude-x", api_key="none")) == NOTHING


def test_the_real_client_of_mistral_is_known() -> None:
    """And what it sends is in the order that Mistral takes, which puts messages of the user together by itself."""
    mistral = pytest.importorskip("langchain_mistralai")
    model = mistral.ChatMistralAI(api_key="none")
    assert gaps(history("U U A(c1) T(c1) U"), needed(model)) == [4]
    sent = model._create_message_dicts(repair_tool_pairs(history("U A(c1) T(c1) U"), bridge=True), None)[0]
    assert [one["role"] for one in sent] == ["user", "assistant", "tool", "assistant", "user"]


@pytest.mark.parametrize(
    ("text", "refused"), [("U A(c1) T(c1) U", True), ("U U", True), ("U A(c1) U", True), ("U A U", False)]
)
def test_strict_templates_take_what_is_bridged(text: str, refused: bool) -> None:
    """Devstral's and Ministral's: the user and the answers without calls alternate; behind a result stands an answer."""
    openai = pytest.importorskip("langchain_openai")
    model = openai.ChatOpenAI(model="devstral", api_key="none", base_url="http://localhost/v1", use_responses_api=False)

    def is_refused(messages: list[BaseMessage]) -> bool:
        sent = model._get_request_payload(messages)["messages"]
        roles = [one["role"] for one in sent if one["role"] != "tool" and "tool_calls" not in one]
        behind = [then["role"] for one, then in pairwise(sent) if one["role"] == "tool"]
        return roles != (["user", "assistant"] * len(roles))[: len(roles)] or "user" in behind

    assert is_refused(repair_tool_pairs(history(text))) == refused
    assert not is_refused(repair_tool_pairs(history(text), bridge=True))


# --- in agents ------------------------------------------------------------------------------------------------------------


class Strict(Watched):
    """Refuses what Mistral refuses."""

    model_name: str = "devstral-small"

    def _generate(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
        if {"hh", "th"} & {one.type[0] + then.type[0] for one, then in pairwise(messages)}:
            raise ValueError("400 Unexpected role 'user' after role 'tool'")
        return super()._generate(messages)

    async def _agenerate(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
        return self._generate(messages)


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("text", ["U A(c1) T(c1) U", "U U", "U A(c1,c2) T(c1) U"])
def test_a_model_that_refuses_gets_an_answer(text: str, is_async: bool, caplog: pytest.LogCaptureFixture) -> None:
    """Known by its name, in each request; the thread never has one, and the log says it at DEBUG only."""
    model, given_ = Strict(scripts=[words("done")], seen=[]), history(text)
    agent = agent_of(model, guard.ToolPairGuard(), checkpointer=InMemorySaver())

    def run(messages: list[BaseMessage]) -> list[BaseMessage]:
        asked: Any = {"messages": messages}
        after = asyncio.run(agent.ainvoke(asked, THREAD)) if is_async else agent.invoke(asked, THREAD)
        found: list[BaseMessage] = after["messages"]
        return found

    with caplog.at_level(logging.DEBUG, "langchain_runjournal"):
        run(given_)
        after = run([HumanMessage("more")])
    assert after[: len(given_)] == given_
    assert "b" not in shape(after)
    assert [shape(request).count("b") for request in model.seen] == [1, 1]
    assert model.seen[1][: len(model.seen[0])] == model.seen[0]
    assert all(record.levelno == logging.DEBUG or "synthesized" in record.message for record in caplog.records)


def test_mistrals_api_gets_the_users_messages_as_they_are() -> None:
    """It takes them side by side; only behind a tool's result does it want an answer."""

    class Mistral(Watched):
        @property
        def _llm_type(self) -> str:
            return "mistralai-chat"

    model = Mistral(scripts=[words("done")], seen=[])
    agent_of(model, guard.ToolPairGuard()).invoke({"messages": history("U U A(c1) T(c1) U U")})
    assert shape(model.seen[0]) == "hhatbhh"


@pytest.mark.parametrize(("name", "bridge", "bridged"), [("gpt-5", "auto", 0), ("gpt-5", True, 1), ("devstral", False, 0)])
def test_bridges_can_be_turned_on_and_off(name: str, bridge: Any, bridged: int) -> None:
    """By the option, whatever the model; left to itself, a model that takes the history gets it as it is."""

    class Named(Watched):
        model_name: str = name

    model, given_ = Named(scripts=[words("done")], seen=[]), history("U A(c1) T(c1) U")
    agent_of(model, guard.ToolPairGuard(bridge=bridge)).invoke({"messages": given_})
    assert shape(model.seen[0]).count("b") == bridged


def test_a_bridge_and_a_note_do_not_meet() -> None:
    """The note goes into the user's words behind the answer that was cut off; nothing is missing there."""
    partial = AIMessage("half", id="p", additional_kwargs={"runjournal": {"origin": "partial", "reason": "stop"}})
    model = Strict(scripts=[words("done")], seen=[])
    messages = [HumanMessage("u"), partial, HumanMessage("v"), HumanMessage("w")]
    agent_of(model, guard.ToolPairGuard()).invoke({"messages": messages})
    assert shape(model.seen[0]) == "hahbh"
    assert "cut off" in str(model.seen[0][2].content)


def test_bad_values_are_refused_at_once() -> None:
    """Where the guard is made; the function has no model to know anything of."""
    with pytest.raises(errors.InvalidArgument, match="bridge must be True, False or 'auto', but 'yes'"):
        guard.ToolPairGuard(bridge="yes")
    with pytest.raises(errors.InvalidArgument, match="bridge must be True or False, but 'auto'"):
        repair_tool_pairs([ToolMessage("r", tool_call_id="c")], bridge="auto")  # type: ignore[arg-type]
