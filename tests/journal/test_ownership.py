"""Owners, claims, fences, and stop requests between processes."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from langchain_runjournal import Event, RunJournal, errors
from langchain_runjournal.journal.core import core_of
from langchain_runjournal.journal.ownership import Watch, look_up, new_owner, this_place
from langchain_runjournal.stores import Owner
from langchain_runjournal.testing import FakeClock
from tests.support.servers import postgres_url

Journals = Callable[..., RunJournal]


def delta(run_id: str = "r") -> Event:
    return Event(run_id=run_id, kind="llm.ai.delta", data={"text": "x "}, call_id="c")


WRITER = """
import sys
from langchain_runjournal import RunJournal, Event
journal = RunJournal(sys.argv[1])
for number in range(int(sys.argv[2])):
    journal.append(Event(run_id="r", kind="llm.ai.delta", data={"text": f"{number} "}, call_id="c"))
if sys.argv[3] == "flush":
    journal.flush()
print(journal.owner_id, flush=True)
for line in sys.stdin:
    exec(line)
    print("done", flush=True)
"""


class Writer:
    """A process that writes run "r", obeys commands, and can be killed."""

    def __init__(self, db: Path, count: int = 100, how: str = "flush") -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(db), str(count), how],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.owner_id = self.process.stdout.readline().strip()

    def do(self, line: str) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def kill(self, *, reap: bool = True) -> None:
        self.process.send_signal(signal.SIGKILL)
        if reap:
            self.process.wait()
        else:
            os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOWAIT)


@pytest.fixture
def writers(db: Path) -> Iterator[Callable[..., Writer]]:
    opened: list[Writer] = []

    def open_writer(*args: object) -> Writer:
        opened.append(Writer(db, *args))
        return opened[-1]

    yield open_writer
    for writer in opened:
        writer.process.kill()
        writer.process.communicate()


# --- is the owner dead? -------------------------------------------------------------------------------------------------


def owner(**values: object) -> Owner:
    return Owner(**{"owner_id": "o", "place": "elsewhere", "pid": 1, "born": "", "lease": 15.0, **values})


def test_a_process_here_is_looked_up() -> None:
    """This process is alive. A pid that no process has is dead, and so is a pid that another process has now."""
    watch = Watch()
    me = new_owner(15.0)
    assert watch.verdict(me, 0.0) == "alive"
    assert watch.verdict(owner(place=this_place(), pid=2**22 + 1), 0.0) == "gone"
    assert watch.verdict(owner(place=this_place(), pid=os.getpid(), born="1"), 0.0) == "gone"
    if look_up(os.getppid()).born:
        assert watch.verdict(owner(place=this_place(), pid=os.getppid(), born="1"), 0.0) == "gone"


def test_elsewhere_the_heartbeat_tells() -> None:
    """An owner is dead when its count has not changed for a lease, by our own clock. One heartbeat starts the lease
    again."""
    watch, clock = Watch(), FakeClock()

    def verdict(beats: int) -> str:
        return watch.verdict(owner(beats=beats), clock.monotonic())

    assert verdict(3) == "unknown"
    clock.advance(14.9)
    assert verdict(3) == "unknown"
    clock.set_wall(5.0)
    assert verdict(4) == "alive"
    clock.advance(14.9)
    assert verdict(4) == "unknown"
    clock.advance(0.1)
    assert verdict(4) == "gone"
    assert verdict(5) == "alive"
    clock.advance(15.0)
    watch.forget("o")
    assert verdict(5) == "gone"  # for a caller that read the owner before it was forgotten
    assert verdict(6) == "unknown"  # the owner has sent a heartbeat again
    assert verdict(7) == "alive"


def test_one_owner_for_all_runs(journals: Journals) -> None:
    """A journal has one heartbeat, its runs point to it, and `close` removes it."""
    journal = journals()
    for number in range(5):
        journal.append(delta(f"r{number}"))
    assert {run.owner for run in journal.runs()} == {journal.owner_id}
    assert [owner.owner_id for owner in core_of(journal).store.owners()] == [journal.owner_id]
    core_of(journal).duties.beat()
    assert [owner.beats for owner in core_of(journal).store.owners()] == [1]
    other = journals()
    journal.close()
    assert [owner.owner_id for owner in core_of(other).store.owners()] == [other.owner_id]


def test_the_heartbeat_goes_on_by_itself(journals: Journals) -> None:
    """A heartbeat comes three times in each lease, while nothing else happens."""
    journal = journals(lease=0.15)
    watched = journals()
    beats = {owner.owner_id: owner.beats for owner in core_of(watched).store.owners()}
    waited = 0
    while {o.owner_id: o.beats for o in core_of(watched).store.owners()}[journal.owner_id] < beats[journal.owner_id] + 3:
        core_of(journal).writer._done.wait(0.01)
        waited += 1
        assert waited < 3_000, "the heart stands still"


# --- claims -----------------------------------------------------------------------------------------------------------


def test_a_live_owner_keeps_its_run(journals: Journals, writers: Callable[..., Writer]) -> None:
    """No journal of this or another process can claim its run, however long the owner was silent."""
    journal, other = journals(), journals()
    journal.append(delta("mine"))
    writers()
    assert not other.claim("mine")
    assert not other.claim("r")
    assert journal.claim("mine"), "what is ours already need not be claimed"
    assert journal.run("mine").epoch == 1


@pytest.mark.guarantee("killed process")
@pytest.mark.parametrize("how", ["flush", "no flush"])
@pytest.mark.parametrize("reap", [True, False])
def test_a_dead_owner_is_noticed_at_once(journals: Journals, writers: Callable[..., Writer], how: str, reap: bool) -> None:
    """A journal that was open all the time claims the run, with all appended events, flushed or not, of a zombie or not."""
    journal = journals(lease=3_600)
    writer = writers(500, how)
    writer.kill(reap=reap)
    assert journal.claim("r")
    run = journal.run("r")
    assert (run.owner, run.epoch, run.last_seq) == (journal.owner_id, 2, 500)
    journal.append(delta())
    journal.append(Event(run_id="r", kind="run.end", data={"status": "interrupted", "cause": "crash"}))
    journal.flush()
    assert [event.seq for event in journal.read("r")] == list(range(1, 503))
    assert journal.run("r").cause == "crash"
    assert not journal.claim("r")


def test_a_closed_owner_leaves_its_runs_to_others(journals: Journals) -> None:
    """Another journal can claim them, also in the same process."""
    first = journals()
    first.append(delta())
    first.close()
    second = journals()
    assert second.claim("r")
    second.append(delta())
    assert [event.seq for event in second.read("r")] == [1, 2]


def test_one_of_many_wins(journals: Journals, writers: Callable[..., Writer]) -> None:
    """Journals of threads and of processes try to claim a dead owner's run. One of them gets it, once."""
    writers().kill()
    rivals = [Writer(core_of(journals()).store.path, 0, "flush") for _ in range(3)]
    mine = [journals() for _ in range(4)]
    won: list[str] = []
    barrier = threading.Barrier(len(rivals) + len(mine))

    def local(journal: RunJournal) -> None:
        barrier.wait()
        if journal.claim("r"):
            won.append(journal.owner_id)

    def remote(rival: Writer) -> None:
        barrier.wait()
        if rival.do("print(journal.claim('r'), flush=True)") == "True":
            won.append(rival.owner_id)

    threads = [threading.Thread(target=local, args=(journal,)) for journal in mine]
    threads += [threading.Thread(target=remote, args=(rival,)) for rival in rivals]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    run = mine[0].run("r")
    assert won == [run.owner]
    assert run.epoch == 2
    for rival in rivals:
        rival.process.kill()
        rival.process.communicate()


def test_an_owner_elsewhere_is_claimed_after_its_lease(journals: Journals) -> None:
    """Its pid cannot be looked up. It counts as dead when its heartbeat has not changed for a lease."""
    clock = FakeClock()
    journal = journals(clock=clock)
    core_of(journal).store.beat(owner(owner_id="far"))
    from langchain_runjournal.events.segments import pack
    from langchain_runjournal.testing import numbered

    core_of(journal).store.append("far", [pack("r", 1, numbered("r", ["run.start"]))])

    def pass_time(seconds: float) -> None:
        for _ in range(int(seconds)):
            clock.advance(1.0)
            core_of(journal).duties.beat()  # only an owner that sends heartbeats itself judges others by theirs

    assert not journal.claim("r")
    clock.set_wall(clock.wall() / 1000 - 86_400)
    pass_time(14)
    assert not journal.claim("r")
    core_of(journal).store.beat(owner(owner_id="far", beats=1))
    pass_time(14)
    assert not journal.claim("r")
    pass_time(15)
    assert journal.claim("r")
    assert journal.run("r").owner == journal.owner_id


# --- fences -----------------------------------------------------------------------------------------------------------


@pytest.mark.guarantee("fenced owner")
def test_a_fenced_owner_stores_nothing(journals: Journals, writers: Callable[..., Writer]) -> None:
    """Its next barrier raises, with the run and the number of events. Its other runs are not affected."""
    journal = journals()
    writer = writers(10)
    writer.do("journal.append(Event(run_id='other', kind='run.start')); journal.flush()")
    assert core_of(journal).store.claim("r", journal.owner_id, 1)  # as if its lease had run out on another machine
    core_of(journal).writer.appender.adopt("r", 2, 10)
    journal.append(delta())
    journal.flush()
    writer.do("[journal.append(Event(run_id=r, kind='llm.ai.delta')) for r in ('r', 'other', 'r')]")
    script = "try: journal.flush()\\nexcept Exception as exc: print(type(exc).__name__, exc.run_ids, exc.refused)"
    assert writer.do(f'exec("{script}"); sys.stdout.flush()') == "RunFenced ['r'] 2"
    assert [event.seq for event in journal.read("r")] == list(range(1, 12))
    assert [event.seq for event in journal.read("other")] == [1, 2]


def test_every_refused_event_is_told(journals: Journals) -> None:
    """The next barrier raises once for each refusal. Events of other runs are stored."""
    journal, other = journals(), journals()
    other.append(delta())
    other.flush()
    for _ in range(2):
        journal.append(delta())
        journal.append(delta("mine"))
        with pytest.raises(errors.RunFenced) as caught:
            journal.flush()
        assert (caught.value.run_ids, caught.value.refused) == (["r"], 1)
        journal.flush()
    assert [event.seq for event in journal.read("mine")] == [1, 2]
    assert [event.seq for event in journal.read("r")] == [1]

    async def main() -> None:
        journal.append(delta())
        with pytest.raises(errors.RunFenced):
            await journal.aflush()

    asyncio.run(main())


# --- stops between processes ------------------------------------------------------------------------------------------


@pytest.mark.guarantee("durable stop")
def test_a_stop_reaches_the_owner_in_another_process(journals: Journals, writers: Callable[..., Writer]) -> None:
    """The request is durable when `stop` returns, the owner calls its callback once, and the run has the event."""
    journal = journals()
    writer = writers(3)
    writer.do("import threading; seen = threading.Event(); calls = []")
    writer.do("journal.on_stop('r', lambda cause: (calls.append(cause), seen.set()))")
    run = journal.stop("r", cause="disconnect")
    assert (run.stop, run.status) == ("disconnect", "running")
    assert journal.stop("r").stop == "disconnect"
    assert writer.do("print(seen.wait(30), calls, journal.stop_requested('r'), flush=True)") == (
        "True ['disconnect'] disconnect"
    )
    follower = journal.follow("r", after=3)
    event = next(follower)
    assert (event.seq, event.kind, event.data) == (4, "run.stop", {"cause": "disconnect"})
    writer.do("")


def test_a_callback_is_callable(journals: Journals) -> None:
    """An error at once, and not when the stop comes."""
    with pytest.raises(errors.InvalidArgument, match="callback must be a function"):
        journals().on_stop("r", "stop")  # type: ignore[arg-type]


def test_a_stop_for_a_dead_owner_is_kept_for_the_next(journals: Journals, writers: Callable[..., Writer]) -> None:
    """The process that claims the run sees the request."""
    journal = journals()
    writers(3).kill()
    assert journal.stop("r").stop == "stop"
    calls: list[str] = []
    seen = threading.Event()
    assert journal.claim("r")
    journal.on_stop("r", lambda cause: (calls.append(cause), seen.set()))
    assert seen.wait(30)
    assert calls == ["stop"]
    assert journal.stop_requested("r") == "stop"


def test_an_append_while_its_run_is_claimed_back(journals: Journals) -> None:
    """Events between the claim and the moment when this process knows of it are refused with an error, and the writer does
    not retry for ever."""
    journal, other = journals(), journals()
    other.append(delta())
    other.close()
    adopt = core_of(journal).writer.appender.adopt

    def append_first(*args: object) -> None:
        journal.append(delta())
        adopt(*args)

    core_of(journal).writer.appender.adopt = append_first
    assert journal.claim("r")
    with pytest.raises(errors.RunFenced):
        journal.flush(timeout=30)
    journal.append(delta())
    journal.flush(timeout=30)
    assert [event.seq for event in journal.read("r")] == [1, 2]


def test_a_store_that_fences_what_it_was_not_given(journals: Journals) -> None:
    """The barrier fails, and the writer continues."""
    from langchain_runjournal.stores.memory import MemoryStore
    from langchain_runjournal.testing import FaultyStore

    store = FaultyStore(MemoryStore())
    journal = journals(url=store)
    store.fail(error=errors.RunFenced(run_ids=["unknown"], refused=0))
    journal.append(delta())
    with pytest.raises(errors.WriteFailed):
        journal.flush(timeout=30)
    journal.flush(timeout=30)
    assert len(journal.read("r")) == 1


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
@pytest.mark.parametrize("before", ["lives", "is closed"])
def test_an_id_that_another_journal_has_used(
    database: str, before: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A program that begins a run under a used id learns that the id is taken, and not that somebody took it for dead."""
    url = str(tmp_path / "runs.db") if database == "sqlite" else postgres_url()
    spools = tmp_path / "spools"
    spools.mkdir(mode=0o700)
    start = Event(run_id="r", kind="run.start")
    with RunJournal(url, spool_dir=spools) as first:
        first.append(start)
        first.flush()
        if before == "is closed":
            first.close()
        with RunJournal(url, spool_dir=spools) as journal:
            journal.append(start)
            with pytest.raises(errors.RunIdTaken, match=r"has run 'r' of another journal already\. 1 event was"):
                journal.flush()
            assert len(journal.read("r")) == 1
    said = [record.getMessage() for record in caplog.records if "'r'" in record.getMessage()]
    assert said == [
        "refusing events of run r (1): The store has run 'r' of another journal already. Give each new run an id of its own."
    ]
    assert "has claimed" not in caplog.text
