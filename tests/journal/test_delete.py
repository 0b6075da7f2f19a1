"""Deletion: which runs are deleted, which deletions are refused, and that no row, text or settlement of a deleted run is
left."""

from __future__ import annotations

import asyncio
import copy
import logging
import pickle
import random
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from langchain_runjournal import Event, JournalSaver, Run, RunJournal, attach, errors
from langchain_runjournal.capture.recorder import recorder_of
from langchain_runjournal.events import Kind
from langchain_runjournal.journal.core import core_of
from langchain_runjournal.journal.tool_history import tool_history_of
from langchain_runjournal.messages.tool_evidence import Evidence
from langchain_runjournal.stores.memory import MemoryStore
from langchain_runjournal.stores.sqlite import SqliteStore
from langchain_runjournal.testing import FakeClock, FaultyStore
from tests.journal.test_ownership import Writer
from tests.support.agents import asks, words
from tests.support.conversations import Broken, story, until
from tests.support.started_agent import facts, on, on_a_loop, say, talking
from tests.support.starter import Failed, Process

Journals = Callable[..., RunJournal]
MARKER = "a-secret-that-must-go"


def put(journal: RunJournal, run_id: str, kind: Kind, call_id: str | None = None, **data: Any) -> None:
    journal.append(Event(run_id=run_id, kind=kind, data=data, call_id=call_id))


def ended(journal: RunJournal, run_id: str, thread: str | None = "t", said: str = "words ", **ending: Any) -> None:
    """Append a run that has said something and has ended."""
    put(journal, run_id, "run.start", thread_id=thread, name="agent", metadata={"note": said})
    for _ in range(20):
        put(journal, run_id, "llm.ai.delta", "c1", text=said)
    put(journal, run_id, "run.end", **{"status": "completed", **ending})


def holding(place: Path, text: str) -> set[str]:
    """Return the names of the files whose bytes contain a text."""
    return {path.name for path in place.iterdir() if text.encode() in path.read_bytes()}


# --- what is deleted ----------------------------------------------------------------------------------------------------


def test_a_thread_is_deleted(journals: Journals) -> None:
    """`delete` deletes all runs of the thread, the oldest first, and no other run. A second call finds nothing."""
    journal = journals()
    for run_id, thread in (("a", "t"), ("b", "u"), ("c", "t"), ("d", None)):
        ended(journal, run_id, thread)
    assert journal.delete(thread_id="t") == ["a", "c"]
    assert [run.run_id for run in journal.runs()] == ["d", "b"]
    assert journal.delete(thread_id="t") == []
    assert journal.delete(run_id="d") == ["d"]
    for look in (journal.run, journal.read, lambda run_id: journal.delete(run_id=run_id)):
        with pytest.raises(errors.RunNotFound):
            look("d")


def test_one_of_the_two_is_given(journals: Journals) -> None:
    """`delete` takes a thread or a run. It refuses neither, both, or an empty id, with a clear error."""
    journal = journals()
    ended(journal, "a")
    for wrong in ({}, {"thread_id": "t", "run_id": "a"}, {"thread_id": ""}, {"run_id": ""}, {"run_id": 7}):
        with pytest.raises(errors.InvalidArgument):
            journal.delete(**wrong)
    with pytest.raises(errors.InvalidArgument, match="timeout"):
        journal.delete(thread_id="t", timeout=-1)
    assert [run.run_id for run in journal.runs()] == ["a"]


def test_the_twin_deletes_as_well(journals: Journals) -> None:
    """`adelete` gives the same results and raises the same errors."""
    journal = journals()
    ended(journal, "a")
    put(journal, "b", "run.start", thread_id="u")

    async def work() -> None:
        with pytest.raises(errors.RunAtWork) as caught:
            await journal.adelete(thread_id="u")
        assert caught.value.run_ids == ["b"]
        assert await journal.adelete(thread_id="t") == ["a"]

    asyncio.run(work())


@pytest.mark.parametrize("status", ["failed", "interrupted", "paused"])
def test_what_is_not_settled_goes_as_well(journals: Journals, status: str) -> None:
    """A run that is paused for a human is deleted too; it does not end first."""
    journal = journals()
    put(journal, "r", "run.start", thread_id="t")
    if status == "paused":
        put(journal, "r", "run.pause", interrupts=[])
    else:
        put(journal, "r", "run.end", status=status, settled=False)
    assert journal.delete(run_id="r") == ["r"]
    assert journal.runs() == []


def test_it_is_all_or_nothing() -> None:
    """If the store fails, nothing is deleted, and the journal keeps later events of the runs as before."""
    store = FaultyStore(MemoryStore())
    with RunJournal(store) as journal:
        ended(journal, "a")
        ended(journal, "b")
        store.fail(verb="delete")
        with pytest.raises(OSError, match="out of order"):
            journal.delete(thread_id="t")
        assert "a" not in core_of(journal).appender.deleted_runs
        put(journal, "a", "llm.tool.result", late=True)
        assert [run.last_seq for run in journal.runs()] == [22, 23]
        assert journal.delete(thread_id="t") == ["a", "b"]


# --- which are refused ------------------------------------------------------------------------------------------------


def test_a_run_that_goes_on_is_refused(journals: Journals) -> None:
    """Every journal refuses it, and the other runs of the thread stay. With `force`, a run that does not stop raises what
    `stop` raises."""
    journal, other = journals(), journals()
    ended(journal, "a")
    put(journal, "b", "run.start", thread_id="t")
    journal.flush()
    for asked in (journal, other):
        with pytest.raises(errors.RunAtWork, match="run 'b' is still running") as caught:
            asked.delete(thread_id="t")
        assert pickle.loads(pickle.dumps(caught.value)).run_ids == ["b"]
        with pytest.raises(errors.StopTimeout):
            asked.delete(thread_id="t", force=True, timeout=0.05)
    assert {run.run_id for run in journal.runs()} == {"a", "b"}


@on_a_loop
async def test_force_stops_what_start_run_began(tmp_path: Path) -> None:
    """`delete` stops the run, settles it and deletes it. The next message begins with the thread that the checkpointer
    has."""
    async with talking(tmp_path) as talk:
        handle = await talk.start_held()
        with pytest.raises(errors.RunAtWork):
            await talk.journal.adelete(thread_id="t")
        assert await talk.journal.adelete(thread_id="t", force=True) == [handle.run_id]
        assert facts(await handle.wait()) == ("interrupted", "stop", True)
        await talk.goes_on("U go", "A~ one two ")


@on_a_loop
async def test_it_waits_for_the_task_of_a_run(tmp_path: Path) -> None:
    """A run that has ended is deleted after its task has read its status: a caller that awaits the run gets it, and not
    `RunNotFound`."""
    async with talking(tmp_path) as talk:
        handle = await talk.start_held()
        read, may_read = talk.journal.arun, asyncio.Event()

        async def arun(run_id: str) -> Run:
            await may_read.wait()
            return await read(run_id)

        talk.journal.arun = arun  # type: ignore[method-assign]
        deleting = asyncio.create_task(talk.journal.adelete(thread_id="t", force=True))
        await until(lambda: core_of(talk.journal).appender.buffers[handle.run_id].ended)
        is_early, _ = await asyncio.wait({deleting}, timeout=0.3)
        may_read.set()
        assert not is_early
        assert await deleting == [handle.run_id]
        assert facts(await handle.wait()) == ("interrupted", "stop", True)


@pytest.mark.slow
def test_a_run_of_another_process(tmp_path: Path) -> None:
    """`delete` refuses it while it is running; with `force`, it stops the run there. The other process stores nothing more
    of it, and continues."""
    process = Process(tmp_path).up()
    try:
        run_id = process.do("start", thread="t", text="talk")
        with RunJournal(tmp_path / "runs.db") as journal:
            with pytest.raises(errors.RunAtWork):
                journal.delete(run_id=run_id)
            assert journal.delete(thread_id="t", force=True) == [run_id]
            with pytest.raises(errors.RunNotFound):
                journal.run(run_id)
            with pytest.raises(Failed, match="RunNotFound"):
                process.do("stop", run_id=run_id)
            again = process.do("start", thread="t", text="hi")
            assert process.do("wait", run_id=again)["status"] == "completed"
            assert [run.run_id for run in journal.runs()] == [again]
    finally:
        assert "Traceback" not in process.close()


def test_a_run_of_a_killed_process(db: Path) -> None:
    """The run is deleted at once, with the events that only its spool had. A later import of the spool stores nothing of
    it."""
    writer = Writer(db, 100, "keep")
    writer.do("journal.append(Event(run_id='r', kind='llm.ai.delta', data={'text': '" + MARKER + "'}, call_id='c'))")
    writer.kill()
    writer.process.communicate()
    assert holding(db.parent, MARKER)
    with RunJournal(db) as journal:
        assert journal.delete(run_id="r") == ["r"]
        assert holding(db.parent, MARKER) == set()
    with RunJournal(db) as journal:
        assert (journal.runs(), journal.recovered) == ([], ())


def test_a_run_that_only_a_spool_has(journals: Journals, db: Path) -> None:
    """The process was killed before the store knew the run. `delete` finds the run by its thread, and no later import
    stores it."""
    journal, writer = journals(), Writer(db, 0, "keep")
    lock = sqlite3.connect(db, isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    writer.do("journal.append(Event(run_id='r', kind='run.start', data={'thread_id': 't'}))")
    writer.kill()
    writer.process.communicate()
    lock.close()
    assert journal.delete(thread_id="t") == ["r"]
    assert journal.runs() == []


# --- a deleted run never comes back --------------------------------------------------------------------------------------


def test_late_events_are_dropped(journals: Journals, caplog: pytest.LogCaptureFixture) -> None:
    """Late events of any kind are dropped, without an error at the next flush, also if another journal deleted the run."""
    journal = journals()
    ended(journal, "r")
    journal.delete(run_id="r")
    with caplog.at_level(logging.DEBUG, "langchain_runjournal"):
        put(journal, "r", "llm.tool.result", late=True)
        put(journal, "r", "llm.ai.delta", "c1", text="x")
        put(journal, "r", "run.end", status="completed")
        journal.flush()
    assert journal.runs() == []
    said = [record for record in caplog.records if "the run was deleted" in record.getMessage()]
    assert [record.levelno for record in said] == [logging.DEBUG] * 3
    assert [record for record in caplog.records if record.levelno > logging.INFO] == []


def test_an_event_in_the_writers_hands_is_refused_without_a_complaint(db: Path) -> None:
    """An event that was appended just before the deletion, and is stored just after it, counts as a late event."""
    store = SqliteStore(db)
    with RunJournal(store) as journal:
        ended(journal, "r")
        journal.flush()
        delete = store.delete

        def and_then(run_ids: Any) -> list[str]:
            gone = delete(run_ids)
            put(journal, "r", "llm.tool.result", late=True)
            journal.flush()  # the store refuses the row before the journal knows that the run is deleted
            return gone

        store.delete = and_then  # type: ignore[method-assign]
        assert journal.delete(run_id="r") == ["r"]
        journal.flush()
        assert journal.runs() == []


def test_a_run_id_may_be_given_again(journals: Journals) -> None:
    """A run that begins with the id of a deleted run is a new run."""
    journal = journals()
    ended(journal, "r")
    journal.delete(run_id="r")
    ended(journal, "r", "u")
    journal.flush()
    assert (journal.run("r").thread_id, journal.run("r").last_seq) == ("u", 22)


def test_who_follows_is_told(journals: Journals) -> None:
    """If a paused run is deleted while a follower waits for its next event, the follower raises `RunNotFound`."""
    journal, other = journals(), journals()
    put(journal, "r", "run.start", thread_id="t")
    put(journal, "r", "run.pause", interrupts=[])
    journal.flush()
    for follower in (journal.follow("r"), other.follow("r")):
        assert [next(follower).kind, next(follower).kind] == ["run.start", "run.pause"]
    here, there = journal.follow("r", 2), other.follow("r", 2)
    journal.delete(run_id="r")
    for follower in (here, there):
        with pytest.raises(errors.RunNotFound):
            next(follower)


@pytest.mark.parametrize("how", ["journal", "saver"])
def test_nothing_is_settled_afterwards(tmp_path: Path, how: str) -> None:
    """A run that failed and was not settled is deleted: neither `recover` nor the next message puts its words into the
    thread."""

    async def work() -> None:
        async with talking(tmp_path) as talk:
            agent = attach(talk.plain, talk.journal, settle="never")
            talk.model.say([*words("half ", "an "), Broken()])
            with pytest.raises(Broken):
                await agent.ainvoke(say("go"), on("t"))
            (run,) = await talk.journal.aruns("t")
            assert (run.status, run.settled) == ("failed", False)
            if how == "saver":
                await talk.agent.checkpointer.adelete_thread("t")
            else:
                assert await talk.journal.adelete(thread_id="t") == [run.run_id]
            assert await talk.journal.arecover(talk.agent) == []
            talk.model.say(words("fine"))
            await talk.agent.ainvoke(say("next"), on("t"))
            sees = ["U next"] if how == "saver" else ["U go", "U next"]
            assert story(talk.model.seen[-1]) == sees
            assert await talk.thread() == [*sees, "A fine"]

    asyncio.run(work())


@on_a_loop
async def test_what_this_process_remembers_goes(tmp_path: Path) -> None:
    """The next turn does not look for a late result or the tool evidence of a deleted run."""
    async with talking(tmp_path) as talk:
        talk.model.say(asks(("c1", "quick", {"x": 1}), ("c2", "plod", {"x": 2})), words("never"))
        handle = await talk.start(grace=0.05)
        await until(talk.gate.held.is_set)
        await handle.stop()
        threads, evidence = recorder_of(talk.journal).threads, tool_history_of(talk.journal).evidence
        talk.gate.open()
        await until(lambda: any(handle.run_id in late for late in threads._late.values()))
        evidence[handle.run_id, 7] = Evidence(handle.run_id, ())  # the evidence that a guard has looked up
        assert await talk.journal.adelete(thread_id="t") == [handle.run_id]
        assert not any([evidence, *threads._late.values(), *threads._open.values()])
        talk.model.say(words("fine"))
        await (await talk.start("next")).wait()
        assert len(await talk.journal.aruns()) == 1


# --- no text is left ----------------------------------------------------------------------------------------------------


def test_no_byte_of_the_text_is_left(journals: Journals, db: Path) -> None:
    """While the journal is open, and beside runs that stay, no text is left in the database, in its -wal file, or in a
    spool."""
    journal = journals()
    for number in range(8):
        ended(journal, f"stays-{number}", "u", f"kept-{number} ")
        ended(journal, f"goes-{number}", "t", f"{MARKER}-{number} ")
        journal.flush()
        core_of(journal).store.tidy() if number == 4 else None
    assert holding(db.parent, MARKER) >= {"runs.db-wal"}
    assert len(journal.delete(thread_id="t")) == 8
    assert holding(db.parent, MARKER) == set()
    assert core_of(journal).store.check() == []
    assert all(len(journal.read(f"stays-{number}")) == 22 for number in range(8))


def test_the_text_in_the_spool_of_another_journal(journals: Journals, db: Path) -> None:
    """The other journal removes it at its next heartbeat, after a third of its lease, or when it closes."""
    clock = FakeClock()
    other, journal = journals(clock=clock), journals()
    ended(other, "r", "t", MARKER)
    other.flush()
    journal.delete(thread_id="t")
    assert {name.partition("-spool-")[0] for name in holding(db.parent, MARKER)} == {"runs.db"}
    clock.advance(6)
    for _ in range(2):  # the first call may wake a cycle of the writer that has done its duties already
        put(other, "more", "llm.ai.delta", "c1", text="x")
        other.flush()
    assert holding(db.parent, MARKER) == set()


def test_another_heartbeat_keeps_what_is_not_stored(db: Path) -> None:
    """The writer leaves a spool file at a heartbeat. Events in it that the store does not have yet stay safe from a
    kill."""
    store, clock = FaultyStore(SqliteStore(db)), FakeClock()
    with RunJournal(store, clock=clock) as journal:
        store.fail(times=1_000_000)
        ended(journal, "r", "t", MARKER)
        with pytest.raises(errors.WriteFailed):
            journal.flush()
        clock.advance(6)
        for _ in range(2):
            with pytest.raises(errors.WriteFailed):
                journal.flush()
        assert any("-spool-" in name for name in holding(db.parent, MARKER))
        store.fail(times=0)
        clock.advance(6)
        journal.flush()
        assert len(journal.read("r")) == 22


@pytest.mark.parametrize("seed", range(6))
def test_a_vacuum_removes_what_sqlite_has_copied(journals: Journals, db: Path, seed: int) -> None:
    """Runs of all lengths, interleaved, are deleted one by one. After `prune(vacuum=True)`, no byte of their text is
    left."""
    rng, journal = random.Random(seed), journals()
    names = [f"r{number}" for number in range(rng.choice([3, 30]))]
    for name in names:
        put(journal, name, "run.start", thread_id=name)
    for _ in range(600):
        name = rng.choice(names)
        put(journal, name, "llm.ai.delta", "c1", text=f"{MARKER}-{name}. " * rng.choice([1, 3, 150]))
        journal.flush() if rng.random() < 0.05 else None
        core_of(journal).store.tidy() if rng.random() < 0.01 else None
    for name in names:
        put(journal, name, "run.end", status="completed")
    rng.shuffle(names)
    for name in names[:-1]:
        assert journal.delete(thread_id=name) == [name]
    size = db.stat().st_size
    assert journal.prune(vacuum=True) == []
    assert not any(holding(db.parent, f"{MARKER}-{name}.") for name in names[:-1])
    assert holding(db.parent, f"{MARKER}-{names[-1]}.")
    assert db.stat().st_size <= size


def test_a_vacuum_waits_for_others_and_says_so(journals: Journals, db: Path) -> None:
    """Another journal may be open. The vacuum waits for a transaction of another process, and names it if the wait takes
    too long."""
    other, journal = journals(), journals(busy_timeout=0.1)
    ended(other, "r")
    other.flush()
    assert journal.prune(vacuum=True) == []
    assert [run.run_id for run in other.runs()] == ["r"]
    lock = sqlite3.connect(db, isolation_level=None)
    try:
        lock.execute("BEGIN IMMEDIATE")
        with pytest.raises(errors.StoreFailed, match="Another process holds its lock"):
            journal.prune(vacuum=True)
        with pytest.raises(errors.StoreFailed, match="Another process holds its lock"):
            journal.delete(run_id="r")
    finally:
        lock.close()
    assert journal.delete(run_id="r") == ["r"]


def test_a_reader_that_keeps_the_wal_is_said(journals: Journals, db: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The run is deleted. A warning says that its text stays in the -wal file for now; the next deletion removes it."""
    journal = journals(busy_timeout=0.1)
    ended(journal, "r", "t", MARKER)
    ended(journal, "s", "u")
    journal.flush()
    reader = sqlite3.connect(db, isolation_level=None)
    try:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM runs").fetchone()
        assert journal.delete(run_id="r") == ["r"]
    finally:
        reader.close()
    assert any("could not empty " in record.getMessage() for record in caplog.records)
    assert holding(db.parent, MARKER)
    journal.delete(run_id="s")
    assert holding(db.parent, MARKER) == set()


# --- with the checkpoints of the thread -------------------------------------------------------------------------------


def test_delete_thread_deletes_the_runs(journals: Journals) -> None:
    """Both `delete_thread` and `adelete_thread` do, also for a thread without runs."""
    journal, inner = journals(), InMemorySaver()
    saver = JournalSaver(inner, journal)
    for thread in ("t", "u"):
        ended(journal, thread, thread)
        inner.put({"configurable": {"thread_id": thread, "checkpoint_ns": ""}}, checkpoint(), {}, {})
    saver.delete_thread("t")
    assert [run.run_id for run in journal.runs()] == ["u"]
    asyncio.run(saver.adelete_thread("u"))
    assert (journal.runs(), list(inner.list(None))) == ([], [])
    saver.delete_thread("unknown")


def test_delete_thread_deletes_nothing_while_a_run_goes_on(journals: Journals) -> None:
    """Neither the runs nor the checkpoints are deleted, because the run would write both again."""
    journal, inner = journals(), InMemorySaver()
    config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    inner.put(config, checkpoint(), {}, {})
    put(journal, "r", "run.start", thread_id="t")
    with pytest.raises(errors.RunAtWork):
        JournalSaver(inner, journal).delete_thread("t")
    assert inner.get_tuple(config) is not None


def test_delete_thread_may_leave_the_runs(journals: Journals) -> None:
    """`delete_runs=False` keeps the runs. `attach`, copies, pickles and LangGraph's own copies of the saver keep this
    option."""
    journal, inner = journals(), InMemorySaver()
    ended(journal, "r")
    saver = JournalSaver(inner, journal, delete_runs=False)
    around = JournalSaver(JournalSaver(inner, journal), journal, delete_runs=False)
    for one in (saver, copy.copy(saver), saver.with_allowlist([("a",)]), JournalSaver(saver, journal), around):
        assert one.delete_runs is False
        one.delete_thread("t")
    assert JournalSaver(around, journal) is around
    assert JournalSaver(inner, journal).delete_runs is True
    assert [run.run_id for run in journal.runs()] == ["r"]


def checkpoint() -> Any:
    from langgraph.checkpoint.base import empty_checkpoint

    return empty_checkpoint()
