"""Followers of threads: on from run to run, on every store, whoever writes the runs."""

from __future__ import annotations

import asyncio
import queue
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from langchain_runjournal import Event, Run, RunJournal
from langchain_runjournal.errors import InvalidArgument, JournalClosed, RunNotFound
from langchain_runjournal.events import Kind
from langchain_runjournal.events.segments import pack
from langchain_runjournal.journal import thread_follow
from langchain_runjournal.journal.core import core_of
from langchain_runjournal.journal.follow import Sleeper
from langchain_runjournal.journal.thread_follow_plan import ThreadStep
from langchain_runjournal.stores.memory import MemoryStore
from tests.support.left_runs import leave
from tests.support.places import PLACES, Place, make_place

PATIENCE = 60
Journals = Callable[..., RunJournal]
Seen = tuple[str, int]


@pytest.fixture(params=("memory", *PLACES))
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[RunJournal, RunJournal]]:
    """Two journals on one store: one that writes, and one that reads what another process has written."""
    if request.param == "memory":
        store = MemoryStore()
        with RunJournal(store) as writer, RunJournal(store) as reader:
            yield writer, reader
            reader.flush()
        return
    place: Place = make_place(tmp_path, request.param)
    with place.open() as writer, place.open() as reader:
        yield writer, reader
    place.drop()


def put(journal: RunJournal, run_id: str, *kinds: Kind, thread_id: str = "t") -> None:
    """Append events; the first one of a run says on which thread it is."""
    for kind in kinds:
        data: dict[str, Any] = {"thread_id": thread_id} if kind == "run.start" else {}
        data |= {"text": "x "} if kind == "llm.ai.delta" else {}
        journal.append(Event(run_id=run_id, kind=kind, data=data, call_id="c" if kind.startswith("llm") else None))


def whole(journal: RunJournal, *run_ids: str, thread_id: str = "t") -> list[Seen]:
    """Write runs of three events, which have ended. Return their events."""
    for run_id in run_ids:
        put(journal, run_id, "run.start", "llm.ai.delta", "run.end", thread_id=thread_id)
        journal.flush()
    return [(run_id, seq) for run_id in run_ids for seq in (1, 2, 3)]


async def take(follower: AsyncIterator[Event], count: int) -> list[Seen]:
    """Return the next events of a follower."""
    found = [await asyncio.wait_for(follower.__anext__(), PATIENCE) for _ in range(count)]
    return [(event.run_id, event.seq) for event in found]


async def waits(follower: AsyncIterator[Event]) -> asyncio.Task[Event]:
    """Ask a follower for the next event, and return when it sleeps."""
    waiting = asyncio.ensure_future(follower.__anext__())
    for _ in range(20):
        await asyncio.sleep(0.01)
    assert not waiting.done()
    return waiting


def run(main: Any) -> Any:
    return asyncio.run(asyncio.wait_for(main, 3 * PATIENCE))


def test_from_run_to_run(pair: tuple[RunJournal, RunJournal]) -> None:
    """What is there in the order in which the runs began, then what begins; also runs that began and ended while the reader
    looked at nothing. Runs of other threads are not among them."""
    writer, _ = pair

    async def follow(journal: RunJournal, thread_id: str) -> None:
        def written(*numbers: int) -> list[Seen]:
            whole(writer, f"other {numbers} {thread_id}", thread_id="other")
            return whole(writer, *(f"{thread_id}{number}" for number in numbers), thread_id=thread_id)

        before = written(9, 1, 5)
        follower = journal.afollow_thread(thread_id)
        assert await take(follower, 9) == before
        waiting = await waits(follower)
        later = written(7)
        event = await asyncio.wait_for(waiting, PATIENCE)
        assert [(event.run_id, event.seq), *await take(follower, 2)] == later
        missed = written(8, 3)
        assert await take(follower, 6) == missed
        waiting = await waits(follower)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await follower.aclose()

    for number, journal in enumerate(pair):
        run(follow(journal, f"t{number}"))
        duties = core_of(journal).duties
        assert not duties.others.threads.listeners
        assert not duties.listeners


def test_each_word_as_it_comes(pair: tuple[RunJournal, RunJournal]) -> None:
    """Of a live run, in this process and in another one."""
    writer, _ = pair

    async def main() -> None:
        followers = [journal.afollow_thread("t") for journal in pair]
        waiting = [await waits(follower) for follower in followers]
        put(writer, "a", "run.start")
        for task in waiting:
            assert (await asyncio.wait_for(task, PATIENCE)).kind == "run.start"
        for seq in range(2, 12):
            waiting = [asyncio.ensure_future(follower.__anext__()) for follower in followers]
            await asyncio.sleep(0)
            put(writer, "a", "llm.ai.delta")
            assert [(await asyncio.wait_for(task, PATIENCE)).seq for task in waiting] == [seq, seq]
        put(writer, "a", "run.end")
        put(writer, "b", "run.start")
        for follower in followers:
            assert await take(follower, 2) == [("a", 12), ("b", 1)]
            await follower.aclose()

    run(main())


def test_a_reader_comes_back_at_every_event(pair: tuple[RunJournal, RunJournal]) -> None:
    """The rest of the run of its cursor, then every later run; as a pair and as a text."""
    writer, reader = pair
    events = whole(writer, "a:1", "b", "c")

    async def main() -> None:
        for at, (run_id, seq) in enumerate([("a:1", 0), *events]):
            left = events[at:]
            for after in ((run_id, seq), f"{run_id}:{seq}"):
                follower = reader.afollow_thread("t", after)
                assert await take(follower, len(left)) == left
                await follower.aclose()

    run(main())


def test_late_facts_are_not_yielded(pair: tuple[RunJournal, RunJournal]) -> None:
    """Neither to a reader that was there, nor to one that comes back at the end, or behind it."""
    writer, reader = pair
    whole(writer, "a")
    writer.append(Event(run_id="a", kind="llm.tool.result", data={"late": True}))
    later = whole(writer, "b")

    async def main() -> None:
        for after, count in ((None, 3), (("a", 1), 2), (("a", 3), 0), (("a", 4), 0), (("a", 9), 0)):
            follower = reader.afollow_thread("t", after)
            found = await take(follower, count + 3)
            assert found == [("a", seq) for seq in range(4 - count, 4)] + later
            await follower.aclose()

    run(main())


def test_a_cursor_that_leads_nowhere(pair: tuple[RunJournal, RunJournal]) -> None:
    """An unknown run, a deleted one, one of another thread: an error at the first step. What is no cursor: at once."""
    writer, reader = pair
    whole(writer, "a", "b")
    whole(writer, "c", thread_id="u")
    writer.delete(run_id="b")
    for after in (("x", 0), ("b", 1)):
        with pytest.raises(RunNotFound):
            next(reader.follow_thread("t", after))
    with pytest.raises(InvalidArgument, match="a run of thread 't'"):
        next(reader.follow_thread("t", ("c", 1)))
    bad: list[Any] = ["", "a", "a:", ":1", "a:-1", "a:x", "a:1.5", ("a",), ("a", -1), ("a", "1"), 7, ("", 1)]
    for cursor in bad:
        with pytest.raises(InvalidArgument):
            reader.follow_thread("t", cursor)


def test_runs_that_are_deleted(pair: tuple[RunJournal, RunJournal]) -> None:
    """The run before, while the reader waits behind it; a later one, before the reader comes to it; the one that it
    follows."""
    writer, reader = pair

    async def main() -> None:
        events = whole(writer, "a", "b")
        follower = reader.afollow_thread("t", ("a", 1))
        assert await take(follower, 5) == events[1:]
        waiting = await waits(follower)
        writer.delete(thread_id="t")
        later = whole(writer, "c", "d", "e")
        event = await asyncio.wait_for(waiting, PATIENCE)
        assert (event.run_id, event.seq) == ("c", 1)
        writer.delete(run_id="d")
        assert await take(follower, 5) == [*later[1:3], *later[6:]]
        put(writer, "f", "run.start")
        writer.flush()
        assert await take(follower, 1) == [("f", 1)]
        waiting = await waits(follower)
        put(writer, "f", "run.end")
        writer.flush()
        writer.delete(run_id="f")
        after = whole(writer, "g")
        event = await asyncio.wait_for(waiting, PATIENCE)
        assert (event.run_id, event.seq) in (("f", 2), after[0])
        await follower.aclose()

    run(main())


def test_a_paused_run_is_left_when_a_later_one_works(pair: tuple[RunJournal, RunJournal]) -> None:
    """Its pause is yielded, and what it says when it continues; what settles it comes before the later run."""
    writer, _ = pair

    async def main() -> None:
        for journal in pair:
            name = "w" if journal is writer else "r"
            followers = journal.afollow_thread(name)
            put(writer, f"{name}1", "run.start", "run.pause", thread_id=name)
            assert await take(followers, 2) == [(f"{name}1", 1), (f"{name}1", 2)]
            waiting = await waits(followers)
            put(writer, f"{name}1", "llm.ai.delta", "run.pause")
            assert (await asyncio.wait_for(waiting, PATIENCE)).seq == 3
            assert await take(followers, 1) == [(f"{name}1", 4)]
            waiting = await waits(followers)
            # An attached graph settles the paused run when the next one has begun.
            put(writer, f"{name}2", "run.start", "llm.human.input", thread_id=name)
            writer.flush()
            await asyncio.sleep(0.4)
            assert not waiting.done()
            put(writer, f"{name}1", "run.end")
            assert (await asyncio.wait_for(waiting, PATIENCE)).kind == "run.end"
            assert await take(followers, 2) == [(f"{name}2", 1), (f"{name}2", 2)]
            put(writer, f"{name}2", "run.pause")
            assert await take(followers, 1) == [(f"{name}2", 3)]
            waiting = await waits(followers)
            # A graph that only a handler records settles nothing.
            put(writer, f"{name}3", "run.start", "llm.human.input", "llm.start", thread_id=name)
            event = await asyncio.wait_for(waiting, PATIENCE)
            assert (event.run_id, event.seq) == (f"{name}3", 1)
            await followers.aclose()

    run(main())


def test_a_reader_comes_back_behind_a_pause(pair: tuple[RunJournal, RunJournal]) -> None:
    """It waits there, and goes on when a later run works."""
    writer, reader = pair
    put(writer, "a", "run.start", "run.pause")
    writer.flush()

    async def main() -> None:
        follower = reader.afollow_thread("t", "a:2")
        waiting = await waits(follower)
        put(writer, "b", "run.start", "llm.start")
        event = await asyncio.wait_for(waiting, PATIENCE)
        assert (event.run_id, event.seq) == ("b", 1)
        await follower.aclose()

    run(main())


def test_what_a_dead_owner_left_holds_no_later_run(
    place: Place, journals: Journals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is left when a later run works, or has ended, or is left by its owner as well; not before."""
    monkeypatch.setattr("langchain_runjournal.journal.follow._LONGEST_SLEEP", 0.05)
    leave(journals, "a")
    journal = journals()

    async def main() -> None:
        follower = journal.afollow_thread("t")
        assert await take(follower, 4) == [("a", seq) for seq in (1, 2, 3, 4)]
        waiting = await waits(follower)
        put(journal, "b", "run.start", "llm.human.input")
        await asyncio.sleep(0.4)
        assert not waiting.done()
        put(journal, "b", "llm.start")
        event = await asyncio.wait_for(waiting, PATIENCE)
        assert [(event.run_id, event.seq), *await take(follower, 2)] == [("b", 1), ("b", 2), ("b", 3)]
        put(journal, "b", "run.end")
        journal.flush()
        other = journals()
        put(other, "c", "run.start")
        other.close()
        assert await take(follower, 2) == [("b", 4), ("c", 1)]
        waiting = await waits(follower)
        other = journals()
        put(other, "d", "run.start")
        other.close()
        event = await asyncio.wait_for(waiting, PATIENCE)
        assert (event.run_id, event.seq) == ("d", 1)
        await follower.aclose()

    run(main())


def test_what_the_spool_of_a_dead_owner_held_comes_first(
    place: Place, journals: Journals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The spool is imported when the owner is found dead: what was in it is yielded before the later run."""
    monkeypatch.setattr("langchain_runjournal.journal.follow._LONGEST_SLEEP", 0.05)
    leave(journals, "a")
    journal = journals()
    core = core_of(journal)
    is_gone = core.dead_owners.owner_is_gone

    def import_and_tell(run: Run) -> bool:
        if run.run_id == "a" and run.last_seq == 4:
            left = Event(run_id="a", kind="llm.ai.delta", data={"text": "left"}, seq=5, at=1_700_000_000.0)
            core.store.append(str(run.owner), [pack("a", run.epoch, [left])])
        return is_gone(run)

    monkeypatch.setattr(core.dead_owners, "owner_is_gone", import_and_tell)
    put(journal, "b", "run.start", "llm.start")
    journal.flush()

    async def main() -> None:
        follower = journal.afollow_thread("t")
        assert await take(follower, 6) == [*(("a", seq) for seq in range(1, 6)), ("b", 1)]
        await follower.aclose()

    run(main())


def test_a_run_at_work_is_followed_to_its_end(pair: tuple[RunJournal, RunJournal], monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if a later one works beside it, and ends first: the order is that of their beginnings."""
    monkeypatch.setattr("langchain_runjournal.journal.follow._LONGEST_SLEEP", 0.05)
    monkeypatch.setattr("langchain_runjournal.journal.follow._LONGEST_SLEEP_ELSEWHERE", 0.05)
    writer, _ = pair

    async def main() -> None:
        for journal in pair:
            name = "w" if journal is writer else "r"
            follower = journal.afollow_thread(name)
            put(writer, f"{name}1", "run.start", thread_id=name)
            assert await take(follower, 1) == [(f"{name}1", 1)]
            later = whole(writer, f"{name}2", thread_id=name)
            waiting = await waits(follower)
            put(writer, f"{name}1", "llm.ai.delta", "run.end")
            assert (await asyncio.wait_for(waiting, PATIENCE)).seq == 2
            assert await take(follower, 4) == [(f"{name}1", 3), *later]
            await follower.aclose()

    run(main())


def test_runs_of_another_process(place: Place, journals: Journals) -> None:
    """A process writes runs; the reader here sees each of them, as it is written."""
    journal = journals()
    code = (
        "import sys\n"
        "from langchain_runjournal import Event, RunJournal\n"
        "with RunJournal(sys.argv[1]) as journal:\n"
        "    for at in range(5):\n"
        "        run_id = f'p{at}'\n"
        "        journal.append(Event(run_id=run_id, kind='run.start', data={'thread_id': 't'}))\n"
        "        journal.flush()\n"
        "        input()\n"
        "        journal.append(Event(run_id=run_id, kind='run.end'))\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code, place.journal], stdin=subprocess.PIPE, text=True)
    assert process.stdin is not None
    found = []
    for event in journal.follow_thread("t"):
        found.append((event.run_id, event.seq))
        if event.kind == "run.start":
            process.stdin.write("\n")
            process.stdin.flush()
        elif event.run_id == "p4":
            break
    process.stdin.close()
    assert process.wait(PATIENCE) == 0
    assert found == [(f"p{at}", seq) for at in range(5) for seq in (1, 2)]


def test_a_follower_that_sleeps_learns_that_the_journal_is_closed(place: Place, journals: Journals) -> None:
    """Sync and async, between two runs: it would sleep for ever."""
    journal = journals()
    whole(journal, "a")
    heard: queue.Queue[Any] = queue.Queue()

    def follow() -> None:
        try:
            for event in journal.follow_thread("t", ("a", 2)):
                heard.put(event.seq)
        except JournalClosed as exc:
            heard.put(exc)

    async def afollow() -> None:
        follower = journal.afollow_thread("t", ("a", 2))
        assert await take(follower, 1) == [("a", 3)]
        waiting = await waits(follower)
        await journal.aclose()
        with pytest.raises(JournalClosed):
            await asyncio.wait_for(waiting, PATIENCE)

    thread = threading.Thread(target=follow)
    thread.start()
    assert heard.get(timeout=PATIENCE) == 3
    run(afollow())
    assert isinstance(heard.get(timeout=PATIENCE), JournalClosed)
    thread.join()


def test_a_long_thread_costs_nothing_while_nothing_happens(pair: tuple[RunJournal, RunJournal]) -> None:
    """A hundred followers behind three hundred runs ask the store nothing for their threads while other threads are busy,
    and one question is asked for all of them."""
    writer, reader = pair
    for at in range(300):
        put(writer, f"r{at}", "run.start", "run.end")
    writer.flush()
    asked: list[str | None] = []
    store: Any = core_of(reader).store
    began = store.began

    def counting(after: int | None, *, thread_id: str | None, limit: int | None) -> Any:
        asked.append(thread_id)
        return began(after, thread_id=thread_id, limit=limit)

    async def main() -> None:
        store.began = counting
        followers = [reader.afollow_thread("t", ("r299", 2)) for _ in range(100)]
        waiting = [asyncio.ensure_future(follower.__anext__()) for follower in followers]
        await asyncio.sleep(1.0)
        assert len(core_of(reader).duties.others.threads.listeners) == 100
        asked.clear()
        for at in range(20):
            whole(writer, f"u{at}", thread_id="u")
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)
        assert asked.count("t") == 0
        assert not any(task.done() for task in waiting)
        whole(writer, "last")
        for task in waiting:
            assert (await asyncio.wait_for(task, PATIENCE)).run_id == "last"
        for follower in followers:
            await follower.aclose()

    try:
        run(main())
    finally:
        store.began = began


def test_paused_runs_cost_nothing_while_others_work(pair: tuple[RunJournal, RunJournal]) -> None:
    """A hundred followers of runs that wait for a human read nothing while other runs are written, and each of them is woken
    when its own run continues."""
    writer, reader = pair
    for at in range(100):
        put(writer, f"r{at}", "run.start", "run.pause", thread_id=f"t{at}")
    writer.flush()
    if not hasattr(core_of(reader).store, "stored"):
        pytest.skip("only the store in memory cannot tell which runs have changed")
    asked: list[str] = []
    store: Any = core_of(reader).store
    read = store.read

    def counting(run_id: str, after: int, limit: int | None) -> Any:
        asked.append(run_id)
        return read(run_id, after, limit)

    async def main() -> None:
        followers = [reader.afollow_thread(f"t{at}", (f"r{at}", 2)) for at in range(100)]
        waiting = [asyncio.ensure_future(follower.__anext__()) for follower in followers]
        await asyncio.sleep(2.0)
        store.read = counting
        for at in range(20):
            whole(writer, f"u{at}", thread_id="u")
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)
        assert len(asked) == 0
        put(writer, "r7", "llm.start")
        assert (await asyncio.wait_for(waiting[7], PATIENCE)).seq == 3
        assert set(asked) == {"r7"}
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        for follower in followers:
            await follower.aclose()

    try:
        run(main())
    finally:
        store.read = read


def test_a_sign_of_life_between_two_runs_asks_nothing(journal: RunJournal) -> None:
    """A server wakes its followers to send one. A follower that was not woken for a run sleeps on."""
    whole(journal, "a")
    plan = thread_follow.replay_of("t", ("a", 2), journal.url)
    core = core_of(journal)
    sleeper = Sleeper()
    listening = thread_follow.Listening(core, plan, sleeper)
    while plan.step is not ThreadStep.WAIT:
        listening.listen()
        thread_follow.look_at_thread(core, plan, False)
    assert sleeper.sleep(PATIENCE)  # the watch has begun to look
    listening.woken(in_doubt=False)
    assert plan.step is ThreadStep.NEXT
    thread_follow.look_at_thread(core, plan, False)
    assert plan.step is ThreadStep.WAIT
    for in_doubt in (True, False):
        listening.woken(in_doubt=in_doubt)
        assert plan.step is ThreadStep.WAIT
        assert thread_follow.look_at_thread(core, plan, in_doubt) == []
    later = whole(journal, "b")
    assert sleeper.sleep(PATIENCE)
    listening.woken(in_doubt=False)
    found: list[Event] = []
    while plan.step is not ThreadStep.WAIT:
        found += thread_follow.look_at_thread(core, plan, False)
    assert [(event.run_id, event.seq) for event in found] == later
    listening.stop()


def test_a_long_run_is_read_in_pages(pair: tuple[RunJournal, RunJournal], monkeypatch: pytest.MonkeyPatch) -> None:
    """And many runs in portions: nothing is missing between them."""
    monkeypatch.setattr(thread_follow, "_RUNS", 2)
    monkeypatch.setattr("langchain_runjournal.journal.follow.PAGE", 5)
    writer, reader = pair
    for run_id in "abcde":
        put(writer, run_id, "run.start", *["llm.ai.delta"] * 11, "run.end")
        writer.flush()

    async def main() -> None:
        follower = reader.afollow_thread("t")
        assert await take(follower, 65) == [(run_id, seq) for run_id in "abcde" for seq in range(1, 14)]
        await follower.aclose()

    run(main())
