"""Lists whose messages are no LangChain messages: what is added has the form of the list, or nothing is added."""

from __future__ import annotations

import json
import operator
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, convert_to_openai_messages
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict

import langchain_runjournal
from langchain_runjournal import RunJournal, arecord_partial_ai_message, errors, record_partial_ai_message
from langchain_runjournal.common.twins import run_sync
from langchain_runjournal.messages.forms import problem_of
from langchain_runjournal.settle.graph_thread import GraphThreads
from langchain_runjournal.settle.settler import Settler
from tests.settle.test_settle import THREAD, Asked, model
from tests.support.agents import asks, words

# Most models here are called by `invoke`, and what they have said is part of what is looked at.
attach = partial(langchain_runjournal.attach, capture_invoke=True)


HALF = [*words("one ", "two "), RuntimeError("boom")]
CUT = {"role": "assistant", "content": "one two "}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: str, *calls: str) -> dict[str, Any]:
    asked = [{"type": "function", "id": id, "function": {"name": "look", "arguments": '{"x": 1}'}} for id in calls]
    return {"role": "assistant", "content": text, **({"tool_calls": asked} if asked else {})}


class Dicts(TypedDict):
    messages: Annotated[list[dict[str, Any]], operator.add]


class Loose(TypedDict):
    messages: Annotated[list[Any], operator.add]


class WholeDicts(TypedDict):
    messages: list[dict[str, Any]]


@tool
def look(x: int) -> str:
    """Looks."""
    return f"seen {x}"


@tool
def breaks(x: int) -> str:
    """Breaks."""
    raise RuntimeError("boom")


def roles(found: Sequence[Any]) -> list[str]:
    """What programs that came from OpenAI's SDK do with their messages."""
    return [one["role"] for one in found]


def of_dicts(asked: Asked, *, schema: Any = Dicts, saver: Any = None, tools: Sequence[Any] = (look, breaks)) -> Any:
    """A model and its tools, in a state of OpenAI's dicts."""
    keeps_all = schema is WholeDicts

    def talk(state: Any, config: RunnableConfig) -> Any:
        assert roles(state["messages"])
        said = convert_to_openai_messages(asked.invoke(state["messages"], config))
        return {"messages": [*(state["messages"] if keeps_all else ()), said]}

    def act(state: Any, config: RunnableConfig) -> Any:
        named = {one.name: one for one in tools}
        found: list[Any] = list(state["messages"]) if keeps_all else []
        for call in state["messages"][-1]["tool_calls"]:
            given = {"id": call["id"], "name": call["function"]["name"], "type": "tool_call"}
            args = json.loads(call["function"]["arguments"])
            result = named[given["name"]].invoke({**given, "args": args}, config)
            found.append({"role": "tool", "tool_call_id": call["id"], "content": result.content})
        return {"messages": found}

    for node in (talk, act):
        node.__annotations__ = {"config": RunnableConfig}
    graph = StateGraph(schema)
    graph.add_node("talk", talk)
    graph.add_node("act", act)
    graph.add_edge(START, "talk")
    graph.add_conditional_edges(
        "talk", lambda state: "act" if state["messages"][-1].get("tool_calls") else END, ["act", END]
    )
    graph.add_edge("act", "talk")
    return graph.compile(checkpointer=saver if saver is not None else InMemorySaver())


def standing(graph: Any, config: RunnableConfig = THREAD) -> Any:
    return graph.get_state(config).values["messages"]


def boom(agent: Any, given: Any, **options: Any) -> None:
    with pytest.raises(RuntimeError, match="boom"):
        agent.invoke(given, THREAD, **options)


def outcome(journal: RunJournal, run_id: str) -> tuple[str, str | None]:
    [settled] = [event.data for event in journal.read(run_id) if event.kind == "run.settled"]
    return settled["outcome"], settled.get("reason")


# --- dicts with a role ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("durability", ["sync", "exit"])
@pytest.mark.parametrize("schema", [Dicts, Loose, WholeDicts])
def test_a_model_that_is_cut_off(schema: Any, durability: Any, journal: RunJournal) -> None:
    """The partial answer is a dict among dicts, without our mark, which the journal keeps; the next two turns work."""
    asked = model(words("hello"), HALF, words("fine"), words("well"))
    agent = attach(of_dicts(asked, schema=schema), journal)
    keeps_all = schema is WholeDicts

    def given(text: str) -> Any:
        before = standing(agent) if keeps_all and agent.get_state(THREAD).values else []
        return {"messages": [*before, user(text)]}

    agent.invoke(given("first"), THREAD, durability=durability)
    boom(agent, given("hi"), durability=durability)
    cut = [user("first"), assistant("hello"), user("hi"), CUT]
    assert standing(agent) == cut
    agent.invoke(given("next"), THREAD, durability=durability)
    agent.invoke(given("more"), THREAD, durability=durability)
    assert standing(agent) == [*cut, user("next"), assistant("fine"), user("more"), assistant("well")]
    assert [str(one.text) for one in asked.seen[-1]] == ["first", "hello", "hi", "one two ", "next", "fine", "more"]
    run = journal.runs()[2]
    [settled] = [event.data for event in journal.read(run.run_id) if event.kind == "run.settled"]
    assert ("partial", "ai") in [(one["origin"], one["type"]) for one in settled["messages"]]


def test_tools_that_are_cut_off(journal: RunJournal) -> None:
    """What a tool gave back, and what is known of the other one, stand as tool messages of OpenAI's form."""
    calls = asks(("c1", "look", {"x": 1}), ("c2", "breaks", {"x": 2}))
    asked = model(calls, words("fine"), words("well"))
    agent = attach(of_dicts(asked), journal)
    boom(agent, {"messages": [user("hi")]})
    found = standing(agent)
    assert roles(found) == ["user", "assistant", "tool", "tool"]
    assert [call["id"] for call in found[1]["tool_calls"]] == ["c1", "c2"]
    assert found[2] == {"role": "tool", "tool_call_id": "c1", "content": "seen 1"}
    assert found[3]["tool_call_id"] == "c2"
    assert found[3]["content"].startswith("The call failed: ")
    for text in ("next", "more"):
        agent.invoke({"messages": [user(text)]}, THREAD)
    assert roles(standing(agent)) == ["user", "assistant", "tool", "tool", "user", "assistant", "user", "assistant"]


def test_settling_twice_writes_once(journal: RunJournal) -> None:
    """Dicts have no ids: what was written before is known again by its words."""
    plain = of_dicts(model(words("hello"), HALF))
    agent = attach(plain, journal)
    agent.invoke({"messages": [user("first")]}, THREAD)
    boom(agent, {"messages": [user("hi")]})
    found, checkpoints = standing(agent), len(list(plain.checkpointer.list(THREAD)))
    settler = Settler(journal, GraphThreads(plain), None)
    again = [run_sync(settler.settle(journal.runs()[0].run_id, "error")) for _ in range(2)]
    assert [(one.is_final, one.messages) for one in again] == [(True, ())] * 2
    assert (standing(agent), len(list(plain.checkpointer.list(THREAD)))) == (found, checkpoints)


def test_the_same_words_in_two_turns(journal: RunJournal) -> None:
    """Two answers that were cut off after the same words are two answers."""
    agent = attach(of_dicts(model(HALF, HALF, words("fine"))), journal)
    for _ in range(2):
        boom(agent, {"messages": [user("hi")]})
    assert standing(agent) == [user("hi"), CUT, user("hi"), CUT]


@pytest.mark.parametrize("case", ["last", "middle"])
def test_a_broken_thread_of_dicts(case: str, journal: RunJournal) -> None:
    """An open request that was there before is answered in the form of the list."""
    asked = model(words("fine"))
    plain = of_dicts(asked)
    seed = [user("hi"), {**assistant("", "c1"), "content": None}]
    rest = [user("so")] if case == "middle" else []
    plain.update_state(THREAD, {"messages": [*seed, *rest]}, as_node="act")
    attach(plain, journal).invoke({"messages": [user("now")]}, THREAD)
    found = standing(plain)
    assert found[:2] == seed
    assert (found[2]["role"], found[2]["tool_call_id"]) == ("tool", "c1")
    assert found[2]["content"].startswith("No result was recorded")
    assert found[3:] == [*rest, user("now"), assistant("fine")]


def test_other_names_of_roles(journal: RunJournal) -> None:
    """A list that says "human" and "ai" gets those."""
    plain = of_dicts(model(HALF))
    agent = attach(plain, journal)
    boom(agent, {"messages": [{"role": "human", "content": "hi"}]})
    assert standing(agent)[-1] == {"role": "ai", "content": "one two "}


def test_messages_and_dicts_in_one_list(journal: RunJournal) -> None:
    """A list that holds both is read by a program that can read both."""

    def talk(state: Any, config: RunnableConfig) -> Any:
        return {"messages": [asked.invoke(state["messages"], config)]}

    asked = model(words("hello"), HALF, words("fine"))
    talk.__annotations__ = {"config": RunnableConfig}
    graph = StateGraph(Loose)
    graph.add_node("talk", talk)
    graph.add_edge(START, "talk")
    agent = attach(graph.compile(checkpointer=InMemorySaver()), journal)
    agent.invoke({"messages": [user("first")]}, THREAD)
    boom(agent, {"messages": [user("hi")]})
    assert [type(one) for one in standing(agent)] == [dict, AIMessage, dict, AIMessage]
    agent.invoke({"messages": [user("next")]}, THREAD)


@pytest.mark.parametrize("way", ["sync", "async"])
def test_a_partial_message_that_is_recorded_by_hand(way: str) -> None:
    """`record_partial_ai_message` writes a dict among dicts, once."""
    import asyncio

    plain = of_dicts(model(words("hello")))
    plain.invoke({"messages": [user("hi")]}, THREAD)
    plain.update_state(THREAD, {"messages": [user("more")]}, as_node="act")
    message = AIMessage("one two ")
    if way == "sync":
        wrote = [record_partial_ai_message(plain, THREAD, message) for _ in range(2)]
    else:
        wrote = [asyncio.run(arecord_partial_ai_message(plain, THREAD, message)) for _ in range(2)]
    assert wrote == [True, False]
    assert standing(plain) == [user("hi"), assistant("hello"), user("more"), CUT]


# --- pairs ------------------------------------------------------------------------------------------------------------


def of(schema: Any, asked: Asked, say: Callable[[Any], Any], channel: str | None = "messages") -> Any:
    """A node that gives a model's words back as `say` makes them."""

    def talk(state: Any, config: RunnableConfig) -> Any:
        given = say(asked.invoke("hi", config).text)
        return given if channel is None else {channel: given}

    talk.__annotations__ = {"config": RunnableConfig}
    graph = StateGraph(schema)
    graph.add_node("talk", talk)
    graph.add_edge(START, "talk")
    return graph.compile(checkpointer=InMemorySaver())


def test_pairs_of_role_and_text(journal: RunJournal) -> None:
    """A list of pairs gets a pair."""
    agent = attach(of(Loose, model(HALF), lambda text: [("ai", text)]), journal)
    boom(agent, {"messages": [("user", "hi")]})
    assert [tuple(one) for one in standing(agent)] == [("user", "hi"), ("assistant", "one two ")]


def test_pairs_have_no_place_for_a_request(journal: RunJournal) -> None:
    """A tool request cannot be written as a pair: nothing is."""
    calls = [*asks(("c1", "look", {"x": 1})), RuntimeError("boom")]

    def talk(state: Any, config: RunnableConfig) -> Any:
        asked.invoke("hi", config)
        raise RuntimeError("boom")

    asked = model(calls[:-1])
    talk.__annotations__ = {"config": RunnableConfig}
    graph = StateGraph(Loose)
    graph.add_node("talk", talk)
    graph.add_edge(START, "talk")
    agent = attach(graph.compile(checkpointer=InMemorySaver()), journal)
    boom(agent, {"messages": [("user", "hi")]})
    assert [tuple(one) for one in standing(agent)] == [("user", "hi")]
    found, reason = outcome(journal, journal.runs()[0].run_id)
    assert (found, reason) == (
        "left_alone",
        "its `messages` holds pairs of role and text, in which neither a tool request nor a result can be written",
    )


# --- what is left alone -----------------------------------------------------------------------------------------------


class Texts(TypedDict):
    messages: Annotated[list[str], operator.add]


class OneText(TypedDict):
    messages: str


ALONE: dict[str, tuple[Any, Any, Any, str]] = {
    "texts": (Texts, ["hi"], lambda text: [text], "its `messages` holds a str at place 0, which is not a message"),
    "one text": (OneText, "hi", lambda text: text, "its `messages` is declared as `str`"),
    "text among messages": (
        Loose,
        [HumanMessage("hi"), "aside"],
        lambda text: [text],
        "its `messages` holds a str at place 1, which is not a message",
    ),
    "dicts of another form": (
        Loose,
        [{"type": "human", "content": "hi"}],
        lambda text: [{"type": "ai", "content": text}],
        "its `messages` holds a dict at place 0, which is not a message",
    ),
    "a role that nobody knows": (
        Loose,
        [{"role": "narrator", "content": "hi"}],
        lambda text: [text],
        "its `messages` holds a dict at place 0, which is not a message",
    ),
    "Anthropic's form": (
        Loose,
        [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "x"}]}],
        lambda text: [text],
        "its `messages` holds messages in Anthropic's own form",
    ),
    "unreadable": (
        Loose,
        [{"role": "tool", "content": "hi"}],
        lambda text: [text],
        "LangChain cannot read what its `messages` holds at place 0 as a message",
    ),
}


@pytest.mark.parametrize("durability", ["sync", "exit"])
@pytest.mark.parametrize("case", ALONE)
def test_what_holds_no_messages_is_left_alone(
    case: str, durability: Any, journal: RunJournal, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is written, a warning says why once, and the next two turns work as without us."""
    schema, given, say, reason = ALONE[case]
    asked = model(HALF, words("fine"), words("well"))
    agent = attach(of(schema, asked, say), journal)
    boom(agent, {"messages": given}, durability=durability)
    assert standing(agent) == given
    [run] = journal.runs()
    found = outcome(journal, run.run_id)
    assert found[0] == "left_alone"
    assert (found[1] or "").startswith(reason)
    for _ in range(2):
        agent.invoke({"messages": given}, THREAD, durability=durability)
    said = [one.getMessage() for one in caplog.records if "left as they are" in one.getMessage()]
    assert len(said) == 1
    assert reason in said[0]
    expected = say("well") if schema is OneText else [*given, *given, *say("fine"), *given, *say("well")]
    assert standing(agent) == expected


def test_a_state_that_is_one_text(journal: RunJournal) -> None:
    """It is known by its type before anything is written."""
    schema: Any = Annotated[str, operator.add]
    plain = of(schema, model(HALF, words("fine")), lambda text: f" A:{text}", channel=None)
    agent = attach(plain, journal)
    boom(agent, "U:hi")
    assert outcome(journal, journal.runs()[0].run_id) == (
        "left_alone",
        "its state is declared as `str`, not as a list of messages",
    )
    agent.invoke(" U:next", THREAD)
    assert agent.get_state(THREAD).values == "U:hi U:next A:fine"


@pytest.mark.parametrize(
    ("declared", "problem"),
    [
        (list[str], "its list is declared as a list of str, not as a list of messages"),
        (Annotated[list[str] | None, operator.add], "its list is declared as a list of str, not as a list of messages"),
        (list[dict[str, Any]], None),
        (list, None),
        (Any, None),
        (None, None),
    ],
)
def test_an_empty_list_goes_by_its_type(declared: Any, problem: str | None) -> None:
    """What nothing stands in is known by what may."""
    assert problem_of([], declared, "its list") == problem


def test_a_partial_message_for_a_list_of_texts() -> None:
    """`record_partial_ai_message` says that there is no place for it."""
    plain = of(Texts, model(words("hello")), lambda text: [text])
    plain.invoke({"messages": ["hi"]}, THREAD)
    with pytest.raises(errors.NoMessages, match="holds a str at place 0"):
        record_partial_ai_message(plain, THREAD, AIMessage("one two "))
    assert standing(plain) == ["hi", "hello"]


# --- a process that is killed -----------------------------------------------------------------------------------------


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _program(home: Path) -> None:
    """Says one thing, and is killed in the middle of the next."""
    with RunJournal(str(home / "runs.db")) as opened, SqliteSaver.from_conn_string(str(home / "threads.db")) as saver:
        asked = model(words("hello"), [*words("one ", "two "), _die])
        agent = attach(of_dicts(asked, saver=saver), opened)
        for text in ("first", "hi"):
            agent.invoke({"messages": [user(text)]}, THREAD)


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="SIGKILL")
def test_dicts_after_a_kill(tmp_path: Path) -> None:
    """What a killed process had said is a dict in its thread when the next message comes; settled once."""
    code = f"from tests.messages.test_forms import _program; from pathlib import Path; _program(Path({str(tmp_path)!r}))"
    died = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2], check=False)
    assert died.returncode == -signal.SIGKILL
    with (
        RunJournal(str(tmp_path / "runs.db")) as opened,
        SqliteSaver.from_conn_string(str(tmp_path / "threads.db")) as saver,
    ):
        plain = of_dicts(model(words("fine"), words("well")), saver=saver)
        agent = attach(plain, opened)
        [found] = opened.recover(agent)
        assert found.outcome == "settled"
        assert opened.recover(agent) == []
        cut = [user("first"), assistant("hello"), user("hi"), CUT]
        assert standing(plain) == cut
        for text in ("next", "more"):
            agent.invoke({"messages": [user(text)]}, THREAD)
        assert standing(plain) == [*cut, user("next"), assistant("fine"), user("more"), assistant("well")]
