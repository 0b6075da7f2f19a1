"""What a page gets of an answer that was cut off, and what it is shown."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    convert_to_messages,
    convert_to_openai_messages,
    message_to_dict,
    messages_from_dict,
)
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph

from langchain_runjournal import RunJournal, attach, errors, is_partial, mark_partial, repair_tool_pairs
from langchain_runjournal.testing import ScriptedChatModel

MARK = {"origin": "partial", "reason": "stop"}


def cut(content: Any = "Stop loses") -> AIMessage:
    return AIMessage(content, id="a", additional_kwargs={"runjournal": MARK, "other": 1})


def thread() -> list[BaseMessage]:
    """What a graph has in its state after a Stop."""
    model = ScriptedChatModel([["Stop loses ", KeyboardInterrupt()]])

    def answer(state: MessagesState) -> dict[str, Any]:
        return {"messages": [model.invoke(state["messages"])]}

    graph = StateGraph(MessagesState).add_node("answer", answer).add_edge(START, "answer")
    with RunJournal(":memory:") as journal:
        agent = attach(graph.compile(checkpointer=InMemorySaver(), name="agent"), journal)
        config: Any = {"configurable": {"thread_id": "t"}}
        with pytest.raises(KeyboardInterrupt):
            for _ in agent.stream({"messages": [("user", "go")]}, config, stream_mode="messages"):
                pass
        found: list[BaseMessage] = agent.get_state(config).values["messages"]
    return found


@pytest.mark.parametrize("form", ["message_to_dict", "model_dump", "openai"])
def test_what_comes_through(form: str) -> None:
    """Both marks, in LangChain's dict and in the flat one of the LangGraph API, through JSON; neither in OpenAI's form."""
    message = thread()[-1]
    assert is_partial(message)
    if form == "openai":
        assert convert_to_openai_messages([message]) == [{"role": "assistant", "content": "Stop loses "}]
        return
    data = json.loads(json.dumps(message_to_dict(message) if form == "message_to_dict" else message.model_dump()))
    inner = data["data"] if form == "message_to_dict" else data
    assert inner["additional_kwargs"]["runjournal"]["origin"] == "partial"
    assert inner["response_metadata"]["finish_reason"] == "interrupted"
    again = messages_from_dict([data]) if form == "message_to_dict" else convert_to_messages([data])
    assert is_partial(again[0])


def test_the_marker_is_in_a_copy() -> None:
    """The cut answer is another object with the same id and marks; all others are the same; the thread has no word of it."""
    there = thread()
    page = mark_partial(there, " …[stopped]")
    assert page[0] is there[0]
    assert (page[1].text, page[1].id) == ("Stop loses  …[stopped]", there[1].id)
    assert (there[1].text, is_partial(page[1]), is_partial(there[1])) == ("Stop loses ", True, True)
    assert "marker" not in there[1].additional_kwargs["runjournal"]


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        ("Stop", "Stop!"),
        ("", "!"),
        ([], [{"type": "text", "text": "!"}]),
        (["Stop"], ["Stop!"]),
        ([{"type": "text", "text": "Stop", "index": 0}], [{"type": "text", "text": "Stop!", "index": 0}]),
        ([{"type": "image", "url": "u"}], [{"type": "image", "url": "u"}, {"type": "text", "text": "!"}]),
    ],
)
def test_the_marker_follows_the_text(content: Any, shown: Any) -> None:
    """In a string, in the last text block, or in a block of its own; in messages and in both kinds of dicts."""
    message = cut(content)
    assert mark_partial([message], "!")[0].content == shown
    assert mark_partial([message.model_dump()], "!")[0]["content"] == shown
    assert mark_partial([message_to_dict(message)], "!")[0]["data"]["content"] == shown
    assert message == cut(content)


@given(st.lists(st.sampled_from(["cut", "whole", "asked", "dict", "flat", "openai", "odd"]), max_size=6))
def test_nothing_else_is_touched(kinds: list[str]) -> None:
    """Whatever is no partial answer is the same object; twice is the same as once."""
    made: dict[str, Any] = {
        "cut": cut(),
        "whole": AIMessage("w", additional_kwargs={"runjournal": {"origin": "recovered"}}),
        "asked": HumanMessage("h"),
        "dict": message_to_dict(cut()),
        "flat": cut().model_dump(),
        "openai": {"role": "assistant", "content": "Stop loses"},
        "odd": {"additional_kwargs": {"runjournal": 7}, "data": None},
    }
    given_ = [made[kind] for kind in kinds]
    once = mark_partial(given_, "!")
    changed = [kind for kind, before, after in zip(kinds, given_, once, strict=True) if before is not after]
    assert changed == [kind for kind in kinds if kind in ("cut", "dict", "flat")]
    twice = mark_partial(once, "!")
    assert all(before is after for before, after in zip(once, twice, strict=True))


@pytest.mark.parametrize("marker", ["", None, 7])
def test_a_marker_is_a_text(marker: Any) -> None:
    """Anything else would show nothing, and is a mistake."""
    with pytest.raises(errors.InvalidArgument, match="marker must be a non-empty str"):
        mark_partial([cut()], marker)


@pytest.mark.parametrize(
    "given", ["Stop loses", b"Stop", {"messages": [cut()]}, {"type": "ai", "content": "x"}, cut(), None, 7]
)
def test_what_is_no_list_of_messages(given: Any) -> None:
    """A text, a whole state, one message, nothing: the error says what to give."""
    with pytest.raises(
        errors.InvalidArgument, match=r'messages must be a list of messages or of their dicts, such as `state\["'
    ):
        mark_partial(given)


def test_the_guard_sees_the_thread_as_before() -> None:
    """What is shown does not change what is sent to a model."""
    there = thread()
    before = repair_tool_pairs(there)
    mark_partial(there)
    assert repair_tool_pairs(there) is before is there
