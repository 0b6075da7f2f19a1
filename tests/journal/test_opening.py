"""Opening a journal: what works, and a separate error for everything that does not."""

from __future__ import annotations

import asyncio
import errno
import os
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Iterable
from pathlib import Path

import pytest

from langchain_runjournal import Event, RunJournal, errors
from langchain_runjournal.journal.core import JournalCore, core_of
from langchain_runjournal.stores import open_store
from langchain_runjournal.stores.memory import MemoryStore
from langchain_runjournal.stores.sqlite import creation as _creation
from langchain_runjournal.stores.sqlite.database_file import _fill as _creation_fill


def test_every_way_to_name_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative path, a `Path`, a URL and a name with a space name one file, also after the process has changed its
    directory."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "my runs.db"
    with RunJournal("my runs.db") as journal:
        journal.append(Event(run_id="r", kind="run.start"))
        monkeypatch.chdir("/")
    for url in (path, str(path), f"sqlite:///{path}", f"SQLITE:///{str(path).replace(' ', '%20')}"):
        with RunJournal(url) as journal:
            assert journal.run("r").run_id == "r"
            assert journal.url == f"sqlite:///{str(path).replace(' ', '%20')}"
    assert [found.name for found in tmp_path.iterdir()] == ["my runs.db"]


def test_three_slashes_are_relative_and_four_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As SQLAlchemy reads a URL; the URL that the journal names is absolute."""
    (tmp_path / "var").mkdir()
    monkeypatch.chdir(tmp_path)
    for url in ("sqlite:///runs.db", "sqlite:///./runs.db", f"sqlite:///{tmp_path}/runs.db"):
        with RunJournal(url) as journal:
            assert (core_of(journal).store.path, journal.url) == (tmp_path / "runs.db", f"sqlite:///{tmp_path}/runs.db")
    with RunJournal("sqlite:///var/runs.db?synchronous=full") as journal:
        assert core_of(journal).store.path == tmp_path / "var" / "runs.db"
    assert sorted(found.name for found in tmp_path.iterdir()) == ["runs.db", "var"]


def test_a_url_leads_back_to_its_file(tmp_path: Path) -> None:
    """The file may have any name. A `Path` is always a path, also if it looks like a URL."""
    for name in ("a%20b.db", "x:1.db", "ü[1].db", "what?#.db"):
        with RunJournal(tmp_path / name) as journal, RunJournal(journal.url) as again:
            assert core_of(again).store.path == tmp_path / name
    assert len([path for path in tmp_path.iterdir() if path.suffix == ".db"]) == 4


def test_a_journal_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A journal in memory makes no file. The store can be passed as an object as well."""
    monkeypatch.chdir(tmp_path)
    with RunJournal(":memory:") as journal:
        journal.append(Event(run_id="r", kind="run.start"))
        assert journal.run("r").last_seq == 1
    store = MemoryStore()
    with RunJournal(store) as journal:
        assert journal.runs() == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("url", "error", "says"),
    [
        ("mysql://host/db", errors.UnknownStore, "'mysql'"),
        ("postgresql:host/db", errors.UnknownStore, "postgresql://"),
        ("redis:host", errors.UnknownStore, "redis://host:6379/0"),
        ("sqlite://runs.db", errors.UnknownStore, "three slashes"),
        ("sqlite:runs.db", errors.UnknownStore, "three slashes"),
        ("sqlite:///", errors.UnknownStore, "three slashes"),
        ("sqlite:////", errors.UnknownStore, "three slashes"),
        ("sqlite://user:secret@host/runs.db", errors.UnknownStore, r"user:\*\*\*@host.*three slashes"),
        ("sqlite:///x.db?mode=ro", errors.UnknownOption, "synchronous"),
        ("file:runs.db", errors.UnknownStore, "'file'"),
        ("", errors.InvalidArgument, "a path"),
        ("a\0b", errors.InvalidArgument, "a path"),
        (7, errors.InvalidArgument, "a path"),
        (b"runs.db", errors.InvalidArgument, "a path"),
        (None, errors.InvalidArgument, "a path"),
        (MemoryStore, errors.InvalidArgument, "a Store"),
    ],
)
def test_what_is_no_name_of_a_journal(url: object, error: type[Exception], says: str) -> None:
    """The error for each says what to write instead."""
    with pytest.raises(error, match=says):
        RunJournal(url)


@pytest.mark.parametrize(
    ("option", "value"),
    [("lease", 0), ("lease", "15"), ("busy_timeout", -1), ("spool_limit", None), ("synchronous", "off")],
)
def test_options_are_checked(db: Path, option: str, value: object) -> None:
    """The error for a wrong option names the option, and no file is left behind."""
    with pytest.raises(errors.InvalidArgument, match=option):
        RunJournal(db, **{option: value})
    assert not db.exists()


def test_a_directory_is_refused(tmp_path: Path) -> None:
    """The error suggests the path of a file in the directory."""
    with pytest.raises(errors.StoreIsDirectory, match=r"runs\.db"):
        RunJournal(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_is_missing(tmp_path: Path) -> None:
    """The directory is not created: a misspelt path must not become a place for data."""
    with pytest.raises(errors.StoreNotWritable, match="does not exist"):
        RunJournal(tmp_path / "nowhere" / "runs.db")
    file = tmp_path / "file"
    file.write_text("x")
    with pytest.raises(errors.StoreNotWritable):
        RunJournal(file / "runs.db")


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
@pytest.mark.parametrize("what", ["directory", "file"])
def test_a_place_that_may_not_be_written(tmp_path: Path, what: str) -> None:
    """A user who is not root, in another process, gets an error."""
    place = tmp_path / "place"
    place.mkdir()
    db = place / "runs.db"
    RunJournal(db).close()
    if what == "directory":
        db.unlink()
    os.chmod(db if what == "file" else place, 0o444 if what == "file" else 0o555)
    before = sorted(place.iterdir())
    code = f"""
import os, sys
from langchain_runjournal import RunJournal, errors
RunJournal(":memory:").close()
import langchain_runjournal.stores.sqlite  # before the user changes: only root may be able to read it
langchain_runjournal.stores.sqlite.database_file._migrations()
for path in ({str(tmp_path)!r},):
    while path != "/" and os.getuid() == 0:
        os.chmod(path, os.stat(path).st_mode | 0o055); path = os.path.dirname(path)
if os.getuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
try:
    RunJournal({str(db)!r})
except errors.StoreNotWritable as exc:
    print(exc)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert str(db) in done.stdout
    assert "Choose a place" in done.stdout
    assert sorted(place.iterdir()) == before


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    """The error is clear, and the file stays as it is."""
    for content in (b"dear diary\n" * 100, b"x", b"SQLite format 3\x00" + b"garbage" * 1000):
        path = tmp_path / "notes.txt"
        path.write_bytes(content)
        with pytest.raises((errors.NotADatabase, errors.StoreCorrupt), match=r"notes\.txt"):
            RunJournal(path)
        assert path.read_bytes() == content


def test_a_database_of_somebody_else(tmp_path: Path) -> None:
    """The database of a LangGraph checkpointer, for example: the error names its tables, and the database stays as it
    is."""
    path = tmp_path / "app.db"
    con = sqlite3.connect(path)
    con.execute("CREATE TABLE checkpoints (thread_id TEXT)")
    con.close()
    before = path.read_bytes()
    with pytest.raises(errors.ForeignDatabase, match=r"checkpoints.*app-journal\.db"):
        RunJournal(path)
    assert path.read_bytes() == before
    assert [found.name for found in tmp_path.iterdir()] == ["app.db"]


def test_a_journal_of_the_future(db: Path) -> None:
    """A journal with a newer schema stays as it is."""
    RunJournal(db).close()
    con = sqlite3.connect(db)
    con.execute("INSERT INTO migrations (version, name, at) VALUES (99, 'later', 'then')")
    con.commit()
    con.close()
    before = db.read_bytes()
    with pytest.raises(errors.StoreTooNew, match=r"schema 99.*Upgrade"):
        RunJournal(db)
    assert db.read_bytes() == before


def test_a_journal_that_is_damaged(db: Path) -> None:
    """Pages in the middle are overwritten: the journal raises an error that says so."""
    with RunJournal(db) as journal:
        for number in range(200):
            journal.append(Event(run_id=f"r{number}", kind="run.start", data={"name": "x" * 500}))
    data = bytearray(db.read_bytes())
    data[4096:] = b"\xff" * (len(data) - 4096)
    db.write_bytes(data)
    with pytest.raises(errors.RunJournalError, match=r"runs\.db"):
        RunJournal(db)


KILLED = """
import os, sys
from langchain_runjournal import RunJournal, Event
journal = RunJournal(sys.argv[1])
for number in range(60):
    journal.append(Event(run_id=f"r{number % 7}", kind="llm.ai.delta", data={"text": "x" * 300}, call_id="c"))
    journal.flush()
os.kill(os.getpid(), 9)
"""


@pytest.mark.slow
def test_a_database_that_is_cut_off(db: Path, tmp_path: Path) -> None:
    """The -wal file knows tables that the file lacks now. Wherever the file is cut off, the error says what is damaged."""
    subprocess.run([sys.executable, "-c", KILLED, str(db)], check=False)
    left = {path: path.read_bytes() for path in tmp_path.iterdir() if not path.name.endswith("-shm")}
    said = set()
    for cut in (0, 512, 3_000, 4_096, 4_097, 8_192, 9_000, 9_700, 10_100, 11_200, 12_000, 12_288, 16_384):
        for path in tmp_path.iterdir():
            path.unlink()
        for path, content in left.items():
            path.write_bytes(content[:cut] if path == db else content)
        try:
            with RunJournal(db) as journal:
                journal.runs()
        except errors.RunJournalError as exc:
            assert str(db) in str(exc)
            assert type(exc) is not errors.StoreFailed, exc
            said.add(type(exc))
            if "lacks its" in str(exc) or "is empty" in str(exc):
                said.add(str(exc).partition(": ")[2].partition(".")[0])
    assert errors.StoreCorrupt in said
    assert "it lacks its store_id" in said
    assert "it is empty, and runs" in said


def test_a_fact_that_is_gone(db: Path) -> None:
    """A fact that every journal has is missing. That counts as damage, also if a write notices it, and not as the fault of
    an event."""
    RunJournal(db).close()
    con = sqlite3.connect(db)
    con.execute("DELETE FROM facts WHERE name = 'turns'")
    con.commit()
    journal = RunJournal(db)
    journal.append(Event(run_id="r", kind="run.start"))
    with pytest.raises(errors.WriteFailed, match="it lacks its turns"):
        journal.flush()
    con.execute("INSERT INTO facts VALUES ('turns', 0)")
    con.commit()
    con.close()
    journal.flush()
    journal.close()


# --- creation and completion --------------------------------------------------------------------------------------------


class Halted(BaseException):
    """An exception that ends a process at this point, as far as the files can tell."""


@pytest.mark.parametrize("where", ["link", "connect", "unlink"])
def test_a_process_that_is_killed_while_it_makes_the_file(db: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """Until the file is complete, there is none under its name. The next process creates its own, and a later one removes
    the rest."""

    def halt(*args: object, **kwargs: object) -> None:
        raise Halted

    with monkeypatch.context() as patch:
        patch.setattr(_creation, "_remove", lambda fresh: None)
        if where == "connect":
            patch.setattr(_creation.sqlite3, "connect", halt)
        elif where == "link":
            patch.setattr(_creation.os, "link", halt)
        else:
            patch.setattr(_creation, "_remove", halt)
        with pytest.raises(Halted):
            RunJournal(db)
    assert db.exists() is (where == "unlink")
    (left,) = db.parent.glob("*-new-*")
    assert stat.S_IMODE(left.stat().st_mode) == 0o600
    with RunJournal(db) as journal:
        journal.append(Event(run_id="r", kind="run.start"))
    assert left.exists(), "its maker may be at work"
    for name in ("-journal", "-wal"):
        Path(f"{left}{name}").touch()
        os.utime(Path(f"{left}{name}"), (0, 0))
    os.utime(left, (0, 0))
    with RunJournal(db) as journal:
        assert journal.run("r")
        assert not list(db.parent.glob("*-new-*"))


def test_somebody_is_faster(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process has created the file meanwhile. This process uses that file, and overwrites nothing of it."""
    link = os.link

    def overtaken(source: object, target: Path) -> None:
        monkeypatch.setattr(os, "link", link)
        other = sqlite3.connect(target, isolation_level=None)
        _creation_fill(other)
        other.execute("INSERT INTO facts VALUES ('whose', 'theirs')")
        other.close()
        link(source, target)

    monkeypatch.setattr(os, "link", overtaken)
    RunJournal(db).close()
    con = sqlite3.connect(db)
    assert con.execute("SELECT value FROM facts WHERE name = 'whose'").fetchone() == ("theirs",)
    con.close()
    assert [path.name for path in db.parent.iterdir()] == ["runs.db"]


@pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP])
def test_a_file_system_without_hard_links(db: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """The file is created under its final name."""

    def no_link(*args: object) -> None:
        raise OSError(number, "not here")

    monkeypatch.setattr(os, "link", no_link)
    with RunJournal(db) as journal:
        journal.append(Event(run_id="r", kind="run.start"))
    assert [path.name for path in db.parent.iterdir()] == ["runs.db"]


@pytest.mark.parametrize("of", ["a new journal", "another program"])
def test_what_a_killed_process_was_writing_is_rolled_back(tmp_path: Path, of: str) -> None:
    """A file with a hot journal used to lock every process out, with the advice to choose another place."""
    live, db = tmp_path / "live.db", tmp_path / "runs.db"
    con = sqlite3.connect(live, isolation_level=None)
    con.execute("PRAGMA cache_size = 1")
    if of == "another program":
        con.execute("CREATE TABLE users (name TEXT)")
    con.execute("BEGIN IMMEDIATE")
    con.execute("CREATE TABLE half (name TEXT)")
    con.executemany("INSERT INTO half VALUES (?)", [("x" * 2_000,)] * 500)
    for name in ("", "-journal"):
        Path(f"{db}{name}").write_bytes(Path(f"{live}{name}").read_bytes())
    con.close()
    assert db.stat().st_size > 100_000
    if of == "another program":
        with pytest.raises(errors.ForeignDatabase, match="users"):
            RunJournal(db)
    else:
        with RunJournal(db) as journal:
            assert journal.runs() == []


def test_the_wal_of_a_database_that_was_deleted(db: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A user runs `rm runs.db` and deletes no other file. The new journal is empty, uses no page of the old one, and logs
    this."""
    subprocess.run([sys.executable, "-c", KILLED, str(db)], check=False)
    db.unlink()
    for spool in db.parent.glob("*-spool-*"):
        spool.unlink()
    with RunJournal(db) as journal:
        assert journal.runs() == []
        assert "runs.db-wal: its database was deleted before" in caplog.text
        assert core_of(journal).store.check() == []


# --- on an event loop -------------------------------------------------------------------------------------------------


def test_opening_does_not_block_the_loop(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While another thread opens the journal, the loop runs. Options and errors are those of the constructor."""
    went_on = threading.Event()
    start = JournalCore.start

    def slow(core: JournalCore, not_ours: Iterable[str]) -> None:
        assert went_on.wait(20)
        start(core, not_ours)

    monkeypatch.setattr(JournalCore, "start", slow)

    async def program() -> None:
        opening = asyncio.ensure_future(RunJournal.aopen(db, lease=3.0))
        await asyncio.sleep(0)
        went_on.set()
        async with await opening as journal:
            assert isinstance(journal, RunJournal)
            assert core_of(journal).lease == 3.0
            journal.append(Event(run_id="r", kind="run.start"))
            assert (await journal.arun("r")).last_seq == 1
        with pytest.raises(errors.InvalidArgument, match="lease"):
            await RunJournal.aopen(db, lease=0)

    asyncio.run(program())


def test_an_opening_that_is_cancelled_leaves_nothing_open(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal is closed as soon as it is open: no thread, no owner and no spool stays."""
    begun, go_on, closed = threading.Event(), threading.Event(), threading.Event()
    start, close = JournalCore.start, RunJournal.close

    def slow(core: JournalCore, not_ours: Iterable[str]) -> None:
        begun.set()
        assert go_on.wait(20)
        start(core, not_ours)

    def noted(journal: RunJournal) -> None:
        close(journal)
        closed.set()

    monkeypatch.setattr(JournalCore, "start", slow)
    monkeypatch.setattr(RunJournal, "close", noted)

    async def program() -> None:
        opening = asyncio.ensure_future(RunJournal.aopen(db))
        assert await asyncio.to_thread(begun.wait, 20)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        go_on.set()
        assert await asyncio.to_thread(closed.wait, 20)

    asyncio.run(program())
    assert [path.name for path in db.parent.iterdir()] == ["runs.db"]


def test_opening_again_takes_no_locks_away(db: Path) -> None:
    """A second journal in the process must not make another process believe that it is the last one to close the file.

    Otherwise that process would delete the -wal file, and with it all that this process writes afterwards.
    """
    code = f"from langchain_runjournal import RunJournal; print([r.run_id for r in RunJournal({str(db)!r}).runs()])"
    with RunJournal(db) as first:
        first.append(Event(run_id="before", kind="run.start"))
        first.flush()
        RunJournal(db).close()
        with RunJournal(db):
            for number in range(3):
                subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
                first.append(Event(run_id=f"r{number}", kind="run.start"))
                first.flush()
                done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
                assert f"'r{number}'" in done.stdout


def test_an_empty_file_becomes_a_journal(db: Path) -> None:
    """`tempfile` and `touch` make such files."""
    db.touch()
    with RunJournal(db) as journal:
        assert journal.runs() == []


def test_only_the_owner_may_read(db: Path) -> None:
    """The database, the extra files of SQLite, and the spool have mode 0600, with any umask."""
    old = os.umask(0)
    try:
        with RunJournal(db) as journal:
            journal.append(Event(run_id="r", kind="run.start"))
            journal.flush()
            modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in db.parent.iterdir()}
    finally:
        os.umask(old)
    assert len(modes) >= 4, modes
    assert set(modes.values()) == {0o600}, modes


def test_many_open_a_new_file_at_once(db: Path) -> None:
    """One of the processes creates the file, and none fails."""
    code = f"from langchain_runjournal import RunJournal; RunJournal({str(db)!r}).close(); print('ok')"
    processes = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for _ in range(6)
    ]
    assert [process.communicate()[0].strip() for process in processes] == ["ok"] * 6


def test_threads_open_a_new_file_at_once(db: Path) -> None:
    """The same holds for threads of one process. Each journal is an owner of its own."""
    barrier = threading.Barrier(6)
    opened: list[RunJournal] = []

    def work() -> None:
        barrier.wait()
        opened.append(RunJournal(db))

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({journal.owner_id for journal in opened}) == 6
    for journal in opened:
        journal.close()


def test_wal_and_synchronous(db: Path) -> None:
    """The mode is always WAL, and `synchronous` is the given one."""
    for level, number in (("normal", 1), ("full", 2)):
        store = open_store(db, synchronous=level)
        con = store._open_writer()
        assert con.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
        assert con.execute("PRAGMA synchronous").fetchone()[0] == number
        store.close()


def test_each_migration_is_recorded(db: Path) -> None:
    """A migration is recorded with its number and name, in the transaction that made it."""
    RunJournal(db).close()
    con = sqlite3.connect(db)
    assert con.execute("SELECT version, name FROM migrations").fetchall() == [(1, "journal")]
    con.close()


def test_two_names_of_one_file_are_one_journal(tmp_path: Path, db: Path) -> None:
    """A symbolic link leads to the same database and the same spools."""
    link = tmp_path / "link.db"
    link.symlink_to(db)
    with RunJournal(link) as journal:
        journal.append(Event(run_id="r", kind="run.start"))
        journal.flush()
        assert not list(tmp_path.glob("link.db-*"))
    with RunJournal(db) as journal:
        assert journal.run("r")


def test_refusing_changes_nothing(tmp_path: Path) -> None:
    """A refused file stays as it is: also a database in WAL mode, whose -wal file a closing connection would merge, and a
    database that holds only a view, or only the application id of another program."""
    path = tmp_path / "app.db"
    con = sqlite3.connect(path)
    con.execute("PRAGMA journal_mode = WAL")
    con.execute("CREATE TABLE users (name TEXT)")
    con.commit()
    other = sqlite3.connect(path)
    other.execute("SELECT * FROM users").fetchall()
    before = {file.name: file.stat().st_size for file in tmp_path.iterdir()}
    with pytest.raises(errors.ForeignDatabase, match="users"):
        RunJournal(path)
    assert {file.name: file.stat().st_size for file in tmp_path.iterdir()} == before
    con.close()
    other.close()
    for number, statement in enumerate(("CREATE VIEW v AS SELECT 1", "PRAGMA application_id = 77")):
        path = tmp_path / f"other{number}.db"
        con = sqlite3.connect(path)
        con.execute(statement)
        con.commit()
        con.close()
        with pytest.raises(errors.ForeignDatabase):
            RunJournal(path)
