"""What the journal knows of model calls that are cut off, and from where: the user, earlier runs of the node, structured
output, tags."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph

from langchain_runjournal import JournalCallbackHandler, ModelCall, RunJournal, attach, errors
from langchain_runjournal.capture.recorder import recorder_of
from langchain_runjournal.journal.core import core_of
from langchain_runjournal.stores.memory import MemoryStore
from langchain_runjournal.testing import FaultyStore
from tests.capture.test_answers import Table
from tests.support.answering import Cut, Desk, Voice, attached, config
from tests.support.conversations import story

CUT_ROUTE = ("route", "returned")
SHOWN = ["U hi", "A cooking, surely"]
"""What is left of a router that was cut, if it is not known as one."""


# --- the user says it ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answers", ["talk", ["talk"], {"talk", "route2"} - {"route2"}, lambda call: call.node == "talk"], ids=str
)
def test_the_user_names_what_answers(answers: Any, journal: RunJournal) -> None:
    """The user names a node, some nodes, or a function: all other calls leave nothing when they are cut off, from the first
    run on."""
    table = Table("router", journal, answers=answers)
    run_id = table.run("hi", cut=CUT_ROUTE)
    assert table.thread() == table.transcript(run_id) == ["U hi"]
    table.run("next", cut=("talk", "inside"))
    assert table.thread() == ["U hi", "U next", "A~ Rice takes"]


def test_the_name_of_a_node_covers_what_is_inside_of_it(journal: RunJournal) -> None:
    """It covers the steps of an agent that a node calls, also where the node kept them before; an inner node has a name as
    well."""
    for answers, left in (("ask", ["A Let me look(c-plan)", "T*(c-plan)"]), (["model"], None), ("tools", [])):
        table = Table("wrapped agent", journal, answers=answers)
        table.run("warm up", "other")
        table.run("hi", f"t {answers}", cut=("look", "inside"))
        wanted = ["A Let me look(c-plan)", "T*(c-plan)"] if left is None else left
        assert table.thread(f"t {answers}") == ["U hi", *wanted], answers


def test_a_function_is_given_what_is_known_of_the_call(journal: RunJournal) -> None:
    """The function gets the nodes around the call, its tags, the metadata and the model."""
    asked: list[ModelCall] = []

    def answers(call: ModelCall) -> bool:
        asked.append(call)
        return True

    Table("wrapped agent", journal, answers=answers).run("hi")
    assert [call.path for call in asked] == [("ask", "model")] * 2
    assert (asked[0].node, asked[0].model) == ("model", "Voice")
    assert asked[0].metadata["langgraph_node"] == "model"
    assert isinstance(asked[0].tags, tuple)


def test_a_function_that_fails_makes_answers(journal: RunJournal, caplog: pytest.LogCaptureFixture) -> None:
    """No words that the user saw are lost by its error, the run continues, and the journal logs the error once."""

    def answers(call: ModelCall) -> bool:
        raise ZeroDivisionError

    table = Table("router", journal, answers=answers)
    for thread in "ab":
        table.run("hi", thread, cut=CUT_ROUTE)
        assert table.thread(thread) == SHOWN
    assert caplog.text.count("answers= failed") == 1


def test_what_a_node_gave_back_overrules_the_user(journal: RunJournal) -> None:
    """A transcript holds what the thread got, whatever the user named as answers."""
    table = Table("router", journal, answers="route")
    run_id = table.run("hi")
    assert table.transcript(run_id) == table.thread() == ["U hi", "A Rice takes 20 minutes"]


def test_names_that_the_graph_does_not_have(journal: RunJournal) -> None:
    """`attach` finds a typing error at once, and lists the known names, those of graphs inside included."""
    inner = StateGraph(MessagesState).add_node("deep", lambda state: {}).add_edge(START, "deep").compile()
    graph = StateGraph(MessagesState).add_node("outer", inner).add_edge(START, "outer").compile()
    attach(graph, journal, answers=["deep", "outer"])
    with pytest.raises(errors.InvalidArgument, match=r"the node 'inner'\. It knows: 'deep', 'outer'"):
        attach(graph, journal, answers=["deep", "inner"])


@pytest.mark.parametrize("answers", [7, ["a", 7], [""], b"talk"], ids=repr)
def test_answers_are_names_or_a_function(answers: Any, journal: RunJournal) -> None:
    """The handler refuses anything else."""
    with pytest.raises(errors.InvalidArgument, match="the name of a node"):
        JournalCallbackHandler(journal, answers=answers)


def test_a_handler_alone_goes_by_what_the_user_says(journal: RunJournal) -> None:
    """The user's names count also without `attach`; a model outside of any graph answers, since it has no node."""
    desk, run_id = Desk(), uuid4()
    handler = JournalCallbackHandler(journal, answers="talk")
    voice = Voice(step="route", says="cooking, surely", desk=desk)
    voice.invoke("hi", {"callbacks": [handler], "run_id": run_id})
    assert story(journal.transcript(str(run_id))) == ["U hi", "A cooking, surely"]


# --- what a node was seen to do -----------------------------------------------------------------------------------------


def test_what_was_learned_outlives_the_runs(db: Path) -> None:
    """It survives `prune` and a restart."""
    with RunJournal(db) as before:
        Table("router", before).run("warm up")
        assert len(before.prune(keep_last=0)) == 1
    with RunJournal(db) as journal:
        table = Table("router", journal)
        table.run("hi", cut=CUT_ROUTE)
        assert table.thread() == ["U hi"]


def test_what_one_graph_does_says_nothing_of_another(journal: RunJournal) -> None:
    """A node of the same name may do anything else there."""
    Table("router", journal).run("warm up")
    builder = StateGraph(MessagesState)
    desk = Desk()
    voice = Voice(step="route", says="cooking, surely", desk=desk)

    def route(state: MessagesState, config: Any) -> dict[str, Any]:
        voice.invoke("?", config)
        raise ValueError("boom")

    route.__annotations__ = {}
    graph = attach(builder.add_node("route", route).add_edge(START, "route").compile(checkpointer=InMemorySaver()), journal)
    with pytest.raises(ValueError, match="boom"):
        graph.invoke({"messages": [("user", "hi")]}, config("t", uuid4()))
    assert story(graph.get_state(config("t", uuid4())).values["messages"]) == SHOWN


def test_a_node_that_has_ever_given_an_answer_gives_answers(journal: RunJournal) -> None:
    """The node may keep some answers: what the user saw of a call in doubt stays."""
    keeps = [True]
    voice = Voice(step="talk", says="Rice takes 20 minutes", desk=Desk())

    def talk(state: MessagesState) -> dict[str, Any]:
        said = voice.invoke("?")
        if state["messages"][-1].text == "boom":
            raise ValueError("boom")
        return {} if keeps[0] else {"messages": [said]}

    graph = StateGraph(MessagesState).add_node("talk", talk).add_edge(START, "talk")
    agent = attach(graph.compile(checkpointer=InMemorySaver()), journal)

    def turn(thread: str) -> list[str]:
        agent.invoke({"messages": [("user", "hi")]}, config(thread, uuid4()))
        with pytest.raises(ValueError, match="boom"):
            agent.invoke({"messages": [("user", "boom")]}, config(thread, uuid4()))
        return story(agent.get_state(config(thread, uuid4())).values["messages"])

    assert turn("keeps") == ["U hi", "U boom"]
    keeps[0] = False
    assert turn("gives")[2:] == ["U boom", "A Rice takes 20 minutes"]


def test_a_store_that_learns_nothing(journal: RunJournal) -> None:
    """A third-party store without the two methods works: the journal knows what it learned until the process ends."""

    class Older:
        def __init__(self) -> None:
            self._inner = MemoryStore()

        def __getattr__(self, name: str) -> Any:
            if name in ("learn", "learned"):
                raise AttributeError(name)
            return getattr(self._inner, name)

    store: Any = Older()
    with RunJournal(store) as journal:
        table = Table("router", journal)
        table.run("warm up", "other")
        table.run("hi", cut=CUT_ROUTE)
        assert table.thread() == ["U hi"]


def test_a_store_that_cannot_be_written(caplog: pytest.LogCaptureFixture) -> None:
    """The journal writes what it learned then with the next fact; neither the run nor a barrier fails."""
    store = FaultyStore(MemoryStore())
    store.fail(verb="learn", times=1)
    with RunJournal(store) as journal:
        table = Table("title", journal)
        table.run("hi")
        journal.flush()
        [known] = recorder_of(journal).lessons.known._facts.items()
        assert store.failed == 1
        Table("router", journal).run("hi", "other")
        journal.flush()
        assert store.inner.learned(known[0]) >= known[1]
    assert "retrying with the next fact" in caplog.text


def test_a_handler_alone_learns_by_name(journal: RunJournal) -> None:
    """Only their names distinguish its graphs: the process remembers what it learned, and the store does not."""
    handler = JournalCallbackHandler(journal)
    voice = Voice(step="route", says="cooking, surely", desk=Desk())

    def route(state: MessagesState) -> dict[str, Any]:
        voice.invoke("?")
        if state["messages"][-1].text == "boom":
            raise ValueError("boom")
        return {}

    graph = StateGraph(MessagesState).add_node("route", route).add_edge(START, "route").compile(name="g")
    found = []
    for text in ("boom", "hi", "boom"):
        run_id = uuid4()
        try:
            graph.invoke({"messages": [("user", text)]}, {"callbacks": [handler], "run_id": run_id})
        except ValueError:
            found.append(story(journal.transcript(str(run_id))))
    assert found == [["U boom", "A cooking, surely"], ["U boom"]]
    journal.flush()
    assert core_of(journal).store.learned("name g") == set()


# --- tags, and what the store knows -----------------------------------------------------------------------------------


def test_a_tag_is_a_hint_that_the_node_overrules(journal: RunJournal) -> None:
    """`nostream` marks a call that is cut off as a helper call, unless its node has returned the answer."""
    voice = Voice(step="talk", says="Rice takes 20 minutes", desk=Desk()).with_config(tags=["nostream"])

    def talk(state: MessagesState) -> dict[str, Any]:
        said = voice.invoke("?")
        if state["messages"][-1].text == "boom":
            raise ValueError("boom")
        return {"messages": [said]}

    graph = StateGraph(MessagesState).add_node("talk", talk).add_edge(START, "talk")
    agent = attach(graph.compile(checkpointer=InMemorySaver()), journal)

    def cut(thread: str) -> list[str]:
        with pytest.raises(ValueError, match="boom"):
            agent.invoke({"messages": [("user", "boom")]}, config(thread, uuid4()))
        return story(agent.get_state(config(thread, uuid4())).values["messages"])

    assert cut("a") == ["U boom"]
    run_id = uuid4()
    agent.invoke({"messages": [("user", "hi")]}, config("b", run_id))
    assert story(journal.transcript(str(run_id))) == ["U hi", "A Rice takes 20 minutes"]
    assert cut("c") == ["U boom", "A Rice takes 20 minutes"]


def test_an_attached_graph_asks_the_store_before_its_first_run(db: Path) -> None:
    """The graph knows also what another process has learned, and needs no checkpointer for that."""
    with RunJournal(db) as one, RunJournal(db) as other:
        Table("router", one).run("warm up")
        one.flush()
        desk = Desk()
        graph = attached("router", desk, other, None)
        desk.cut, run_id = CUT_ROUTE, uuid4()
        with pytest.raises(Cut):
            graph.invoke({"messages": [("user", "hi")]}, {"run_id": run_id})
        assert story(other.transcript(str(run_id))) == ["U hi"]


def test_learning_logs_nothing(journal: RunJournal, caplog: pytest.LogCaptureFixture) -> None:
    """A program that works gets no log line."""
    with caplog.at_level(logging.WARNING):
        Table("map-reduce", journal).run("hi")
        journal.flush()
    assert caplog.text == ""
