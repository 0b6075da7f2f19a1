"""Where the demonstration and the chat keep their files: a place of their own, or one sentence about it."""

from __future__ import annotations

import io
import os
import re
import sqlite3
import subprocess
import sys
from contextlib import closing, redirect_stderr
from pathlib import Path

import pytest
from rich.console import Console

from langchain_runjournal import RunJournal
from langchain_runjournal.demo import chat, play
from tests._terminal import Terminal

pytestmark = pytest.mark.slow  # a process for each

MODULE = "langchain_runjournal.demo"
CHOOSE = "Choose another --directory."
SHOWN = {"play": "An agent is cut off", "chat": "A chat with"}


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks at it, and nobody types."""
    monkeypatch.setenv("RUNJOURNAL_DEMO_PACE", "0.02")
    monkeypatch.setattr(sys, "stdin", io.StringIO())


@pytest.fixture(params=["play", "chat"])
def kind(request: pytest.FixtureRequest) -> str:
    """Which of the two."""
    return str(request.param)


def begin(kind: str, directory: Path | None) -> tuple[int, str, str]:
    """Gives the exit code, what was shown, and what was complained about."""
    screen = io.StringIO()
    with redirect_stderr(io.StringIO()) as complaint:
        status = {"play": play, "chat": chat}[kind](Console(file=screen, width=100), directory=directory)
    return status, screen.getvalue(), complaint.getvalue()


def complaint_of(kind: str, directory: Path | None) -> str:
    """The one line that is said, before anything is shown."""
    status, shown, complaint = begin(kind, directory)
    assert (status, shown) == (1, "")
    assert re.fullmatch(r"runjournal: [^\n]+\n", complaint)
    return complaint


def content(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


@pytest.mark.parametrize("name", ["runs.db", "threads.db"])
def test_files_of_a_project_are_not_written_to(kind: str, name: str, tmp_path: Path) -> None:
    """Its journal, its threads: they are named, nothing beside them is made, and another directory is to be chosen."""
    if name == "runs.db":
        RunJournal(tmp_path / name).close()
    else:
        with closing(sqlite3.connect(tmp_path / name)) as threads:
            threads.execute("CREATE TABLE mine (word)")
    before = content(tmp_path)
    said = complaint_of(kind, tmp_path)
    assert f"{tmp_path} holds files of something else ({name})." in said
    assert said.endswith(f"{CHOOSE}\n")
    assert content(tmp_path) == before


def test_a_timeline_of_a_project_is_not_written_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the directory is the current one, and nothing of it is a database."""
    (tmp_path / "timeline.html").write_text("mine")
    monkeypatch.chdir(tmp_path)
    assert "holds files of something else (timeline.html)." in complaint_of("play", Path(""))
    assert content(tmp_path) == {"timeline.html": b"mine"}


def test_other_files_are_no_reason(kind: str, tmp_path: Path) -> None:
    """What is not in the way stays as it is; the second time, what is there is known to be its own."""
    (tmp_path / "notes.txt").write_text("mine")
    for _ in range(2):
        assert begin(kind, tmp_path)[::2] == (0, "")
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_chat_does_not_go_on_with_a_demonstration(tmp_path: Path) -> None:
    """Their files have the same names, and are not the same."""
    assert begin("play", tmp_path)[0] == 0
    assert "runs.db" in complaint_of("chat", tmp_path)


def test_a_chat_of_an_earlier_version_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The directory that it chooses itself is its own, whatever is in it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    (tmp_path / "runjournal-chat").mkdir()
    RunJournal(tmp_path / "runjournal-chat" / "runs.db").close()
    assert begin("chat", None)[0] == 0


@pytest.mark.parametrize("where", ["{here}/file", "{here}/file/x", "/dev/null/x", "/proc/x"])
def test_a_place_that_cannot_be_used_is_told(kind: str, where: str, tmp_path: Path) -> None:
    """A file, below a file, where nobody can make anything: the path, and what to do."""
    (tmp_path / "file").touch()
    place = where.format(here=tmp_path)
    if place.startswith("/proc") and sys.platform != "linux":
        pytest.skip("there is no /proc")
    said = complaint_of(kind, Path(place))
    assert f"{place} cannot be used: " in said
    assert said.endswith(f"{CHOOSE}\n")


def test_a_place_that_cannot_be_written_to_is_told(kind: str, tmp_path: Path) -> None:
    """Found out by writing to it, also where it was written to before."""
    if os.geteuid() == 0:
        place = Path("/proc/self/fdinfo")  # nobody can make a file there, not even root
        if not place.is_dir():
            pytest.skip("root may write everywhere")
    else:
        place = tmp_path / "mine"
        assert begin(kind, place)[0] == 0
        place.chmod(0o500)
    said = complaint_of(kind, place)
    assert f"{place} cannot be used: " in said
    assert said.endswith(f"{CHOOSE}\n")


def test_a_home_that_is_not_there_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has given no directory hears that there is a way to give one."""
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("HOME", "/dev/null")
    said = complaint_of("chat", None)
    assert "/dev/null/.local/state/runjournal-chat cannot be used: " in said
    assert said.endswith(f"{CHOOSE}\n")


def test_a_user_that_is_not_there_is_told(kind: str) -> None:
    """In a path that begins with ~."""
    assert complaint_of(kind, Path("~nobody-of-this-name/x")).endswith(f"{CHOOSE}\n")


def its_own(kind: str, directory: Path) -> Path:
    """A directory that it has been in."""
    assert begin(kind, directory)[0] == 0
    return directory


@pytest.mark.parametrize("damage", ["no database", "overwritten"])
def test_threads_that_cannot_be_read_are_told(kind: str, damage: str, tmp_path: Path) -> None:
    """The file, what is wrong with it, and what to do; nothing is begun with it."""
    path = its_own(kind, tmp_path) / "threads.db"
    for name in ("threads.db-wal", "threads.db-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    if damage == "no database":
        path.write_bytes(b"notes " * 1000)
    else:
        data = path.read_bytes()
        path.write_bytes(data[:4096] + b"\xff" * (len(data) - 4096))
    said = complaint_of(kind, tmp_path)
    assert re.search(rf"{path}: .*(not a database|malformed|damaged).*{CHOOSE}$", said.strip())


def test_a_journal_that_is_locked_is_told(kind: str, tmp_path: Path) -> None:
    """What to do at a keyboard, and not in a program."""
    path = its_own(kind, tmp_path) / "runs.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        said = complaint_of(kind, tmp_path)
    assert f"{path} " in said
    assert "locked" in said
    assert "another --directory" in said
    assert "busy_timeout" not in said


def test_a_journal_that_is_damaged_is_told(kind: str, tmp_path: Path) -> None:
    """With another way out than to mend it."""
    path = its_own(kind, tmp_path) / "runs.db"
    for name in ("runs.db-wal", "runs.db-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    path.write_bytes(b"notes " * 1000)
    said = complaint_of(kind, tmp_path)
    assert str(path) in said
    assert "another --directory" in said


def test_ctrl_c_leaves_nothing_among_the_temporary_files(tmp_path: Path) -> None:
    """A directory that nobody has named is gone again if the demonstration does not come to its end."""
    with Terminal(MODULE, RUNJOURNAL_DEMO_PACE="0.15", TMPDIR=str(tmp_path)) as terminal:
        terminal.wait_for("castle")
        assert [path.name.startswith("runjournal-demo-") for path in tmp_path.iterdir()] == [True]
        terminal.send("\x03")
        assert terminal.end() == 130
    assert list(tmp_path.iterdir()) == []


def output_to(out: int, tmp_path: Path, *options: str) -> tuple[int, str]:
    """Gives the exit code, and what stands on the standard error."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", *options],
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(tmp_path), "XDG_STATE_HOME": str(tmp_path)},
        encoding="utf-8",
        timeout=60,
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("command", [(MODULE,), (MODULE, "--chat"), ("langchain_runjournal", "demo")])
def test_a_reader_that_has_gone_ends_it_quietly(command: tuple[str, ...], tmp_path: Path) -> None:
    """141, as from any program that a pipe ends; and no directory is left."""
    ours, theirs = os.pipe()
    os.close(ours)
    with open(theirs, "wb") as out:
        assert output_to(out.fileno(), tmp_path, *command) == (141, "")
    assert not list(tmp_path.glob("runjournal-demo-*"))


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no disk that is always full")
@pytest.mark.parametrize("command", [(MODULE,), ("langchain_runjournal", "demo")])
def test_an_output_that_is_full_is_told(command: tuple[str, ...], tmp_path: Path) -> None:
    """One line that says what to do."""
    with open("/dev/full", "wb") as out:
        status, said = output_to(out.fileno(), tmp_path, *command)
    assert status == 1
    assert re.fullmatch(r"runjournal: .*No space left on device.* Free space [^\n]+\n", said)
