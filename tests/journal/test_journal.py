"""`RunJournal`: append, flush, read, stop, prune, and close."""

from __future__ import annotations

import asyncio
import gc
import logging
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from langchain_runjournal import Event, RunJournal, RunStatus, errors
from langchain_runjournal.journal.core import core_of
from langchain_runjournal.stores.memory import MemoryStore
from langchain_runjournal.stores.sqlite import SqliteStore
from langchain_runjournal.testing import FakeClock, FaultyStore

Journals = Callable[..., RunJournal]


def start(run_id: str = "r", **data: object) -> Event:
    return Event(run_id=run_id, kind="run.start", data=data)


def delta(text: str = "x ", run_id: str = "r", call_id: str | None = "c1") -> Event:
    return Event(run_id=run_id, kind="llm.ai.delta", data={"text": text}, call_id=call_id)


def end(run_id: str = "r", **data: object) -> Event:
    return Event(run_id=run_id, kind="run.end", data=data)


def stored(db: Path, run_id: str = "r") -> list[int]:
    """Return the events that another process would read."""
    store = SqliteStore(db)
    try:
        return [event.seq for event in store.read(run_id, 0, None)]
    finally:
        store.close()


# --- append and flush -------------------------------------------------------------------------------------------------


def test_an_event_is_numbered_and_stamped(journals: Journals) -> None:
    """An event has seq 1, 2, 3 and so on, and the wall clock of the append, or the given `at`."""
    clock = FakeClock(wall=1_700_000_000.5)
    journal = journals(clock=clock)
    journal.append(start(thread_id="t"))
    clock.advance(1)
    journal.append(delta("Hel"))
    journal.append(Event(run_id="r", kind="llm.ai.delta", data={"text": "lo"}, call_id="c1", at=12.25))
    events = journal.read("r")
    assert [event.seq for event in events] == [1, 2, 3]
    assert [event.at for event in events] == [1_700_000_000.5, 1_700_000_001.5, 12.25]
    assert [event.data for event in events] == [{"thread_id": "t"}, {"text": "Hel"}, {"text": "lo"}]


@pytest.mark.guarantee("flush")
def test_a_flush_makes_it_durable_for_others(journals: Journals, db: Path) -> None:
    """When `flush` returns, another process can read all events that were appended before."""
    journal = journals()
    for count in range(1, 20):
        journal.append(delta())
        journal.flush()
        assert stored(db) == list(range(1, count + 1))


def test_a_flush_does_not_return_because_another_one_did(journals: Journals, db: Path) -> None:
    """Many threads append and flush at once. When the flush of a thread returns, the events of that thread are stored."""
    journal = journals()
    failed: list[str] = []

    def work(number: int) -> None:
        store = SqliteStore(db)
        for count in range(1, 60):
            journal.append(delta(run_id=f"r{number}"))
            journal.flush()
            if len(store.read(f"r{number}", 0, None)) < count:
                failed.append(f"r{number} at {count}")
        store.close()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


@pytest.mark.guarantee("append never waits")
def test_threads_append_to_one_run(journals: Journals) -> None:
    """The run has no gap and no loss, and the events of each thread are in order."""
    journal = journals()

    def work(number: int) -> None:
        for count in range(2_000):
            journal.append(delta(f"{number}:{count}", call_id=f"c{number}"))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for events in (journal.read("r"), journal.flush() or journal.read("r")):
        assert [event.seq for event in events] == list(range(1, 8_001))
        for number in range(4):
            own = [event.data["text"] for event in events if event.call_id == f"c{number}"]
            assert own == [f"{number}:{count}" for count in range(2_000)]


@pytest.mark.guarantee("append never waits")
def test_append_never_raises(journals: Journals, caplog: pytest.LogCaptureFixture) -> None:
    """`append` raises for no argument. The next barrier raises once."""
    journal = journals()

    class Liar:
        def __getattr__(self, name: str) -> str:
            raise RuntimeError("no")

    for odd in (None, "event", Liar()):
        journal.append(odd)
    journal.append(Event(run_id="r", kind="tool.start", data={"odd": object()}))
    with pytest.raises(errors.WriteFailed, match="could not take 3 events, and they are lost") as caught:
        journal.flush()
    assert caught.value.lost == 3
    journal.flush()
    assert [event.seq for event in journal.read("r")] == [1]
    assert "so it could not record 'event'" in caplog.text


@pytest.mark.parametrize("odd", [{"run_id": "x"}, None, Event])
def test_append_says_what_it_takes(odd: object, journals: Journals, caplog: pytest.LogCaptureFixture) -> None:
    """The log names an object that is not an `Event`, and the error of the next barrier gives no advice about disks."""
    journal = journals()
    journal.append(odd)
    [record] = [record for record in caplog.records if record.name == "langchain_runjournal"]
    said = record.getMessage()
    assert said.startswith("RunJournal.append takes a langchain_runjournal.Event, so it could not record ")
    assert repr(odd) in said
    assert not record.exc_info
    with pytest.raises(errors.EventsLost, match=r"Give `RunJournal\.append` an `Event`") as caught:
        journal.flush()
    assert (caught.value.lost, "space" in str(caught.value)) == (1, False)
    journal.flush()


def test_an_event_that_no_store_takes(
    journals: Journals, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is dropped with an error, and the events behind it are stored: a store would refuse it again and again."""
    monkeypatch.setattr("langchain_runjournal.journal.append._LARGEST", 1_000)
    journal = journals()
    for text in ("a", "b" * 998, "c" * 999, "\x01" * 200, "d"):
        journal.append(Event(run_id="r", kind="llm.ai.delta", data={"text": text}, call_id="c"))
    with pytest.raises(errors.EventsLost) as caught:
        journal.flush()
    assert caught.value.lost == 2
    assert "it takes 1,001 bytes as JSON, and an event may take 1,000" in caplog.text
    assert [event.text[:1] for event in journal.read("r")] == ["a", "b", "d"]


def test_what_the_caller_changes_later_changes_nothing(journals: Journals) -> None:
    """The journal keeps an event as it was at the moment of the append."""
    journal = journals()
    data = {"arguments": {"path": "/tmp"}}
    journal.append(Event(run_id="r", kind="tool.start", data=data))
    data["arguments"]["path"] = "/etc"
    assert journal.read("r")[0].data == {"arguments": {"path": "/tmp"}}


def test_an_append_inside_an_append(journals: Journals) -> None:
    """A finalizer or a signal handler that interrupts an append of its own thread, and appends, causes neither a deadlock
    nor a loss."""
    journal = journals()
    appender = core_of(journal).appender
    place = appender._place

    def place_and_append(*args: object, **kwargs: object) -> bool:
        if args[2] == "outer":
            journal.append(delta("inner", call_id="inner"))
        return place(*args, **kwargs)

    appender._place = place_and_append
    journal.append(delta("outer", call_id="outer"))
    journal.append(delta("after", call_id="after"))
    assert [event.data["text"] for event in journal.read("r")] == ["outer", "inner", "after"]


def test_events_of_many_calls_keep_their_call(journals: Journals, db: Path) -> None:
    """Interleaved calls, no call, and odd names are read correctly from memory, from the store, and from any seq."""
    journal = journals()
    calls = [None, "a", "a", "b", "a", None, "ü,\"'\n", "b", "b"]
    for number, call in enumerate(calls * 50):
        journal.append(delta(str(number), call_id=call))
        if number % 70 == 0:
            journal.flush()
    for after in (0, 1, 68, 69, 70, 71, 200):
        assert [event.call_id for event in journal.read("r", after)] == (calls * 50)[after:]
    journal.flush()
    for after in (0, 1, 68, 69, 70, 71, 200):
        assert [event.call_id for event in journal.read("r", after)] == (calls * 50)[after:]


def test_a_large_event(journals: Journals) -> None:
    """A tool result larger than a file of the spool, or than the whole spool, is one event."""
    journal = journals(spool_limit=1)
    sizes = [10, 100_000, 5 << 20, 10, 20 << 20, 10]
    for size in sizes:
        journal.append(Event(run_id="r", kind="llm.tool.result", data={"content": "x" * size}))
    journal.flush()
    assert [len(event.data["content"]) for event in journal.read("r")] == sizes


def test_full_durability(journals: Journals, db: Path) -> None:
    """`synchronous="full"` works the same."""
    journal = journals(synchronous="full")
    journal.append(start())
    journal.flush()
    assert stored(db) == [1]


# --- the async side ---------------------------------------------------------------------------------------------------


def test_the_twins_do_the_same(journals: Journals) -> None:
    """Every asynchronous method works, on a journal that is an async context manager."""

    async def main() -> None:
        async with journals() as journal:
            journal.append(start(thread_id="t"))
            journal.append(delta())
            await journal.aflush()
            await journal.aflush(timeout=5)
            assert (await journal.arun("r")).thread_id == "t"
            assert [run.run_id for run in await journal.aruns(thread_id="t", status="running", limit=1)] == ["r"]
            assert [event.seq for event in await journal.aread("r", after=1, limit=5)] == [2]
            assert (await journal.astop("r", cause="timeout")).stop == "timeout"
            assert await journal.aclaim("r")
            journal.append(end())
            assert [event.kind async for event in journal.afollow("r", after=2)] == ["run.stop", "run.end"]
            assert await journal.aprune(keep_last=0) == ["r"]
        with pytest.raises(errors.JournalClosed):
            await journal.aflush()

    asyncio.run(main())


def test_a_cancelled_aflush_harms_nobody(db: Path) -> None:
    """The writer and the other barriers work, whether `aflush` is cancelled before its batch or during it."""
    store = FaultyStore(SqliteStore(db))
    writing, go_on = threading.Event(), threading.Event()
    append = store.inner.append

    def slow_append(*args: object) -> None:
        writing.set()
        assert go_on.wait(30)
        append(*args)

    store.inner.append = slow_append

    async def main(journal: RunJournal) -> None:
        for _ in range(20):
            writing.clear()
            go_on.clear()
            journal.append(delta())
            under_way = asyncio.ensure_future(journal.aflush())
            await asyncio.to_thread(writing.wait)
            queued = asyncio.ensure_future(journal.aflush())
            patient = asyncio.ensure_future(journal.aflush())
            await asyncio.sleep(0)
            under_way.cancel()
            queued.cancel()
            await asyncio.sleep(0)
            go_on.set()
            await patient
            assert under_way.cancelled()
            assert queued.cancelled()

    with RunJournal(store) as journal:
        asyncio.run(main(journal))
        assert len(journal.read("r")) == 20
    assert threading.active_count() >= 1


def test_a_loop_that_is_gone_harms_nobody(journals: Journals) -> None:
    """The writer forgets a barrier and a follower of a closed loop."""
    journal = journals()
    journal.append(start())

    async def leave() -> None:
        asyncio.ensure_future(journal.aflush())
        follower = journal.afollow("r")
        await follower.__anext__()
        asyncio.ensure_future(follower.__anext__())
        await asyncio.sleep(0)

    loop = asyncio.new_event_loop()
    loop.run_until_complete(leave())
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.run_until_complete(asyncio.gather(*asyncio.all_tasks(loop), return_exceptions=True))
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()
    for _ in range(5):
        journal.append(delta())
        journal.flush()
    assert len(journal.read("r")) == 6


# --- when the store fails ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("kind", [SqliteStore, MemoryStore])
def test_a_store_that_fails_once(db: Path, when: str, kind: type, caplog: pytest.LogCaptureFixture) -> None:
    """The store fails before or after it has committed. The barrier raises, and the run has no loss, no duplicate and no
    gap."""
    store = FaultyStore(kind(db) if kind is SqliteStore else kind())
    with RunJournal(store) as journal:
        journal.append(start())
        journal.flush()
        for nth in range(1, 6):
            journal.append(delta(f"{nth}"))
            store.fail(when=when, error=sqlite3.OperationalError("database or disk is full"))
            with pytest.raises(errors.WriteFailed) as caught:
                journal.flush()
            assert caught.value.reason == "database or disk is full"
            assert caught.value.lost == 0
            assert isinstance(caught.value.__cause__, sqlite3.OperationalError)
            journal.append(delta(f"{nth}+"))
            journal.flush()
        assert store.failed == 5
        assert [event.seq for event in store.inner.read("r", 0, None)] == list(range(1, 12))
        texts = [event.data.get("text") for event in journal.read("r", 1)]
        assert texts == [text for nth in range(1, 6) for text in (f"{nth}", f"{nth}+")]
    assert "can be written again" in caplog.text


def test_every_barrier_hears_of_the_failure(db: Path) -> None:
    """All barriers raise, not only the first, and each with an exception of its own."""
    store = FaultyStore(SqliteStore(db))
    with RunJournal(store) as journal:
        journal.append(start())
        journal.flush()
        store.fail(times=1_000)
        journal.append(delta())
        caught: list[errors.WriteFailed] = []

        def work() -> None:
            try:
                journal.flush()
            except errors.WriteFailed as exc:
                caught.append(exc)

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len({id(exc) for exc in caught}) == 8
        assert caught[0].waiting == 1
        assert "in the spool" in str(caught[0])
        store.fail(times=0)
        journal.flush()
        assert len(store.inner.read("r", 0, None)) == 2


def test_reads_work_while_writes_fail(db: Path) -> None:
    """Events in memory can be read and followed, and the barrier raises the error of the store."""
    store = FaultyStore(SqliteStore(db, busy_timeout=1))
    with RunJournal(store) as journal:
        journal.append(start())
        journal.flush()
        store.fail(times=1_000)
        journal.append(delta())
        journal.append(end())
        assert [event.seq for event in journal.read("r")] == [1, 2, 3]
        assert [event.seq for event in journal.follow("r")] == [1, 2, 3]
        assert journal.run("r").status == "running"
        with pytest.raises(errors.WriteFailed):
            journal.flush()
        store.fail(times=0)
        journal.flush()
        assert journal.run("r").status == "completed"


def test_a_flush_may_have_enough(db: Path) -> None:
    """`FlushTimeout` is a `TimeoutError`, and loses nothing."""
    store = FaultyStore(SqliteStore(db))
    go_on = threading.Event()
    append = store.inner.append
    store.inner.append = lambda *args: go_on.wait(30) and append(*args)
    with RunJournal(store) as journal:
        journal.append(start())
        with pytest.raises(TimeoutError, match=r"0\.05 s"):
            journal.flush(timeout=0.05)

        async def main() -> None:
            with pytest.raises(errors.FlushTimeout):
                await journal.aflush(timeout=0.05)

        asyncio.run(main())
        go_on.set()
        journal.flush()
        assert [event.seq for event in store.inner.read("r", 0, None)] == [1]
    with pytest.raises(errors.InvalidArgument, match="timeout"), RunJournal(":memory:") as journal:
        journal.flush(timeout=-1)


def fill(journal: RunJournal, megabytes: int, run_id: str = "r") -> int:
    """Append so many megabytes of text in small pieces. Return the number of events."""
    count = megabytes * 10_000
    for number in range(count):
        journal.append(delta(f"{number:08d}" * 12, run_id=run_id))
    return count


@pytest.mark.guarantee("overload")
def test_pressure_merges_and_loses_nothing(db: Path) -> None:
    """While a store stalls, the spool fills, adjacent deltas of a call are merged in memory, and all the text arrives."""
    store = FaultyStore(SqliteStore(db))
    with RunJournal(store, spool_limit=8 << 20) as journal:
        journal.append(start())
        journal.flush()
        store.fail(times=1_000_000)
        count = fill(journal, 13)
        journal.append(end())
        for _ in range(3):
            with pytest.raises(errors.WriteFailed, match="wait") as caught:
                journal.flush()
            assert caught.value.lost == 0
        # The merged deltas are one large event now, which may have a spool file of its own.
        assert sum(path.stat().st_size for path in db.parent.glob("*-spool-*")) <= 16 << 20
        store.fail(times=0)
        journal.flush()
        events = journal.read("r")
        assert len(events) < count
        assert "".join(event.data.get("text", "") for event in events) == "".join(f"{n:08d}" * 12 for n in range(count))
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        assert events[-1].kind == "run.end"
        assert not core_of(journal).appender.overflowing
        journal.append(start("next"))
        journal.flush()


@pytest.mark.guarantee("overload")
def test_what_is_lost_is_said(db: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Far beyond the limits, memory does not grow: the journal drops events and counts them, the barrier raises, and the
    run says so."""
    store = FaultyStore(SqliteStore(db))
    with RunJournal(store, spool_limit=8 << 20) as journal:
        journal.append(start())
        journal.flush()
        store.fail(times=1_000_000)
        count = fill(journal, 25)
        journal.append(end(status="failed"))
        assert core_of(journal).appender._overflow.bytes < 9 << 20
        store.fail(times=0)
        with pytest.raises(errors.WriteFailed, match="lost") as caught:
            journal.flush()
        journal.flush()
        run = journal.run("r")
        assert 0 < run.lost == caught.value.lost < count
        assert run.status == "failed"
        # Each gap in the text is where a `run.lost` stands, and as long as its count says.
        expected = gaps = 0
        for event in journal.read("r"):
            if event.kind == "run.lost":
                expected += event.data["events"]
                gaps += 1
            text = event.data.get("text", "")
            numbers = [int(text[at : at + 8]) for at in range(0, len(text), 96)]
            assert numbers == list(range(expected, expected + len(numbers)))
            expected += len(numbers)
        assert expected == count
        assert gaps >= 1
        assert "is losing events" in caplog.text


@pytest.mark.guarantee("in memory")
def test_a_journal_in_memory_is_bounded_too() -> None:
    """Without a spool, the number of waiting events is limited, and beyond that they are merged."""
    store = FaultyStore(MemoryStore())
    with RunJournal(store) as journal:
        core_of(journal).appender._room = 1_000
        journal.append(start())
        journal.flush()
        store.fail(times=1_000_000)
        fill(journal, 1)
        assert len(core_of(journal).appender.buffers["r"].pend) <= 2_002
        store.fail(times=0)
        journal.flush()
        text = "".join(event.data.get("text", "") for event in journal.read("r"))
        assert text == "".join(f"{n:08d}" * 12 for n in range(10_000))


@pytest.mark.guarantee("append never waits")
def test_a_database_locked_by_somebody_else(db: Path, journals: Journals) -> None:
    """The agent continues, the error of the barrier names the file and what to do, and all events are stored after the lock
    is released."""
    journal = journals(busy_timeout=0.2)
    journal.append(start())
    journal.flush()
    other = sqlite3.connect(db, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    for _ in range(100):
        journal.append(delta())
    with pytest.raises(errors.WriteFailed, match=r"runs\.db.*locked.*busy_timeout") as caught:
        journal.flush()
    assert caught.value.waiting == 100
    other.execute("COMMIT")
    other.close()
    journal.flush()
    assert len(stored(db)) == 101


# --- reading ----------------------------------------------------------------------------------------------------------


def test_runs_are_found(journals: Journals) -> None:
    """`runs` finds runs by thread and status, newest first, at once after the append."""
    journal = journals()
    for number in range(60):
        journal.append(start(f"r{number}", thread_id="even" if number % 2 == 0 else "odd"))
    journal.append(end("r2", status="interrupted", cause="stop"))
    assert [run.run_id for run in journal.runs()] == [f"r{number}" for number in range(59, 9, -1)]
    assert len(journal.runs(limit=None)) == 60
    assert journal.runs(limit=0) == []
    assert [run.run_id for run in journal.runs("even", RunStatus.INTERRUPTED)] == ["r2"]
    assert len(journal.runs(status="running", limit=100)) == 59


def test_bad_questions_get_clear_answers(journals: Journals) -> None:
    """Every method that reads checks its arguments."""
    journal = journals()
    for ask in (
        lambda: journal.run("missing"),
        lambda: journal.read("missing"),
        lambda: journal.stop("missing"),
        lambda: journal.claim("missing"),
        lambda: next(iter(journal.follow("missing"))),
    ):
        with pytest.raises(errors.RunNotFound, match=r"'missing'.*journal\.runs\(\)"):
            ask()
    for wrong in (
        lambda: journal.run(""),
        lambda: journal.run(7),
        lambda: journal.read("r", after=-1),
        lambda: journal.read("r", limit=-1),
        lambda: journal.read("r", after="1"),
        lambda: journal.follow("r", after=1.5),
        lambda: journal.follow(None),
        lambda: journal.runs(status="done"),
        lambda: journal.runs(limit=-1),
        lambda: journal.stop("r", cause="because"),
        lambda: journal.prune(),
        lambda: journal.prune(keep_last=-1),
        lambda: journal.prune(older_than=-5),
    ):
        with pytest.raises(errors.InvalidArgument):
            wrong()


def test_reading_spans_the_store_and_memory(db: Path) -> None:
    """For a run that is partly stored, the result is the same for any `after` and `limit`."""
    store = FaultyStore(SqliteStore(db))
    with RunJournal(store) as journal:
        for _ in range(10):
            journal.append(delta())
        journal.flush()
        store.fail(times=1_000_000)
        for _ in range(10):
            journal.append(delta())
        for after in range(22):
            for limit in (None, 0, 1, 5, 10, 11, 30):
                assert [e.seq for e in journal.read("r", after, limit)] == list(range(after + 1, 21))[:limit]
        store.fail(times=0)


# --- stopping ---------------------------------------------------------------------------------------------------------


def test_a_stop_in_the_same_process_is_seen_at_once(journals: Journals) -> None:
    """The callback is called before `stop` returns, and the run has one `run.stop`. `stop` is idempotent."""
    journal = journals()
    journal.append(start())
    calls: list[str] = []
    journal.on_stop("r", calls.append)
    forget = journal.on_stop("r", lambda cause: calls.append("never"))
    forget()
    forget()
    assert journal.stop_requested("r") is None
    assert journal.stop("r", cause="timeout").stop == "timeout"
    assert calls == ["timeout"]
    assert journal.stop_requested("r") == "timeout"
    assert journal.stop("r").stop == "timeout"
    journal.on_stop("r", calls.append)
    assert calls == ["timeout", "timeout"]
    assert [(event.kind, event.data) for event in journal.read("r", 1)] == [("run.stop", {"cause": "timeout"})]


def test_a_stop_for_an_ended_run_says_so(journals: Journals) -> None:
    """`stop` returns the ended run, stores no request, and calls no callback."""
    journal = journals()
    journal.append(start())
    journal.append(end())
    journal.on_stop("r", lambda cause: pytest.fail("the run had ended"))
    run = journal.stop("r")
    assert (run.status, run.stop) == ("completed", None)
    assert len(journal.read("r")) == 2


def test_a_callback_that_fails_stops_nobody_else(journals: Journals, caplog: pytest.LogCaptureFixture) -> None:
    """The journal logs the error, and calls the next callback."""
    journal = journals()
    journal.append(start())
    calls: list[str] = []
    journal.on_stop("r", lambda cause: 1 / 0)
    journal.on_stop("r", calls.append)
    journal.stop("r")
    assert calls == ["stop"]
    assert "ZeroDivisionError" in caplog.text


# --- pruning ----------------------------------------------------------------------------------------------------------


def test_prune_by_age_and_number(journals: Journals) -> None:
    """`older_than` is seconds or a timedelta. With both conditions, both must hold. A wall clock that was set back prunes
    less, not more."""
    clock = FakeClock(wall=1_700_000_000.0)
    journal = journals(clock=clock)
    for number in range(6):
        journal.append(start(f"r{number}"))
        journal.append(end(f"r{number}"))
        clock.advance(60)
    journal.append(start("live"))
    journal.append(end("broken", status="failed", settled=False))
    clock.advance(1)
    assert journal.prune(older_than=timedelta(minutes=6)) == ["r0"]
    assert journal.prune(older_than=0, keep_last=4) == ["r1"]
    clock.set_wall(1_600_000_000.0)
    assert journal.prune(older_than=0) == []
    assert sorted(journal.prune(keep_last=1)) == ["r2", "r3", "r4"]
    assert sorted(run.run_id for run in journal.runs()) == ["broken", "live", "r5"]


# --- closing ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("age", [1e8, 200_000_000, timedelta(days=36_500), 1e30, float("inf")])
def test_what_is_older_than_a_long_time_is_not_everything(journals: Journals, age: float | timedelta) -> None:
    """More than three years, more than since 1970, for ever: a run of yesterday stays, and so does a new one."""
    clock = FakeClock()
    journal = journals(clock=clock)
    journal.append(Event(run_id="r0", kind="run.end"))
    journal.flush()
    clock.advance(86_400)
    journal.append(Event(run_id="r1", kind="run.end"))
    assert journal.prune(older_than=age) == []
    assert journal.prune(older_than=age, keep_last=1 << 70) == []
    assert [run.run_id for run in journal.runs(limit=1 << 70)] == ["r1", "r0"]


@pytest.mark.guarantee("close")
def test_close_drains_and_leaves_nothing_behind(db: Path) -> None:
    """All events are stored, the spool and the extra files of SQLite are deleted, and closing twice is harmless."""
    journal = RunJournal(db)
    for _ in range(5_000):
        journal.append(delta())
    assert list(db.parent.glob("*-spool-*"))
    journal.close()
    journal.close()
    assert [path.name for path in db.parent.iterdir()] == ["runs.db"]
    assert len(stored(db)) == 5_000


def test_close_while_others_append(db: Path) -> None:
    """Events from before the close are stored. Later ones are refused and counted, and the next call raises their
    number."""
    journal = RunJournal(db)
    begun = threading.Barrier(5)
    closed = threading.Event()
    accepted = [0] * 4

    def work(number: int) -> None:
        begun.wait()
        while not closed.is_set():
            journal.append(delta(run_id=f"r{number}"))
            accepted[number] += 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    begun.wait()
    while min(accepted) < 200:
        journal.flush()
    before = list(accepted)
    logging.disable(logging.ERROR)
    journal.close()
    closed.set()
    for thread in threads:
        thread.join()
    logging.disable(logging.NOTSET)
    with pytest.raises(errors.JournalClosed) as caught:
        journal.flush()
    kept = [stored(db, f"r{number}") for number in range(4)]
    for number in range(4):
        assert kept[number] == list(range(1, len(kept[number]) + 1))
        assert before[number] - 1 <= len(kept[number]) <= accepted[number] + 1
    assert sum(map(len, kept)) + caught.value.refused == sum(accepted)


def test_a_closed_journal_says_so(db: Path) -> None:
    """Every method raises `JournalClosed`. `append` does not raise, but its events are counted."""
    journal = RunJournal(db)
    journal.append(start())
    journal.close()
    journal.append(delta())
    journal.append(delta())
    with pytest.raises(errors.JournalClosed) as caught:
        journal.flush()
    assert caught.value.refused == 2
    for verb in (
        lambda: journal.flush(),
        lambda: journal.run("r"),
        lambda: journal.runs(),
        lambda: journal.read("r"),
        lambda: journal.follow("r"),
        lambda: journal.afollow("r"),
        lambda: journal.stop("r"),
        lambda: journal.claim("r"),
        lambda: journal.prune(keep_last=1),
    ):
        with pytest.raises(errors.JournalClosed):
            verb()
    assert "closed" in repr(journal)


def test_a_close_that_cannot_store_keeps_the_spool(db: Path) -> None:
    """`close` raises, and the next journal on the file imports the spool."""
    store = FaultyStore(SqliteStore(db))
    journal = RunJournal(store)
    journal.append(start())
    journal.append(delta())
    store.fail(times=1_000_000)
    with pytest.raises(errors.WriteFailed, match="in the spool"):
        journal.close()
    assert len(list(db.parent.glob("*-spool-*"))) == 1
    with RunJournal(db) as journal:
        assert [report.events for report in journal.recovered] == [2]
        assert [event.seq for event in journal.read("r")] == [1, 2]
    assert [path.name for path in db.parent.iterdir()] == ["runs.db"]


@pytest.mark.guarantee("in memory")
def test_what_a_close_in_memory_could_not_store_is_lost_and_said() -> None:
    """Without a spool, the events cannot be kept, so the error counts them as lost."""
    store = FaultyStore(MemoryStore())
    journal = RunJournal(store)
    for _ in range(3):
        journal.append(delta())
    store.fail(times=1_000_000)
    with pytest.raises(errors.WriteFailed) as caught:
        journal.close()
    assert (caught.value.waiting, caught.value.lost) == (0, 3)


def test_close_is_the_last_barrier(db: Path) -> None:
    """`close` raises what no flush has raised: refused events never pass unnoticed."""
    with RunJournal(db) as other:
        other.append(delta())
        other.flush()
        journal = RunJournal(db)
        journal.append(delta())
        with pytest.raises(errors.RunFenced, match="'r'"):
            journal.close()
        journal.close()
        assert len(other.read("r")) == 1


def test_a_journal_that_is_dropped_is_drained(db: Path) -> None:
    """Without `close`, as in a notebook: all events are stored, the writer thread ends, and the spool is deleted."""
    journal = RunJournal(db)
    journal.append(start())
    thread, gone = core_of(journal).writer._thread, weakref.ref(journal)
    del journal
    gc.collect()
    assert gone() is None
    thread.join(30)
    assert not thread.is_alive()
    assert stored(db) == [1]
    assert not list(db.parent.glob("*-spool-*"))


def test_a_run_that_ended_long_ago_goes_on(journals: Journals, monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal keeps a few fields of a run that has ended, and no buffer. A late event gets the next number, readers see
    the run as before, a deletion forgets it, and none of this depends on the call of its last event."""
    monkeypatch.setattr("langchain_runjournal.journal.ended_runs._NOT_PACKED", 2)
    journal = journals()
    appender = core_of(journal).appender

    def ends(number: int) -> None:
        journal.append(start(f"r{number}"))
        journal.append(Event(run_id=f"r{number}", kind="llm.start", call_id="a call", data={}))
        journal.append(Event(run_id=f"r{number}", kind="run.end", call_id="a call", data={}))
        journal.flush()

    for number in range(8):
        ends(number)
    assert (sorted(appender.buffers), sorted(appender.ended_runs)) == (["r6", "r7"], [f"r{number}" for number in range(6)])
    assert not appender.live
    journal.append(Event(run_id="r1", kind="llm.tool.result", call_id="a call", data={"late": True}))
    journal.append(Event(run_id="r2", kind="llm.tool.result", data={"late": True}))
    assert journal.run("r2").last_seq == 4
    assert [event.seq for event in journal.follow("r3")] == [1, 2, 3]
    assert journal.delete(run_id="r4") == ["r4"]
    assert "r4" not in appender.ended_runs
    for number in range(8, 12):
        ends(number)
    assert not appender.live
    assert {"r1", "r2", "r3"} <= set(appender.ended_runs)
    journal.append(Event(run_id="r1", kind="llm.tool.result", data={"late": True}))
    journal.close()
    with journals() as again:
        for run_id, calls in {"r1": ["a call", None], "r2": [None]}.items():
            events = list(again.read(run_id))
            assert [event.seq for event in events] == list(range(1, 4 + len(calls)))
            assert [event.call_id for event in events[3:]] == calls
            assert again.run(run_id).status == "completed"


def test_what_a_journal_keeps_of_ended_runs_is_bounded(journals: Journals, monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal forgets old run buffers. It refuses a late event of a forgotten run with an error, and never stores it at
    a wrong place."""
    monkeypatch.setattr("langchain_runjournal.journal.append._KEPT_BUFFERS", 5)
    monkeypatch.setattr("langchain_runjournal.journal.ended_runs._NOT_PACKED", 1)
    journal = journals()
    for number in range(20):
        journal.append(start(f"r{number}"))
        journal.append(end(f"r{number}"))
        journal.flush()
    appender = core_of(journal).appender
    assert (len(appender.buffers), len(appender.ended_runs)) == (1, 5)
    journal.append(Event(run_id="r19", kind="llm.tool.result", data={"late": True}))
    journal.flush()
    assert [event.seq for event in journal.read("r19")] == [1, 2, 3]
    journal.append(Event(run_id="r0", kind="llm.tool.result", data={"late": True}))
    with pytest.raises(errors.RunFenced, match="r0"):
        journal.flush()
    assert [event.seq for event in journal.read("r0")] == [1, 2]


def test_wall_clocks_that_jump_break_nothing(journals: Journals) -> None:
    """The wall clock jumps back by years during a run. Order, following, listing and leases still work."""
    clock = FakeClock(wall=1_700_000_000.0)
    journal = journals(clock=clock)
    journal.append(start())
    clock.set_wall(1_000_000_000.0)
    for _ in range(3):
        journal.append(delta())
    clock.set_wall(1_800_000_000.0)
    journal.append(start("later"))
    clock.set_wall(900_000_000.0)
    journal.append(end())
    journal.append(end("later"))
    assert [event.seq for event in journal.follow("r")] == [1, 2, 3, 4, 5]
    assert [run.run_id for run in journal.runs()] == ["later", "r"]
    assert [event.at for event in journal.read("r")][-1] == 900_000_000.0
    assert journal.prune(keep_last=1) in (["r"], ["later"])


def test_time_is_taken_from_the_system(journals: Journals) -> None:
    """Without a `clock` argument, a journal stamps events with the time of day."""
    journal = journals()
    before = time.time()
    journal.append(start())
    assert before - 0.001 <= journal.read("r")[0].at <= time.time() + 0.001


# --- what a sceptical reader found ------------------------------------------------------------------------------------


@pytest.mark.guarantee("close")
def test_close_stores_what_waits_in_the_overflow(db: Path) -> None:
    """`close` stores all events that were accepted before it, also those for which the spool had no room."""
    store = FaultyStore(SqliteStore(db))
    journal = RunJournal(store, spool_limit=8 << 20)
    journal.append(start())
    journal.flush()
    store.fail(times=1_000_000)
    count = fill(journal, 13)
    appender = core_of(journal).appender
    assert appender.overflowing or any(file.size > 4 << 20 for file in appender.spool._full)
    store.fail(times=0)
    journal.close()
    with RunJournal(db) as journal:
        text = "".join(event.data.get("text", "") for event in journal.read("r"))
    assert len(text) == 96 * count


@pytest.mark.parametrize(
    "odd",
    [
        Event(run_id="odd", kind="run.start", data={"thread_id": ["t"], "name": ["\ud83d"], "metadata": "m"}),
        Event(run_id="odd", kind="run.stop", data={"cause": "\ud83d"}),
        Event(run_id="odd", kind="run.lost", data={"events": "many"}),
        Event(run_id="odd", kind="run.lost", data={"events": [1]}),
        Event(run_id="odd", kind="run.end", data={"usage": 7, "cause": {"a": 1}, "error": ["\udc00"]}),
        Event(run_id="odd", kind="tool.start", data={"n": 10**5000, "m": -(10**400)}),
        Event(run_id="odd", kind="tool.start", call_id="\ud83d", data={("a",): {b"b"}}),
        Event(run_id="o\0d\nd'\"", kind="run.start", data={}),
        Event(run_id="x" * 10_000, kind="run.start", at=253_402_300_799.0),
    ],
    ids=range(9),
)
def test_an_odd_event_blocks_nobody(db: Path, odd: Event) -> None:
    """An odd event disturbs neither other runs nor the next open, and is itself stored: any JSON can be."""
    with RunJournal(db) as journal:
        journal.append(odd)
        journal.append(start("good"))
        journal.flush()
        assert journal.run("good")
        assert journal.run(odd.run_id)
        assert journal.read(odd.run_id)[0].kind == odd.kind
    with RunJournal(db) as journal:
        assert {run.run_id for run in journal.runs()} == {"good", odd.run_id}


def test_a_run_that_the_store_cannot_take_is_set_aside(db: Path) -> None:
    """The other runs are stored, and the error of the barrier names the run."""
    inner = SqliteStore(db)
    store = FaultyStore(inner)

    class Picky:
        def __getattr__(self, name: str) -> object:
            return getattr(store, name)

        def append(self, owner_id: str, segments: list) -> None:
            if any(segment.run_id == "odd" for segment in segments):
                raise OverflowError("too odd")
            inner.append(owner_id, segments)

    with RunJournal(Picky()) as journal:
        for run_id in ("a", "odd", "b", "odd"):
            journal.append(start(run_id))
        with pytest.raises(errors.EventUnusable, match="odd") as caught:
            journal.flush()
        assert caught.value.refused == 2
        assert isinstance(caught.value.__cause__, OverflowError)
        journal.append(start("c"))
        journal.flush()
        assert {run.run_id for run in journal.runs()} == {"a", "b", "c"}


def test_messages_are_kept_as_langchain_writes_them(journals: Journals) -> None:
    """Messages anywhere in the data are written as LangChain's own dicts, and read back as messages."""
    from langchain_core.messages import AIMessage, HumanMessage, messages_from_dict

    messages = [
        HumanMessage("hi", id="h1"),
        AIMessage("", id="a1", tool_calls=[{"id": "c1", "name": "search", "args": {"q": "x"}, "type": "tool_call"}]),
    ]
    journal = journals()
    journal.append(Event(run_id="r", kind="llm.ai.response", data={"messages": messages, "odd": object()}))
    journal.append(Event(run_id="r", kind="llm.human.input", data={"message": messages[0]}))
    first, second = journal.read("r")
    assert messages_from_dict(first.data["messages"]) == messages
    assert messages_from_dict([second.data["message"]]) == messages[:1]


@pytest.mark.parametrize("what", ["exit", "cancelled", "flush", "run", "close"])
def test_a_stop_callback_cannot_end_the_writer(journals: Journals, what: str, caplog: pytest.LogCaptureFixture) -> None:
    """For a stop from another process, the writer thread calls the callback, which may do anything, also raise
    `SystemExit`."""
    journal, other = journals(), journals()
    journal.append(start())
    journal.flush()
    called = threading.Event()

    def callback(cause: str) -> None:
        called.set()
        if what == "exit":
            raise SystemExit
        if what == "cancelled":
            raise asyncio.CancelledError
        getattr(journal, what)(*(["r"] if what == "run" else []))

    journal.on_stop("r", callback)
    other.stop("r")
    assert called.wait(30)
    if what == "close":
        core_of(journal).writer._done.wait(30)
        with pytest.raises(errors.JournalClosed):
            journal.flush()
    else:
        journal.append(delta())
        journal.flush(timeout=30)
        assert len(other.read("r")) == 3
        if what == "flush":
            assert "would wait for itself" in caplog.text


def test_an_errand_that_fails_keeps_nobody_waiting(journals: Journals) -> None:
    """A loop closes while the writer thread wakes it."""
    journal = journals()
    journal.append(start())
    core_of(journal).duties.errands.append(lambda: 1 / 0)
    journal.flush(timeout=30)
    assert journal.run("r").last_seq == 1


def test_times_that_no_clock_can_tell(journals: Journals) -> None:
    """Infinity means for ever, and a value that is not a number is refused."""
    journal = journals()
    journal.append(start())
    journal.flush(timeout=float("inf"))
    journal.flush(timeout=1e300)
    with pytest.raises(errors.InvalidArgument):
        journal.flush(timeout=float("nan"))
    for lease in (float("inf"), float("nan")):
        with pytest.raises(errors.InvalidArgument):
            RunJournal(":memory:", lease=lease)


def test_readers_do_not_wait_for_a_lock(db: Path, journals: Journals) -> None:
    """While the writer waits for another process's lock, stored events can be read, from this process too."""
    journal = journals(busy_timeout=600)
    journal.append(start("done"))
    journal.append(end("done"))
    journal.flush()
    other = sqlite3.connect(db, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    journal.append(start("waits"))
    barrier = core_of(journal).writer.barrier()
    while not barrier.running():
        threading.Event().wait(0.005)
    assert [event.seq for event in journal.read("done")] == [1, 2]
    assert [event.seq for event in journal.follow("done")] == [1, 2]
    assert not barrier.done()
    other.execute("COMMIT")
    other.close()
    barrier.result(60)


def test_what_only_memory_has_is_found(db: Path) -> None:
    """A run that was appended while the store fails exists for the readers of this process."""
    store = FaultyStore(SqliteStore(db, busy_timeout=0.2))
    with RunJournal(store) as journal:
        store.fail(times=1_000_000)
        journal.append(start("new", thread_id="t"))
        assert (journal.run("new").thread_id, journal.run("new").owner) == ("t", journal.owner_id)
        assert journal.read("new", limit=0) == []
        store.fail(times=0)


def test_a_pruned_run_is_gone_here_as_well(journals: Journals) -> None:
    """In the journal that wrote it, a pruned run is not found, not followed for ever, and not begun again by a late
    event."""
    journal, other = journals(), journals()
    for run_id, pruner in (("a", journal), ("b", other)):
        journal.append(start(run_id))
        journal.append(end(run_id))
        journal.flush()
        assert pruner.prune(keep_last=0) == [run_id]
        for look in (journal.run, journal.read, lambda run_id: list(journal.follow(run_id))):
            with pytest.raises(errors.RunNotFound):
                look(run_id)
    journal.append(Event(run_id="b", kind="llm.tool.result", data={"late": True}))
    with pytest.raises(errors.RunFenced):
        journal.flush()
    assert journal.runs() == []


def test_complaints_do_not_swallow_each_other(journals: Journals) -> None:
    """Each barrier raises one error, until all errors were raised."""
    journal, other = journals(), journals()
    other.append(delta())
    other.flush()
    journal.append(delta())
    journal.append(None)
    with pytest.raises(errors.RunFenced):
        journal.flush()
    with pytest.raises(errors.WriteFailed, match="could not take 1 event, and it is lost"):
        journal.flush()
    journal.flush()


def test_a_mark_that_was_changed_after_it_was_made(db: Path) -> None:
    """No `Event` would accept such data. The journal takes it, also in the overflow, and so does an import of its spool."""
    store = FaultyStore(MemoryStore())
    for target in (db, store):
        with RunJournal(target) as journal:
            if target is store:
                core_of(journal).appender._room = 1
                store.fail(times=3)
            event = end("odd")
            odd = Event(run_id="odd", kind="run.end", data={"status": "completed"})
            odd.data["status"] = "nonsense"
            for one in (start("odd"), odd, event, start("good")):
                journal.append(one)
            while True:
                try:
                    journal.flush()
                except errors.WriteFailed:
                    continue
                break
            assert journal.run("odd").status == "failed"
            assert journal.run("good")


def test_two_writers_do_not_tell_each_other_of_the_same_runs_for_ever(journals: Journals) -> None:
    """A prune, or a claim, makes every other journal look for stop requests again, once."""
    journal, other = journals(), journals()
    for one in (journal, other):
        one.append(start(one.owner_id))
    other.append(start("gone"))
    other.append(end("gone"))
    other.flush()
    journal.flush()
    other.prune(keep_last=0)

    def turns() -> int:
        return core_of(journal).store._open_writer().execute("SELECT value FROM facts WHERE name = 'turns'").fetchone()[0]

    before = turns()
    for _ in range(20):
        for one in (journal, other):
            one.append(delta(run_id=one.owner_id))
            one.flush()
    assert turns() == before


def test_a_spool_file_that_cannot_be_deleted(journals: Journals, monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal logs the error, and no barrier waits for the file."""
    journal = journals()
    journal.append(delta())

    def refuse(self: Path, missing_ok: bool = False) -> None:
        raise PermissionError("no")

    monkeypatch.setattr(Path, "unlink", refuse)
    appender = core_of(journal).appender
    for _ in range(3):
        with appender._lock:
            assert appender.spool.rotate(0, lambda: True)
        journal.append(delta())
        journal.flush(timeout=30)
    monkeypatch.undo()


def test_a_signal_handler_in_the_middle_of_a_transaction(journals: Journals) -> None:
    """Another transaction of the same thread would end the one that the handler interrupted. So it is refused, and the
    first one is intact."""
    journal = journals()
    journal.append(start())
    journal.append(end())
    journal.append(start("other"))
    journal.flush()
    store = core_of(journal).store
    with store._transaction() as con:
        con.execute("UPDATE runs SET thread_id = 'changed'")
        with pytest.raises(errors.WouldDeadlock, match="transaction"):
            store.request_stop("other", "stop")
        assert con.in_transaction
    assert journal.run("other").thread_id == "changed"
    assert journal.stop("other").stop == "stop"


def test_cancelling_aclose_does_not_block_the_loop(db: Path) -> None:
    """The close continues in its thread."""
    store = FaultyStore(SqliteStore(db))
    go_on = threading.Event()
    append = store.inner.append
    closing_began = threading.Event()

    def wait_and_append(*args: object) -> None:
        closing_began.set()
        assert go_on.wait(30)
        append(*args)

    store.inner.append = wait_and_append
    journal = RunJournal(store)
    journal.append(start())

    async def main() -> None:
        closing = asyncio.ensure_future(journal.aclose())
        await asyncio.sleep(0)
        assert await asyncio.to_thread(closing_began.wait, 30)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert not go_on.is_set()
        go_on.set()

    asyncio.run(main())
    assert core_of(journal).writer._done.wait(30)
    assert stored(db) == [1]


@pytest.mark.parametrize("depth", [50, 101, 990, 1_490, 1_494, 5_000])
def test_data_of_any_depth_can_be_read_back(journals: Journals, depth: int) -> None:
    """Data that is nested too deeply for the stack of some reader is cut, and shown as its repr."""
    journal = journals()
    data: dict = {}
    for _ in range(depth):
        data = {"d": [data]}
    journal.append(Event(run_id="r", kind="tool.start", data=data))
    journal.flush()
    assert "d" in journal.read("r")[0].data
