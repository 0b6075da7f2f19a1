"""`runjournal list`: which runs it prints, for people and as JSON."""

from __future__ import annotations

from pathlib import Path

import pytest

from langchain_runjournal import RunJournal
from tests.support.command_line import (
    ALL,
    DONE,
    FAILED,
    KEYS,
    STOPPED,
    WAITS,
    data,
    run,
    write,
)


def test_list_is_json_lines_with_json(journal: Path) -> None:
    """One object a line, newest first, always with the same keys."""
    found = data("list")
    assert [one["run_id"] for one in found] == list(reversed(ALL))
    assert {frozenset(one) for one in found} == {frozenset(KEYS)}
    by_id = {one["run_id"]: one for one in found}
    assert by_id[STOPPED]["cause"] == "stop"
    assert by_id[FAILED]["settled"] is False
    assert by_id[DONE]["usage"]["gpt-x"]["input_tokens"] == 812
    assert (by_id[DONE]["settled"], by_id[WAITS]["settled"]) == (True, None)  # a paused run has not ended
    assert {one["owner_state"] for one in found} == {"nobody"}


def test_what_a_killed_process_left_can_be_found_in_json(here: Path) -> None:
    """The owner state is "gone", and `settled` is null: the run has not ended."""
    with RunJournal(here / "runs.db") as opened:
        write(opened, "r1", "running")
        opened.flush()
        assert [(one["owner_state"], one["settled"]) for one in data("list")] == [("alive", None)]
    assert [(one["owner_state"], one["settled"]) for one in data("list") + data("show", "r1")] == [("gone", None)] * 2
    data("recover")
    assert [(one["owner_state"], one["settled"]) for one in data("list")] == [("nobody", True)]


def test_list_for_people_has_what_counts(journal: Path) -> None:
    """Id, thread, name, status, cause, events, usage and marks; no escape codes in a pipe, even with FORCE_COLOR."""
    done = run("list", env={"FORCE_COLOR": "1", "COLUMNS": "160"})
    rows = {line.split()[0]: line for line in done.stdout.splitlines()[1:]}
    assert set(rows) == {run_id[:8] for run_id in ALL}
    assert "interrupted (stop)" in rows["aaaa0001"]
    assert "not settled" in rows["bbbb0000"]
    assert "812 in, 97+ out" in rows["aaaa0000"]
    assert "agent" in rows["aaaa0000"]
    assert "\x1b" not in done.output


def test_every_command_that_prints_runs_says_why_a_thread_is_not_settled(here: Path) -> None:
    """`list`, `show` and `check` give the reason, for people and for programs."""
    why = "the checkpointer is down"
    with RunJournal(here / "runs.db") as journal:
        write(journal, "r1", "failed")
    for command in (["list"], ["show", "r1"]):
        found = run(*command)
        assert why in found.stdout + found.stderr
        [said] = data(*command)
        assert (said["settled"], said["problem"]) == (False, why)
    checked = run("check")
    assert (why in checked.output, checked.exit_code) == (True, 1)


def test_list_can_be_narrowed(journal: Path) -> None:
    """By thread, by status and by number; `list` says when there are more runs."""
    assert [one["run_id"] for one in data("list", "--thread", "t1")] == [FAILED, DONE]
    assert [one["run_id"] for one in data("list", "--status", "paused")] == [WAITS]
    done = run("list", "--limit", "1", "--json")
    assert len(done.stdout.splitlines()) == 1
    assert "there are more" in done.stderr
    assert "more" not in run("list", "--all").stderr
    none = run("list", "--thread", "nobody")
    assert (none.stdout, none.exit_code) == ("", 0)
    assert "no run matches" in none.stderr


@pytest.mark.parametrize("width", ["0", "40", "60"])
def test_a_narrow_list_says_how_the_runs_stand(journal: Path, width: str) -> None:
    """The status column stays; a narrow terminal loses other columns first."""
    shown = run("list", env={"COLUMNS": width}).stdout
    assert "status" in shown
    for status in ("completed", "failed", "paused"):
        assert status in shown
