"""The functional API: the value that an entrypoint saves for its next call is its thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint, task
from langgraph.types import Command, interrupt
from typing_extensions import NotRequired, Required, TypedDict

import langchain_runjournal
from langchain_runjournal import RunJournal, arecord_partial_ai_message, record_partial_ai_message
from tests.settle.test_broken_threads import Refused, messages, strict
from tests.settle.test_settle import THREAD, Asked, model, shown
from tests.support.agents import asks, words

# Most models here are called by `invoke`, and the tests look at what they have said.
attach = partial(langchain_runjournal.attach, capture_invoke=True)


HALF = [*words("one ", "two "), RuntimeError("boom")]
CUT = ["U first", "A hello", "U+ hi", "A~ one two "]


def in_list(asked: Asked) -> Any:
    """Save a list."""

    @entrypoint(checkpointer=InMemorySaver())
    def chat(text: str, *, previous: Any = None, config: RunnableConfig) -> Any:
        found = [*(previous or []), HumanMessage(text)]
        said = asked.invoke(found, config)
        return entrypoint.final(value=said.text, save=[*found, said])

    return chat


def in_dict(asked: Asked) -> Any:
    """Save a dict with another key beside `messages`, and call the model in a task."""

    @task
    def ask(found: list[AnyMessage]) -> BaseMessage:
        return asked.invoke(found)

    @entrypoint(checkpointer=InMemorySaver())
    def chat(given: dict[str, Any], *, previous: Any = None) -> Any:
        previous = previous or {"messages": [], "turns": 0}
        found = [*previous["messages"], *given["messages"]]
        said = ask(found).result()
        return entrypoint.final(value=said.text, save={"messages": [*found, said], "turns": previous["turns"] + 1})

    return chat


def on_loop(asked: Asked) -> Any:
    """Do the same as `in_list`, asynchronously."""

    @entrypoint(checkpointer=InMemorySaver())
    async def chat(text: str, *, previous: Any = None, config: RunnableConfig) -> Any:
        found = [*(previous or []), HumanMessage(text)]
        said = await asked.ainvoke(found, config)
        return entrypoint.final(value=said.text, save=[*found, said])

    return chat


def given(make: Any, text: str) -> Any:
    return {"messages": [HumanMessage(text)]} if make is in_dict else text


def call(make: Any, agent: Any, value: Any) -> Any:
    return asyncio.run(agent.ainvoke(value, THREAD)) if make is on_loop else agent.invoke(value, THREAD)


def saved(graph: Any) -> Any:
    return graph.checkpointer.get_tuple(THREAD).checkpoint["channel_values"].get("__previous__")


def last(journal: RunJournal) -> tuple[str, str | None]:
    [data] = [event.data for event in journal.read(journal.runs()[0].run_id) if event.kind == "run.settled"]
    return data["outcome"], data.get("reason")


@pytest.mark.parametrize("make", [in_list, in_dict, on_loop])
def test_a_chat_that_is_cut_off(make: Callable[[Asked], Any], journal: RunJournal) -> None:
    """The next two calls find the user's words and the partial answer in `previous`; the last returned value stays."""
    asked = model(words("hello"), HALF, words("fine"), words("well"))
    plain = make(asked)
    agent = attach(plain, journal)
    call(make, agent, given(make, "first"))
    with pytest.raises(RuntimeError, match="boom"):
        call(make, agent, given(make, "hi"))
    assert last(journal) == ("settled", None)
    found = saved(plain)
    assert shown(found["messages"] if make is in_dict else found) == CUT
    state = plain.get_state(THREAD)
    assert (state.values, state.next, state.tasks) == ("hello", (), ())
    call(make, agent, given(make, "next"))
    call(make, agent, given(make, "more"))
    assert shown(asked.seen[-1]) == [*CUT, "U next", "A fine", "U more"]
    if make is in_dict:
        assert saved(plain)["turns"] == 3


def test_tools_that_are_cut_off(journal: RunJournal) -> None:
    """The finished tool keeps its result, the other one gets a synthetic result, and the provider accepts the next
    message."""

    @tool
    def fast(x: int) -> str:
        """Fast."""
        return f"fast{x}"

    @tool
    def slow(x: int) -> str:
        """Breaks."""
        raise RuntimeError("boom")

    calls = asks(("c1", "fast", {"x": 1}), ("c2", "slow", {"x": 2}))
    asked = strict(words("hello"), calls, words("fine"))

    @entrypoint(checkpointer=InMemorySaver())
    def chat(text: str, *, previous: Any = None, config: RunnableConfig) -> Any:
        found = [*(previous or []), HumanMessage(text)]
        said: Any = asked.invoke(found, config)
        results = [{"fast": fast, "slow": slow}[one["name"]].invoke(one, config) for one in said.tool_calls]
        return entrypoint.final(value=None, save=[*found, said, *results])

    agent = attach(chat, journal)
    agent.invoke("first", THREAD)
    with pytest.raises(RuntimeError, match="boom"):
        agent.invoke("hi", THREAD)
    agent.invoke("next", THREAD)
    cut = ["U first", "A hello", "U+ hi", "A+ Looking. (c1,c2)", "T+ c1=fast1", "T* c2=failed"]
    assert shown(asked.seen[-1]) == [*cut, "U next"]


class Saved(TypedDict):
    messages: list[BaseMessage]


@pytest.mark.parametrize("declared", [list[BaseMessage], "list[BaseMessage] | None", Saved, list[dict[str, Any]]])
def test_the_first_call(declared: Any, journal: RunJournal) -> None:
    """When nothing is saved yet, the annotation of `previous` says the form."""
    asked = model(HALF, words("fine"))

    def chat(text: str, *, previous: Any = None, config: RunnableConfig) -> Any:
        before = [] if previous is None else previous["messages"] if declared is Saved else previous
        said = asked.invoke([*before, HumanMessage(text)], config)
        return entrypoint.final(value=said.text, save=None)

    chat.__annotations__ = {"text": str, "previous": declared, "config": RunnableConfig}
    plain = entrypoint(checkpointer=InMemorySaver())(chat)
    agent = attach(plain, journal)
    with pytest.raises(RuntimeError, match="boom"):
        agent.invoke("hi", THREAD)
    agent.invoke("next", THREAD)
    assert [str(one.text) for one in asked.seen[-1]] == ["hi", "one two ", "next"]


class Counted(TypedDict):
    messages: list[BaseMessage]
    turns: int


class Quoted(TypedDict):
    messages: "list[BaseMessage]"  # noqa: UP037 - as `from __future__ import annotations` has it
    turns: "int"  # noqa: UP037 - a string, as above


class MayCount(TypedDict):
    messages: list[BaseMessage]
    turns: NotRequired[int]


class MayCountQuoted(TypedDict):
    messages: list[BaseMessage]
    turns: "NotRequired[int]"  # noqa: UP037 - a string, as above


class MayHold(TypedDict, total=False):
    messages: list[BaseMessage]
    turns: int


class MustCount(TypedDict, total=False):
    messages: list[BaseMessage]
    turns: "Required[int]"  # noqa: UP037 - a string, as above


def counting(asked: Asked, declared: Any) -> Any:
    """Save a dict of a type, and read `turns` from it without a default if the type requires the key."""

    def chat(text: str, *, previous: Any = None, config: RunnableConfig) -> Any:
        before = previous or {"messages": [], "turns": 0}
        turns = before["turns"] if declared in (Counted, Quoted, MustCount) else before.get("turns", 0)
        said = asked.invoke(found := [*before["messages"], HumanMessage(text)], config)
        return entrypoint.final(value=said.text, save={"messages": [*found, said], "turns": turns + 1})

    chat.__annotations__["previous"] = declared
    return entrypoint(checkpointer=InMemorySaver())(chat)


@pytest.mark.parametrize("declared", [Counted, Quoted, MustCount])
def test_a_first_call_whose_type_needs_more_than_messages(declared: Any, journal: RunJournal) -> None:
    """The first call is left alone, and the reason names the keys and the remedy; once a value is saved, the thread is
    settled."""
    asked = model(HALF, words("fine"), HALF, words("well"))
    plain = counting(asked, declared)
    agent = attach(plain, journal)
    with pytest.raises(RuntimeError, match="boom"):
        agent.invoke("hi", THREAD)
    outcome, reason = last(journal)
    assert (outcome, journal.runs()[0].settled) == ("left_alone", False)
    assert reason is not None
    assert "has saved nothing on this thread yet" in reason
    assert "needs `turns` beside `messages`" in reason
    assert "NotRequired" in reason
    assert agent.invoke("next", THREAD) == "fine"
    with pytest.raises(RuntimeError, match="boom"):
        agent.invoke("more", THREAD)
    assert last(journal) == ("settled", None)
    assert agent.invoke("go on", THREAD) == "well"
    assert shown(asked.seen[-1]) == ["U next", "A fine", "U+ more", "A~ one two ", "U go on"]
    assert saved(plain)["turns"] == 2


@pytest.mark.parametrize("declared", [MayCount, MayCountQuoted, MayHold])
def test_a_first_call_whose_type_needs_no_more(declared: Any, journal: RunJournal) -> None:
    """Optional keys do not keep the first call of a thread from being settled."""
    asked = model(HALF, words("fine"))
    agent = attach(counting(asked, declared), journal)
    with pytest.raises(RuntimeError, match="boom"):
        agent.invoke("hi", THREAD)
    assert last(journal) == ("settled", None)
    assert agent.invoke("next", THREAD) == "fine"
    assert shown(asked.seen[-1]) == ["U+ hi", "A~ one two ", "U next"]


def test_the_first_call_without_an_annotation(journal: RunJournal, caplog: pytest.LogCaptureFixture) -> None:
    """The first call is left alone, and the reason names the remedy and the entrypoint."""
    agent = attach(in_list(model(HALF, words("fine"))), journal)
    with pytest.raises(RuntimeError, match="boom"):
        agent.invoke("hi", THREAD)
    outcome, reason = last(journal)
    assert outcome == "left_alone"
    assert reason is not None
    assert "the entrypoint `chat` has saved nothing on this thread yet" in reason
    assert "annotate its parameter `previous`" in reason
    assert "the runs of 'chat' are journaled" in caplog.text
    assert agent.invoke("next", THREAD) == "fine"


def with_question(asked: Asked, *, pauses: bool = False) -> Any:
    """Read the user's words from a key of its own."""

    @entrypoint(checkpointer=InMemorySaver())
    def chat(given: Any, *, previous: list[BaseMessage] | None = None, config: RunnableConfig) -> Any:
        text = given if isinstance(given, str) else given.get("question", "nothing")
        found = [*(previous or []), HumanMessage(text)]
        if pauses:
            found.append(HumanMessage(interrupt("sure?")))
        said = asked.invoke(found, config)
        return entrypoint.final(value=said.text, save=[*found, said])

    return chat


@pytest.mark.parametrize("given", [{"question": "hi"}, {"question": "hi", "messages": []}])
@pytest.mark.parametrize("settle", ["always", "never"])
def test_a_call_with_something_else(given: Any, settle: Any, journal: RunJournal, caplog: pytest.LogCaptureFixture) -> None:
    """When the user's words are not known, the settlement does not write the answer alone, and the reason names the
    remedy."""
    asked = model(words("hello"), HALF, words("fine"), HALF, words("well"))
    plain = with_question(asked)
    agent = attach(plain, journal, settle=settle)
    agent.invoke("first", THREAD)
    with pytest.raises(RuntimeError, match="boom"):
        agent.invoke(given, THREAD)
    if settle == "never":
        assert [one.outcome for one in journal.recover(agent)] == ["left_alone"]
    outcome, reason = last(journal)
    assert (outcome, journal.runs()[0].settled) == ("left_alone", False)
    assert reason is not None
    assert "the entrypoint `chat` was called with something that holds no messages" in reason
    assert "with a text, with messages, or with a dict that has `messages`" in reason
    assert reason in caplog.text
    assert shown(saved(plain)) == ["U first", "A hello"]
    assert agent.invoke({"question": "next"}, THREAD) == "fine"
    with pytest.raises(RuntimeError, match="boom"):
        agent.invoke("more", THREAD)
    journal.recover(agent)
    assert shown(saved(plain)) == ["U first", "A hello", "U next", "A fine", "U+ more", "A~ one two "]


def test_a_resume_holds_no_messages(journal: RunJournal) -> None:
    """A run that resumes another one is settled, although its input holds no messages."""
    plain = with_question(model([*words("one ", "two "), KeyboardInterrupt()]), pauses=True)
    agent = attach(plain, journal)
    agent.invoke("hi", THREAD)
    with pytest.raises(KeyboardInterrupt):
        agent.invoke(Command(resume="yes"), THREAD)
    assert last(journal) == ("settled", None)
    assert shown(saved(plain))[-1] == "A~ one two "


def test_a_value_of_another_kind(journal: RunJournal) -> None:
    """A saved number stays unchanged."""
    asked = model(words("hello"), HALF, words("fine"))

    @entrypoint(checkpointer=InMemorySaver())
    def count(text: str, *, previous: int | None = None, config: RunnableConfig) -> Any:
        asked.invoke(text, config)
        return entrypoint.final(value=previous, save=(previous or 0) + 1)

    agent = attach(count, journal)
    agent.invoke("first", THREAD)
    with pytest.raises(RuntimeError, match="boom"):
        agent.invoke("hi", THREAD)
    assert last(journal) == (
        "left_alone",
        "what the entrypoint `count` saves is neither a list of messages nor a dict with `messages`",
    )
    assert (agent.invoke("next", THREAD), saved(count)) == (1, 2)


@pytest.mark.parametrize("case", ["U:hi A(c1)", "U:hi A(c1) U:so"])
def test_a_saved_list_that_was_broken_before(case: str, journal: RunJournal) -> None:
    """The next call finds a result for the open request."""
    asked = strict(words("fine"), words("well"))
    plain = in_list(asked)
    plain.update_state(THREAD, entrypoint.final(value=None, save=messages(case)), as_node="chat")
    with pytest.raises(Refused):
        plain.invoke("now", THREAD)
    agent = attach(plain, journal)
    for text in ("now", "more"):
        agent.invoke(text, THREAD)
    so = ["U so"] if "so" in case else []
    assert shown(asked.seen[-1]) == ["U hi", "A (c1)", "T* c1=unknown", *so, "U now", "A fine", "U more"]


def test_an_entrypoint_that_waits_for_a_human(journal: RunJournal) -> None:
    """A pause stays unchanged, and a resume works."""
    asked = model(words("hello"), words("fine"))

    @entrypoint(checkpointer=InMemorySaver())
    def chat(text: str, *, previous: list[BaseMessage] | None = None, config: RunnableConfig) -> Any:
        found = [*(previous or []), HumanMessage(text)]
        found.append(asked.invoke(found, config))
        return entrypoint.final(value=interrupt("sure?"), save=found)

    agent = attach(chat, journal)
    agent.invoke("first", THREAD)
    assert journal.recover(agent) == []
    assert agent.invoke(Command(resume="yes"), THREAD) == "yes"


def test_recover_settles_an_entrypoint_once(journal: RunJournal) -> None:
    """`recover` settles what was not settled at its end; a second `recover` does nothing."""
    plain = in_list(model(words("hello"), HALF))
    agent = attach(plain, journal, settle="never")
    agent.invoke("first", THREAD)
    with pytest.raises(RuntimeError, match="boom"):
        agent.invoke("hi", THREAD)
    assert [one.outcome for one in journal.recover(agent)] == ["settled"]
    assert shown(saved(plain)) == CUT
    assert journal.recover(agent) == []


@pytest.mark.parametrize("is_async", [False, True])
def test_a_partial_message_that_is_recorded_by_hand(is_async: bool) -> None:
    """`record_partial_ai_message` writes into the saved value, once."""
    plain = in_list(model(words("hello")))
    plain.invoke("first", THREAD)
    message = AIMessage("one two ", id="m1")
    for wrote in (True, False):
        if is_async:
            assert asyncio.run(arecord_partial_ai_message(plain, THREAD, message)) is wrote
        else:
            assert record_partial_ai_message(plain, THREAD, message) is wrote
    assert shown(saved(plain)) == ["U first", "A hello", "A~ one two "]
