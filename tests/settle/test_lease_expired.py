"""The store on another machine is away: an agent goes on for the time of its lease, and then writes no checkpoint."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph

from langchain_runjournal import Event, JournalSaver, RunJournal, attach, errors, start_run
from langchain_runjournal.journal.core import JournalCore, core_of
from langchain_runjournal.settle.thread_hold import Hold
from langchain_runjournal.stores.sqlite import SqliteStore
from langchain_runjournal.testing import FakeClock, FaultyStore
from tests.settle.test_fenced_saver import Noting, given, graph_of, is_written, shut
from tests.settle.test_saver import WAYS
from tests.support.conversations import the_rest
from tests.support.far_server import FarServer, ServedStore
from tests.support.paused_program import THREAD

LEASE = 15.0


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that fails after 10 ms counts as one that has waited."""
    monkeypatch.setattr("langchain_runjournal.journal.prompt_store._SLOW", 0.01)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint does not wait for the store after the lease."""
    monkeypatch.setattr("langchain_runjournal.settle.fence._PATIENCE", 0.0)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def server(db: Path) -> FarServer:
    return FarServer(db)


@pytest.fixture
def store(server: FarServer) -> ServedStore:
    return server.connect()


@pytest.fixture
def journal(store: ServedStore, clock: FakeClock) -> Iterator[RunJournal]:
    journal = RunJournal(store, clock=clock, lease=LEASE)
    yield journal
    store.come_back()
    shut(journal)


def append(journal: RunJournal, run_id: str) -> None:
    journal.append(Event(run_id=run_id, kind="llm.ai.delta", data={"text": "x"}))
    journal.flush()


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("way", WAYS)
def test_checkpoints_are_written_until_the_lease_has_run_out(
    way: str, journal: RunJournal, store: ServedStore, clock: FakeClock
) -> None:
    """Within the lease nobody can have claimed the run. After it somebody may have, until the store says that nobody has."""
    saver = JournalSaver(Noting(), journal)
    seen: list[str] = []

    def node(state: Any) -> Any:
        journal.flush()
        run_id = journal.runs(limit=1)[0].run_id
        store.go_away(0.02)
        assert is_written(saver, way)
        clock.advance(LEASE / 2)
        assert is_written(saver, way)
        clock.advance(LEASE / 2)
        with pytest.raises(errors.LeaseExpired, match="the store did not answer within the lease") as caught:
            is_written(saver, way)
        assert (caught.value.run_ids, caught.value.thread_id) == ([run_id], THREAD["configurable"]["thread_id"])
        store.come_back()
        journal.flush()
        assert is_written(saver, way)
        seen.append("all of it")
        return {"messages": [AIMessage("answer")]}

    # LangGraph writes nothing in the background then.
    attach(graph_of(node, saver), journal).invoke(given(), THREAD, durability="sync")
    assert seen
    journal.flush()
    assert [run.status for run in journal.runs()] == ["completed"]


@pytest.mark.usefixtures("impatient")
def test_a_run_that_was_claimed_in_the_outage_writes_nothing_more(
    journal: RunJournal, store: ServedStore, server: FarServer, clock: FakeClock
) -> None:
    """From the end of the lease on it writes nothing, and when the store is back, it knows that it is fenced."""
    saver = JournalSaver(Noting(), journal)

    def node(state: Any) -> Any:
        journal.flush()
        run = journal.runs(limit=1)[0]
        store.go_away(0.02)
        clock.advance(LEASE)
        other = server.connect()
        assert other.claim(run.run_id, "another", run.epoch)
        other.close()
        with pytest.raises(errors.LeaseExpired):
            is_written(saver, "put")
        store.come_back()
        with pytest.raises(errors.RunFenced):
            append(journal, run.run_id)
        with pytest.raises(errors.CheckpointFenced) as caught:
            is_written(saver, "put")
        assert not isinstance(caught.value, errors.LeaseExpired)
        return {"messages": [AIMessage("answer")]}

    with pytest.raises(errors.CheckpointFenced):
        attach(graph_of(node, saver), journal).invoke(given(), THREAD, durability="sync")


def returns(journal: RunJournal, store: ServedStore, clock: FakeClock) -> None:
    """The store is back, and the next heartbeat is due."""
    store.come_back()
    clock.advance(1.0)
    core_of(journal).bell.ring()


def outlasting(journal: RunJournal, store: ServedStore, clock: FakeClock) -> Callable[[Any], Any]:
    """Return a node that ends in an outage which has lasted for longer than the lease."""

    def node(state: Any) -> Any:
        journal.flush()
        store.go_away(0.02)
        with pytest.raises(errors.StoreUnreachable):
            journal.runs()
        clock.advance(LEASE)
        return {"messages": [AIMessage("answer")]}

    return node


class Looks:
    """Counts the looks of a checkpoint that waits for the store, and calls something at the third one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, third: Callable[[], object]) -> None:
        self.count = 0
        monkeypatch.setattr("langchain_runjournal.settle.fence._LOOK", 0.001)
        over = JournalCore.lease_has_run_out

        def look(core: JournalCore) -> bool:
            found = over(core)
            self.count += found
            if found and self.count == 3:
                third()
            return found

        monkeypatch.setattr(JournalCore, "lease_has_run_out", look)


@pytest.mark.parametrize("is_async", [False, True], ids=["invoke", "ainvoke"])
def test_a_checkpoint_waits_for_a_store_that_is_away_for_longer(
    is_async: bool, journal: RunJournal, store: ServedStore, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run completes when the store is back, if nobody has claimed it."""
    looks = Looks(monkeypatch, lambda: returns(journal, store, clock))

    graph = attach(graph_of(outlasting(journal, store, clock), JournalSaver(InMemorySaver(), journal)), journal)
    found = asyncio.run(graph.ainvoke(given(), THREAD)) if is_async else graph.invoke(given(), THREAD)
    assert looks.count >= 3
    assert [message.text for message in found["messages"]][-1] == "answer"
    assert [message.text for message in graph.get_state(THREAD).values["messages"]][-1] == "answer"
    journal.flush()
    assert [(run.status, run.settled) for run in journal.runs()] == [("completed", True)]


def test_a_checkpoint_that_has_waited_asks_for_the_fence(
    journal: RunJournal, store: ServedStore, server: FarServer, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another machine has claimed the run meanwhile: the checkpoint is refused when the store is back."""

    def claim() -> None:
        other = server.connect()
        run = other.runs(thread_id=None, status=None, limit=1)[0]
        assert other.claim(run.run_id, "another", run.epoch)
        other.close()
        returns(journal, store, clock)

    looks = Looks(monkeypatch, claim)
    node, saver = outlasting(journal, store, clock), InMemorySaver()
    with pytest.raises(errors.CheckpointFenced) as caught:
        attach(graph_of(node, JournalSaver(saver, journal)), journal).invoke(given(), THREAD)
    assert not isinstance(caught.value, errors.LeaseExpired)
    assert looks.count >= 3


def test_a_checkpoint_of_a_stopped_run_waits_no_longer(
    journal: RunJournal, store: ServedStore, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stop comes while the checkpoint waits, which could wait for an hour: the call ends, and no task of it is left."""
    monkeypatch.setattr("langchain_runjournal.settle.fence._PATIENCE", 3600.0)

    async def main() -> None:
        task: asyncio.Task[Any]
        looks = Looks(monkeypatch, lambda: task.cancel())
        saver = JournalSaver(InMemorySaver(), journal)

        async def node(state: Any) -> Any:
            await journal.aflush()
            store.go_away(0.02)
            with pytest.raises(errors.StoreUnreachable):
                await journal.aruns()
            clock.advance(LEASE)
            return {"messages": [AIMessage("answer")]}

        graph = attach(graph_of(node, saver), journal)
        task = asyncio.create_task(graph.ainvoke(given(), THREAD))
        with pytest.raises(asyncio.CancelledError):
            await task
        assert looks.count >= 3
        await the_rest()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


def test_a_store_with_a_file_fences_nobody_by_its_clock(db: Path, clock: FakeClock) -> None:
    """SQLite that cannot be read: the checkpoint is written, as before, however long that lasts."""
    failing = FaultyStore(SqliteStore(db))
    journal = RunJournal(failing, clock=clock, lease=LEASE)
    saver = JournalSaver(Noting(), journal)

    def node(state: Any) -> Any:
        failing.fail(verb="owner_of", times=-1)
        clock.advance(100 * LEASE)
        assert is_written(saver, "put")
        failing.fail(times=0)
        return {"messages": [AIMessage("answer")]}

    attach(graph_of(node, saver), journal).invoke(given(), THREAD)
    shut(journal)


def test_a_settlement_stops_when_the_lease_has_run_out(journal: RunJournal, store: ServedStore, clock: FakeClock) -> None:
    """Another machine may hold the thread by then: the settlement asks before each superstep."""
    hold = Hold(journal, "t", SimpleNamespace(run_ids=["r"]))  # type: ignore[arg-type]
    assert hold.take() is None
    store.go_away(0.02)
    hold.check()
    clock.advance(LEASE)
    with pytest.raises(errors.LeaseExpired):
        hold.check()
    store.come_back()
    append(journal, "other")
    hold.check()
    hold.release()


# --- how long it takes --------------------------------------------------------------------------------------------------


def steps(count: int, saver: Any) -> Any:
    """Return a graph of `count` nodes, one after the other."""
    builder = StateGraph(MessagesState)
    for number in range(count):
        builder.add_node(f"n{number}", lambda state, number=number: {"messages": [AIMessage(f"said {number}")]})
        builder.add_edge(START if number == 0 else f"n{number - 1}", f"n{number}")
    return builder.compile(checkpointer=saver)


@pytest.mark.parametrize("is_async", [False, True], ids=["invoke", "ainvoke"])
def test_a_turn_in_an_outage_waits_once(is_async: bool, journal: RunJournal, store: ServedStore) -> None:
    """Ten supersteps with their checkpoints: one caller finds the outage and waits, and nobody waits after that."""
    graph = attach(steps(10, JournalSaver(InMemorySaver(), journal)), journal)
    graph.invoke(given("the first turn"), THREAD)
    journal.flush()
    store.go_away(0.02)
    found = asyncio.run(graph.ainvoke(given("again"), THREAD)) if is_async else graph.invoke(given("again"), THREAD)
    assert len(found["messages"]) == 22
    assert len(store.waits) <= 1, store.waits
    store.come_back()
    journal.flush()
    assert [run.status for run in journal.runs()] == ["completed", "completed"]
    assert len(journal.transcript(journal.runs()[0].run_id)) == 11


def test_an_outage_is_logged_in_lines_and_not_in_tracebacks(
    journal: RunJournal, store: ServedStore, caplog: pytest.LogCaptureFixture
) -> None:
    """A turn that fails in an outage, and the next one: each line says that the server does not answer. An alert reads
    lines."""
    fails = [True]

    def node(state: Any) -> Any:
        if fails.pop():
            raise RuntimeError("the tool broke")
        return {"messages": [AIMessage("answer")]}

    graph = attach(graph_of(node, JournalSaver(InMemorySaver(), journal)), journal)
    store.go_away(0.02)
    with pytest.raises(RuntimeError, match="broke"):
        graph.invoke(given(), THREAD)
    fails.append(False)
    graph.invoke(given("again"), THREAD)
    store.come_back()
    journal.flush()
    said = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert [record.getMessage() for record in said if record.exc_info] == []
    assert len([record for record in said if "it has not answered within" in record.getMessage()]) >= 3
    assert [run.status for run in journal.runs()] == ["completed", "failed"]


def test_start_run_says_that_the_store_is_away(journal: RunJournal, store: ServedStore) -> None:
    """The store decides which run has the thread: without it no run begins, and the error says why."""
    graph = attach(steps(1, JournalSaver(InMemorySaver(), journal)), journal)

    async def main() -> None:
        store.go_away(0.02)
        with pytest.raises(errors.StoreUnreachable, match=r"has not answered within 0\.02 s"):
            await start_run(graph, given(), THREAD)
        assert len(store.waits) <= 1, store.waits
        store.come_back()
        await asyncio.to_thread(append, journal, "other")
        handle = await start_run(graph, given(), THREAD)
        assert (await handle.wait()).status == "completed"

    asyncio.run(main())
