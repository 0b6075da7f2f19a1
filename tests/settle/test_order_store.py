"""The index of unsettled runs: neither `recover` nor a new message reads runs that were settled long ago."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from langchain_runjournal import Event, RunJournal, attach
from langchain_runjournal.errors import StoreFailed
from langchain_runjournal.journal.core import core_of
from langchain_runjournal.stores import open_store
from langchain_runjournal.stores.sqlite import SqliteStore
from tests.settle.test_settle import THREAD, made_by_hand, model, say
from tests.support.agents import words
from tests.support.left_runs import Journals, begin, leave

_asked: list[tuple[str, Any]] = []


class _Explained(sqlite3.Connection):
    """A connection that keeps its statements."""

    def execute(self, sql: str, values: Any = ()) -> sqlite3.Cursor:
        _asked.append((sql, values))
        return super().execute(sql, values)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, Any]]]:
    """Return all statements of the stores that are opened from now on, with their values."""

    def connect(path: Path, busy_timeout: float) -> sqlite3.Connection:
        about: dict[str, Any] = {"timeout": busy_timeout, "isolation_level": None, "check_same_thread": False}
        return sqlite3.connect(path, factory=_Explained, **about)

    monkeypatch.setattr("langchain_runjournal.stores.sqlite.connections.connect", connect)
    yield _asked
    _asked.clear()


def plans_of(db: Path, asked: list[tuple[str, Any]]) -> dict[str, str]:
    """Return, for each statement that searches runs, how SQLite finds them."""
    found: dict[str, str] = {}
    with closing(sqlite3.connect(db)) as con:
        for sql, values in asked:
            if " runs " in sql and not sql.startswith(("CREATE", "INSERT", "DELETE")):
                steps = [line[3] for line in con.execute(f"EXPLAIN QUERY PLAN {sql}", values)]
                found[sql] = "; ".join(step for step in steps if " runs" in step)
    return found


def graph_of(*scripts: list[Any]) -> Any:
    return made_by_hand(model(*scripts), [], checkpointer=InMemorySaver(), name="agent")


def test_nothing_reads_all_runs(db: Path, journals: Journals, asked: list[tuple[str, Any]]) -> None:
    """A recovery, a message, a cut-off and a resume find runs by id, thread or the index of unsettled runs, never by
    status."""
    leave(journals, "old", "new")
    with journals() as journal:
        agent = attach(graph_of([*words("one "), OSError("a")], words("fine"), words("fine")), journal)
        asked.clear()
        assert len(journal.recover(agent)) == 2
        with pytest.raises(OSError, match="a"):
            agent.invoke(say("hi"), THREAD)
        agent.invoke(say("next"), THREAD)
        agent.invoke(None, journal.resume_config(journal.runs("t")[1].run_id))
        plans = plans_of(db, asked)
    assert any("USING INDEX runs_to_settle" in plan and "SCAN" in plan for plan in plans.values()), "recover has looked"
    assert any("USING INDEX runs_to_settle (thread_id=?)" in plan for plan in plans.values()), "so has the message"
    for sql, plan in plans.items():
        assert "runs_of_status" not in plan, sql
        assert "SCAN runs" not in plan.replace("SCAN runs USING INDEX runs_to_settle", ""), sql


def test_how_many_runs_a_recovery_is_given(journals: Journals, monkeypatch: pytest.MonkeyPatch) -> None:
    """A recovery, and a new message on the thread, read the runs that are to be settled and none of the settled ones."""
    with journals() as journal:
        for number in range(300):
            run_id = f"r{number}"
            start = {"thread_id": "t", "name": "agent", "metadata": {"runjournal_graph": "agent"}}
            journal.append(Event(run_id=run_id, kind="run.start", data=start))
            journal.append(Event(run_id=run_id, kind="run.end", data={"status": "interrupted", "cause": "stop"}))
    leave(journals, "old")
    given: list[int] = []
    with journals() as journal:
        for verb in ("runs", "unsettled"):
            monkeypatch.setattr(core_of(journal).store, verb, _counting(getattr(core_of(journal).store, verb), given))
        agent = attach(graph_of(words("fine")), journal)
        assert [one.run_id for one in journal.recover(agent)] == ["old"]
        # This includes the neighbours of the one run on its thread, and what the settlement searches in earlier runs of it.
        assert max(given) <= 50
        given.clear()
        agent.invoke(say("hi"), THREAD)
        assert max(given) <= 11


def _counting(work: Any, given: list[int]) -> Any:
    def counting(**about: Any) -> Any:
        found = work(**about)
        given.append(len(found))
        return found

    return counting


def test_a_run_that_was_left_long_ago_is_settled_before_a_new_message(journals: Journals) -> None:
    """A new message settles an old run, however many runs its thread has had since."""
    leave(journals, "old")
    with journals() as journal:
        for number in range(40):
            begin(journal, f"r{number}", graph="else")
            journal.append(Event(run_id=f"r{number}", kind="run.end", data={"status": "completed"}))
        agent = attach(graph_of(words("fine")), journal)
        agent.invoke(say("hi"), THREAD)
        assert journal.run("old").settled


def test_a_file_of_an_older_release_gets_the_indexes(db: Path) -> None:
    """A file of an older release gets the indexes when it is opened, and the older release can still use it."""
    with RunJournal(db) as journal:
        begin(journal, "old")
    with closing(sqlite3.connect(db)) as con:
        con.execute("DROP INDEX runs_to_settle")
        con.execute("DROP INDEX runs_to_prune")
        versions = con.execute("SELECT version FROM migrations").fetchall()
    store = open_store(db)
    assert [run.run_id for run in store.unsettled(thread_id=None)] == ["old"]
    assert (store.prune(before=None, keep_last=0), store.check()) == ([], [])
    store.close()
    with closing(sqlite3.connect(db)) as con:
        assert con.execute("SELECT version FROM migrations").fetchall() == versions
        made = "SELECT count(*) FROM sqlite_master WHERE name IN ('runs_to_settle', 'runs_to_prune')"
        assert con.execute(made).fetchone() == (2,)


def test_looking_for_old_runs_reads_an_index_without_the_write_lock(db: Path, asked: list[tuple[str, Any]]) -> None:
    """A prune that finds nothing, a dry run and a short id wait for no writer, and read no more runs than they return."""
    with RunJournal(db) as journal:
        for number in range(3):
            begin(journal, f"r{number}")
            journal.append(Event(run_id=f"r{number}", kind="run.end", data={"status": "completed"}))
    with closing(SqliteStore(db, busy_timeout=0.01)) as store, closing(sqlite3.connect(db, isolation_level=None)) as other:
        asked.clear()
        other.execute("BEGIN IMMEDIATE")
        assert store.prune(before=1, keep_last=None) == []
        assert store.prune(before=None, keep_last=3) == []
        assert store.prune(before=None, keep_last=1, dry_run=True) == ["r0", "r1"]
        assert store.ids("r", 2) == ["r0", "r1"]
        with pytest.raises(StoreFailed, match="locked"):
            store.prune(before=None, keep_last=1)
        other.execute("ROLLBACK")
        assert store.prune(before=None, keep_last=1) == ["r0", "r1"]
        plans = plans_of(db, asked)
    for sql, plan in plans.items():
        assert "SCAN runs" not in plan.replace("SCAN runs USING COVERING INDEX runs_to_prune", ""), (sql, plan)
    assert any("run_id>?" in plan for plan in plans.values()), plans
