"""`runjournal delete` and `runjournal prune`: what they delete, and when they refuse."""

from __future__ import annotations

from pathlib import Path

import pytest

from langchain_runjournal import Event, RunJournal, errors
from langchain_runjournal.stores.sqlite import SqliteStore
from tests.support.command_line import (
    ALL,
    DONE,
    FAILED,
    STOPPED,
    WAITS,
    complaint,
    data,
    run,
    write,
)


def test_delete_takes_runs_or_a_thread(journal: Path) -> None:
    """In any state; it prints the ids of the deleted runs."""
    assert data("delete", "--thread", "t1", "--yes") == [{"run_id": name, "deleted": True} for name in (DONE, FAILED)]
    assert run("delete", "@last", "aaaa0001", "@last", "--yes").stdout == f"{WAITS}\n{STOPPED}\n"
    assert data("list") == []
    done = run("delete", "--thread", "t1", "--yes")
    assert (done.exit_code, done.stdout) == (0, "")
    assert "0 runs deleted" in done.stderr


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ((), "Give the runs to delete, or --thread"),
        (("@last", "--thread", "t1"), "Give the runs to delete, or --thread"),
        (("--thread", ""), "names no thread"),
    ],
)
def test_delete_needs_to_know_what(journal: Path, args: tuple[str, ...], said: str) -> None:
    """Exactly one of runs and a thread; anything else is wrong usage."""
    assert said in complaint("delete", *args, "--yes", code=2)
    assert len(data("list")) == len(ALL)


def test_delete_asks_first(journal: Path) -> None:
    """Without a terminal it cannot ask, and requires --yes."""
    assert "give --yes" in complaint("delete", "@last", code=2)
    assert len(data("list")) == len(ALL)


def test_delete_of_a_running_run(here: Path) -> None:
    """It is refused with advice; --force stops the run first, or reports that it has not ended."""
    with RunJournal(here / "runs.db") as owner:
        write(owner, "r1", "running")
        owner.flush()
        assert "Use `runjournal stop`, or --force" in complaint("delete", "r1", "--yes")
        said = complaint("delete", "r1", "--yes", "--force", "--timeout", "0.05")
        assert "has not ended within 0.05 s" in said
        owner.on_stop("r1", lambda cause: owner.append(Event(run_id="r1", kind="run.end", data={"status": "interrupted"})))
        assert data("delete", "r1", "--yes", "--force") == [{"run_id": "r1", "deleted": True}]
        assert owner.runs() == []


def test_prune_needs_to_know_what(journal: Path) -> None:
    """`prune` without a limit would delete everything; a malformed age is wrong usage."""
    assert "--older-than or --keep-last" in complaint("prune", code=2)
    assert "30d" in complaint("prune", "--older-than", "old", code=2)
    assert "30d" in complaint("prune", "--older-than", "30", code=2)  # seconds by default would delete everything


def test_prune_may_only_vacuum(journal: Path) -> None:
    """--vacuum alone deletes nothing, and excludes --dry-run."""
    done = run("prune", "--vacuum")
    assert (done.exit_code, done.stdout) == (0, "")
    assert "0 runs deleted" in done.stderr
    assert len(data("list")) == len(ALL)
    assert "--dry-run or --vacuum" in complaint("prune", "--vacuum", "--dry-run", code=2)
    assert [one["run_id"] for one in data("prune", "--keep-last", "1", "--vacuum")] == [DONE]


def test_prune_names_what_it_deleted_if_the_rewrite_fails(journal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The exit code says that something went wrong, and the output which runs are deleted all the same."""

    def vacuum(store: SqliteStore) -> None:
        raise errors.StoreFailed(path=store.url, reason="the disk is full", hint="Free space")

    monkeypatch.setattr(SqliteStore, "vacuum", vacuum)
    done = run("prune", "--keep-last", "1", "--vacuum")
    assert (done.exit_code, done.stdout) == (1, f"{DONE}\n")
    assert "the disk is full" in done.stderr
    assert DONE not in [one["run_id"] for one in data("list")]


@pytest.mark.parametrize(
    "args",
    [
        ("--keep-last", "1"),
        ("--keep-last", "0"),
        ("--keep-last", "99999999999999999999"),
        ("--older-than", "0s"),
        ("--older-than", "1d"),
        ("--older-than", "5000w"),
    ],
)
def test_prune_does_what_it_said_it_would(journal: Path, args: tuple[str, ...]) -> None:
    """--dry-run names the same runs, and deletes none."""
    would = data("prune", "--dry-run", *args)
    assert len(data("list")) == len(ALL)
    did = data("prune", *args)
    assert [one["run_id"] for one in did] == [one["run_id"] for one in would]
    assert {one["deleted"] for one in did} <= {True}
    assert {one["deleted"] for one in would} <= {False}
    left = {one["run_id"] for one in data("list")}
    assert left == set(ALL) - {one["run_id"] for one in did}
    assert {FAILED, WAITS} <= left
