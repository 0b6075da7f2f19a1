"""Files that are deleted under a live process: those of the spool, and those that SQLite keeps beside the database."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from langchain_runjournal import Event, RunJournal, errors
from langchain_runjournal.journal.core import core_of
from langchain_runjournal.journal.spool import spool_files
from langchain_runjournal.journal.spool_import import import_spool
from langchain_runjournal.stores.sqlite import SqliteStore
from langchain_runjournal.testing import FakeClock, FaultyStore

Journals = Callable[..., RunJournal]
pytestmark = pytest.mark.skipif(os.name != "posix", reason="a file that is in use cannot be deleted")


def until(true: Callable[[], object]) -> None:
    while not true():
        threading.Event().wait(0.01)  # gives the writer thread, or another process, time to work


def delta(text: str = "x ", run_id: str = "r", call: str | None = "c") -> Event:
    return Event(run_id=run_id, kind="llm.ai.delta", data={"text": text}, call_id=call)


def files(db: Path, owner_id: str) -> list[Path]:
    return spool_files(db).get(owner_id, [])


def after_a_kill(journal: RunJournal, db: Path, place: Path) -> SqliteStore:
    """Return what a kill would leave now: a copy of all files, with its spool imported."""
    copy = place / "copy" / db.name
    shutil.copytree(db.parent, copy.parent, ignore=lambda _, names: {"copy", "aside"} & set(names))
    store = SqliteStore(copy)
    report = import_spool(store, journal.owner_id, files(copy, journal.owner_id))
    assert report.problem is None or report.foreign
    return store


def damage(db: Path, owner_id: str, how: str) -> None:
    """Delete or replace files."""
    found = files(db, owner_id)
    match how:
        case "all":
            for path in found:
                path.unlink()
        case "the first":
            for path in found[:1]:
                path.unlink()
        case "the last":
            for path in found[-1:]:
                path.unlink()
        case "replaced by a copy":
            aside = db.parent / "aside"
            aside.mkdir()
            for path in found:
                shutil.copy2(path, aside)
                path.unlink()
                shutil.move(aside / path.name, path)
            aside.rmdir()
        case "replaced by something else":
            for path in found:
                path.unlink()
                path.write_bytes(b"something else")


@pytest.fixture
def store(db: Path) -> FaultyStore:
    return FaultyStore(SqliteStore(db))


@pytest.fixture
def journal(store: FaultyStore) -> Iterator[RunJournal]:
    journal = RunJournal(store, clock=FakeClock())
    yield journal
    store.fail(times=0)
    journal.close()


HOWS = ["all", "the first", "the last", "replaced by a copy", "replaced by something else"]


@pytest.mark.parametrize("how", HOWS)
def test_who_hears_that_it_is_safe_from_a_kill_can_rely_on_it(
    how: str, journal: RunJournal, store: FaultyStore, db: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The store cannot be written and the spool is deleted: the error of a flush says where events wait, and they are
    there."""
    journal.append(Event(run_id="r", kind="run.start", data={"thread_id": "t"}))
    journal.flush()
    store.fail(times=-1)
    journal.append(delta("one ", call=None))
    journal.append(delta("two "))
    journal.append(Event(run_id="r", kind="tool.start", data={"name": "x"}, call_id="d"))
    journal.append(delta("else", run_id="s"))
    with pytest.raises(errors.WriteFailed, match="in the spool beside it, safe from a kill"):
        journal.flush()
    assert not [one for one in caplog.records if "has lost files" in one.message]
    damage(db, journal.owner_id, how)
    journal.append(delta("three "))
    with (
        caplog.at_level(logging.WARNING),
        pytest.raises(errors.WriteFailed, match="in the spool beside it, safe from a kill"),
    ):
        journal.flush()
    assert "They are in a new spool now; waiting now: 5" in caplog.text
    journal.append(delta("four "))
    there = after_a_kill(journal, db, tmp_path)
    found = [(event.seq, event.kind, event.call_id, event.data.get("text")) for event in there.read("r", 1, None)]
    assert found == [
        (2, "llm.ai.delta", None, "one "),
        (3, "llm.ai.delta", "c", "two "),
        (4, "tool.start", "d", None),
        (5, "llm.ai.delta", "c", "three "),
        (6, "llm.ai.delta", "c", "four "),
    ]
    assert [event.data for event in there.read("s", 0, None)] == [{"text": "else"}]
    there.close()
    store.fail(times=0)
    journal.flush()
    assert [event.seq for event in journal.read("r")] == [1, 2, 3, 4, 5, 6]
    foreign = [path for path in db.parent.glob("*-spool-*") if path.read_bytes() == b"something else"]
    assert bool(foreign) == (how == "replaced by something else"), "what is not ours is left alone"


def test_an_idle_journal_notices_at_its_next_heartbeat(journal: RunJournal, db: Path) -> None:
    """No call comes, and nothing is written: a third of a lease later, there is a spool again."""
    journal.append(delta())
    journal.flush()
    before = files(db, journal.owner_id)
    damage(db, journal.owner_id, "all")
    core_of(journal).clock.advance(5.0)
    core_of(journal).bell.ring()
    until(lambda: files(db, journal.owner_id))
    assert not set(before) & set(files(db, journal.owner_id)), "no name is used twice"


def test_more_than_one_file_is_put_again(
    journal: RunJournal, store: FaultyStore, db: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The waiting events take several files, and one record takes a file of its own."""
    store.fail(times=-1)
    sizes = [60_000] * 100 + [5 << 20] + [1_000] * 10
    for number, size in enumerate(sizes):
        journal.append(delta("x" * size, run_id=f"r{number % 3}"))
    damage(db, journal.owner_id, "the first")
    with pytest.raises(errors.WriteFailed, match="safe from a kill"):
        journal.flush()
    assert "They are in a new spool now" in caplog.text
    there = after_a_kill(journal, db, tmp_path)
    found = {run: [len(event.data["text"]) for event in there.read(f"r{run}", 0, None)] for run in range(3)}
    assert found == {run: sizes[run::3] for run in range(3)}
    there.close()
    store.fail(times=0)
    journal.flush()
    until(lambda: len(files(db, journal.owner_id)) <= 2)


def test_a_directory_that_is_deleted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """No new spool can be made: no flush says that anything is safe from a kill until the directory exists again."""
    db = tmp_path / "place" / "runs.db"
    db.parent.mkdir()
    clock = FakeClock()
    journal = RunJournal(db, clock=clock)
    journal.append(delta())
    journal.flush()
    shutil.rmtree(db.parent)
    for _ in range(2):
        journal.append(delta())
        with pytest.raises(errors.WriteFailed, match="only in memory"):
            journal.flush()
    assert caplog.text.count("no new one can be made") == 1
    db.parent.mkdir()
    clock.advance(5.0)
    core_of(journal).bell.ring()
    until(lambda: files(db, journal.owner_id))
    with pytest.raises(errors.WriteFailed, match="safe from a kill"):
        journal.flush()
    with pytest.raises(errors.WriteFailed, match="safe from a kill"):
        journal.close()


def test_an_append_in_the_middle_waits(journal: RunJournal, store: FaultyStore, db: Path, tmp_path: Path) -> None:
    """A finalizer or a signal handler appends while a new spool is made: its event comes last, and nothing is lost."""
    store.fail(times=-1)
    for number in range(10):
        journal.append(delta(f"{number} "))
    with pytest.raises(errors.WriteFailed):
        journal.flush()
    appender = core_of(journal).writer.appender
    put, late = appender.spool_records.put, iter(["late "])

    def and_append(*args: Any) -> bool:
        for text in late:
            journal.append(delta(text))
        return put(*args)

    appender.spool_records.put = and_append
    damage(db, journal.owner_id, "all")
    for _ in range(2):
        with pytest.raises(errors.WriteFailed):
            journal.flush()
    there = after_a_kill(journal, db, tmp_path)
    assert "".join(event.data["text"] for event in there.read("r", 0, None)) == "0 1 2 3 4 5 6 7 8 9 late "
    there.close()


def test_a_storm_of_deletions(journal: RunJournal, store: FaultyStore, db: Path, tmp_path: Path) -> None:
    """Threads append, the store fails every other time, and the files are deleted again and again: nothing is lost, doubled
    or out of order."""
    done = threading.Event()
    counts = [0, 0]

    def work(number: int) -> None:
        while not done.is_set():
            journal.append(delta(f"{counts[number]} ", run_id=f"r{number}", call=f"c{counts[number] // 7}"))
            counts[number] += 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for turn in range(9):
        store.fail(times=-1 if turn % 2 else 0)
        damage(db, journal.owner_id, HOWS[turn % 3])
        try:
            journal.flush()
        except errors.WriteFailed as exc:
            assert exc.lost == 0
    done.set()
    for thread in threads:
        thread.join()
    store.fail(times=-1)
    damage(db, journal.owner_id, "all")
    journal.append(delta(run_id="last"))
    with pytest.raises(errors.WriteFailed):
        journal.flush()
    there = after_a_kill(journal, db, tmp_path)
    for number in range(2):
        said = "".join(event.data["text"] for event in there.read(f"r{number}", 0, None)).split()
        assert said == [str(one) for one in range(counts[number])]
    there.close()


# --- beside the database ----------------------------------------------------------------------------------------------


def gone(db: Path, which: str) -> None:
    for end in which.split():
        Path(f"{db}{end}").unlink()


WRITER = """
import os, signal, sys
from langchain_runjournal import Event, RunJournal
journal = RunJournal(sys.argv[1])
def append(count):
    for _ in range(count):
        journal.append(Event(run_id="r", kind="llm.ai.delta", data={"text": "x"}, call_id="c"))
append(100)
journal.flush()
for end in sys.argv[2].split():
    os.unlink(sys.argv[1] + end)
append(100)
journal.flush()
append(100)
journal.flush()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
@pytest.mark.parametrize("which", ["-wal", "-shm", "-wal -shm"])
def test_what_a_flush_returned_from_survives_a_deleted_wal(which: str, db: Path) -> None:
    """The process is killed afterwards, and the events that were stored before the deletion are there as well."""
    done = subprocess.run(
        [sys.executable, "-c", WRITER, str(db), which], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert "until now, a kill would have lost what was stored since its last checkpoint" in done.stderr
    with RunJournal(db) as journal:
        assert [event.seq for event in journal.read("r")] == list(range(1, 301))
        assert core_of(journal).store.check() == []


def test_a_deleted_wal_that_others_use(db: Path, journals: Journals) -> None:
    """No -wal file can be made beside those of the others. Stored events are copied into the database, a flush fails, and
    the events that it could not make durable wait in the spool. When the others have closed, the journal works again."""
    journal, other = journals(), journals()
    other.append(delta(run_id="s"))
    other.flush()
    journal.append(delta())
    journal.flush()
    gone(db, "-wal")
    journal.append(delta())
    with pytest.raises(errors.WriteFailed, match=r"its -wal file has been deleted.*Close every journal.*in the spool"):
        journal.flush()
    content = db.read_bytes()
    assert content.count(b'"x "') >= 3, "as far as it was committed, it is in the database itself"
    other.close()
    journal.flush()
    assert [event.seq for event in journal.read("r")] == [1, 2]
    assert Path(f"{db}-wal").exists()


def test_a_replaced_wal_is_not_written_past(db: Path, journals: Journals) -> None:
    """Another process has opened the database since, with files of its own: two histories in one file would destroy it."""
    journal = journals()
    journal.append(delta())
    journal.flush()
    content = Path(f"{db}-wal").read_bytes()
    gone(db, "-wal")
    Path(f"{db}-wal").write_bytes(content)
    journal.append(delta())
    with pytest.raises(errors.WriteFailed, match="its -wal file has been deleted, moved or replaced"):
        journal.flush()
    with pytest.raises(errors.WriteFailed, match="safe from a kill"):
        journal.close()


def test_a_heartbeat_notices_a_deleted_wal(db: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A journal that only reads notices it, too."""
    clock = FakeClock()
    with RunJournal(db, clock=clock) as journal:
        journal.append(delta())
        journal.flush()
        assert len(journal.read("r")) == 1
        gone(db, "-wal")
        clock.advance(5.0)
        core_of(journal).bell.ring()
        until(lambda: Path(f"{db}-wal").exists())
        until(lambda: "was deleted while" in caplog.text)
        assert len(journal.read("r")) == 1


def test_a_database_that_keeps_no_wal_is_left_alone(db: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Another program has changed its mode, or its file system does not support WAL: no file is missing."""
    with RunJournal(db) as journal:

        def is_changed() -> bool:  # SQLite refuses the change while the writer thread is reading
            store = core_of(journal).store
            store._close_readers()
            with contextlib.suppress(sqlite3.OperationalError):
                return bool(store._open_writer().execute("PRAGMA journal_mode = DELETE").fetchone() == ("delete",))
            return False

        until(is_changed)
        journal.append(delta())
        journal.flush()
        assert not Path(f"{db}-wal").exists()
    assert "was deleted" not in caplog.text


# --- paused -----------------------------------------------------------------------------------------------------------


PAUSED = """
import functools, os, signal, sys, threading
from langchain_runjournal import Event, RunJournal
from langchain_runjournal.journal import ownership
from langchain_runjournal.journal.core import core_of
ownership.this_place = functools.cache(lambda: "elsewhere")
journal = RunJournal(sys.argv[1], lease=0.6)
def append(count):
    for _ in range(count):
        journal.append(Event(run_id="r", kind="llm.ai.delta", data={"text": "x"}, call_id="c"))
append(100)
while not core_of(journal).writer.appender.spool.is_ready:
    journal.flush()  # the journal has all the files that it makes now
print(journal.owner_id, flush=True)
sys.stdin.readline()
while not core_of(journal).writer.appender.spool.file.path.exists():
    threading.Event().wait(0.005)
append(100)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
def test_an_owner_that_comes_back_within_its_rights_has_a_spool_again(db: Path, journals: Journals) -> None:
    """While it was stopped, it was taken for dead: its spool was imported and deleted, and no run of it was claimed. It
    continues, and a kill loses nothing."""
    process = subprocess.Popen(
        [sys.executable, "-c", PAUSED, str(db)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    owner_id = process.stdout.readline().strip()
    journal = journals()
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)

    def is_collected() -> bool:
        core_of(journal).dead_owners.import_spools()
        return not files(db, owner_id)

    until(is_collected)
    assert len(journal.read("r")) == 100
    process.send_signal(signal.SIGCONT)
    until(lambda: files(db, owner_id))
    process.stdin.write("go\n")
    process.stdin.close()
    process.wait()
    process.stdout.close()
    until(lambda: journal.claim("r"))
    assert [event.seq for event in journal.read("r")] == list(range(1, 201))
