"""Journals in a process that forks, exits without closing them, or fills the disk."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from langchain_runjournal import Event, RunJournal, errors
from langchain_runjournal.journal.core import core_of

Journals = Callable[..., RunJournal]
posix = pytest.mark.skipif(not hasattr(os, "fork"), reason="fork")


def delta(run_id: str = "r", text: str = "x ") -> Event:
    return Event(run_id=run_id, kind="llm.ai.delta", data={"text": text}, call_id="c")


def run(code: str, *args: object, ok: bool = True) -> str:
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", code, *map(str, args)], capture_output=True, text=True, timeout=60
    )
    if ok:
        assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


# --- exit -------------------------------------------------------------------------------------------------------------

EXITS = {
    "the end of the program": "",
    "sys.exit": "sys.exit(0)",
    "an exception": "raise SystemExit",
    "inside a thread that goes on": "threading.Thread(target=threading.Event().wait, daemon=True).start()",
    "inside asyncio": "asyncio.run(main())",
    "os._exit": "os._exit(0)",
}


@pytest.mark.parametrize("how", EXITS)
def test_an_interpreter_that_exits_without_close(db: Path, how: str) -> None:
    """All events are stored. Where Python runs its exit functions, the spool is deleted as well."""
    code = f"""
import asyncio, os, sys, threading
from langchain_runjournal import Event, RunJournal
journal = RunJournal(sys.argv[1])
async def main():
    journal.append(Event(run_id="r", kind="llm.ai.delta", data={{"text": "from the loop"}}))
for number in range(5000):
    journal.append(Event(run_id="r", kind="llm.ai.delta", data={{"text": str(number)}}))
{EXITS[how]}
"""
    assert run(code, db) == ""
    assert bool(list(db.parent.glob("*-spool-*"))) == (how == "os._exit")
    with RunJournal(db) as journal:
        assert len(journal.read("r")) == 5_000 + (how == "inside asyncio")
        assert bool(journal.recovered) == (how == "os._exit")


def test_an_exception_that_ends_the_program(db: Path) -> None:
    """The traceback is that of the program, and the journal adds nothing to it."""
    code = """
import sys
from langchain_runjournal import Event, RunJournal
journal = RunJournal(sys.argv[1])
journal.append(Event(run_id="r", kind="run.start"))
raise RuntimeError("of the program")
"""
    output = run(code, db, ok=False)
    assert output.strip().endswith("RuntimeError: of the program")
    assert "langchain_runjournal" not in output.replace("from langchain_runjournal", "")
    with RunJournal(db) as journal:
        assert len(journal.read("r")) == 1


def test_sigterm_is_a_kill_like_any_other(db: Path) -> None:
    """Python runs no exit functions after SIGTERM, so the spool holds the appended events."""
    code = """
import os, signal, sys
from langchain_runjournal import Event, RunJournal
journal = RunJournal(sys.argv[1])
for number in range(3000):
    journal.append(Event(run_id="r", kind="llm.ai.delta", data={"text": str(number)}))
os.kill(os.getpid(), signal.SIGTERM)
"""
    run(code, db, ok=False)
    with RunJournal(db) as journal:
        assert len(journal.read("r")) == 3_000


# --- fork -------------------------------------------------------------------------------------------------------------


def _too_long(*about: object) -> None:
    raise AssertionError("the child hangs")


def in_child(work: Callable[[], None]) -> None:
    """Fork, work, and leave as a forked worker does. The parent learns whether an assertion failed."""
    pid = os.fork()
    if pid == 0:
        code = 1
        # A child that hangs prints its stack, and exits. Not by `faulthandler`, whose watchdog is a thread of the parent.
        signal.signal(signal.SIGALRM, _too_long)
        signal.alarm(30)
        try:
            work()
            code = 0
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0


@posix
def test_a_fork_in_mid_run(journals: Journals) -> None:
    """The parent keeps the run. The child's events of it are refused with an error, and the child can write its own runs
    with the same object."""
    journal = journals()
    owner_id = journal.owner_id
    for number in range(100):
        journal.append(delta(text=f"{number}"))

    def child() -> None:
        journal.append(delta(text="not mine"))
        with pytest.raises(errors.RunFenced, match="'r'"):
            journal.flush()
        journal.append(delta("child"))
        journal.flush()
        assert journal.owner_id != owner_id
        assert journal.run("child").owner == journal.owner_id
        assert not journal.claim("r")
        assert len(journal.read("r")) == 100
        journal.close()

    journal.flush()
    in_child(child)
    for _ in range(100):
        journal.append(delta())
    journal.flush()
    assert [event.seq for event in journal.read("r")] == list(range(1, 201))
    assert [event.seq for event in journal.read("child")] == [1]
    assert journal.claim("child"), "the child has left it"


@posix
def test_a_child_that_does_nothing_harms_nothing(journals: Journals, db: Path) -> None:
    """The child exits, by `os._exit` or `sys.exit`. The parent's spool, database and appends are not affected."""
    journal = journals()
    journal.append(delta())
    spools = set(db.parent.glob("*-spool-*"))
    in_child(lambda: None)
    context = multiprocessing.get_context("fork")
    process = context.Process(target=sys.exit, args=(0,))
    process.start()
    process.join()
    assert process.exitcode == 0
    assert spools <= set(db.parent.glob("*-spool-*")), "the parent may have made a spare in the meantime"
    for _ in range(1_000):
        journal.append(delta())
    journal.flush()
    assert len(journal.read("r")) == 1_001


@posix
def test_forks_while_threads_append_flush_and_read(journals: Journals) -> None:
    """The child never inherits a lock that no thread will release: it can use the journal, whatever the moment of the
    fork."""
    journal = journals()
    stop = threading.Event()

    def busy(number: int) -> None:
        while not stop.is_set():
            for _ in range(50):
                journal.append(delta(f"p{number}"))
            journal.flush()
            journal.read(f"p{number}", limit=10)

    threads = [threading.Thread(target=busy, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    try:
        for fork in range(20):

            def child(fork: int = fork) -> None:
                for _ in range(10):
                    journal.append(delta(f"c{fork}"))
                journal.flush()
                journal.close()

            in_child(child)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    journal.flush()
    for fork in range(20):
        assert len(journal.read(f"c{fork}")) == 10
    for number in range(3):
        seqs = [event.seq for event in journal.read(f"p{number}")]
        assert seqs == list(range(1, len(seqs) + 1))
        assert len(seqs) > 50


@posix
def test_a_child_that_is_killed_is_recovered(journals: Journals) -> None:
    """The child's own spool holds the events that it appended and never flushed."""
    journal = journals()
    journal.append(delta())

    def child() -> None:
        for _ in range(500):
            journal.append(delta("child"))

    in_child(child)
    assert journal.claim("child")
    assert len(journal.read("child")) == 500


@posix
def test_a_closed_journal_and_one_in_memory_are_forked_too(journals: Journals) -> None:
    """A fork of a closed journal, or of one in memory, raises nothing."""
    closed, memory = journals(), journals(url=":memory:")
    closed.close()
    memory.append(delta())

    def child() -> None:
        with pytest.raises(errors.JournalClosed):
            closed.flush()
        memory.append(delta("child"))
        memory.flush()
        assert [run.run_id for run in memory.runs()] == ["child", "r"]

    memory.flush()
    in_child(child)
    assert [run.run_id for run in memory.runs()] == ["r"]


def test_spawned_processes_are_processes_like_any_other(db: Path) -> None:
    """Each spawned process opens a journal of its own on the file."""
    code = """
import multiprocessing, sys
from langchain_runjournal import Event, RunJournal
def work(number):
    with RunJournal(sys.argv[1]) as journal:
        journal.append(Event(run_id=f"r{number}", kind="run.start"))
if __name__ == "__main__":
    for number in range(3):
        work(number)
"""
    run(code, db)
    with RunJournal(db) as journal:
        assert len(journal.runs()) == 3


# --- a full disk ------------------------------------------------------------------------------------------------------


@pytest.mark.guarantee("full disk")
def test_a_database_that_may_not_grow(journals: Journals) -> None:
    """With `PRAGMA max_page_count`, the error of the barrier names the file and says to free space. Waiting events are
    stored later."""
    journal = journals()
    journal.append(delta())
    journal.flush()
    con = core_of(journal).store._open_writer()
    pages = con.execute("PRAGMA page_count").fetchone()[0]
    con.execute(f"PRAGMA max_page_count = {pages + 2}")
    appended = 1
    with pytest.raises(errors.WriteFailed, match=r"runs\.db.*full.*Free space") as caught:
        for _ in range(100):
            for _ in range(100):
                journal.append(delta(text="x" * 50))
                appended += 1
            journal.flush()
    assert caught.value.waiting > 0
    assert caught.value.lost == 0
    assert len(journal.read("r")) == appended
    con.execute("PRAGMA max_page_count = 1000000")
    journal.append(delta())
    journal.flush()
    assert len(core_of(journal).store.read("r", 0, None)) == appended + 1


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """Mount a file system of 16 MB."""
    if os.name != "posix" or os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("mounting a small tmpfs needs root; max_page_count is tested above")
    with tempfile.TemporaryDirectory() as name:
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", name], check=False).returncode:
            pytest.skip("a tmpfs cannot be mounted here; max_page_count is tested above")
        try:
            yield Path(name)
        finally:
            subprocess.run(["umount", "-l", name], check=True)


@pytest.mark.guarantee("full disk")
def test_a_disk_that_is_full(small_disk: Path) -> None:
    """The process is not killed (SIGBUS), the agent does not block, the barrier raises, and once there is space, all events
    are stored."""
    code = """
import os, sys
from langchain_runjournal import Event, RunJournal, errors
place = sys.argv[1]
journal = RunJournal(place + "/runs.db")
journal.append(Event(run_id="r", kind="run.start"))
journal.flush()
stat = os.statvfs(place)
with open(place + "/ballast", "wb") as ballast:
    left = stat.f_bavail * stat.f_frsize - 65536
    ballast.write(bytes(left))
appended, failed = 1, 0
for _ in range(60):
    for _ in range(200):
        journal.append(Event(run_id="r", kind="llm.ai.delta", data={"text": "x" * 500}, call_id="c"))
        appended += 1
    try:
        journal.flush()
    except errors.WriteFailed as exc:
        failed += 1
        assert place in str(exc) and "full" in str(exc) and "Free space" in str(exc), exc
        assert exc.lost == 0, exc
assert failed > 5, failed
os.unlink(place + "/ballast")
journal.append(Event(run_id="r", kind="run.end"))
journal.flush()
events = journal.read("r")
text = "".join(event.data.get("text", "") for event in events)
assert len(text) == 500 * (appended - 1), (len(text), appended)
assert [event.seq for event in events] == list(range(1, len(events) + 1))
assert events[-1].kind == "run.end"
journal.close()
print(sorted(os.listdir(place)))
"""
    assert run(code, small_disk).startswith("['runs.db']")


@pytest.mark.guarantee("no memory-mapped file")
def test_no_room_for_a_spool(small_disk: Path) -> None:
    """If the disk is full when the journal opens, the journal warns that a kill would lose events, and works from
    memory."""
    code = """
import os, sys
from langchain_runjournal import Event, RunJournal
place = sys.argv[1]
RunJournal(place + "/runs.db").close()
stat = os.statvfs(place)
open(place + "/ballast", "wb").write(bytes(stat.f_bavail * stat.f_frsize - 1000000))
with RunJournal(place + "/runs.db") as journal:
    for number in range(100):
        journal.append(Event(run_id="r", kind="llm.ai.delta", data={"text": "x"}, call_id="c"))
    journal.flush()
    assert len(journal.read("r")) == 100
"""
    output = run(code, small_disk)
    assert "could not create a spool beside " in output
    assert "No space left" in output


# --- what a sceptical reader found ------------------------------------------------------------------------------------


@posix
@pytest.mark.parametrize("how", ["inherited", "opened in the child"])
def test_a_child_that_outlives_its_parent(db: Path, how: str) -> None:
    """The parent closes first. Events that the child flushes after that are in the database file, not in a deleted -wal
    file."""
    journal = RunJournal(db)
    journal.append(delta("parent"))
    journal.flush()
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(write)
            mine = journal if how == "inherited" else RunJournal(db)
            for _ in range(10):
                mine.append(delta("child"))
            mine.flush()
            os.read(read, 1)  # until the parent has closed its journal
            for _ in range(10):
                mine.append(delta("child"))
            mine.flush()
            code = 0
        finally:
            os._exit(code)
    os.close(read)
    while not [one for one in journal.runs() if one.run_id == "child"]:
        threading.Event().wait(0.01)
    journal.close()
    with RunJournal(db) as other:  # another journal opens and closes the file
        assert len(other.read("child")) == 10
    os.write(write, b"x")
    os.close(write)
    assert os.waitpid(pid, 0)[1] == 0
    code = "import sys; from langchain_runjournal import RunJournal; print(len(RunJournal(sys.argv[1]).read('child')))"
    assert run(code, db).strip() == "20"


@posix
def test_a_child_that_exits_beside_a_busy_appender(db: Path) -> None:
    """The child inherits locks that no thread will release. Its exit functions must not wait for them."""
    code = """
import os, sys, threading
from langchain_runjournal import Event, RunJournal
journal = RunJournal(sys.argv[1])
stop = threading.Event()
def busy():
    while not stop.is_set():
        journal.append(Event(run_id="r", kind="llm.ai.delta", data={"text": "x"}))
threads = [threading.Thread(target=busy) for _ in range(2)]
for thread in threads: thread.start()
for _ in range(20):
    pid = os.fork()
    if pid == 0:
        sys.exit(0)
    assert os.waitpid(pid, 0)[1] == 0
stop.set()
for thread in threads: thread.join()
print("done")
"""
    assert run(code, db).startswith("done")


@posix
def test_a_grandchild_does_not_take_the_run(journals: Journals) -> None:
    """A child of a child that has not used the journal does not own the run either."""
    journal = journals()
    journal.append(delta())

    def grandchild() -> None:
        journal.append(delta())
        with pytest.raises(errors.RunFenced):
            journal.flush()

    in_child(lambda: in_child(grandchild))
    journal.append(delta())
    journal.flush()
    assert [event.seq for event in journal.read("r")] == [1, 2]


@posix
def test_a_program_that_replaces_itself(db: Path) -> None:
    """After an `exec`, the process runs another program. The new program imports the spool of the first one, and can claim
    its runs."""
    code = """
import os, sys
from langchain_runjournal import Event, RunJournal
journal = RunJournal(sys.argv[1])
if len(sys.argv) == 2:
    for _ in range(100):
        journal.append(Event(run_id="r", kind="llm.ai.delta", data={"text": "x"}))
    os.execv(sys.executable, [sys.executable, "-c", sys.argv[2] if len(sys.argv) > 2 else SOURCE, sys.argv[1], "again"])
print(len(journal.read("r")), journal.claim("r"))
"""
    code = f"SOURCE = {code!r}\n" + code
    assert run(code, db).strip() == "100 True"


@pytest.mark.parametrize("verb", ["close", "flush"])
def test_a_signal_handler_that_closes_or_flushes(db: Path, verb: str) -> None:
    """The signal may interrupt an append, which holds a lock that the writer needs. So `close` waits on another thread, and
    `flush` raises `WouldDeadlock`."""
    code = f"""
import os, signal, sys, threading
from langchain_runjournal import Event, RunJournal, errors
refused = 0
def handle(*args):
    global refused
    try:
        journal.{verb}()
    except errors.WouldDeadlock:
        refused += 1
signal.signal(signal.SIGUSR1, handle)
for turn in range(30):
    journal = RunJournal(f"{{sys.argv[1]}}-{{turn}}")
    timer = threading.Timer(0.01, os.kill, (os.getpid(), signal.SIGUSR1))
    timer.start()
    for number in range(20_000):
        journal.append(Event(run_id="r", kind="llm.ai.delta", data={{"text": "x"}}))
    timer.join()  # a late timer would find a closed journal
    journal.close()
print("done")
"""
    import logging

    logging.disable(logging.NOTSET)
    assert "done" in run(code, db)


@pytest.mark.guarantee("deleted database")
@pytest.mark.parametrize("what", ["deleted", "replaced"])
def test_a_database_that_is_gone(db: Path, what: str) -> None:
    """A write into a deleted file succeeds, and its data is lost. The barrier must not call that durable, and the spool
    stays."""
    journal = RunJournal(db)
    journal.append(delta())
    journal.flush()
    for path in (db, Path(f"{db}-wal"), Path(f"{db}-shm")):
        path.unlink()
    if what == "replaced":
        RunJournal(db).close()
    journal.append(delta())
    with pytest.raises(errors.WriteFailed, match="deleted, moved or replaced"):
        journal.flush()
    with pytest.raises(errors.WriteFailed, match="in the spool"):
        journal.close()
    assert list(db.parent.glob("*-spool-*"))


@posix
def test_a_child_finds_what_its_dead_parent_left(db: Path) -> None:
    """The owners that the child remembers from before the fork are the parent's, and may be dead."""
    code = """
import os, sys, signal
from langchain_runjournal import Event, RunJournal
from langchain_runjournal.journal.core import core_of
journal = RunJournal(sys.argv[1])
read, write = os.pipe()
if os.fork():
    core_of(journal).writer.appender.asleep = False
    for _ in range(500):
        journal.append(Event(run_id="new", kind="llm.ai.delta", data={"text": "x"}))
    os.kill(os.getpid(), signal.SIGKILL)
os.close(write)
os.read(read, 1)  # until the parent is dead
print(len(journal.read("new")), journal.claim("new"), flush=True)
os._exit(0)
"""
    done = subprocess.Popen([sys.executable, "-c", code, str(db)], stdout=subprocess.PIPE, text=True)
    assert done.stdout is not None
    assert done.stdout.readline().strip() == "500 True"
    done.stdout.close()
    done.wait()
