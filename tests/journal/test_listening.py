"""Stores that report writes: followers and stop requests are woken, and a storm of writes costs few calls."""

from __future__ import annotations

import gc
import itertools
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from langchain_runjournal import Event, RunJournal
from langchain_runjournal.journal.core import core_of
from langchain_runjournal.testing import FaultyStore
from langchain_runjournal.testing.store_contract.support import comes_true
from tests.support.far_server import FarServer, ServedStore

Connect = Callable[[], tuple[RunJournal, ServedStore]]


def delta(text: str = "x ", run_id: str = "r") -> Event:
    return Event(run_id=run_id, kind="llm.ai.delta", data={"text": text}, call_id="c")


@pytest.fixture
def connect(db: Path) -> Iterator[Connect]:
    """Opens journals on one server, each as on a machine of its own."""
    server, opened = FarServer(db), []

    def one() -> tuple[RunJournal, ServedStore]:
        store = server.connect()
        opened.append(RunJournal(store, lease=600))
        return opened[-1], store

    yield one
    for journal in opened:
        journal.close()


@pytest.fixture
def no_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is not woken sleeps for an hour."""
    monkeypatch.setattr("langchain_runjournal.journal.store_watch._POLL", 3600.0)
    monkeypatch.setattr("langchain_runjournal.journal.follow._LONGEST_SLEEP_ELSEWHERE", 3600.0)


class Followed:
    """A thread that follows a run."""

    def __init__(self, journal: RunJournal, run_id: str) -> None:
        self.seqs: list[int] = []
        self._new = threading.Condition()
        self._thread = threading.Thread(target=self._follow, args=(journal, run_id), daemon=True)
        self._thread.start()

    def _follow(self, journal: RunJournal, run_id: str) -> None:
        for event in journal.follow(run_id):
            with self._new:
                self.seqs.append(event.seq)
                self._new.notify_all()

    def wait(self, count: int) -> None:
        with self._new:
            assert self._new.wait_for(lambda: len(self.seqs) >= count, 60)

    def join(self) -> None:
        self._thread.join(60)
        assert not self._thread.is_alive()


# --- woken --------------------------------------------------------------------------------------------------------------


def test_a_follower_is_woken(connect: Connect, no_polls: None) -> None:
    """Each event of a run on another machine arrives by a wake-up alone, up to the end of the run."""
    (writer, _), (reader, store) = connect(), connect()
    writer.append(delta())
    writer.flush()
    followed = Followed(reader, "r")
    for count in range(1, 20):
        followed.wait(count)
        writer.append(delta())
        writer.flush()
    writer.append(Event(run_id="r", kind="run.end"))
    writer.flush()
    followed.join()
    assert followed.seqs == list(range(1, 22))
    assert not core_of(reader).duties.listeners
    assert store.calls["run"] <= 1, "only the first, empty read asks whether the run has ended"


def test_a_stop_request_wakes_its_owner(connect: Connect, no_polls: None) -> None:
    """The owner's callback is called without a poll; so is `stop(wait=True)` on the other machine when the run has ended."""
    (owner, _), (other, _) = connect(), connect()
    owner.append(Event(run_id="r", kind="run.start"))
    owner.flush()
    owner.on_stop("r", lambda cause: owner.append(Event(run_id="r", kind="run.end", data={"cause": cause})))
    assert other.stop("r", "timeout", wait=True).ended
    assert [event.kind for event in owner.read("r")] == ["run.start", "run.stop", "run.end"]


def test_a_lost_wake_up_delays_a_follower_only(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal looks at `changed` once a second all the same, and at the followed runs if that is new."""
    monkeypatch.setattr("langchain_runjournal.journal.follow._LONGEST_SLEEP_ELSEWHERE", 3600.0)
    (writer, _), (reader, store) = connect(), connect()
    writer.append(delta())
    writer.flush()
    followed = Followed(reader, "r")
    followed.wait(1)
    store.is_deaf = True
    writer.append(delta())
    writer.append(Event(run_id="r", kind="run.end"))
    followed.join()
    assert followed.seqs == [1, 2, 3]


def test_a_look_that_fails_is_made_again(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    """What changed while the store could not be asked is not forgotten."""
    monkeypatch.setattr("langchain_runjournal.journal.follow._LONGEST_SLEEP_ELSEWHERE", 3600.0)
    (writer, _), (reader, store) = connect(), connect()
    writer.append(delta())
    writer.flush()
    followed = Followed(reader, "r")
    followed.wait(1)
    store.go_away(0, "stored")
    asked, count = store.calls["stored"], 1
    give_up = time.monotonic() + 60
    while store.calls["stored"] == asked:
        assert time.monotonic() < give_up, "nobody looks"
        writer.append(delta())
        writer.flush()
        count += 1
    store.come_back()
    followed.wait(count)
    writer.append(Event(run_id="r", kind="run.end"))
    followed.join()


def test_a_store_may_report_writes_and_lack_stored(db: Path, no_polls: None) -> None:
    """Then a wake-up wakes all followers."""
    server = FarServer(db)

    class Plain(ServedStore):
        def __getattr__(self, name: str) -> Any:
            if name == "stored":
                raise AttributeError(name)
            return super().__getattr__(name)

    plain = Plain(server)
    server.stores.append(plain)
    assert not hasattr(plain, "stored")
    with RunJournal(server.connect()) as writer, RunJournal(plain) as reader:
        writer.append(delta())
        writer.flush()
        followed = Followed(reader, "r")
        followed.wait(1)
        writer.append(Event(run_id="r", kind="run.end"))
        followed.join()
    assert followed.seqs == [1, 2]


def test_a_dropped_journal_is_collected(db: Path) -> None:
    """The store keeps its wake-up function, which holds nothing of the journal."""
    store = FarServer(db).connect()
    journal = RunJournal(store)
    thread, gone = core_of(journal).writer._thread, weakref.ref(core_of(journal))
    del journal
    gc.collect()
    assert gone() is None
    store.wake()
    thread.join(60)
    assert not thread.is_alive()


# --- what it costs ------------------------------------------------------------------------------------------------------


def looks(began: float, pause: float) -> int:
    """The most looks since `began` with this pause after each."""
    return int((time.monotonic() - began) / pause) + 2


def test_only_followers_of_a_run_that_has_changed_read_it(connect: Connect) -> None:
    """A hundred followers of a hundred runs, one of which speaks: no other run is read, and one call asks for all."""
    (writer, _), (reader, store) = connect(), connect()
    run_ids = [f"r{number}" for number in range(100)]
    for run_id in run_ids:
        writer.append(delta(run_id=run_id))
    writer.flush()
    followed = {run_id: Followed(reader, run_id) for run_id in run_ids}
    for one in followed.values():
        one.wait(1)
    for run_id in run_ids:  # once each: now the journal knows where they all stand
        writer.append(delta(run_id=run_id))
    for one in followed.values():
        one.wait(2)
    writer.append(delta(run_id="r0"))
    followed["r0"].wait(3)
    writer.flush()
    began, reads, asked = time.monotonic(), store.reads.copy(), store.calls.copy()
    for count in range(4, 40):
        writer.append(delta(run_id="r0"))
        writer.flush()
        followed["r0"].wait(count)
    assert {run_id for run_id in run_ids if store.reads[run_id] != reads[run_id]} == {"r0"}
    assert store.reads["r0"] - reads["r0"] <= looks(began, 0.02)
    assert store.calls["stored"] - asked["stored"] <= looks(began, 0.02)
    assert store.calls["run"] == asked["run"]
    assert store.calls["stops"] == asked["stops"], "a journal without a run of its own has no stop requests to expect"
    for run_id in run_ids:
        writer.append(Event(run_id=run_id, kind="run.end"))
    for one in followed.values():
        one.join()


def test_a_storm_of_writes_costs_its_readers_few_calls(connect: Connect) -> None:
    """A thousand commits of another machine: stop requests are looked for each 50 ms, and batches stay as long as they
    are."""
    (_, storm), (busy, store) = connect(), connect()
    busy.append(delta(run_id="mine"))
    busy.flush()
    began, before = time.monotonic(), store.calls.copy()
    segments = itertools.count(1)
    done = threading.Event()

    def work() -> None:
        for number in segments:
            storm.request_stop("unknown", f"{number}")
            if done.is_set():
                return

    thread = threading.Thread(target=work)
    thread.start()
    for _ in range(200):
        busy.append(delta(run_id="mine"))
        time.sleep(0.002)
    done.set()
    thread.join()
    assert storm.calls["request_stop"] > 200
    assert store.calls["stops"] - before["stops"] <= looks(began, 0.05)
    assert store.calls["append"] - before["append"] <= looks(began, 0.02)


def test_nothing_is_asked_while_nothing_happens(connect: Connect, no_polls: None) -> None:
    """A live run, a follower that waits: between heartbeats, not one call."""
    (writer, _), (reader, store) = connect(), connect()
    writer.append(delta())
    writer.flush()
    followed = Followed(reader, "r")
    reader.append(delta(run_id="mine"))
    reader.flush()
    followed.wait(1)
    writer.append(delta())
    followed.wait(2)
    time.sleep(0.1)  # the looks that the last events have caused
    before = store.calls.copy()
    time.sleep(0.3)
    assert store.calls == before
    writer.append(Event(run_id="r", kind="run.end"))
    followed.join()


def test_a_store_that_reports_nothing_is_polled_as_before(db: Path) -> None:
    """SQLite: a follower of another journal's run is woken without `listen`."""
    server = FarServer(db)
    store = FaultyStore(server.connect().inner)
    with RunJournal(db) as writer, RunJournal(store) as reader:
        writer.append(delta())
        writer.flush()
        followed = Followed(reader, "r")
        followed.wait(1)
        asked = store.calls.count("changed")
        assert comes_true(lambda: store.calls.count("changed") > asked + 1)
        writer.append(Event(run_id="r", kind="run.end"))
        followed.join()
