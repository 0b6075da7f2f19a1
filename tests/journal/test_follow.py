"""Followers: existing events, then live ones, each event once and in order, until the run has ended."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from langchain_runjournal import Event, RunJournal, errors
from langchain_runjournal.journal.core import core_of
from langchain_runjournal.stores.sqlite import SqliteStore
from langchain_runjournal.testing import FaultyStore

Journals = Callable[..., RunJournal]


def delta(text: str = "x ", run_id: str = "r") -> Event:
    return Event(run_id=run_id, kind="llm.ai.delta", data={"text": text}, call_id="c")


def end(run_id: str = "r") -> Event:
    return Event(run_id=run_id, kind="run.end")


def in_thread(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_a_finished_run_is_shown_from_any_seq(journals: Journals) -> None:
    """A follower that starts in memory, in the store, or after the end, gets its events at once, and ends."""
    journal = journals()
    for _ in range(5_000):
        journal.append(delta())
    journal.append(end())
    for _ in range(2):
        for after in (0, 1, 1_999, 2_000, 2_001, 5_000):
            assert [event.seq for event in journal.follow("r", after)] == list(range(after + 1, 5_002))
        assert list(journal.follow("r", 5_001)) == []
        assert list(journal.follow("r", 9_999)) == []
        journal.flush()


def test_late_facts_are_for_those_who_come_back(journals: Journals) -> None:
    """A follower ends at `run.end`. A follower that starts behind it gets the late events, and ends."""
    journal = journals()
    journal.append(delta())
    journal.append(end())
    journal.append(Event(run_id="r", kind="llm.tool.result", data={"late": True}))
    for _ in range(2):
        assert [event.kind for event in journal.follow("r")] == ["llm.ai.delta", "run.end"]
        assert [event.kind for event in journal.follow("r", 2)] == ["llm.tool.result"]
        journal.flush()


@pytest.mark.parametrize("where", ["the same journal", "another journal"])
def test_live(journals: Journals, where: str) -> None:
    """Every follower gets every event, while four threads append and three followers start at different places."""
    journal = journals()
    other = journal if where == "the same journal" else journals()
    journal.append(Event(run_id="r", kind="run.start"))
    journal.flush()
    seen: dict[int, list[int]] = {}

    def follow(after: int) -> None:
        seen[after] = [event.seq for event in other.follow("r", after)]

    followers = [in_thread(lambda after=after: follow(after)) for after in (0, 1, 500)]
    writers = [in_thread(lambda: [journal.append(delta()) for _ in range(500)]) for _ in range(4)]
    for writer in writers:
        writer.join()
    journal.append(end())
    for follower in followers:
        follower.join()
    assert seen == {after: list(range(after + 1, 2_003)) for after in (0, 1, 500)}


@pytest.mark.guarantee("follow here")
@pytest.mark.parametrize("where", ["the same journal", "another journal"])
def test_live_and_async(journals: Journals, where: str) -> None:
    """Fifty followers on the loop that appends get each event at once: without busy waiting, without a loss, and all of
    them end."""
    journal = journals()
    other = journal if where == "the same journal" else journals()

    async def main() -> None:
        journal.append(Event(run_id="r", kind="run.start"))
        await journal.aflush()
        got: list[list[int]] = [[] for _ in range(50)]

        async def follow(number: int) -> None:
            async for event in other.afollow("r", after=number % 3):
                got[number].append(event.seq)

        tasks = [asyncio.ensure_future(follow(number)) for number in range(50)]
        for _ in range(200):
            journal.append(delta())
            await asyncio.sleep(0)
        journal.append(end())
        await asyncio.gather(*tasks)
        assert got == [list(range(number % 3 + 1, 203)) for number in range(50)]

    asyncio.run(main())
    assert not core_of(other).duties.listeners
    assert not any(buffer.waiters for buffer in core_of(other).appender.buffers.values())


def test_appended_by_a_thread_followed_in_a_loop(journals: Journals) -> None:
    """An appending thread wakes the loop, for one event at a time."""
    journal = journals()
    journal.append(delta())
    turn = threading.Semaphore(0)

    def work() -> None:
        for _ in range(100):
            turn.acquire()
            journal.append(delta())
        turn.acquire()
        journal.append(end())

    async def main() -> list[int]:
        seqs = []
        async for event in journal.afollow("r"):
            seqs.append(event.seq)
            turn.release()
        return seqs

    writer = in_thread(work)
    assert asyncio.run(main()) == list(range(1, 103))
    writer.join()


def test_a_follower_that_leaves_leaves_nothing_behind(journals: Journals) -> None:
    """A follower is closed or cancelled while it waits, sync and async, on a run of this and of another journal."""
    journal, other = journals(), journals()
    journal.append(delta())
    journal.flush()
    for follower in (journal.follow("r"), other.follow("r")):
        assert next(follower).seq == 1
        follower.close()

    async def main() -> None:
        for mine in (journal, other):
            follower = mine.afollow("r")
            assert (await follower.__anext__()).seq == 1
            waiting = asyncio.ensure_future(follower.__anext__())
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            await follower.aclose()

    asyncio.run(main())
    assert not core_of(other).duties.listeners
    assert not any(buffer.waiters for buffer in core_of(journal).appender.buffers.values())


def test_a_slow_follower_catches_up(journals: Journals) -> None:
    """The follower is slow between events. Meanwhile the run continues, is stored and tidied; the follower skips no
    event."""
    journal = journals()
    follower = journal.follow("r")
    journal.append(delta())
    seqs = []
    for event in follower:
        seqs.append(event.seq)
        if event.seq % 100 == 1 and event.seq < 1_000:
            for _ in range(100):
                journal.append(delta())
            if event.seq % 200 == 1:
                journal.flush()
                core_of(journal).store.tidy()
        elif event.seq == 1_001:
            journal.append(end())
    assert seqs == list(range(1, 1_003))


@pytest.mark.guarantee("seen elsewhere", "follow here")
def test_nothing_is_shown_before_it_is_safe(db: Path) -> None:
    """While the store fails, followers of this process get the events that the spool holds, and other processes get none of
    them."""
    store = FaultyStore(SqliteStore(db))
    with RunJournal(store) as journal, RunJournal(db) as other:
        journal.append(delta())
        journal.flush()
        store.fail(times=1_000_000)
        journal.append(delta())
        journal.append(end())
        assert [event.seq for event in journal.follow("r")] == [1, 2, 3]
        assert [event.seq for event in other.read("r")] == [1]
        store.fail(times=0)
        assert [event.seq for event in other.follow("r")] == [1, 2, 3]


def test_a_run_that_is_claimed_is_followed_on(journals: Journals, monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower in the old owner's process gets the events that the new owner appends, without any message between the
    two."""
    monkeypatch.setattr("langchain_runjournal.journal.follow._LONGEST_SLEEP", 0.05)
    old, new = journals(), journals()
    old.append(delta())
    old.flush()
    follower = old.follow("r")
    assert next(follower).seq == 1
    core_of(new).store.claim("r", new.owner_id, 1)
    core_of(new).writer.appender.adopt("r", 2, 1)
    new.append(delta())
    new.append(end())
    assert [event.seq for event in follower] == [2, 3]
    old.append(delta("refused"))
    with pytest.raises(errors.RunFenced):
        old.flush()
    assert [event.seq for event in old.follow("r")] == [1, 2, 3]


def test_a_pruned_run_is_gone_for_followers(journals: Journals) -> None:
    """A follower that starts at the beginning raises `RunNotFound`."""
    journal, other = journals(), journals()
    journal.append(delta())
    journal.append(end())
    journal.flush()
    assert other.prune(keep_last=0) == ["r"]
    with pytest.raises(errors.RunNotFound):
        list(other.follow("r"))


FOLLOWER = """
import sys
from langchain_runjournal import RunJournal
with RunJournal(sys.argv[1]) as journal:
    print("ready", flush=True)
    for event in journal.follow("r", int(sys.argv[2])):
        print(event.seq, flush=True)
"""


@pytest.mark.guarantee("follow elsewhere")
def test_from_another_process(journals: Journals, db: Path) -> None:
    """A follower in another process returns to its last seq, and follows the run live to its end."""
    journal = journals()
    for _ in range(10):
        journal.append(delta())
    journal.flush()
    process = subprocess.Popen([sys.executable, "-c", FOLLOWER, db, "4"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    lines = [process.stdout.readline().strip() for _ in range(7)]
    assert lines == ["ready", "5", "6", "7", "8", "9", "10"]
    for _ in range(100):
        journal.append(delta())
        journal.flush()
    journal.append(end())
    rest, _ = process.communicate(timeout=60)
    assert [int(line) for line in rest.split()] == list(range(11, 112))
    assert process.returncode == 0
