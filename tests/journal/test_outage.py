"""A store on another machine that is away for a while: who waits for it, what is kept, and who learns of it."""

from __future__ import annotations

import concurrent.futures
import itertools
import logging
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from langchain_runjournal import Event, RunJournal, errors
from langchain_runjournal.journal.core import core_of
from langchain_runjournal.journal.dead_owners import DeadOwners
from langchain_runjournal.journal.prompt_store import PromptStore
from langchain_runjournal.stores import Owner
from langchain_runjournal.stores.memory import MemoryStore
from langchain_runjournal.stores.sqlite import SqliteStore
from langchain_runjournal.testing import FakeClock, FaultyStore
from tests.support.far_server import FarServer, ServedStore
from tests.support.far_store import FarStore

LEASE = 15.0


def delta(text: str = "x ", run_id: str = "r") -> Event:
    return Event(run_id=run_id, kind="llm.ai.delta", data={"text": text}, call_id="c")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that fails after 10 ms counts as one that has waited."""
    monkeypatch.setattr("langchain_runjournal.journal.prompt_store._SLOW", 0.01)


# --- who waits ----------------------------------------------------------------------------------------------------------


def test_a_failure_that_comes_late_begins_no_new_outage() -> None:
    """A call that began in the outage may fail after another one has succeeded: the server is back, and is asked."""
    began, fails = threading.Event(), threading.Event()

    class Slow(MemoryStore):
        def owners(self) -> list[Owner]:
            began.set()
            assert fails.wait(60)
            time.sleep(0.02)  # longer than `quick` allows a call that has not waited
            raise errors.StoreUnreachable(path="slow", reason="it did not answer in time", hint="Wait")

    store: Any = PromptStore(Slow())
    store.may_wait = lambda: False
    with concurrent.futures.ThreadPoolExecutor() as threads:
        late = threads.submit(store.owners)
        assert began.wait(60)
        assert store.run("r") is None
        fails.set()
        with pytest.raises(errors.StoreUnreachable):
            late.result(60)
    assert store.outage is None
    assert store.run("r") is None


def test_only_the_writer_waits_in_an_outage(db: Path) -> None:
    """Everybody else gets the error of the outage at once; `flush` tries; when the store is back, everything is stored."""
    store = FarServer(db).connect()
    with RunJournal(store) as journal:
        journal.append(delta("a"))
        journal.flush()
        store.go_away(0.02)
        journal.append(delta("b"))
        with pytest.raises(errors.WriteFailed, match=r"has not answered within 0\.02 s") as caught:
            journal.flush()
        assert isinstance(caught.value.__cause__, errors.StoreUnreachable)
        for read in (journal.runs, lambda: journal.run("r"), lambda: journal.read("s"), lambda: journal.stop("r")):
            with pytest.raises(errors.StoreUnreachable, match="has not answered"):
                read()
        assert store.waits == []
        asked = store.calls["append"]
        with pytest.raises(errors.WriteFailed):
            journal.flush()
        assert store.calls["append"] > asked
        store.come_back()
        journal.flush()
        assert [event.text for event in journal.read("r")] == ["a", "b"]
        assert journal.run("r").last_seq == 2


def test_a_call_that_finds_the_outage_waits_once(db: Path) -> None:
    """The first reader of an outage waits; the next ones know of it, until any call succeeds."""
    store = FarServer(db).connect()
    with RunJournal(store, lease=600) as journal:
        store.go_away(0.02)
        for _ in range(5):
            with pytest.raises(errors.StoreUnreachable):
                journal.runs()
        assert len(store.waits) == 1
        store.come_back()
        journal.append(delta())
        journal.flush()
        assert len(journal.runs()) == 1


def test_a_store_that_refuses_at_once_is_asked_each_time(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No caller waits there, and the store may be back: each call tries. So does each barrier."""
    monkeypatch.setattr("langchain_runjournal.journal.prompt_store._SLOW", 60.0)
    store = FarServer(db).connect()
    with RunJournal(store, lease=600) as journal:
        store.go_away(0)
        for _ in range(3):
            with pytest.raises(errors.StoreUnreachable):
                journal.runs()
        assert store.waits == ["runs"] * 3
        journal.append(delta())
        for asked in range(1, 4):
            assert core_of(journal).writer.barrier(quiet=True).exception(60) is not None
            assert store.calls["append"] >= asked
        store.come_back()


def test_a_quiet_barrier_does_not_wait_in_an_outage(db: Path) -> None:
    """The barrier of a checkpoint fails at once; so does one that was set while the writer was waiting for the server."""
    store = FarServer(db).connect()
    with RunJournal(store, lease=600) as journal:
        store.go_away(60)  # until it is back: the first attempt holds the writer
        journal.append(delta())
        writer = core_of(journal).writer
        first = writer.barrier()
        while not store.calls["append"]:
            time.sleep(0.001)
        second = writer.barrier(quiet=True)
        time.sleep(0.02)  # longer than what counts as a wait
        store.hurry(0.02)
        assert isinstance(first.exception(60), errors.WriteFailed)
        assert isinstance(second.exception(60), errors.WriteFailed)
        asked = store.calls["append"]
        third = writer.barrier(quiet=True)
        assert third.done()
        assert isinstance(third.exception(), errors.WriteFailed)
        assert "safe from a kill" in str(third.exception())
        assert store.calls["append"] == asked
        store.come_back()


def test_a_quiet_barrier_does_not_wait_for_a_batch_if_a_heartbeat_has_found_the_outage(db: Path) -> None:
    """A checkpoint that comes while a heartbeat waits in vain does not wait for a batch as well."""
    clock, store, may_append = FakeClock(), FarServer(db).connect(), threading.Event()
    append = store.append

    def late(*args: Any) -> None:
        assert may_append.wait(60)
        append(*args)

    with RunJournal(store, clock=clock, lease=LEASE) as journal:
        journal.append(delta())
        journal.flush()
        beats = store.calls["beat"]
        store.append = late
        store.go_away(60)
        clock.advance(LEASE / 3)
        writer = core_of(journal).writer
        core_of(journal).bell.ring()
        while store.calls["beat"] == beats:
            time.sleep(0.001)
        journal.append(delta())
        barrier = writer.barrier(quiet=True)
        time.sleep(0.02)  # longer than what counts as a wait
        store.hurry(0.02)
        assert isinstance(barrier.exception(30), errors.WriteFailed)
        store.come_back()
        may_append.set()


def test_in_an_outage_only_heartbeats_and_batches_wait(db: Path) -> None:
    """What the writer thread does for others (stop requests, facts about graphs, holds) does not delay its barriers."""
    store = FarServer(db).connect()
    with RunJournal(store, lease=600) as journal:
        journal.append(delta("a"))
        journal.flush()
        store.go_away(0.02)
        journal.append(delta("b"))
        with pytest.raises(errors.WriteFailed):
            journal.flush()
        failed: list[BaseException] = []

        def errand() -> None:
            try:
                core_of(journal).store.owners()
            except errors.StoreUnreachable as exc:
                failed.append(exc)

        before = store.calls.copy()
        core_of(journal).duties.give(errand)
        with pytest.raises(errors.WriteFailed):
            journal.flush()
        assert len(failed) == 1
        assert set(store.calls - before) == {"append"}
        store.come_back()


def test_a_failed_batch_fails_its_barriers_before_other_work(db: Path) -> None:
    """An errand that waits as well does not keep a checkpoint waiting."""
    store, may_end = FarServer(db).connect(), threading.Event()
    with RunJournal(store, lease=600) as journal:
        store.go_away(60, "append")
        journal.append(delta())
        barrier = core_of(journal).writer.barrier()
        while not store.calls["append"]:
            time.sleep(0.001)
        core_of(journal).duties.give(lambda: may_end.wait(60))
        store.hurry(0.0)
        assert isinstance(barrier.exception(30), errors.WriteFailed)
        may_end.set()
        store.come_back()


def test_opening_a_journal_says_that_the_server_is_away(db: Path) -> None:
    """One clear error, and a store that is closed again."""
    server = FarServer(db)
    store = server.connect()
    store.go_away(0.0)
    with pytest.raises(errors.StoreUnreachable, match=r"The server of far:runs\.db cannot be reached"):
        RunJournal(store)
    assert server.stores == []


def test_a_store_with_a_file_is_asked_as_before(db: Path) -> None:
    """SQLite: no caller fails without having asked, whatever failed before."""
    store = FaultyStore(SqliteStore(db))
    with RunJournal(store) as journal:
        assert core_of(journal).store is store
        assert core_of(journal).writer.outage is None


# --- heartbeats ---------------------------------------------------------------------------------------------------------


class Slow(FarStore):
    """A store whose appends take four seconds each, by the clock of the test."""

    def __init__(self, db: Path, clock: FakeClock) -> None:
        super().__init__(db)
        self.clock = clock
        self.beats: list[float] = []
        self.appends = 0

    def append(self, *args: Any) -> None:
        self.clock.advance(4.0)
        self.appends += 1
        self.inner.append(*args)

    def beat(self, owner: Any) -> None:
        self.beats.append(self.clock.monotonic())
        self.inner.beat(owner)


def longest_gap(beats: list[float]) -> float:
    return max(after - before for before, after in itertools.pairwise(beats))


def test_a_backlog_does_not_delay_heartbeats(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What waited in an outage takes a minute to store: meanwhile no lease runs out."""
    monkeypatch.setattr("langchain_runjournal.journal.writer._PORTION", 100)
    clock = FakeClock()
    store = Slow(db, clock)
    with RunJournal(store, clock=clock, lease=LEASE) as journal:
        for number in range(20):
            for _ in range(10):
                journal.append(delta("x" * 20, f"r{number}"))
        journal.flush()
        assert store.appends >= 15
        assert longest_gap(store.beats) < LEASE


def test_an_import_does_not_delay_heartbeats(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for a journal that imports a long spool while it works."""
    monkeypatch.setattr("langchain_runjournal.journal.spool_import._BATCH", 50)
    clock = FakeClock()
    store = Slow(db, clock)
    with RunJournal(store, clock=clock, lease=LEASE) as journal:
        failing = FaultyStore(FarStore(db))
        killed = RunJournal(failing)
        failing.fail(times=1_000_000)
        for _ in range(1_000):
            killed.append(delta(run_id="left"))
        with pytest.raises(errors.WriteFailed):
            killed.close()
        store.appends = 0
        DeadOwners.import_spools(core_of(journal).dead_owners, core_of(journal).duties.beat_if_due)
        assert store.appends == 20
        assert len(journal.read("left")) == 1_000
    assert longest_gap(store.beats) < LEASE


def test_a_heartbeat_that_fails_is_sent_again_soon(db: Path) -> None:
    """Also with a long lease: others need a sign of life, and waiting callers the end of the outage."""
    clock = FakeClock()
    store = FarServer(db).connect()
    with RunJournal(store, clock=clock, lease=600.0) as journal:
        store.go_away(0.02)
        clock.advance(200.0)
        core_of(journal).bell.ring()
        while not store.calls["beat"] > 1:
            core_of(journal).bell.ring()
        store.come_back()
        asked = store.calls["beat"]
        clock.advance(1.0)
        while store.calls["beat"] == asked:
            core_of(journal).bell.ring()
        journal.append(delta())
        journal.flush()


# --- fenced -------------------------------------------------------------------------------------------------------------


def test_a_journal_whose_run_was_claimed_in_an_outage_says_who_has_it(db: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The log names the run, the journal that has claimed it, and what is lost; the other events are stored."""
    server = FarServer(db)
    cut, store = server.connect(), server.connect()
    with RunJournal(cut) as journal, RunJournal(store) as other:
        for run_id in ("claimed", "ours"):
            journal.append(delta("before ", run_id))
        journal.flush()
        cut.go_away(0.02)
        for run_id in ("claimed", "ours"):
            journal.append(delta("in the outage ", run_id))
        with pytest.raises(errors.WriteFailed):
            journal.flush()
        assert core_of(other).store.claim("claimed", other.owner_id, 1)
        cut.come_back()
        with pytest.raises(errors.RunFenced, match="'claimed'"):
            journal.flush()
        assert [event.text for event in journal.read("ours")] == ["before ", "in the outage "]
        assert [event.text for event in other.read("claimed")] == ["before "]
    (said,) = [record for record in caplog.records if "has claimed" in record.getMessage()]
    assert said.levelno == logging.ERROR
    assert f"another journal has claimed run claimed: journal {other.owner_id} (process" in said.getMessage()
    assert "lost" in said.getMessage()


def test_the_lease_of_a_store_with_a_file_never_runs_out(db: Path) -> None:
    """On one machine, the process tells whether its journal lives; and memory belongs to one process."""
    clock = FakeClock()
    for url in (db, ":memory:"):
        with RunJournal(url, clock=clock) as journal:
            clock.advance(10_000.0)
            assert not core_of(journal).lease_has_run_out()


def test_the_lease_runs_out_by_our_own_clock(db: Path) -> None:
    """From the start of the last heartbeat that has arrived, less a sixth; a heartbeat that arrives starts it again."""
    clock = FakeClock()
    store: ServedStore = FarServer(db).connect()
    with RunJournal(store, clock=clock, lease=60.0) as journal:
        core = core_of(journal)
        store.go_away(0.0)
        clock.advance(49.0)
        assert not core.lease_has_run_out()
        clock.advance(1.0)
        assert core.lease_has_run_out()
        store.come_back()
        while core.lease_has_run_out():
            clock.advance(1.0)
            journal.append(delta())
            journal.flush()


def test_a_heartbeat_counts_from_when_it_was_sent(db: Path) -> None:
    """Others may see it long before its answer arrives, and count from there."""
    clock = FakeClock()

    class Late(FarStore):
        def beat(self, owner: Owner) -> None:
            if owner.beats > 1:
                raise errors.StoreUnreachable(path=self.url, reason="it is away", hint="wait")
            self.inner.beat(owner)
            clock.advance(20.0)

    began = clock.monotonic()
    with RunJournal(Late(db), clock=clock, lease=60.0) as journal:
        core = core_of(journal)
        while core.duties.beaten_at == began:  # the second heartbeat is sent 20 s after the first one
            time.sleep(0.001)
        clock.advance(29.0)
        assert not core.lease_has_run_out()
        clock.advance(1.0)
        assert core.lease_has_run_out()


# --- followers ----------------------------------------------------------------------------------------------------------


def test_a_follower_in_the_process_of_its_run_needs_no_store(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In an outage it continues from memory, also when nothing comes for so long that it looks into the store."""
    monkeypatch.setattr("langchain_runjournal.journal.follow._LONGEST_SLEEP_ELSEWHERE", 0.01)
    store = FarServer(db).connect()
    with RunJournal(store, lease=600) as journal:
        journal.append(delta("a"))
        journal.flush()
        follower = journal.follow("r")
        assert next(follower).text == "a"
        store.go_away(0.0)
        seen: list[str] = []
        thread = threading.Thread(target=lambda: seen.extend(event.text for event in follower))
        thread.start()
        while not store.calls["read"] > 1:
            time.sleep(0.001)
        journal.append(delta("b"))
        journal.append(Event(run_id="r", kind="run.end"))
        thread.join(60)
        assert seen == ["b", ""]
        store.come_back()


def test_a_follower_of_another_process_says_that_the_server_is_away(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It can follow again behind the last event that it has."""
    monkeypatch.setattr("langchain_runjournal.journal.follow._LONGEST_SLEEP_ELSEWHERE", 0.01)
    server = FarServer(db)
    store = server.connect()
    with RunJournal(server.connect()) as writer, RunJournal(store, lease=600) as journal:
        writer.append(delta("a"))
        writer.flush()
        follower = journal.follow("r")
        assert next(follower).text == "a"
        store.go_away(0.0)
        with pytest.raises(errors.StoreUnreachable):
            next(follower)
        store.come_back()
        writer.append(Event(run_id="r", kind="run.end"))
        assert [event.seq for event in journal.follow("r", after=1)] == [2]
