"""Whether the process of an owner is alive: which pids are believed, and what the heartbeat decides."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from langchain_runjournal.journal import ownership as _ownership
from langchain_runjournal.journal.ownership import Watch, look_up, new_owner, this_place
from langchain_runjournal.journal.process_liveness import Here, Seen, judge

PLACE = "boot/pid:[1]/time:[2]"
OLD = "boot/pid:[1]"
HERE = Here(place=PLACE, pid=7, living=False)
proc = pytest.mark.skipif(not _ownership.sees_itself(), reason="needs a /proc that shows this process")


# --- the decision, from recorded facts --------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["elsewhere", "boot/pid:[3]/time:[2]", "boot/pid:[1]/time:[4]", "boot/pid:[3]", "boot"])
def test_another_namespace_is_another_place(place: str) -> None:
    """Its pids mean nothing here, and neither do the start times of its processes: the heartbeat decides."""
    for there in (True, False, None):
        assert judge(place, 9, "100", HERE, Seen(there=there, born="200")) is None
        assert judge(place, HERE.pid, "100", HERE, Seen(there=there, born="100")) is None


@pytest.mark.parametrize(
    ("born", "seen", "verdict"),
    [
        ("100", Seen(there=False), "gone"),  # no process has its pid
        ("", Seen(there=False), "gone"),  # the start time does not matter then
        ("100", Seen(there=True, born="100"), "alive"),
        ("100", Seen(there=True, born="100", zombie=True), "gone"),
        ("100", Seen(there=True, born="200"), "gone"),  # its pid was given to another process
        ("100", Seen(there=True), None),  # hidepid, another user's process, or a /proc of another namespace
        ("", Seen(there=True, born="200"), None),  # its own start time was unreadable: it may be this process or another
        ("100", Seen(there=None), None),  # Windows, or a filter of system calls
    ],
)
def test_what_a_process_number_says(born: str, seen: Seen, verdict: str | None) -> None:
    """The answer is "alive" or "gone" only if it is certain: exactly this process, or no such process."""
    assert judge(PLACE, 9, born, HERE, seen) == verdict


def test_a_record_of_an_older_release() -> None:
    """An older release believed any `/proc`. So its pid counts, and its start time only if it is equal: another one proves
    nothing."""
    assert judge(OLD, 9, "100", HERE, Seen(there=False)) == "gone"
    assert judge(OLD, 9, "100", HERE, Seen(there=True, born="100")) == "alive"
    assert judge(OLD, 9, "100", HERE, Seen(there=True, born="200")) is None


def test_a_number_of_our_own_is_ours() -> None:
    """The process is alive. An owner with its pid that it does not know was closed, or belonged to an earlier process."""
    seen = Seen(there=True)
    assert judge(PLACE, 7, "", replace(HERE, living=True), seen) == "alive"
    assert judge(PLACE, 7, "", HERE, seen) == "gone"
    assert judge(OLD, 7, "100", HERE, seen) == "gone"


# --- what the system says -----------------------------------------------------------------------------------------------


@proc
def test_what_the_system_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system says it about a process that exists, one that does not, and a zombie."""
    assert look_up(os.getpid()).born
    assert look_up(2**22 + 1) == Seen(there=False)
    assert look_up(-1) == look_up(0) == Seen(there=None)
    process = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    assert not look_up(process.pid).zombie
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert look_up(process.pid).zombie
    process.communicate()


@proc
@pytest.mark.parametrize("how", ["another user's", "hidepid", "another namespace"])
def test_what_cannot_be_seen_is_left_to_the_heartbeat(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A live neighbour whose process cannot be looked up is neither robbed of its runs nor alive for ever: its heartbeats
    decide."""
    process = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    mine = new_owner(15.0)
    neighbour = replace(mine, owner_id="n", pid=process.pid, born=look_up(process.pid).born)
    read = Path.read_text

    def refuse(path: Path, *args: object, **options: object) -> str:
        if path.match("/proc/*/stat"):
            raise PermissionError(1, "Operation not permitted")
        return read(path, *args, **options)

    def not_permitted(pid: int, signal: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    if how == "another namespace":
        monkeypatch.setattr(_ownership, "sees_itself", lambda: False)
    else:
        monkeypatch.setattr(Path, "read_text", refuse)
    if how == "another user's":
        monkeypatch.setattr(os, "kill", not_permitted)
    watch = Watch()
    assert watch.verdict(neighbour, 0.0) == "unknown"
    assert watch.verdict(neighbour, 14.9) == "unknown"
    assert watch.verdict(replace(neighbour, beats=1), 14.9) == "alive"
    assert watch.verdict(replace(neighbour, beats=1), 30.0) == "gone"
    process.communicate()


def test_a_linux_without_proc_is_a_place_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a chroot, no file names the namespace: two processes there must not take each other's pids for their own."""

    def missing(path: Path) -> str:
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(Path, "read_text", missing)
    monkeypatch.setattr(sys, "platform", "linux")
    places = set()
    for _ in range(2):
        this_place.cache_clear()
        places.add(this_place())
    monkeypatch.undo()
    this_place.cache_clear()
    assert len(places) == 2


# --- real namespaces --------------------------------------------------------------------------------------------------


@pytest.fixture
def unshare() -> Iterator[list[str]]:
    """Return the command that starts a program as the first process of a pid namespace, under the `/proc` of this one."""
    found = shutil.which("unshare")
    if found is None:
        pytest.skip("this system lacks unshare; the decision is tested above")
    commands = [[found, "--pid", "--fork"], [found, "--user", "--map-root-user", "--pid", "--fork"]]
    number = "open('/proc/sys/kernel/ns_last_pid', 'w').write('300')"
    for command in commands:
        if subprocess.run([*command, sys.executable, "-c", number], check=False, capture_output=True).returncode == 0:
            yield command
            return
    pytest.skip("this system allows no namespace of process numbers; the decision is tested above")


FIRST = """
import os, subprocess, sys
from langchain_runjournal import RunJournal
from langchain_runjournal.journal.core import core_of
from langchain_runjournal.journal.spool import spool_files
from pathlib import Path
db, how, outside = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
OWNER = '''
import sys
from langchain_runjournal import Event, RunJournal
journal = RunJournal(sys.argv[1], lease=3600.0)
journal.append(Event(run_id="r", kind="run.start"))
journal.flush()
print(journal.owner_id, flush=True)
sys.stdin.read()
'''
assert os.readlink("/proc/self") != str(os.getpid()), "this /proc is that of the namespace"
number = outside
if how == "robbed":
    number = next(number for number in range(20000, 30000) if not os.path.exists(f"/proc/{number}"))
with open("/proc/sys/kernel/ns_last_pid", "w") as file:
    file.write(str(number - 1))
owner = subprocess.Popen([sys.executable, "-c", OWNER, str(db)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
assert owner.pid == number, (owner.pid, number)
owner_id = owner.stdout.readline().strip()
if how == "dead":
    owner.kill()
    owner.wait()
with RunJournal(db) as journal:
    core_of(journal).dead_owners.import_spools()
    print(journal.claim("r"), owner_id in spool_files(db), core_of(journal).store.run("r").owner == owner_id)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("how", "said"), [("robbed", "False True True"), ("dead", "True False False")])
def test_a_namespace_below_the_proc_of_another_one(unshare: list[str], db: Path, how: str, said: str) -> None:
    """A live owner, whose pid no process has in that `/proc`, keeps its run and its spool. A dead owner, whose pid a live
    process has there, is noticed at once."""
    command = [*unshare, sys.executable, "-c", FIRST, str(db), how, str(os.getpid())]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.strip() == said, done.stderr


CHILD = """
import ctypes, os, sys
from langchain_runjournal import Event, RunJournal
from langchain_runjournal.journal.core import core_of
from langchain_runjournal.stores.sqlite import SqliteStore
journal = RunJournal(sys.argv[1])
if ctypes.CDLL(None).unshare(0x20000000):  # CLONE_NEWPID: for the children from now on
    print("not allowed")
    sys.exit()
pid = os.fork()
if pid == 0:
    journal.append(Event(run_id="child", kind="run.start"))
    journal.flush()
    places = {owner.place for owner in core_of(journal).store.owners()}
    print(os.getpid(), len(places), flush=True)
    os._exit(0)
os.waitpid(pid, 0)
"""


@pytest.mark.slow
def test_a_child_in_another_namespace_is_in_another_place(unshare: list[str], db: Path) -> None:
    """A forked child inherits the cached name of the place, which may be wrong there."""
    done = subprocess.run([sys.executable, "-c", CHILD, str(db)], capture_output=True, text=True, timeout=60, check=False)
    if done.stdout.strip() == "not allowed":
        pytest.skip("only root may unshare itself here")
    assert done.stdout.strip() == "1 2", done.stderr
