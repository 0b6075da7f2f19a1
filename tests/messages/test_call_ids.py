"""Tool calls without an id: they get one where a thread is written, and in the request."""

from __future__ import annotations

import copy
import operator
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, ToolMessage
from langchain_core.messages.tool import tool_call_chunk
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from typing_extensions import TypedDict

from langchain_runjournal import RunJournal, attach, is_synthetic, repair_tool_pairs
from langchain_runjournal.messages.call_ids import with_ids
from langchain_runjournal.messages.tool_pairs import requests
from langchain_runjournal.messages.tool_results import CallKnowledge
from langchain_runjournal.settle.plan import plan
from langchain_runjournal.settle.repair_plan import given_in, is_broken, plan_repair
from tests.guard.test_guard import THREAD, Watched, agent_of
from tests.support.agents import words


def asks(*names: str, id: str | None = None, **more: Any) -> AIMessage:
    """An answer that asks for tools, all of them with this id."""
    return AIMessage("Looking.", id="m1", tool_calls=[{"id": id, "name": name, "args": {}} for name in names], **more)


def got(content: str, id: str = "") -> ToolMessage:
    return ToolMessage(content, tool_call_id=id, id=content)


def ids(messages: list[BaseMessage]) -> list[str]:
    """The ids of calls and results, each made one by its place among them."""
    found = [one.id or "" for message in messages for one in requests(message)]
    order = {id: f"id{place}" for place, id in enumerate(dict.fromkeys(found))}
    results = [one.tool_call_id for one in messages if isinstance(one, ToolMessage)]
    return [order.get(id, id) for id in [*found, *results]]


def problems(messages: list[BaseMessage]) -> list[Any]:
    """What OpenAI refuses in what ChatOpenAI sends: ids that are null or longer than 40 characters."""
    adapter = pytest.importorskip("langchain_openai")
    model = adapter.ChatOpenAI(model="gpt-4.1", api_key="none", use_responses_api=False)
    sent = model._get_request_payload(messages)["messages"]
    found = [call["id"] for one in sent for call in one.get("tool_calls") or ()]
    found += [one["tool_call_id"] for one in sent if one["role"] == "tool"]
    return [id for id in found if not id or len(id) > 40]


HISTORIES = [
    ([asks("a", "b")], ["id0", "id1", "id0", "id1"], [True, True]),
    ([asks("a", "b"), got("r1"), got("r2")], ["id0", "id1", "id0", "id1"], [False, False]),
    ([asks("a"), got("r1"), HumanMessage("v")], ["id0", "id0"], [False]),
    ([asks("a"), HumanMessage("v"), asks("b", id="keep"), got("r", "keep")], ["id0", "id1", "id0", "id1"], [True, False]),
]


@pytest.mark.parametrize(("messages", "expected", "synthetic"), HISTORIES)
def test_a_request_has_ids_for_all_of_its_calls(
    messages: list[BaseMessage], expected: list[str], synthetic: list[bool]
) -> None:
    """In the copy that is sent; results without an id are those of the calls, in their order, if there are as many."""
    before = copy.deepcopy(messages)
    sent = repair_tool_pairs(messages)
    assert problems(messages) != []
    assert problems(sent) == []
    assert ids(sent) == expected
    assert [is_synthetic(one) for one in sent if isinstance(one, ToolMessage)] == synthetic
    assert messages == before
    assert repair_tool_pairs(copy.deepcopy(messages)) == sent
    assert repair_tool_pairs(sent) is sent


@pytest.mark.parametrize(("messages", "expected", "synthetic"), HISTORIES)
def test_a_thread_is_given_the_same_ids(messages: list[BaseMessage], expected: list[str], synthetic: list[bool]) -> None:
    """Where it is mended: the messages with such calls are written anew under their own ids, and no other."""
    assert is_broken(messages)
    done = plan_repair(messages, lambda message, request: CallKnowledge())
    after = [messages[one] if isinstance(one, int) else one for one in done.order]
    assert ids(after) == expected
    assert [one.id for one in after if one.id in {"m1", "r1", "r2", "r"}] == [one.id for one in messages if one.id]
    assert [one for one in after if one.type == "human"] == [one for one in messages if one.type == "human"]
    assert not is_broken(after)
    assert not done.at_end


def test_blocks_and_raw_calls_get_the_same_id() -> None:
    """Wherever a call stands; what has an id keeps it."""
    call = {"type": "function", "id": None, "function": {"name": "a", "arguments": "{}"}}
    content: Any = [
        {"type": "text", "text": "Looking."},
        {"type": "tool_use", "id": None, "name": "a", "input": {}},
        {"type": "non_standard", "value": {"type": "function_call", "call_id": None, "name": "b"}},
    ]
    asking = AIMessage(
        content,
        tool_calls=[{"id": None, "name": "a", "args": {}}, {"id": "keep", "name": "k", "args": {}}],
        invalid_tool_calls=[{"id": None, "name": "b", "args": "{", "error": None}],
        additional_kwargs={"tool_calls": [call, {**call, "id": "keep"}, call]},
    )
    (named,) = with_ids([asking])
    assert isinstance(named, AIMessage)
    first, second = named.tool_calls[0]["id"], named.invalid_tool_calls[0]["id"]
    assert (first == second, named.tool_calls[1]["id"]) == (False, "keep")
    blocks: Any = named.content
    assert (blocks[1]["id"], blocks[2]["value"]["call_id"]) == (first, second)
    assert [one["id"] for one in named.additional_kwargs["tool_calls"]] == [first, "keep", second]


def test_a_client_that_sends_its_results_without_ids_is_left_alone() -> None:
    """They come with the next input; the server that gave no ids takes them so."""
    given_ = given_in([{"type": "tool", "data": {"tool_call_id": ""}}])
    assert not is_broken([asks("a")], given_)


def test_a_call_without_a_name_stays_as_it_is() -> None:
    """No provider takes it; it leaves the request."""
    asking = AIMessage("Looking.", tool_calls=[{"id": None, "name": "", "args": {}}])
    assert not is_broken([asking])
    assert [one.type for one in repair_tool_pairs([asking])] == ["ai"]


def test_a_settlement_writes_ids() -> None:
    """An answer that only the journal has comes into the thread with ids, and with an answer for each call."""
    asked = HumanMessage("u", id="u")
    added = plan([asked], [asked, asks("a", "b")], lambda *_: CallKnowledge(), run_id="r", applied=True).add
    assert ids(added) == ["id0", "id1", "id0", "id1"]
    again = plan([asked, *added], [asked, asks("a", "b")], lambda *_: CallKnowledge(), run_id="r", applied=True)
    assert again.add == []


def test_the_next_message_of_an_agent_finds_ids() -> None:
    """LangGraph runs no tool for a call without an id; before the next message the thread is made whole, without a guard."""
    asking = AIMessageChunk(
        "Looking. ", tool_call_chunks=[tool_call_chunk(name="search", args='{"query": "x"}', id=None, index=0)]
    )
    model = Watched(scripts=[[asking], words("done")], seen=[])
    with RunJournal(":memory:") as journal:
        agent = attach(agent_of(model, checkpointer=InMemorySaver()), journal)
        with pytest.raises(TypeError):
            agent.invoke({"messages": [HumanMessage("u")]}, THREAD)
        after = agent.invoke({"messages": [HumanMessage("v")]}, THREAD)["messages"]
    assert [one.type for one in after] == ["human", "ai", "tool", "human", "ai"]
    assert problems(model.seen[1]) == []
    assert ids(after) == ["id0", "id0"]
    assert is_synthetic(after[2])


def test_lists_of_dicts_get_ids_too() -> None:
    """In their own form; a node that executes no tool leaves such calls open."""
    call = {"id": None, "type": "function", "function": {"name": "f", "arguments": "{}"}}

    class State(TypedDict):
        messages: Annotated[list[Any], operator.add]

    graph = StateGraph(State)
    graph.add_node("ask", lambda state: {"messages": [{"role": "assistant", "content": "Look", "tool_calls": [call]}]})
    with RunJournal(":memory:") as journal:
        agent = attach(graph.add_edge(START, "ask").compile(checkpointer=InMemorySaver()), journal)
        agent.invoke({"messages": [{"role": "user", "content": "u"}]}, THREAD)
        after = agent.invoke({"messages": [{"role": "user", "content": "v"}]}, THREAD)["messages"]
    assert [one["role"] for one in after] == ["user", "assistant", "tool", "user", "assistant"]
    assert after[2]["tool_call_id"] == after[1]["tool_calls"][0]["id"]
    assert after[2]["tool_call_id"].startswith("call_")
