"""Real processes that are killed: every event whose `append` had returned is there, in order, without a gap."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from langchain_runjournal import Event, RunJournal
from langchain_runjournal.events.segments import pack
from langchain_runjournal.journal.core import core_of
from langchain_runjournal.stores.sqlite import SqliteStore
from langchain_runjournal.testing import numbered
from tests.support.killed_writer import LEDGER, text_of
from tests.support.places import PLACES, Place, on

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.name != "posix", reason="SIGKILL")]

FOLLOW = """
import sys
from langchain_runjournal import RunJournal
with RunJournal(sys.argv[1]) as journal:
    print("ready", flush=True)
    for event in journal.follow(sys.argv[2]):
        print(event.seq, event.data["text"], flush=True)
"""
OPEN = "import sys; from langchain_runjournal import RunJournal; RunJournal(sys.argv[1]); print('open', flush=True)"


class Victim:
    """A writer in a process of its own, with the number of events that it had appended when it died."""

    def __init__(self, place: Place, threads: int, rate: float) -> None:
        self.ledger = Path(place.home, f"ledger-{random.getrandbits(60):x}")
        self.ledger.write_bytes(bytes(8 * threads))
        self.threads = threads
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.killed_writer", place.journal, str(self.ledger), str(threads), str(rate)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        assert self.process.stdout is not None
        self.run_ids = self.process.stdout.readline().split()

    def returned(self) -> list[int]:
        data = self.ledger.read_bytes()
        return [LEDGER.unpack_from(data, thread * 8)[0] for thread in range(self.threads)]

    def kill_after(self, seconds: float) -> None:
        while not all(self.returned()):
            threading.Event().wait(0.001)
        threading.Event().wait(seconds)  # a random moment: no event could be awaited
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()


def check(journal: RunJournal, victim: Victim) -> int:
    """Check that every event whose append had returned is there, and at most the one append of each thread that was under
    way."""
    total = 0
    for thread, (run_id, returned) in enumerate(zip(victim.run_ids, victim.returned(), strict=True)):
        events = journal.read(run_id)
        assert returned <= len(events) <= returned + 1, (run_id, returned, len(events))
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        assert [event.data["text"] for event in events] == [text_of(thread, n) for n in range(1, len(events) + 1)]
        assert {event.call_id for event in events} <= {f"call-{n // 1000}" for n in range(1, len(events) + 1)}
        total += len(events)
    return total


@pytest.mark.guarantee("append", "flush")
@pytest.mark.parametrize(("threads", "rate"), [(1, 200), (4, 200), (1, 0), (4, 0)])
@on(*PLACES)
def test_killed_at_random_moments(place: Place, threads: int, rate: float) -> None:
    """Twelve kills each make 48, and the tests below make two more. On a server, three kills each."""
    rng = random.Random(f"{threads} {rate}")
    victims = []
    for _ in range(12 if place.is_local else 3):
        victim = Victim(place, threads, rate)
        victim.kill_after(rng.uniform(0, 0.25))
        victims.append(victim)
        with place.open() as journal:
            assert check(journal, victim) > 0
            assert not any(report.problem for report in journal.recovered)
    with place.open() as journal:
        for victim in victims:
            check(journal, victim)
        assert {run.status for run in journal.runs(limit=None)} == {"running"}
        assert all(journal.claim(run_id) for run_id in victims[-1].run_ids)
    assert place.spools() == []


@pytest.mark.guarantee("seen elsewhere")
@pytest.mark.parametrize("rate", [200, 0])
@on(*PLACES, storm=["redis"])
def test_nothing_that_a_follower_printed_is_missing(place: Place, rate: float) -> None:
    """A second process follows while the first one is killed: all that it printed is in the journal, word for word."""
    for seconds in (0.05, 0.3, 0.6):
        victim = Victim(place, 1, rate)
        with place.open() as journal:
            while not journal.runs(limit=1) or journal.runs(limit=1)[0].run_id != victim.run_ids[0]:
                threading.Event().wait(0.005)
        follower = subprocess.Popen(
            [sys.executable, "-c", FOLLOW, place.journal, victim.run_ids[0]], stdout=subprocess.PIPE, text=True
        )
        assert follower.stdout is not None
        assert follower.stdout.readline() == "ready\n"
        printed = [follower.stdout.readline()]
        collector = threading.Thread(target=lambda out=follower.stdout, lines=printed: lines.extend(out))
        collector.start()
        victim.kill_after(seconds)
        with place.open() as journal:
            check(journal, victim)
            assert journal.claim(victim.run_ids[0])
            journal.append(Event(run_id=victim.run_ids[0], kind="llm.ai.delta", data={"text": "recovered"}))
            journal.append(Event(run_id=victim.run_ids[0], kind="run.end", data={"status": "failed", "text": "end"}))
            journal.flush()
            kept = [f"{event.seq} {event.data['text']}\n" for event in journal.read(victim.run_ids[0])]
        collector.join()
        follower.stdout.close()
        assert follower.wait() == 0
        assert printed == kept, "the follower saw all of it, each event once, over the death of the owner"


@pytest.mark.guarantee("killed process")
@on(*PLACES, storm=["redis"])
def test_killed_again_while_it_recovers(place: Place) -> None:
    """The importing process is killed at random moments, again and again. The last one finds all events, once."""
    rng = random.Random(7)
    for _ in range(3 if place.is_local else 1):
        victim = Victim(place, 4, 0)
        victim.kill_after(1.0)
        for _ in range(6):
            helper = subprocess.Popen([sys.executable, "-c", OPEN, place.journal], stdout=subprocess.PIPE, text=True)
            assert helper.stdout is not None
            reader = threading.Thread(target=helper.stdout.readline)
            reader.start()
            reader.join(rng.uniform(0.1, 0.6))
            helper.kill()
            reader.join()
            helper.stdout.close()
            helper.wait()
        with place.open() as journal:
            assert check(journal, victim) > 1_000


@pytest.mark.guarantee("killed process")
@on(*PLACES)
def test_several_recover_at_once(place: Place) -> None:
    """Four processes open the file of a dead one at the same time: all events are there, once."""
    victim = Victim(place, 4, 0)
    victim.kill_after(1.0)
    helpers = [
        subprocess.Popen(
            [sys.executable, "-c", OPEN, place.journal], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        for _ in range(4)
    ]
    assert [helper.communicate(timeout=100)[0].strip() for helper in helpers] == ["open"] * 4
    with place.open() as journal:
        check(journal, victim)
    assert place.spools() == []


@on(*PLACES, storm=["redis"])
def test_two_processes_write_one_journal_for_ten_seconds(place: Place) -> None:
    """The processes write different runs, as fast as a real program would: none fails, nothing is missing, and both see all
    runs."""
    code = """
import sys, time
from langchain_runjournal import RunJournal, Event
deadline = time.monotonic() + float(sys.argv[3])
counts = {}
with RunJournal(sys.argv[1]) as journal:
    number = 0
    while time.monotonic() < deadline:
        run_id = f"{sys.argv[2]}-{number // 2000}"
        for _ in range(20):
            journal.append(Event(run_id=run_id, kind="llm.ai.delta", data={"text": str(number)}, call_id="c"))
            counts[run_id] = counts.get(run_id, 0) + 1
            number += 1
        if number % 500 == 0:
            journal.flush()
        time.sleep(0.001)
print(counts)
"""
    seconds = "10" if place.is_local else "4"
    processes = [
        subprocess.Popen([sys.executable, "-c", code, place.journal, name, seconds], stdout=subprocess.PIPE, text=True)
        for name in "ab"
    ]
    outputs = [process.communicate(timeout=100)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    with place.open() as journal:
        for output in outputs:
            counts: dict[str, int] = eval(output)
            assert sum(counts.values()) > (10_000 if place.is_local else 1_000)
            for run_id, count in counts.items():
                assert [event.seq for event in journal.read(run_id)] == list(range(1, count + 1))


@pytest.mark.guarantee("full disk")
def test_locked_for_ten_seconds(db: Path) -> None:
    """A program forgot its transaction: the agent continues, the barrier waits or raises, and nothing is lost."""
    with RunJournal(db, busy_timeout=2) as journal, RunJournal(db, busy_timeout=60) as patient:
        for one in (journal, patient):
            one.append(Event(run_id=one.owner_id, kind="run.start"))
            one.flush()
        other = sqlite3.connect(db, isolation_level=None, check_same_thread=False)
        other.execute("BEGIN IMMEDIATE")
        unlock = threading.Timer(10, lambda: other.execute("COMMIT"))
        unlock.start()
        for one in (journal, patient):
            for number in range(1_000):
                one.append(Event(run_id=one.owner_id, kind="llm.ai.delta", data={"text": str(number)}, call_id="c"))
        failed = 0
        while unlock.is_alive():
            try:
                journal.flush()
            except Exception as exc:
                failed += 1
                assert str(db) in str(exc)
                assert "busy_timeout" in str(exc)
        assert failed >= 2
        patient.flush()
        journal.flush()
        unlock.join()
        other.close()
        for one in (journal, patient):
            assert len(core_of(one).store.read(one.owner_id, 0, None)) == 1_001


def test_a_torn_wal(db: Path) -> None:
    """The end of SQLite's -wal file is garbage, as after a power loss: the events before it are there, and more can be
    stored."""
    code = """
import os, sys
from langchain_runjournal import RunJournal, Event
journal = RunJournal(sys.argv[1])
for number in range(200):
    journal.append(Event(run_id="r", kind="llm.ai.delta", data={"text": str(number)}, call_id="c"))
    journal.flush()
os.kill(os.getpid(), 9)
"""
    subprocess.run([sys.executable, "-c", code, str(db)], check=False)
    wal = Path(f"{db}-wal")
    data = bytearray(wal.read_bytes())
    assert len(data) > 100_000
    for spool in db.parent.glob("*-spool-*"):
        spool.unlink()
    data[-50_000:] = random.Random(1).randbytes(50_000)
    wal.write_bytes(data)
    with RunJournal(db) as journal:
        before = [event.seq for event in journal.read("r")]
        assert 100 < len(before) < 200
        assert before == list(range(1, len(before) + 1))
        assert journal.claim("r")
        journal.append(Event(run_id="r", kind="run.end"))
        journal.flush()
        assert [event.seq for event in journal.read("r")] == [*before, len(before) + 1]


def test_the_spool_outlives_a_lost_wal(db: Path) -> None:
    """The -wal file is truncated, and the spool is intact: the spool restores the events that the store has lost."""
    code = """
import os, sys
from langchain_runjournal import RunJournal, Event
from langchain_runjournal.journal.core import core_of
journal = RunJournal(sys.argv[1])
journal.append(Event(run_id="r", kind="run.start"))
journal.flush()
core_of(journal).writer.appender.spool.file.mark_drained = lambda pos: None
for number in range(500):
    journal.append(Event(run_id="r", kind="llm.ai.delta", data={"text": str(number)}, call_id="c"))
os.kill(os.getpid(), 9)
"""
    subprocess.run([sys.executable, "-c", code, str(db)], check=False)
    with RunJournal(db) as journal:
        assert [event.seq for event in journal.read("r")] == list(range(1, 502))


MAKERS = """
import os, random, signal, sys, time
import langchain_runjournal.stores.sqlite
from langchain_runjournal.stores.sqlite import SqliteStore
from langchain_runjournal.stores.sqlite import database_file
database_file._migrations()
rng = random.Random(sys.argv[2])
for number in range(int(sys.argv[3])):
    path = f"{sys.argv[1]}/{number}.db"
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.write(write, b"x")
        SqliteStore(path).close()
        os._exit(0)
    os.read(read, 1)
    time.sleep(rng.uniform(0, 0.012))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(read), os.close(write)
"""


@pytest.mark.parametrize(("links", "kills"), [(True, 200), (False, 60)])
def test_killed_while_the_file_is_made(tmp_path: Path, links: bool, kills: int) -> None:
    """The process is killed in its first milliseconds, also where there are no hard links: the next process opens the file,
    and can write."""
    no_links = "import os\ndef link(*args): raise OSError(95, 'none')\nos.link = link\n"
    code = MAKERS if links else no_links + MAKERS
    subprocess.run([sys.executable, "-c", code, str(tmp_path), str(links), str(kills)], check=True)
    left = [path.name for path in tmp_path.iterdir()]
    assert len([name for name in left if name.endswith(".db")]) < kills, "some were killed before it was there"
    for number in range(kills):
        store = SqliteStore(tmp_path / f"{number}.db", synchronous="normal")
        store.append("o", [pack("r", 1, numbered("r", ["run.start"]))])
        found = store.run("r")
        assert found is not None
        assert found.last_seq == 1
        assert number % 10 or store.check() == []
        store.close()
