"""The spool of a store without a file: in the user's state directory, or nowhere if that cannot be written."""

from __future__ import annotations

import dataclasses
import errno
import logging
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from langchain_runjournal import Event, RunJournal, errors
from langchain_runjournal.common import file_access
from langchain_runjournal.journal.core import core_of
from langchain_runjournal.stores import Owner
from langchain_runjournal.stores.memory import MemoryStore
from langchain_runjournal.testing import FakeClock, FaultyStore
from tests.support.far_store import FarStore, kill_a_writer
from tests.support.imports import ROOT


def delta(text: str, run_id: str = "r") -> Event:
    return Event(run_id=run_id, kind="llm.ai.delta", data={"text": text}, call_id="c")


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state directory that does not exist yet, and in it our directory, which does not exist either."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "langchain-runjournal"


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir()) if directory.exists() else []


# --- where it is --------------------------------------------------------------------------------------------------------


def test_a_store_without_a_file_has_its_spool_in_the_state_directory(db: Path, state: Path) -> None:
    """The journal makes the directory and the files for this user alone, and `close` deletes the files."""
    store = FaultyStore(FarStore(db))
    with RunJournal(store) as journal:
        store.fail(times=1_000_000)
        journal.append(delta("not stored"))
        assert all(name.startswith(f"store-{store.store_id.hex()}-spool-") for name in names(state))
        assert any(b"not stored" in path.read_bytes() for path in state.iterdir())
        assert {stat.S_IMODE(path.stat().st_mode) for path in state.iterdir()} == {0o600}
        assert {stat.S_IMODE(path.stat().st_mode) for path in (state, state.parent)} == {0o700}
        with pytest.raises(errors.WriteFailed, match=f"in the spool in {state}, safe from a kill"):
            journal.flush()
        store.fail(times=0)
    assert names(state) == []


def test_without_a_state_directory_it_is_in_the_home_directory(
    db: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relative XDG_STATE_HOME is invalid by the standard, and counts as none."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    for given in ("", "relative"):
        monkeypatch.setenv("XDG_STATE_HOME", given)
        with RunJournal(FarStore(db)):
            assert names(home / ".local" / "state" / "langchain-runjournal")
    assert not Path("relative").exists()


def test_neither_sqlite_nor_memory_uses_it(db: Path, state: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Their journals keep their spool beside the file, or none; nothing is created or said."""
    for url in (db, ":memory:", FaultyStore(MemoryStore())):
        RunJournal(url).close()
    assert not state.parent.exists()
    assert not caplog.records


def test_the_variable_of_the_command_line_is_not_read(
    db: Path, state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RUNJOURNAL_SPOOL_DIR is an option of `runjournal`: it moves no spool of a program."""
    monkeypatch.setenv("RUNJOURNAL_SPOOL_DIR", str(tmp_path / "of the command"))
    with RunJournal(FarStore(db)):
        assert names(state)
    with RunJournal(db):
        assert [name for name in names(tmp_path) if name.startswith("runs.db-spool-")]


# --- without such a directory -------------------------------------------------------------------------------------------


def _a_file(state: Path) -> None:
    state.parent.write_text("")


def _exposed(state: Path) -> None:
    state.mkdir(parents=True)
    state.chmod(0o777)


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    """A file system that nobody may write to, root neither."""
    place = tmp_path / "read-only"
    place.mkdir()
    if os.geteuid() != 0:
        place.chmod(0o500)
        yield place
        place.chmod(0o700)
        return
    subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", place], check=True)
    yield place
    subprocess.run(["umount", place], check=True)


def says_so(caplog: pytest.LogCaptureFixture, reason: str) -> None:
    (said,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert said.levelno == logging.WARNING
    assert reason in said.getMessage()
    assert "a kill loses those" in said.getMessage()
    assert "spool_dir" in said.getMessage()


@pytest.mark.parametrize(("make", "reason"), [(_a_file, "Not a directory"), (_exposed, "every user may replace files")])
def test_a_journal_without_a_place_for_its_spool_works_without_one(
    db: Path, state: Path, make: Any, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    """One warning for each journal, which names what a kill loses: the program has not asked for a spool."""
    make(state)
    with RunJournal(FarStore(db)) as journal:
        journal.append(delta("a"))
        journal.flush()
        assert core_of(journal).appender.waiting_in_memory == 0
    says_so(caplog, reason)


def test_a_read_only_home(
    db: Path, read_only: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The same in a container whose file system is read-only."""
    monkeypatch.setenv("XDG_STATE_HOME", str(read_only))
    RunJournal(FarStore(db)).close()
    says_so(caplog, "Permission denied" if os.geteuid() else "Read-only file system")


def test_a_file_system_that_answers_with_an_error(
    db: Path, state: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The default directory is not used; a `spool_dir` of the program raises an error of this package."""

    def broken(path: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr("langchain_runjournal.common.file_access.exposure", broken)
    store = FarStore(db)
    RunJournal(store).close()
    says_so(caplog, "Input/output error")
    with pytest.raises(errors.SpoolDirUnusable, match="Input/output error"):
        RunJournal(FarStore(db), spool_dir=state)


def test_a_user_without_a_home(db: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """The same for a uid without an entry in the list of users, if HOME is not set."""
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000)
    RunJournal(FarStore(db)).close()
    says_so(caplog, "no home directory")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may write to the home of another user")
def test_root_creates_nothing_in_the_home_of_another_user(db: Path, state: Path, caplog: pytest.LogCaptureFixture) -> None:
    """With `sudo`, HOME may be that of the user, whose program could not use a directory of root."""
    os.chown(state.parent.parent, 1234, -1)
    RunJournal(FarStore(db)).close()
    assert not state.parent.exists()
    says_so(caplog, "root creates no directory in")


def test_other_directories_are_created_for_this_user(tmp_path: Path) -> None:
    """All that are missing; a directory that exists keeps its permissions."""
    tmp_path.chmod(0o755)
    file_access.make_private(tmp_path / "a" / "b")
    assert [stat.S_IMODE(path.stat().st_mode) for path in (tmp_path, tmp_path / "a", tmp_path / "a/b")] == [
        0o755,
        0o700,
        0o700,
    ]


# --- dead owners --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_next_journal_of_the_machine_imports_what_a_killed_one_left(db: Path, state: Path) -> None:
    """kill -9 while the store is away: with no option at all, the next journal has every event."""
    run_id = kill_a_writer(db, "~", "written, and never stored")
    assert names(state)
    with RunJournal(FarStore(db)) as journal:
        (report,) = journal.recovered
        assert (report.events, report.problem) == (100, None)
        assert [event.text for event in journal.read(run_id)] == ["written, and never stored"] * 100
    assert names(state) == []


@pytest.mark.slow
def test_the_spool_of_another_machine_waits_for_its_lease(db: Path, state: Path) -> None:
    """On a shared home, a journal imports the spool of another machine's owner only when its heartbeats stand still."""
    command = [sys.executable, "-m", "tests.support.far_store", str(db), "~", "of the other machine"]
    clock = FakeClock()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        run_id = process.stdout.readline().strip()
        process.kill()
    far = FarStore(db)
    (owner,) = far.owners()
    elsewhere = dataclasses.replace(owner, place="another machine", pid=1, lease=15.0)
    far.beat(elsewhere)
    left = set(names(state))
    assert left
    with RunJournal(far, clock=clock, lease=30.0) as journal:
        for beats in range(1, 5):  # it lives
            far.beat(dataclasses.replace(elsewhere, beats=beats))
            _next_heartbeat(journal, clock)
            assert journal.recovered == ()
            assert left <= set(names(state))
        _next_heartbeat(journal, clock)
        assert journal.recovered == ()
        _next_heartbeat(journal, clock)  # 20 s without a heartbeat
        assert [report.events for report in journal.recovered] == [100]
        assert len(journal.read(run_id)) == 100
        assert not left & set(names(state))


def _next_heartbeat(journal: RunJournal, clock: FakeClock) -> None:
    before = core_of(journal).owner.beats
    clock.advance(10)
    while core_of(journal).owner.beats == before:
        journal.flush()
    journal.flush()  # the duties of a heartbeat are done before the next batch


def test_the_owner_of_this_machine_is_in_the_store_before_its_spool(db: Path, state: Path) -> None:
    """Another journal takes a spool of an unknown owner for that of a dead one."""
    seen: list[tuple[list[Owner], list[str]]] = []

    class Watched(FarStore):
        def beat(self, owner: Owner) -> None:
            seen.append((self.inner.owners(), names(state)))
            self.inner.beat(owner)

    RunJournal(Watched(db)).close()
    assert seen[0] == ([], [])
