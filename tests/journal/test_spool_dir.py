"""`RunJournal(spool_dir=...)`: where the spool lies, apart from where the store keeps its runs."""

from __future__ import annotations

import asyncio
import errno
import mmap
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from langchain_runjournal import Event, RunJournal, errors
from langchain_runjournal.journal.core import core_of
from langchain_runjournal.stores.memory import MemoryStore
from langchain_runjournal.stores.sqlite import SqliteStore
from langchain_runjournal.testing import FakeClock, FaultyStore
from tests.support.far_store import FarStore, kill_a_writer

Journals = Callable[..., RunJournal]


def delta(text: str, run_id: str = "r") -> Event:
    return Event(run_id=run_id, kind="llm.ai.delta", data={"text": text}, call_id="c")


def texts(journal: RunJournal, run_id: str = "r") -> list[str]:
    return [event.text for event in journal.read(run_id)]


@pytest.fixture
def spools(tmp_path: Path) -> Path:
    directory = tmp_path / "spools"
    directory.mkdir(mode=0o700)
    return directory


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


# --- where it lies ------------------------------------------------------------------------------------------------------


def test_the_spool_lies_beside_the_file_by_default(journals: Journals, tmp_path: Path) -> None:
    """Without `spool_dir`, nothing changes for SQLite."""
    journals().append(delta("a"))
    assert [name for name in names(tmp_path) if name.startswith("runs.db-spool-")]


def test_the_spool_lies_in_the_directory_that_was_given(journals: Journals, tmp_path: Path, spools: Path) -> None:
    """All of it, for a SQLite file too; only the owner may read it; `close` leaves nothing there."""
    journal = journals(spool_dir=spools)
    journal.append(delta("a"))
    assert names(spools)
    assert not [name for name in names(tmp_path) if "-spool-" in name]
    assert {stat.S_IMODE(path.stat().st_mode) for path in spools.iterdir()} == {0o600}
    journal.close()
    assert names(spools) == []


def test_a_relative_directory_stays_the_same_one(
    journals: Journals, tmp_path: Path, spools: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process may change its directory while the journal is open."""
    monkeypatch.chdir(tmp_path)
    journal = journals(spool_dir="spools")
    monkeypatch.chdir("/")
    journal.append(delta("a"))
    journal.close()
    assert names(spools) == []


def test_aopen_takes_it_too(db: Path, spools: Path) -> None:
    """The twin has the same options."""

    async def opened() -> list[str]:
        async with await RunJournal.aopen(db, spool_dir=spools):
            return names(spools)

    assert asyncio.run(opened())


# --- a store without a path ---------------------------------------------------------------------------------------------


def test_a_store_without_a_path_has_a_spool_in_the_directory(
    db: Path, spools: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What was appended is safe from a kill before the store has any of it."""
    store = FaultyStore(FarStore(db))
    with RunJournal(store, spool_dir=spools) as journal:
        store.fail(times=1_000_000)
        journal.append(delta("not stored"))
        assert any(b"not stored" in path.read_bytes() for path in spools.iterdir())
        with pytest.raises(errors.WriteFailed, match=f"in the spool in {spools}, safe from a kill"):
            journal.flush()
        store.fail(times=0)
    assert "no spool" not in caplog.text


@pytest.mark.slow
def test_the_next_journal_imports_what_a_killed_one_left(db: Path, spools: Path) -> None:
    """kill -9, a store without a path: the next journal with this directory has every event."""
    run_id = kill_a_writer(db, spools, "written, and never stored")
    assert names(spools)
    with RunJournal(FarStore(db), spool_dir=spools) as journal:
        (report,) = journal.recovered
        assert (report.events, report.problem) == (100, None)
        assert texts(journal, run_id) == ["written, and never stored"] * 100
    assert names(spools) == []


@pytest.mark.slow
def test_a_journal_with_a_file_imports_from_both_places(db: Path, spools: Path) -> None:
    """What was left in the directory, and what was left beside the file by a journal that knew of no directory."""
    first = kill_a_writer(db, spools, "in the directory")
    second = kill_a_writer(db, Path("-"), "beside the file")
    with RunJournal(db, spool_dir=spools) as journal:
        assert len(journal.recovered) == 2
        assert texts(journal, first) == ["in the directory"] * 100
        assert texts(journal, second) == ["beside the file"] * 100


@pytest.mark.slow
def test_a_claim_imports_from_the_directory(db: Path, spools: Path) -> None:
    """A journal that is open already finds the spool of the owner whose run it claims."""
    with RunJournal(FarStore(db), spool_dir=spools, lease=600) as journal:
        run_id = kill_a_writer(db, spools, "words")
        assert journal.claim(run_id)
        journal.append(delta("more", run_id))
        assert texts(journal, run_id) == ["words"] * 100 + ["more"]


@pytest.mark.slow
def test_the_spool_of_another_store_is_left_alone(
    db: Path, tmp_path: Path, spools: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Two stores, one directory: each journal imports its own spools, and does not even speak of the others."""
    other = tmp_path / "other" / "runs.db"
    other.parent.mkdir()
    run_id = kill_a_writer(other, spools, "of the other store")
    left = names(spools)
    clock = FakeClock()
    with RunJournal(FarStore(db), spool_dir=spools, clock=clock) as journal:
        for _ in range(5):
            clock.advance(10)  # a heartbeat, and a look for what dead owners left
            journal.append(delta("a"))
            journal.flush()
        assert journal.recovered == ()
        assert set(left) <= set(names(spools))
    assert not caplog.records
    with RunJournal(FarStore(other), spool_dir=spools) as journal:
        assert texts(journal, run_id) == ["of the other store"] * 100


@pytest.mark.slow
def test_a_copy_of_a_database_takes_no_spool_of_a_journal_that_lives(db: Path, tmp_path: Path, spools: Path) -> None:
    """Two databases with one store_id: the copy has never heard of the journal, whose spool looks like a dead owner's."""
    RunJournal(db, spool_dir=spools).close()
    copy = Path(shutil.copy(db, tmp_path / "copy.db"))
    command = [sys.executable, "-m", "tests.support.far_store", str(db), str(spools), "of the original"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        run_id = process.stdout.readline().strip()
        spool = names(spools)[0]
        with RunJournal(copy, spool_dir=spools) as journal:
            assert journal.recovered == ()
            assert spool in names(spools)
        process.kill()
    with RunJournal(db, spool_dir=spools) as journal:
        assert texts(journal, run_id) == ["of the original"] * 100


# --- bad directories ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda path: path.write_text(""), "it is a file"),
        (lambda path: None, "it does not exist"),
    ],
)
def test_a_place_that_is_no_directory(db: Path, tmp_path: Path, make: Callable[[Path], Any], reason: str) -> None:
    """A clear error, and a store that is closed again."""
    make(tmp_path / "spools")
    with pytest.raises(errors.SpoolDirUnusable, match=reason) as caught:
        RunJournal(db, spool_dir=tmp_path / "spools")
    assert caught.value.path == str(tmp_path / "spools")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_that_cannot_be_written(db: Path, spools: Path) -> None:
    """The same."""
    spools.chmod(0o500)
    with pytest.raises(errors.SpoolDirUnusable, match="not writable"):
        RunJournal(db, spool_dir=spools)


def test_a_directory_that_cannot_be_written_as_the_system_says(
    db: Path, spools: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same, whoever runs the tests."""
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != spools)
    with pytest.raises(errors.SpoolDirUnusable, match="not writable"):
        RunJournal(db, spool_dir=spools)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="Linux")
def test_a_directory_that_takes_no_files_from_anybody(db: Path) -> None:
    """Root may write to /proc as the permissions say, and can create no file there."""
    with pytest.raises(errors.SpoolDirUnusable, match="/proc") as caught:
        RunJournal(db, spool_dir="/proc")
    assert caught.value.path == "/proc"


def test_a_directory_without_memory_mapped_files(db: Path, spools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error at the start, which leaves no file: the program has named a directory that can hold no spool."""

    def no_mmap(*args: object) -> None:
        raise OSError(errno.ENODEV, "No such device")

    monkeypatch.setattr(mmap, "mmap", no_mmap)
    with pytest.raises(errors.SpoolDirUnusable, match="no memory-mapped file can be made there \\(No such device\\)"):
        RunJournal(db, spool_dir=spools)
    assert names(spools) == []


def test_a_directory_on_a_full_disk(
    db: Path, spools: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """No error: the disk may have room later, and a program that starts again needs its journal until then."""

    open_file = os.open

    def full(path: Any, *args: Any, **more: Any) -> int:
        if Path(path).parent == spools:
            raise OSError(errno.ENOSPC, "No space left on device")
        return open_file(path, *args, **more)

    monkeypatch.setattr(os, "open", full)
    with RunJournal(db, spool_dir=spools) as journal:
        assert "No space left on device" in caplog.text
        journal.append(delta("a"))
        assert texts(journal) == ["a"]


def test_a_directory_in_which_others_can_replace_files(db: Path, spools: Path) -> None:
    """Everybody may write to it: refused. With the sticky bit, as /tmp has it, nobody can replace another's files."""
    spools.chmod(0o777)
    with pytest.raises(errors.StoreExposed, match="every user may replace files"):
        RunJournal(db, spool_dir=spools)
    spools.chmod(0o1777)
    RunJournal(db, spool_dir=spools).close()


def test_a_directory_of_another_user(db: Path, spools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused, unless a group shares it on purpose."""
    owner = spools.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 4321)
    monkeypatch.setattr(os, "stat", os.stat)
    if owner == 0:
        os.chown(spools, 1234, -1)
    os.chmod(db.parent, 0o2700)  # the database is shared: not what is asked here
    with pytest.raises(errors.StoreExposed, match="belongs to another user"):
        RunJournal(MemoryStore(), spool_dir=spools)
    spools.chmod(0o2770)
    RunJournal(MemoryStore(), spool_dir=spools).close()


@pytest.mark.parametrize("value", [7, "", b"x", "a\0b"])
def test_what_is_no_path(db: Path, value: Any) -> None:
    """The name of the argument stands in the error."""
    with pytest.raises(errors.InvalidArgument, match="spool_dir"):
        RunJournal(db, spool_dir=value)


# --- options of SQLite --------------------------------------------------------------------------------------------------


def test_a_url_has_the_options_of_sqlite(db: Path) -> None:
    """The same as the keywords; the URL that the journal names is without them."""
    with RunJournal(f"sqlite:///{db}?synchronous=full&busy_timeout=2.5") as journal:
        store: Any = core_of(journal).store
        assert (store._synchronous, store.busy_timeout, core_of(journal).busy_timeout) == ("full", 2.5, 2.5)
        assert journal.url == f"sqlite:///{db}"
    with RunJournal(f"sqlite:///{db}") as journal:
        store = core_of(journal).store
        assert (store._synchronous, store.busy_timeout) == ("normal", 5.0)


def test_a_store_has_its_own_options(db: Path) -> None:
    """`SqliteStore(path, ...)`; the journal waits as long as its store does."""
    with RunJournal(SqliteStore(str(db), synchronous="full", busy_timeout=0.5)) as journal:
        assert core_of(journal).busy_timeout == 0.5
    with pytest.raises(errors.InvalidArgument, match="busy_timeout"):
        SqliteStore(db, busy_timeout=0)
    with pytest.raises(errors.InvalidArgument, match="synchronous"):
        SqliteStore(db, synchronous="off")  # type: ignore[arg-type]


@pytest.mark.parametrize("option", [{"synchronous": "full"}, {"busy_timeout": 1.0}])
def test_the_keywords_do_not_go_with_a_store(db: Path, option: Any) -> None:
    """They have no effect: a DeprecationWarning says where they belong. With ":memory:" they go, for a journal of tests."""
    store = SqliteStore(db)
    with pytest.warns(DeprecationWarning, match="give it to the store, as in SqliteStore"):
        journal = RunJournal(store, **option)
    assert (store._synchronous, store.busy_timeout) == ("normal", 5.0)
    journal.close()
    RunJournal(":memory:", **option).close()
    with pytest.raises(errors.UnknownStore):
        RunJournal("mysql://host/db", **option)


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("synchronus=full", "Did you mean 'synchronous'"),
        ("lease=3", "lease"),
        ("synchronous=off", "synchronous"),
        ("busy_timeout=-1", "busy_timeout"),
        ("busy_timeout=soon", "busy_timeout must be a finite number above 0, but 'soon' was given"),
        ("synchronous", "synchronous"),
    ],
)
def test_options_of_a_url_that_do_not_exist(db: Path, query: str, says: str) -> None:
    """An error that names the option, before a file is made."""
    with pytest.raises(errors.InvalidArgument, match=says):
        RunJournal(f"sqlite:///{db}?{query}")
    assert not db.exists()


def test_an_option_is_given_once(db: Path) -> None:
    """In the URL or as a keyword."""
    with pytest.raises(errors.InvalidArgument, match="busy_timeout"):
        RunJournal(f"sqlite:///{db}?busy_timeout=2", busy_timeout=3)
    RunJournal(f"sqlite:///{db}?busy_timeout=2", synchronous="full").close()
