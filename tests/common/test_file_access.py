"""Who else may read a journal's files, or put others in their place."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from langchain_runjournal import Event, RunJournal, errors
from langchain_runjournal.journal.check import check

pytestmark = pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
as_root = pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="gives files to another user")
SOMEBODY = 54_321


@pytest.fixture
def as_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """We are an ordinary user, as far as the package can tell."""
    monkeypatch.setattr(os, "geteuid", lambda: SOMEBODY + 1)
    os.chown(tmp_path, SOMEBODY + 1, SOMEBODY + 1)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def kept(db: Path) -> None:
    """A journal with one run, all of whose files stand open to everybody, as an old backup or a `umask 0` leaves them."""
    with RunJournal(db) as journal:
        journal.append(Event(run_id="r", kind="run.start"))
        journal.append(Event(run_id="r", kind="run.end"))
    db.chmod(0o644)


def test_permissions_of_others_are_taken_away(db: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Of the database and all beside it; the log and `check` say so, once."""
    kept(db)
    with RunJournal(db) as first:
        assert mode(db) == 0o600
        assert "other users had permissions on runs.db" in caplog.text
        assert [problem.what for problem in check(first)] == ["exposed"]
        first.append(Event(run_id="s", kind="run.start"))
        first.flush()
        beside = sorted(path for path in db.parent.iterdir() if path != db)
        assert {path.name[7:10] for path in beside} == {"-wa", "-sh", "-sp"}
        for path in beside:
            path.chmod(0o666)
        with RunJournal(db) as second:
            assert {mode(path) for path in beside if path.exists()} == {0o600}
            found = [problem.text for problem in check(second) if problem.what == "exposed"]
            assert all(any(path.name in text for text in found) for path in beside if path.exists())
    caplog.clear()
    with RunJournal(db) as third:
        assert [problem for problem in check(third) if problem.what == "exposed"] == []
    assert "permissions" not in caplog.text


def test_a_group_that_shares_the_directory_keeps_its_permissions(db: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The setgid bit of the directory says that it is on purpose; the spool then has them, too. Others still lose theirs."""
    kept(db)
    db.parent.chmod(0o2770)
    db.chmod(0o666)
    with RunJournal(db) as journal:
        journal.append(Event(run_id="s", kind="run.start"))
        journal.flush()
        assert {path.name: oct(mode(path)) for path in db.parent.iterdir()} == {
            path.name: "0o660" for path in db.parent.iterdir()
        }
        assert len(list(db.parent.iterdir())) >= 4
    db.chmod(0o660)
    caplog.clear()
    with RunJournal(db) as journal:
        assert next(check(journal)).what == "abandoned"
    assert mode(db) == 0o660
    assert caplog.text == ""


def test_a_directory_in_which_everybody_may_replace_files(db: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is opened, since many volumes are mounted so; the log and `check` say it. /tmp, with its sticky bit, is fine."""
    db.parent.chmod(0o777)
    with RunJournal(db) as journal:
        (problem,) = check(journal)
        assert "every user may replace files" in problem.text
        assert "every user may replace files" in caplog.text
    caplog.clear()
    with RunJournal(db) as journal:
        assert [one.text for one in check(journal)] == [problem.text]
    assert caplog.text == "", "once in a process: it may be the volume of a container"
    db.parent.chmod(0o1777)
    with RunJournal(db) as journal:
        assert list(check(journal)) == []
    assert caplog.text == ""


def test_a_file_system_without_permissions(
    db: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Where a mode cannot be changed (FAT, some network shares), the journal works and says what it cannot do."""
    kept(db)

    def no_chmod(path: Path, mode: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "chmod", no_chmod)
    with RunJournal(db) as journal:
        assert "which could not be taken away" in caplog.text
        assert journal.run("r")


def test_a_file_of_another_program_keeps_its_mode(tmp_path: Path) -> None:
    """A path that was mistyped is refused, and not changed."""
    notes = tmp_path / "notes.txt"
    notes.write_text("dear diary\n" * 100)
    notes.chmod(0o644)
    with pytest.raises(errors.NotADatabase):
        RunJournal(notes)
    assert mode(notes) == 0o644


@as_root
@pytest.mark.usefixtures("as_user")
@pytest.mark.parametrize("name", ["", "-wal", "-shm", "-journal"])
def test_a_file_of_another_user_is_refused(db: Path, name: str) -> None:
    """He can read all that is written into it: also one beside the database that SQLite would use."""
    kept(db)
    for path in db.parent.iterdir():
        os.chown(path, SOMEBODY + 1, SOMEBODY + 1)
    path = Path(f"{db}{name}")
    path.touch(0o600)
    os.chown(path, SOMEBODY, SOMEBODY)
    before = path.read_bytes()
    with pytest.raises(errors.StoreExposed, match=rf"uid {SOMEBODY}.*chown.*chmod g\+s") as caught:
        RunJournal(db)
    assert caught.value.path == str(path)
    assert path.read_bytes() == before


@as_root
@pytest.mark.usefixtures("as_user")
def test_a_file_of_a_member_of_the_group_is_taken(db: Path) -> None:
    """In a directory that the group shares on purpose. What everybody may read, and we cannot change, is refused."""
    kept(db)
    os.chown(db, SOMEBODY, SOMEBODY)
    db.parent.chmod(0o2770)
    db.chmod(0o664)
    with pytest.raises(errors.StoreExposed, match="others have permissions on it"):
        RunJournal(db)
    db.chmod(0o660)
    RunJournal(db).close()


@as_root
def test_root_may_open_what_is_somebody_elses(db: Path) -> None:
    """An administrator who looks at the journal of a service takes it from nobody."""
    kept(db)
    db.chmod(0o600)
    os.chown(db, SOMEBODY, SOMEBODY)
    with RunJournal(db) as journal:
        assert journal.run("r")
    assert db.stat().st_uid == SOMEBODY
    assert mode(db) == 0o600


@as_root
@pytest.mark.parametrize("sticky", [0o1000, 0])
def test_a_link_that_others_may_lead_elsewhere_is_refused(tmp_path: Path, db: Path, sticky: int) -> None:
    """In a directory that everybody may write to. One that only we can replace is followed, and so is one that is safe."""
    kept(db)
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    link = open_to_all / "link.db"
    link.symlink_to(db)
    RunJournal(link).close()
    open_to_all.chmod(0o777 | sticky)
    if sticky:
        RunJournal(link).close()
        os.lchown(link, SOMEBODY, SOMEBODY)
    with pytest.raises(errors.StoreExposed, match=r"link\.db is a symbolic link"):
        RunJournal(link)
    (open_to_all / "directory").symlink_to(db.parent)
    os.lchown(open_to_all / "directory", SOMEBODY, SOMEBODY)
    with pytest.raises(errors.StoreExposed, match="directory is a symbolic link"):
        RunJournal(open_to_all / "directory" / "new.db")
    assert not (db.parent / "new.db").exists()


def test_a_link_in_the_place_of_the_wal_is_refused(db: Path, tmp_path: Path) -> None:
    """Nothing that writes a journal makes one there."""
    kept(db)
    (tmp_path / "elsewhere").write_bytes(b"")
    Path(f"{db}-wal").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(errors.StoreExposed, match="symbolic link"):
        RunJournal(db)


@as_root
@pytest.mark.usefixtures("as_user")
def test_a_spool_of_another_user_is_not_believed(db: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Somebody who may make files beside the database could put words into it: the file is left alone, and reported."""
    from langchain_runjournal.stores.sqlite import SqliteStore
    from tests.journal.test_spool import OWNER, put_run, spool_at

    store = SqliteStore(db)
    spool = spool_at(store)
    put_run(spool, 3)
    store.close()
    for path in db.parent.iterdir():
        os.chown(path, SOMEBODY + 1, SOMEBODY + 1)
    os.chown(spool.file.path, SOMEBODY, SOMEBODY)
    with RunJournal(db) as journal:
        assert journal.runs() == []
        (report,) = journal.recovered
        assert report.owner_id == OWNER.hex()
        assert "belongs to another user" in (report.problem or "")
        assert "belongs to another user" in caplog.text
    assert spool.file.path.exists()


@as_root
def test_the_spool_of_root_belongs_to_the_owner_of_the_database(db: Path) -> None:
    """What a killed process of root leaves beside the journal of another user can be read by that user."""
    with RunJournal(db):
        os.chown(db, SOMEBODY, SOMEBODY + 1)
        with RunJournal(db) as journal:
            journal.append(Event(run_id="r", kind="run.start"))
            journal.flush()
            made = [path for path in db.parent.glob("runs.db-spool-*") if journal.owner_id in path.name]
            assert made
            assert {(path.stat().st_uid, path.stat().st_gid, mode(path)) for path in made} == {
                (SOMEBODY, SOMEBODY + 1, 0o600)
            }
