"""The command line and a damaged file: it reports the damage, exits with 1, and prints what can be read."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from langchain_runjournal import Event, RunJournal
from langchain_runjournal.cli.run_follower import RunFollower
from tests.support.command_line import run, write

READERS = ("show cut", "export cut", "follow cut", "transcript cut", "view cut -o -")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a journal: a run in four segments, and another run."""
    monkeypatch.chdir(tmp_path)
    question = {"message": {"type": "human", "data": {"type": "human", "content": "secret"}}}
    pieces: list[list[tuple[Any, Any]]] = [
        [("run.start", {"thread_id": "t"}), ("llm.human.input", question), ("llm.start", {"model": "m", "role": "answer"})],
        [("llm.ai.delta", {"text": "one "})] * 3,
        [("llm.ai.delta", {"text": "two "})] * 3,
        [("llm.ai.partial", {"cause": "stop"}), ("run.end", {"status": "interrupted", "cause": "stop"})],
    ]
    for number, piece in enumerate(pieces):
        with RunJournal("runs.db") as journal:  # each close writes a segment of its own
            assert not number or journal.claim("cut")
            for kind, data in piece:
                call = "c" if kind.startswith("llm.ai") or kind == "llm.start" else None
                journal.append(Event(run_id="cut", kind=kind, data=data, call_id=call))
    with RunJournal("runs.db") as journal:
        write(journal, "well", thread="u")
    return tmp_path


def by_hand(sql: str) -> None:
    """Change the file with SQL."""
    with closing(sqlite3.connect("runs.db")) as con:
        con.executescript(sql)


def without(first: int) -> None:
    """Delete one segment of the run; 0: all of them."""
    by_hand(f"DELETE FROM segments WHERE run = 1 AND {first} IN (0, first)")


LOST = {
    1: "run cut lacks its beginning: the first that is left is 4",
    4: "run cut has a gap: 3 is followed by 7",
    10: "run cut lacks its end: it is interrupted, and the last event that is left is 9",
    0: "run cut has no event left",
}


@pytest.mark.parametrize("command", READERS)
@pytest.mark.parametrize("form", ["--json", "--no-json"])
@pytest.mark.parametrize("first", LOST)
def test_what_is_missing_is_said_and_the_rest_is_given(command: str, form: str, first: int) -> None:
    """Missing events cause one line on stderr and exit code 1; a whole run causes neither."""
    whole = run(*command.split(), form)
    assert (whole.exit_code, "see `runjournal check`" in whole.stderr) == (0, False)
    without(first)
    done = run(*command.split(), form)
    assert done.exit_code == 1
    assert [line for line in done.stderr.splitlines() if "check`" in line] == [
        f"runjournal: {LOST[first]}; see `runjournal check`"
    ]
    if first == 4:
        assert "two " in done.stdout or command == "show cut"
        assert "one " not in done.stdout or command == "show cut"
    if command == "export cut":
        gone = {1: range(1, 4), 4: range(4, 7), 10: range(10, 12), 0: range(1, 12)}[first]
        seqs = [json.loads(line)["seq"] for line in done.stdout.splitlines()]
        assert seqs == [seq for seq in range(1, 12) if seq not in gone]


@pytest.mark.parametrize("after", ["2", "5", "8", "10"])
def test_to_follow_from_somewhere_is_no_way_round(after: str) -> None:
    """Gaps before `--after` count as well, and the output begins after that event."""
    without(4)
    done = run("follow", "cut", "--after", after, "--json")
    assert done.exit_code == 1
    assert done.stderr == f"runjournal: {LOST[4]}; see `runjournal check`\n"
    there = [seq for seq in (1, 2, 3, 7, 8, 9, 10, 11) if seq > int(after)]
    assert [json.loads(line)["seq"] for line in done.stdout.splitlines()] == there


def test_to_follow_from_somewhere_beyond_is_no_gap() -> None:
    """Events before `--after` that do not exist yet are not missing."""
    with RunJournal("runs.db") as journal:
        journal.append(Event(run_id="new", kind="run.start"))
        journal.flush()
        following = RunFollower(journal, journal.run("new"), 3)
        for kind in ("run.stop", "run.stop", "run.settled", "run.end"):
            journal.append(Event(run_id="new", kind=kind))
        assert [event.seq for page in following for event in page] == [4, 5]
        assert following.missing() == []


def test_an_export_of_a_damaged_journal_is_what_can_be_read(here: Path) -> None:
    """stderr names each run with missing events; the file is complete, and the command exits with 1."""
    with RunJournal("runs.db") as journal:
        write(journal, "bad", thread="v")
    without(7)
    by_hand("UPDATE segments SET body = 'x' WHERE run = 3")
    done = run("export", "--all", "-o", "all.jsonl")
    assert done.exit_code == 1
    lines = [json.loads(line) for line in (here / "all.jsonl").read_text().splitlines()]
    assert {(one["run_id"]) for one in lines} == {"cut", "well"}
    assert [one["seq"] for one in lines if one["run_id"] == "cut"] == [1, 2, 3, 4, 5, 6, 10, 11]
    assert "run cut has a gap: 6 is followed by 10" in done.stderr
    assert "run bad cannot be read to its end: segment 1 to 13 of run bad is not JSON" in done.stderr
    assert run("export", "well").exit_code == 0
    assert [path.name for path in here.iterdir() if path.name.startswith(".")] == []


ROWS = {
    "rest = substr(rest, 1, 20) || 'X'": "Unterminated string",
    "status = 'weird'": "weird",
    "rest = CAST(X'736563726574ff' AS TEXT)": "not UTF-8",
}


@pytest.mark.parametrize("damage", ROWS)
def test_a_run_whose_row_is_damaged_is_left_out(damage: str) -> None:
    """Commands that read all runs name it once, and print the others as usual."""
    by_hand(f"UPDATE runs SET {damage} WHERE run_id = 'cut'")
    for command in (
        "list",
        "export --all",
        "show @last",
        "show wel",
        "show well",
        "stop well",
        "transcript well",
        "follow well",
        "view well",
    ):
        done = run(*command.split())
        assert "well" in done.stdout or "sunny" in done.stdout, (command, done.output)
        assert "This is a bug" not in done.stderr
        assert "secret" not in done.stdout + done.stderr
        looks_at_all = command in ("list", "export --all")
        assert (done.exit_code, done.stderr.count("run cut is left out")) == (looks_at_all, looks_at_all), command
    said = run("show", "cut")
    assert (said.exit_code, said.stdout, said.stderr.count("\n")) == (1, "", 1)
    assert ROWS[damage] in said.stderr
    checked = run("check", "--json")
    assert checked.exit_code == 1
    assert ["run cut" in json.loads(line)["text"] for line in checked.stdout.splitlines()] == [True]
    assert checked.stderr == "runjournal: 1 problem in 1 run, 13 events\n"


def test_text_that_is_none_is_damage_and_is_not_shown() -> None:
    """No command prints bytes that are not UTF-8, `check` included."""
    by_hand("UPDATE segments SET body = CAST(X'22736563726574ff22' AS TEXT) WHERE run = 1 AND first = 4")
    for command in (*READERS, "check"):
        done = run(*command.split())
        assert done.exit_code == 1
        assert "not UTF-8" in done.stdout + done.stderr
        assert "permissions" not in done.stdout + done.stderr
        assert "secret" not in done.stdout + done.stderr


def test_a_table_that_is_missing_is_one_problem() -> None:
    """`check` reports it as data, with a count; every other command reports it in one line."""
    by_hand("DROP TABLE live")
    checked = run("check", "--json")
    assert [json.loads(line)["text"] for line in checked.stdout.splitlines()] == ["the table live is missing"]
    assert (checked.exit_code, checked.stderr) == (1, "runjournal: 1 problem in 0 runs, 0 events\n")
    for command in ("list", "show well", "export --all"):
        done = run(*command.split())
        assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (1, "", 1), done.stderr
        assert "no such table: live" in done.stderr


def test_a_damage_is_said_once() -> None:
    """A problem names the run once, and the advice once."""
    without(4)
    by_hand("UPDATE segments SET body = 'x' WHERE run = 2")
    for line in run("check").stdout.splitlines():
        assert line.count("Keep a copy") == 1
        assert "PRAGMA" not in line
    assert "cut  damage: it has a gap: 3 is followed by 7. Keep" in run("check").stdout
