"""The directory of the demonstration: it writes over no file of another program, and reports what it cannot use."""

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
from langchain_runjournal.demo import play
from tests.support.terminal import Terminal

pytestmark = pytest.mark.slow  # each test starts a process

MODULE = "langchain_runjournal.demo"
CHOOSE = "Choose another --directory."


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Play as fast as possible."""
    monkeypatch.setenv("RUNJOURNAL_DEMO_PACE", "0.02")


def played(directory: Path | None) -> tuple[int, str, str]:
    """Play; return the exit code, what it showed, and what it wrote to stderr."""
    screen = io.StringIO()
    with redirect_stderr(io.StringIO()) as complaint:
        status = play(Console(file=screen, width=100), directory=directory)
    return status, screen.getvalue(), complaint.getvalue()


def complaint_of(directory: Path | None) -> str:
    """Return the one line that it writes before it shows anything."""
    status, shown, complaint = played(directory)
    assert (status, shown) == (1, "")
    assert re.fullmatch(r"runjournal: [^\n]+\n", complaint)
    return complaint


def content(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


@pytest.mark.parametrize("name", ["runs.db", "threads.db"])
def test_files_of_a_project_are_not_written_to(name: str, tmp_path: Path) -> None:
    """A journal or a checkpointer of another program: the complaint names it, and the directory stays as it is."""
    if name == "runs.db":
        RunJournal(tmp_path / name).close()
    else:
        with closing(sqlite3.connect(tmp_path / name)) as threads:
            threads.execute("CREATE TABLE mine (word)")
    before = content(tmp_path)
    said = complaint_of(tmp_path)
    assert f"{tmp_path} holds files of something else ({name})." in said
    assert said.endswith(f"{CHOOSE}\n")
    assert content(tmp_path) == before


def test_a_timeline_of_a_project_is_not_written_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for a file that is not a database, in the current directory."""
    (tmp_path / "timeline.html").write_text("mine")
    monkeypatch.chdir(tmp_path)
    assert "holds files of something else (timeline.html)." in complaint_of(Path(""))
    assert content(tmp_path) == {"timeline.html": b"mine"}


def test_other_files_do_not_matter(tmp_path: Path) -> None:
    """Files with other names stay as they are, and a second demonstration accepts the files of the first."""
    (tmp_path / "notes.txt").write_text("mine")
    for _ in range(2):
        assert played(tmp_path)[::2] == (0, "")
    assert (tmp_path / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("where", ["{here}/file", "{here}/file/x", "/dev/null/x", "/proc/x", "~nobody-of-this-name/x"])
def test_a_directory_that_cannot_be_used_is_reported(where: str, tmp_path: Path) -> None:
    """A file, a path below a file, a file system without new files, a user that does not exist: the path and the advice."""
    (tmp_path / "file").touch()
    place = where.format(here=tmp_path)
    if place.startswith("/proc") and sys.platform != "linux":
        pytest.skip("there is no /proc")
    said = complaint_of(Path(place))
    assert f"{place} cannot be used: " in said
    assert said.endswith(f"{CHOOSE}\n")


def test_threads_that_cannot_be_read_are_reported(tmp_path: Path) -> None:
    """The complaint says where they are, what is wrong with them, and what to do."""
    assert played(tmp_path)[0] == 0
    for name in ("threads.db-wal", "threads.db-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    (tmp_path / "threads.db").write_bytes(b"notes " * 1000)
    assert re.search(
        rf"The threads in {tmp_path} cannot be used: .*not a database.*{CHOOSE}$", complaint_of(tmp_path).strip()
    )


@pytest.mark.parametrize("trouble", ["locked", "damaged"])
def test_a_journal_that_cannot_be_used_is_reported(trouble: str, tmp_path: Path) -> None:
    """The complaint names the file, and offers another directory besides the advice of the journal."""
    assert played(tmp_path)[0] == 0
    path = tmp_path / "runs.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        if trouble == "locked":
            other.execute("PRAGMA locking_mode = EXCLUSIVE")
            other.execute("BEGIN EXCLUSIVE")
        else:
            for name in ("runs.db-wal", "runs.db-shm"):
                (tmp_path / name).unlink(missing_ok=True)
            path.write_bytes(b"notes " * 1000)
        said = complaint_of(tmp_path)
    assert str(path) in said
    assert said.endswith("Or choose another --directory.\n")


def test_ctrl_c_leaves_nothing_among_the_temporary_files(tmp_path: Path) -> None:
    """A temporary directory is deleted if the demonstration does not come to its end."""
    with Terminal(MODULE, RUNJOURNAL_DEMO_PACE="0.15", TMPDIR=str(tmp_path)) as terminal:
        terminal.wait_for("castle")
        assert [path.name.startswith("runjournal-demo-") for path in tmp_path.iterdir()] == [True]
        terminal.send("\x03")
        assert terminal.end() == 130
    assert list(tmp_path.iterdir()) == []


def output_to(out: int, tmp_path: Path, *options: str) -> tuple[int, str]:
    """Play in a process; return the exit code and stderr."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", *options],
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        encoding="utf-8",
        timeout=60,
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("command", [(MODULE,), ("langchain_runjournal", "demo")])
def test_a_closed_pipe_ends_it_quietly(command: tuple[str, ...], tmp_path: Path) -> None:
    """Exit with 141, as any program whose reader closes the pipe, and leave no directory."""
    ours, theirs = os.pipe()
    os.close(ours)
    with open(theirs, "wb") as out:
        assert output_to(out.fileno(), tmp_path, *command) == (141, "")
    assert not list(tmp_path.glob("runjournal-demo-*"))


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no disk that is always full")
@pytest.mark.parametrize("command", [(MODULE,), ("langchain_runjournal", "demo")])
def test_an_output_that_is_full_is_reported(command: tuple[str, ...], tmp_path: Path) -> None:
    """One line that says what to do."""
    with open("/dev/full", "wb") as out:
        status, said = output_to(out.fileno(), tmp_path, *command)
    assert status == 1
    assert re.fullmatch(r"runjournal: .*No space left on device.* Free space [^\n]+\n", said)
