"""A run that another process has claimed: when its own process continues, it must not write the thread any more."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph

from langchain_runjournal import JournalCallbackHandler, JournalSaver, RunJournal, attach
from langchain_runjournal.errors import CheckpointFenced, RunFenced
from langchain_runjournal.journal.core import core_of
from langchain_runjournal.stores import Store, open_store
from langchain_runjournal.testing import FakeClock, FaultyStore
from tests.settle.test_saver import WAYS, config_of, event, write
from tests.support.conversations import story
from tests.support.paused_program import THREAD, answers, build
from tests.support.places import PLACES, Place, make_place, marked, on

Journals = Callable[..., RunJournal]


def until(true: Callable[[], object]) -> None:
    while not true():
        threading.Event().wait(0.01)  # for another process, which can set no event of ours


def places(graph: Any) -> list[str]:
    """Return the checkpoints of the thread."""
    return [one.config["configurable"]["checkpoint_id"] for one in graph.get_state_history(THREAD)]


class Paused:
    """Another process, suspended in the middle of a run."""

    def __init__(self, home: str, how: str, durability: str, lease: float = 0.6) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.paused_program", home, how, durability, str(lease)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "working\n", self.process.communicate()

    def pause(self) -> None:
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOWAIT)

    def go_on(self) -> tuple[str, str]:
        """Let the process end, and return what it has printed."""
        self.process.send_signal(signal.SIGCONT)
        return self.process.communicate("go\n", timeout=60)


@pytest.fixture
def paused(place: Place) -> Iterator[Callable[..., Paused]]:
    opened: list[Paused] = []

    def start(*args: Any) -> Paused:
        opened.append(Paused(place.home, *args))
        return opened[-1]

    yield start
    for one in opened:
        one.process.kill()
        one.process.communicate()


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="SIGSTOP")
@pytest.mark.parametrize(
    ("how", "durability"),
    [
        ("attached, sync", "async"),
        ("attached, await", "async"),
        ("handler, await", "exit"),
    ],
)
@on(*PLACES, storm=["redis"])
def test_who_was_paused_for_too_long_writes_no_checkpoint(
    how: str, durability: str, place: Place, journals: Journals, paused: Callable[..., Paused]
) -> None:
    """A process that was suspended beyond its lease writes no checkpoint, so the conversation that has continued keeps
    everything."""
    one = paused(how, durability)
    journal = journals()
    with place.saver() as saver:
        graph = attach(build(answers, saver), journal)
        one.pause()
        until(lambda: journal.recover(graph, adopt=True))
        for said in ("second", "third"):
            graph.invoke({"messages": [("user", said)]}, THREAD)
        told = story(graph.get_state(THREAD).values["messages"])
        assert told == ["U first", "U second", "A to second", "A after", "U third", "A to third", "A after"]
        there = places(graph)
        said, log = one.go_on()
        assert story(graph.get_state(THREAD).values["messages"]) == told, (said, log)
        assert said.startswith("CheckpointFenced"), (said, log)
        assert places(graph) == there, (said, log)


# --- in one process, with a store that says so ------------------------------------------------------------------------


class Without(FaultyStore):
    """A third-party store, which has no `owner_of`."""

    def __getattr__(self, name: str) -> Any:
        if name == "owner_of":
            raise AttributeError(name)
        return super().__getattr__(name)


@pytest.fixture(params=["sqlite", "memory", "without the verb", *marked(PLACES[1:], slow=PLACES)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    place = make_place(tmp_path, request.param if request.param in PLACES else "sqlite")
    inner = open_store(":memory:" if request.param == "memory" else place.journal)
    yield Without(inner) if "without" in request.param else inner
    inner.close()
    place.drop()


@pytest.fixture
def journal(store: Store) -> Iterator[RunJournal]:
    journal = RunJournal(store)
    yield journal
    shut(journal)


def shut(journal: RunJournal) -> None:
    """Close the journal. Other tests check what it reports of refused events of fenced runs."""
    try:
        journal.close()
    except RunFenced:
        assert core_of(journal).is_closed


def take(journal: RunJournal, run_id: str | None = None) -> None:
    """Claim the run of a journal, as another process does once the lease has run out."""
    journal.flush()
    run = journal.run(run_id) if run_id is not None else journal.runs(limit=1)[0]
    assert core_of(journal).store.claim(run.run_id, "another", run.epoch)


class Noting(InMemorySaver):
    """A checkpointer that notes the checkpoints which it was asked to write."""

    def __init__(self) -> None:
        super().__init__()
        self.noted: list[str] = []

    def put(self, config: Any, checkpoint: Any, *rest: Any) -> Any:
        self.noted.append(checkpoint["id"])
        return super().put(config, checkpoint, *rest)

    def put_writes(self, config: Any, *rest: Any) -> None:
        self.noted.append(config["configurable"]["checkpoint_id"])
        super().put_writes(config, *rest)


def is_written(saver: Any, way: str) -> bool:
    """Write something, and return whether it reaches the inner saver. Raise what the write raises."""
    checkpoint = empty_checkpoint()
    try:
        write(saver, way, checkpoint=checkpoint)
    except CheckpointFenced:
        assert checkpoint["id"] not in saver.saver.noted
        raise
    return checkpoint["id"] in saver.saver.noted


def graph_of(node: Callable[..., Any], saver: Any, name: str = "graph") -> Any:
    builder = StateGraph(MessagesState)
    builder.add_node("node", node)
    builder.add_edge(START, "node")
    return builder.compile(checkpointer=saver, name=name)


def given(said: str = "hi") -> Any:
    return {"messages": [("user", said)]}


@pytest.mark.parametrize("how", ["attached", "handler"])
@pytest.mark.parametrize("way", WAYS)
def test_each_way_of_writing_asks(way: str, how: str, journal: RunJournal) -> None:
    """Each way of writing works while the run is ours, and is refused from the first write after that."""
    saver = JournalSaver(Noting(), journal)

    def node(state: Any) -> Any:
        assert is_written(saver, way)
        take(journal)
        with pytest.raises(CheckpointFenced, match="took it over") as caught:
            is_written(saver, way)
        assert isinstance(caught.value, RunFenced)
        assert caught.value.run_ids == [journal.runs(limit=1)[0].run_id]
        return {"messages": [AIMessage("answer")]}

    graph, config = graph_of(node, saver), {**THREAD}
    if how == "attached":
        graph = attach(graph, journal)
    else:
        config["callbacks"] = [JournalCallbackHandler(journal)]
    with pytest.raises(CheckpointFenced):
        graph.invoke(given(), config)


@pytest.mark.parametrize("way", WAYS)
def test_a_thread_that_no_run_writes_is_written_as_before(way: str, journal: RunJournal) -> None:
    """The fence does not affect runs that are not journaled, nor threads other than that of the fenced run."""
    saver = JournalSaver(InMemorySaver(), journal)

    def node(state: Any) -> Any:
        take(journal)
        write(saver, way, "another thread")
        alone = threading.Thread(target=graph_of(answers, saver).invoke, args=(given(), config_of("a third one")))
        alone.start()
        alone.join()
        return {"messages": []}

    with pytest.raises(CheckpointFenced):
        attach(graph_of(node, saver), journal).invoke(given(), THREAD)
    assert len(list(saver.list(config_of("a third one")))) == 3
    write(saver, way)


def test_graphs_inside_of_a_fenced_run_do_not_write_either(journal: RunJournal) -> None:
    """An inner graph, and a graph that a node calls on a thread of its own, write nothing for a fenced run."""
    saver = JournalSaver(InMemorySaver(), journal)
    inner = graph_of(answers, None, "inner")
    alone = graph_of(answers, saver, "alone")
    seen: list[str] = []

    def node(state: Any) -> Any:
        take(journal)
        for one, config in ((inner, {}), (alone, config_of("x"))):
            try:
                one.invoke(given(), config)
            except CheckpointFenced:
                seen.append(one.name)
        return {"messages": []}

    with pytest.raises(CheckpointFenced):
        attach(graph_of(node, saver), journal).invoke(given(), THREAD)
    assert seen == ["inner", "alone"]
    assert not list(saver.list(config_of("x")))


def test_a_fenced_run_that_fails_settles_nothing(journal: RunJournal) -> None:
    """A fenced run that fails settles nothing, because the new owner settles its thread."""
    saver = JournalSaver(InMemorySaver(), journal)
    there: list[Any] = []

    def node(state: Any) -> Any:
        take(journal)
        there.extend(saver.list(config_of()))
        raise ValueError("it fails")

    graph = attach(graph_of(node, saver), journal)
    with pytest.raises((ValueError, CheckpointFenced)):
        graph.invoke(given(), THREAD, durability="sync")
    assert [one.config for one in saver.list(config_of())] == [one.config for one in there]


def test_a_settlement_that_loses_its_run_stops(journal: RunJournal, caplog: pytest.LogCaptureFixture) -> None:
    """A settlement checks the fence directly before it writes."""
    saver = JournalSaver(InMemorySaver(), journal)
    graph = attach(graph_of(lambda state: 1 / 0, saver), journal, settle="never")
    with pytest.raises(ZeroDivisionError):
        graph.invoke(given(), THREAD)
    run = journal.runs()[0]
    before = [one.config for one in saver.list(config_of())]
    read = saver.saver.get_tuple

    def meanwhile(config: Any) -> Any:
        saver.saver.get_tuple = read
        assert core_of(journal).store.claim(run.run_id, "another", run.epoch)
        return read(config)

    saver.saver.get_tuple = meanwhile
    with caplog.at_level(logging.ERROR):
        settled = journal.recover(graph)
    assert [one.outcome for one in settled] == ["failed"]
    assert "CheckpointFenced" in str(settled[0].reason)
    assert [one.config for one in saver.list(config_of())] == before


def test_a_deleted_run_does_not_come_back(journal: RunJournal) -> None:
    """A run whose thread was deleted while its process was suspended writes no words and no checkpoints."""
    saver = JournalSaver(InMemorySaver(), journal)

    def node(state: Any) -> Any:
        journal.flush()
        core_of(journal).store.delete([journal.runs(limit=1)[0].run_id])
        saver.saver.delete_thread("t")
        return {"messages": [AIMessage("answer")]}

    with pytest.raises(CheckpointFenced):
        attach(graph_of(node, saver), journal).invoke(given(), THREAD, durability="sync")
    assert not list(saver.list(config_of()))


def test_a_new_run_beside_a_fenced_one_writes(journal: RunJournal) -> None:
    """While the fenced run hangs in a tool, the same process answers the next message."""
    saver = JournalSaver(InMemorySaver(), journal)
    hangs, go = threading.Event(), threading.Event()
    failed: list[Exception] = []

    def node(state: Any) -> Any:
        if state["messages"][-1].text == "first":
            hangs.set()
            assert go.wait(30)
        return answers(state)

    graph = attach(graph_of(node, saver), journal)

    def hang() -> None:
        try:
            graph.invoke(given("first"), THREAD, durability="sync")
        except CheckpointFenced as exc:
            failed.append(exc)

    first = threading.Thread(target=hang)
    first.start()
    assert hangs.wait(30)
    take(journal)
    graph.invoke(given("second"), THREAD)
    go.set()
    first.join()
    assert len(failed) == 1
    assert story(graph.get_state(THREAD).values["messages"])[-2:] == ["U second", "A to second"]


@pytest.mark.parametrize("way", WAYS)
def test_an_answer_that_has_become_old_is_asked_for_again(way: str, db: Path) -> None:
    """The saver asks the store again if the process was suspended between the answer and the write for longer than the
    lease."""
    clock = FakeClock()

    class Meanwhile(FaultyStore):
        def owner_of(self, run_id: str) -> str | None:
            owner = self.inner.owner_of(run_id)
            if self.armed:
                self.armed = False
                assert self.inner.claim(run_id, "another", 1)
                clock.advance(15.0)
            return owner

    store = Meanwhile(open_store(db))
    store.armed = False
    journal = RunJournal(store, clock=clock)
    saver = JournalSaver(Noting(), journal)

    def node(state: Any) -> Any:
        until(lambda: len(list(saver.list(THREAD))) == 2)
        store.armed = True
        with pytest.raises(CheckpointFenced):
            is_written(saver, way)
        return {"messages": []}

    with pytest.raises(CheckpointFenced):
        attach(graph_of(node, saver), journal).invoke(given(), THREAD)
    shut(journal)


@pytest.mark.parametrize("way", WAYS)
def test_a_store_that_can_be_read_and_not_written_is_asked(way: str, db: Path) -> None:
    """The fence counts although the journal cannot be written; a store that does not answer fences no run."""
    store = FaultyStore(open_store(db))
    journal = RunJournal(store)
    saver = JournalSaver(Noting(), journal)

    def node(state: Any) -> Any:
        take(journal)
        store.fail(times=-1)
        journal.append(event(journal.runs(limit=1)[0].run_id, "llm.ai.delta", text="x"))
        with pytest.raises(CheckpointFenced):
            is_written(saver, way)
        store.fail(verb="owner_of", times=-1)
        assert is_written(saver, way)
        store.fail(times=0)
        return {"messages": []}

    with pytest.raises(CheckpointFenced):
        attach(graph_of(node, saver), journal).invoke(given(), THREAD)
    shut(journal)
