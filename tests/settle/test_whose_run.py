"""The graph of a run: a run is settled by its own graph or by a later version of it, and by no other graph."""

from __future__ import annotations

import gc
import logging
import operator
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import pytest
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, MessagesState, StateGraph

import langchain_runjournal
from langchain_runjournal import RunJournal
from langchain_runjournal.events import Event
from tests.settle.test_settle import THREAD, Asked, model, say, shown
from tests.support.agents import words

# Most models here are called by `invoke`, and the tests look at what they have said.
attach = partial(langchain_runjournal.attach, capture_invoke=True)

HALF = [*words("one "), RuntimeError("boom")]
SETTLED = ["U hi", "A~ one "]


class WithNotes(MessagesState):
    notes: Annotated[list[str], operator.add]


def graph_of(asked: Asked, saver: Any, state: Any = MessagesState, node: str = "talk", name: str | None = None) -> Any:
    """Return a graph of one node that speaks, and of another one in front that takes a note, if there is a channel for
    it."""
    builder = StateGraph(state)
    builder.add_node(node, lambda given: {"messages": [asked.invoke(given["messages"])]})
    if state is WithNotes:
        builder.add_node("note", lambda given: {"notes": ["noted"]})
        builder.add_edge(START, "note")
        builder.add_edge("note", node)
    else:
        builder.add_edge(START, node)
    return builder.compile(checkpointer=saver, name=name)


class Town:
    """A journal file and a checkpointer that several processes use one after the other."""

    def __init__(self, place: Path, saver: Any) -> None:
        self.place = place
        self.saver = saver

    def open(self) -> RunJournal:
        return RunJournal(self.place / "runs.db")

    def leave(self, state: Any = MessagesState, node: str = "talk", name: str | None = None, thread: Any = THREAD) -> str:
        """Cut a run off in a process that settles nothing, and end the process."""
        with self.open() as journal:
            agent = attach(graph_of(model(HALF), self.saver, state, node, name), journal, settle="never")
            with pytest.raises(RuntimeError, match="boom"):
                agent.invoke(say("hi"), thread)
            [run] = [run for run in journal.runs() if not run.settled]
            return run.run_id


@pytest.fixture
def town(tmp_path: Path) -> Any:
    with SqliteSaver.from_conn_string(str(tmp_path / "threads.db")) as saver:
        yield Town(tmp_path, saver)


def state_of(town: Town, state: Any = MessagesState) -> Any:
    return graph_of(model(), town.saver, state).get_state(THREAD)


@pytest.mark.parametrize("name", [None, "agent"], ids=["unnamed", "named"])
def test_the_graph_itself_in_another_process(name: str | None, town: Town) -> None:
    """The same definition, compiled again, settles its own runs."""
    run_id = town.leave(WithNotes, name=name)
    with town.open() as journal:
        [report] = journal.recover(graph_of(model(), town.saver, WithNotes, name=name))
        assert (report.run_id, report.outcome) == (run_id, "settled")
        assert journal.run(run_id).settled
    assert shown(state_of(town, WithNotes).values["messages"]) == SETTLED


def test_another_graph_of_the_default_name_is_left_to_itself(town: Town) -> None:
    """A run of another graph with the default name is held, and the report says why and what to do.

    The thread loses nothing, and the run's own graph settles it.
    """
    run_id = town.leave(WithNotes)
    with town.open() as journal:
        [report] = journal.recover(graph_of(model(), town.saver))
        assert (report.outcome, report.messages) == ("held", ())
        assert report.reason is not None
        assert "another graph called 'LangGraph'" in report.reason
        assert "adopt=True" in report.reason
        run = journal.run(run_id)
        assert (run.settled, run.given_up) == (False, False)
        assert state_of(town, WithNotes).values["notes"] == ["noted"]
        assert [one.outcome for one in journal.recover(graph_of(model(), town.saver, WithNotes))] == ["settled"]
        assert journal.run(run_id).settled
    state = state_of(town, WithNotes)
    assert (shown(state.values["messages"]), state.values["notes"], state.next) == (SETTLED, ["noted"], ())


def test_what_one_graph_leaves_alone_another_one_settles(town: Town) -> None:
    """A graph whose state cannot be written leaves only its own runs alone."""
    run_id = town.leave()

    class Other(dict[str, Any]):
        pass

    builder: Any = StateGraph(dict).add_node("talk", lambda state: state).add_edge(START, "talk")
    with town.open() as journal:
        for graph in (builder.compile(checkpointer=town.saver), builder.compile(checkpointer=town.saver)):
            assert [one.outcome for one in journal.recover(graph)] == ["held"]
        assert not journal.run(run_id).done
        assert [one.outcome for one in journal.recover(graph_of(model(), town.saver))] == ["settled"]


def test_a_later_version_of_a_named_graph(town: Town) -> None:
    """A later version with one node more and every channel of the old one settles what the old version left."""
    run_id = town.leave(node="talk", name="support")
    with town.open() as journal:
        [report] = journal.recover(graph_of(model(), town.saver, WithNotes, name="support"))
        assert (report.run_id, report.outcome) == (run_id, "settled")


def test_a_later_version_that_knows_less(town: Town) -> None:
    """A later version that lacks a channel of the thread would lose it, so the run is held, and the reason names the
    channel."""
    run_id = town.leave(WithNotes, name="support")
    with town.open() as journal:
        [report] = journal.recover(graph_of(model(), town.saver, name="support"))
        assert report.outcome == "held"
        assert report.reason is not None
        assert "would lose: notes" in report.reason
        assert journal.run(run_id).problem == report.reason
    assert state_of(town, WithNotes).values["notes"] == ["noted"]


def test_two_graphs_of_one_name_that_are_both_here(town: Town) -> None:
    """Two attached graphs of one name settle their own runs each, though one has all channels of the other."""
    town.leave(name="agent")
    with town.open() as journal:
        narrow = attach(graph_of(model(), town.saver, name="agent"), journal)
        wide = attach(graph_of(model(), town.saver, WithNotes, name="agent"), journal)
        [report] = journal.recover(wide)
        assert report.outcome == "held"
        assert report.reason is not None
        assert "is attached here as well" in report.reason
        assert [one.outcome for one in journal.recover(narrow)] == ["settled"]


def test_a_version_that_was_garbage_collected_settles_nothing(town: Town) -> None:
    """After a notebook cell is run again with another graph of that name, the earlier version settles nothing any more."""
    with town.open() as journal:
        # Do not hold the exception: it would hold the frames of the graph that raised it.
        builder: Any = StateGraph(MessagesState).add_node("talk", lambda state: {}["boom"]).add_edge(START, "talk")
        agent = attach(builder.compile(checkpointer=town.saver, name="agent"), journal, settle="never")
        with pytest.raises(KeyError, match="boom"):
            agent.invoke(say("hi"), THREAD)
        later = graph_of(model(), town.saver, WithNotes, name="agent")
        assert [one.outcome for one in journal.recover(later)] == ["held"]
        del agent
        gc.collect()
        assert [one.outcome for one in journal.recover(later)] == ["settled"]


def test_an_earlier_version_of_a_graph_without_a_name_is_adopted_on_request(town: Town) -> None:
    """With `adopt=True`, the program says that the run belongs to an earlier version."""
    town.leave()
    later = graph_of(model(), town.saver, node="renamed")
    with town.open() as journal:
        assert [one.outcome for one in journal.recover(later)] == ["held"]
        assert [one.outcome for one in journal.recover(later, adopt=True)] == ["settled"]
    assert shown(state_of(town).values["messages"]) == SETTLED


def test_a_new_message_by_a_later_version_without_a_name(town: Town) -> None:
    """A message of a later version settles the run behind whose checkpoints it stands."""
    run_id = town.leave()
    asked = model(words("fine"))
    with town.open() as journal:
        agent = attach(graph_of(asked, town.saver, node="renamed"), journal)
        agent.invoke(say("next"), THREAD)
        assert journal.run(run_id).settled
    assert shown(asked.seen[-1]) == [*SETTLED, "U next"]


def test_a_new_message_of_another_graph_on_a_thread_of_that_name(town: Town, caplog: pytest.LogCaptureFixture) -> None:
    """A run on the thread of another checkpointer is not touched, and the log says so once."""
    run_id = town.leave()
    asked = model(words("fine"), words("fine"))
    with SqliteSaver.from_conn_string(":memory:") as other, town.open() as journal:
        agent = attach(graph_of(asked, other, WithNotes), journal)
        for _ in range(2):
            agent.invoke(say("mine"), THREAD)
        assert shown(asked.seen[0]) == ["U mine"]
        run = journal.run(run_id)
        assert (run.settled, run.given_up) == (False, False)
        warnings = [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]
        assert [run_id in one for one in warnings] == [True]
        assert [one.outcome for one in journal.recover(graph_of(model(), town.saver))] == ["settled"]
    assert shown(state_of(town).values["messages"]) == SETTLED


def test_one_graph_that_is_attached_in_two_processes(town: Town) -> None:
    """A living process keeps its runs; the other process settles them when the first one is dead."""
    with town.open() as first, town.open() as second:
        agent = attach(graph_of(model(HALF), town.saver), first, settle="never")
        with pytest.raises(RuntimeError, match="boom"):
            agent.invoke(say("hi"), THREAD)
        first.flush()
        assert second.recover(graph_of(model(), town.saver)) == []
        first.close()
        assert [one.outcome for one in second.recover(graph_of(model(), town.saver))] == ["settled"]


def test_runs_of_journals_without_fingerprints(town: Town) -> None:
    """A run of an older release, which recorded only the name, counts as one of this graph, as it did then."""
    with town.open() as journal:
        about = {"runjournal_graph": "LangGraph"}
        journal.append(
            Event(run_id="old", kind="run.start", data={"thread_id": "t", "name": "LangGraph", "metadata": about})
        )
        said = {"message": {"type": "human", "data": {"type": "human", "content": "hi"}}}
        journal.append(Event(run_id="old", kind="llm.human.input", data=said))
        end = {"status": "interrupted", "cause": "crash", "settled": False}
        journal.append(Event(run_id="old", kind="run.end", data=end))
        journal.flush()
        assert [one.outcome for one in journal.recover(graph_of(model(), town.saver))] == ["settled"]
    assert shown(state_of(town).values["messages"]) == ["U+ hi"]


def test_a_graph_that_went_on_over_the_run_of_another_one(town: Town) -> None:
    """When two graphs use one thread, the first run is not written behind the turn of the second one, and says so."""
    run_id = town.leave(name="y")
    with town.open() as journal:
        asked = model(words("fine"))
        other = attach(graph_of(asked, town.saver, name="x"), journal)
        other.invoke(say("next"), THREAD)
        [report] = journal.recover(graph_of(model(), town.saver, name="y"))
        assert report.outcome == "moved_on"
        assert report.reason is not None
        assert "of another graph came after it, on the same thread" in report.reason
        run = journal.run(run_id)
        assert (run.settled, run.given_up) == (False, True)
    assert shown(state_of(town).values["messages"]) == ["U hi", "U next", "A fine"]
