"""A run by its id, a prefix of it, or its place: @last, @2."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import example as like
from hypothesis import given
from hypothesis import strategies as st

from langchain_runjournal import RunJournal, errors
from langchain_runjournal.cli.run_lookup import Ids
from tests.support.command_line import (
    ALL,
    DONE,
    EVIL,
    FAILED,
    STOPPED,
    WAITS,
    complaint,
    data,
    run,
    write,
)


def test_an_id_may_be_shortened_while_it_is_unique(journal: Path) -> None:
    """By a prefix, or counted from the newest run."""
    for name, meant in {"b": FAILED, "aaaa0001": STOPPED, DONE: DONE, "@last": WAITS, "@1": WAITS, "@4": DONE}.items():
        assert data("show", name)[0]["run_id"] == meant


def test_an_id_that_is_not_enough_is_one_line(journal: Path) -> None:
    """Below it, one a line, the candidates with their thread and their age; or it names the command that lists them."""
    first, *lines = complaint("show", "aaaa", lines=2).splitlines()
    assert first == "runjournal: 2 runs begin with 'aaaa'. Give more of the id:"
    assert re.fullmatch(rf"  {STOPPED}, thread t2, interrupted \(stop\), begun (now|\d+ s ago)", lines[0])
    assert re.fullmatch(rf"  {DONE}, thread t1, completed, begun (now|\d+ s ago)", lines[1])
    assert "runjournal list" in complaint("show", "zzzz")
    assert "4 runs" in complaint("show", "@5")
    assert "4 runs" in complaint("show", "@0")
    assert complaint("show", "")


def test_many_candidates_are_cut_short(here: Path) -> None:
    """The newest five, and how many more; a thread that is a terminal's command is harmless."""
    with RunJournal(here / "runs.db") as journal:
        for number in range(7):
            write(journal, f"run-{number}", thread=EVIL)
    lines = complaint("show", "run", lines=6).splitlines()
    assert [line.split(",")[0].strip() for line in lines[1:]] == [
        "run-6",
        "run-5",
        "run-4",
        "run-3",
        "run-2",
        "and 2 older runs",
    ]
    assert "\x1b" not in "".join(lines)


def test_without_a_run_it_is_the_newest(journal: Path) -> None:
    """Of `show`, `transcript`, `follow` and `view`; no command that changes a run guesses."""
    assert data("show")[0]["run_id"] == WAITS
    assert data("transcript") == data("transcript", WAITS)
    assert data("follow") == data("follow", WAITS)
    assert data("view", "-o", "page.html")[0]["runs"] == [WAITS]
    for command in ("stop", "delete", "export"):
        assert run(command).exit_code == 2


def test_without_a_run_an_empty_journal_is_one_line(here: Path) -> None:
    """It says that there is none yet."""
    RunJournal(here / "runs.db").close()
    for command in ("show", "transcript", "follow", "view"):
        assert "holds no run yet" in complaint(command)


def test_a_whole_id_that_begins_another_one_is_found(here: Path) -> None:
    """A whole id is never a prefix of another one."""
    with RunJournal(here / "runs.db") as journal:
        for run_id in ("run-1", "run-10", "run-100"):
            write(journal, run_id)
    assert data("show", "run-1")[0]["run_id"] == "run-1"
    assert data("show", "run-10")[0]["run_id"] == "run-10"


@like({"00000000-0", "000000000"})
@given(st.sets(st.text("01-", min_size=1, max_size=20), min_size=1))
def test_short_ids_lead_back(ids: set[str]) -> None:
    """A short id finds its run, however similar the ids are."""
    known = Ids(lambda start, limit: sorted(id for id in ids if id.startswith(start))[:limit])
    for id in ids:
        short = known.short(id)
        assert id.startswith(short)
        assert short == id or known.beginning_with(short) == [id]


def test_an_id_that_is_no_text_is_none_of_a_run(journal: Path) -> None:
    """A shell passes bytes that are not UTF-8 as lone surrogates."""
    assert "not a run id" in complaint("show", "\udcff")
    with RunJournal(journal) as opened, pytest.raises(errors.InvalidArgument, match="run_id"):
        opened.run("\udcff")


def test_numbers_beyond_all_bounds_are_large_numbers(journal: Path) -> None:
    """They do not overflow in the database."""
    assert len(data("list", "--limit", "9" * 30)) == len(ALL)
    assert data("follow", STOPPED, "--after", "9" * 30) == []
