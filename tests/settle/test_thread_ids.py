"""A thread id that UTF-8 cannot encode never becomes the id of another thread: "user\\ud800" is not "user?"."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph

from langchain_runjournal import (
    Event,
    JournalCallbackHandler,
    RunJournal,
    arecord_partial_ai_message,
    attach,
    errors,
    record_partial_ai_message,
    start_run,
)
from langchain_runjournal.events import thaw_events
from langchain_runjournal.events.run_state import advance, begin
from langchain_runjournal.journal.core import core_of
from tests.support.command_line import run

HALF = "user\ud800"
THEIRS = "user?"
CONFIG: Any = {"configurable": {"thread_id": HALF}}
ASKED: Any = {"messages": [("user", "mine")]}
PARTIAL = AIMessage("half an ans", id="p")


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[RunJournal]:
    """Return a journal with a run on the thread that looks like it."""
    with RunJournal(tmp_path / "runs.db") as journal:
        journal.append(Event(run_id="theirs", kind="run.start", data={"thread_id": THEIRS}))
        journal.append(Event(run_id="theirs", kind="run.end"))
        journal.flush()
        yield journal
        journal.flush()
        assert [one.run_id for one in journal.runs(THEIRS)] == ["theirs"]


def graph_of(journal: RunJournal) -> Any:
    """Return a graph that answers "fine" and keeps its state."""
    graph = StateGraph(MessagesState)
    graph.add_node("answer", lambda state: {"messages": [AIMessage("fine")]})
    graph.add_edge(START, "answer")
    return attach(graph.compile(checkpointer=InMemorySaver()), journal)


def test_calls_of_the_journal_refuse_it(journal: RunJournal) -> None:
    """Reading, deleting and appending refuse such an id."""
    for call in (
        lambda: journal.runs(thread_id=HALF),
        lambda: asyncio.run(journal.aruns(thread_id=HALF)),
        lambda: journal.delete(thread_id=HALF),
        lambda: Event(run_id="r", kind="run.start", data={"thread_id": HALF}),
        lambda: Event(run_id=HALF, kind="run.start"),
        lambda: journal.run(HALF),
        lambda: journal.read(HALF),
        lambda: journal.stop(HALF),
        lambda: journal.claim(HALF),
        lambda: journal.transcript(HALF),
        lambda: journal.resume_config(HALF),
        lambda: journal.delete(run_id=HALF),
        lambda: next(journal.follow(HALF)),
    ):
        with pytest.raises(errors.InvalidArgument):
            call()


def test_graphs_refuse_it(journal: RunJournal) -> None:
    """Every way to run an attached graph, or to read its thread, refuses such an id."""
    graph = graph_of(journal)
    theirs: Any = {"configurable": {"thread_id": THEIRS}}
    graph.invoke({"messages": [("user", "theirs")]}, theirs)
    journal.delete(run_id=journal.runs(THEIRS)[0].run_id)
    for call in (
        lambda: graph.invoke(ASKED, CONFIG),
        lambda: list(graph.stream(ASKED, CONFIG)),
        lambda: graph.get_state(CONFIG),
        lambda: graph.update_state(CONFIG, ASKED),
        lambda: graph.checkpointer.delete_thread(HALF),
        lambda: record_partial_ai_message(graph, CONFIG, PARTIAL),
        lambda: asyncio.run(graph.ainvoke(ASKED, CONFIG)),
        lambda: asyncio.run(start_run(graph, ASKED, CONFIG)),
        lambda: asyncio.run(arecord_partial_ai_message(graph, CONFIG, PARTIAL)),
    ):
        with pytest.raises(errors.InvalidArgument, match=r"surrogate|str"):
            call()
    assert [message.text for message in graph.get_state(theirs).values["messages"]] == ["theirs", "fine"]
    assert {one.thread_id for one in journal.runs()} == {THEIRS, None}


def test_a_recorded_chain_has_no_thread(journal: RunJournal, caplog: pytest.LogCaptureFixture) -> None:
    """A chain that only a handler records runs without a thread, and the log says so."""
    model = GenericFakeChatModel(messages=iter([AIMessage("fine")]))
    with caplog.at_level(logging.ERROR, "langchain_runjournal"):
        model.invoke("hi", {"callbacks": [JournalCallbackHandler(journal)], "metadata": {"thread_id": HALF}})
    assert "half of a surrogate pair" in caplog.text
    (found,) = [one for one in journal.runs() if one.run_id != "theirs"]
    assert (found.thread_id, found.status) == (None, "completed")
    assert [message.text for message in journal.transcript(found.run_id)] == ["hi", "fine"]


def test_what_an_older_release_left_in_a_spool_has_no_thread() -> None:
    """An unchecked id from the spool of an older release is dropped."""
    (event,) = thaw_events("r", ["run.start"], [{"thread_id": HALF}], [None], 1, [1.0])
    assert advance(begin("r", 1.0), event).thread_id is None


@pytest.mark.parametrize("command", [["list"], ["delete", "--yes"]])
def test_the_command_refuses_it(journal: RunJournal, tmp_path: Path, command: list[str]) -> None:
    """The command refuses such an id, also as bytes of a command line, which Python decodes to lone surrogates."""
    for name in (HALF, "user\udcff"):
        done = run(*command, "--thread", name, "--journal", str(tmp_path / "runs.db"))
        assert done.exit_code != 0, done.output
        assert "UTF-8" in done.output + done.stderr


def test_call_ids_and_names_stay_what_they_are(journal: RunJournal, tmp_path: Path) -> None:
    """Call ids and names that differ only in such a character stay different, in memory, in the store and in learned
    graphs."""
    for call in ("c\ud800", "c?"):
        journal.append(Event(run_id="r", kind="llm.ai.delta", data={"text": "x"}, call_id=call))
    journal.append(Event(run_id="r", kind="tool.start", data={"name": "f\ud800", "tool_call_id": "t\ud800"}))
    journal.flush()
    found = journal.read("r")
    assert [event.call_id for event in found] == ["c\ud800", "c?", None]
    assert found[2].data == {"name": "f\ud800", "tool_call_id": "t\ud800"}
    core_of(journal).store.learn("name g\ud800", ["one"])
    assert core_of(journal).store.learned("name g?") == set()
    assert core_of(journal).store.learned("name g\ud800") == {"one"}
    with contextlib.closing(sqlite3.connect(tmp_path / "runs.db")) as con:
        assert con.execute("SELECT count(*) FROM runs WHERE run_id = 'r'").fetchone() == (1,)
