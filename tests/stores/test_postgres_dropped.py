"""A table or the whole schema is dropped while a journal is open: each error says what to restore, and when that helps."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from langchain_runjournal import Event, RunJournal, errors
from langchain_runjournal.journal.core import core_of
from langchain_runjournal.testing.store_contract.support import begun, deltas, row
from tests.support.command_line import complaint, run
from tests.support.servers import postgres_url


def do(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as con:
        for statement in statements:
            con.execute(statement)  # type: ignore[arg-type]


def with_run(url: str, spools: Path) -> RunJournal:
    """Return a journal with a run that is running."""
    journal = RunJournal(url, spool_dir=spools)
    journal.append(Event(run_id="r", kind="run.start"))
    journal.flush()
    return journal


HINT = "A table of the journal is missing, or the whole schema: restore the schema from a backup"


@pytest.mark.parametrize("dropped", ["TABLE runjournal.runs", "TABLE runjournal.events", "SCHEMA runjournal CASCADE"])
def test_an_open_journal_says_what_to_restore(dropped: str, tmp_path: Path) -> None:
    """Whatever was dropped. The command `check` says it as well, and does not send the user to itself."""
    url = postgres_url()
    journal = with_run(url, tmp_path)
    do(url, f"DROP {dropped}")
    journal.append(Event(run_id="r", kind="run.end"))
    for barrier in (journal.flush, journal.close):
        with pytest.raises(errors.WriteFailed, match=HINT):
            barrier()
    done = run("check", "--journal", url)
    assert done.exit_code == 1
    assert "from a backup" in done.stdout + done.stderr
    assert "runjournal check" not in done.stderr


def test_a_command_on_a_database_whose_journal_is_gone() -> None:
    """It cannot tell whether there ever was one, and says what to do in both cases."""
    url = postgres_url()
    RunJournal(url).close()
    do(url, "DROP SCHEMA runjournal CASCADE")
    assert "If it held one before, restore that from a backup" in complaint("--journal", url, "list")


def test_a_spool_waits_for_the_store_that_it_belongs_to(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A journal on a schema that was made anew ignores it, as the log says; the next one on the restored schema has it."""
    url = postgres_url()
    journal = with_run(url, tmp_path)
    do(url, "ALTER SCHEMA runjournal RENAME TO backup")
    journal.append(Event(run_id="r", kind="run.end"))
    with pytest.raises(errors.WriteFailed):
        journal.close()
    [left] = [path for path in tmp_path.iterdir() if "-spool-" in path.name]
    assert f"its next open imports {left}, unless a new store has replaced it\n" in caplog.text
    with RunJournal(url, spool_dir=tmp_path) as other:
        assert (other.runs(), other.recovered) == ([], ())
    assert left.exists()
    do(url, "DROP SCHEMA runjournal CASCADE", "ALTER SCHEMA backup RENAME TO runjournal")
    with RunJournal(url, spool_dir=tmp_path) as restored:
        assert [event.kind for event in restored.read("r")] == ["run.start", "run.end"]
    assert not left.exists()


@pytest.mark.parametrize("what", ["a run that began before", "a new run"])
def test_an_open_journal_does_not_go_on_in_another_store(what: str, tmp_path: Path) -> None:
    """Its spool belongs to the store before, so a kill would lose what the other one does not have yet. It says so, and
    keeps the spool."""
    url = postgres_url()
    journal = with_run(url, tmp_path)
    do(url, "ALTER SCHEMA runjournal RENAME TO backup")
    store = core_of(journal).store
    with RunJournal(url, spool_dir=tmp_path) as other:
        run_id = "r" if what == "a run that began before" else "s"
        for event in (Event(run_id=run_id, kind="run.start"), Event(run_id=run_id, kind="run.end")):
            journal.append(event)
        refused = [
            lambda: store.beat(core_of(journal).owner),
            lambda: store.begin(begun("new", "t"), ()),
            lambda: store.append(journal.owner_id, [row(deltas("new", 1))]),
            lambda: store.restore(journal.owner_id, [row(deltas("new", 1))]),
        ]
        for work in refused:
            with pytest.raises(errors.StoreFailed, match="its schema was replaced"):
                work()
        for barrier in (journal.flush, journal.close):
            with pytest.raises(errors.WriteFailed, match="its schema was replaced"):
                barrier()
        assert other.runs() == []
        assert [owner.owner_id for owner in core_of(other).store.owners()] == [other.owner_id]
    do(url, "DROP SCHEMA runjournal CASCADE", "ALTER SCHEMA backup RENAME TO runjournal")
    with RunJournal(url, spool_dir=tmp_path) as restored:
        assert restored.run(run_id).status == "completed"


def test_a_journal_of_another_store_claims_nothing(tmp_path: Path) -> None:
    """A run of the other store, whose owner is dead, waits for a journal that was opened there."""
    url = postgres_url()
    journal = with_run(url, tmp_path)
    do(url, "ALTER SCHEMA runjournal RENAME TO backup")
    with RunJournal(url, spool_dir=tmp_path) as other:
        other.append(Event(run_id="s", kind="run.start"))
        other.flush()
        assert not core_of(journal).store.claim("s", journal.owner_id, 1)
        assert core_of(other).store.claim("s", "you", 1)
    journal.close()
