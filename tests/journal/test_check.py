"""`RunJournal` checks: a journal without damage has no problem, and the check finds every kind of damage."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from langchain_core.messages import AIMessage, message_to_dict

from langchain_runjournal import Event, Run, RunJournal, errors
from langchain_runjournal.journal.check import Problem, check
from langchain_runjournal.journal.core import core_of
from langchain_runjournal.stores import RESTORE
from tests.support.servers import postgres_url, redis_url

Journals = Callable[..., RunJournal]


def filled(journal: RunJournal, run_id: str, *, events: int = 3, **end: object) -> None:
    """Append a run that has ended."""
    journal.append(Event(run_id=run_id, kind="run.start", data={"thread_id": "t"}))
    for number in range(events):
        journal.append(Event(run_id=run_id, kind="llm.ai.delta", data={"text": f"{number} "}, call_id="c"))
    journal.append(Event(run_id=run_id, kind="run.end", data={"status": "completed", **end}))
    journal.flush()


def asked(journal: RunJournal, run_id: str, *names: str, then: str | None = None, **end: object) -> None:
    """Append a run whose model requests tools, and may say something more."""
    journal.append(Event(run_id=run_id, kind="run.start", data={"thread_id": "t"}))
    for place, message in enumerate(
        [
            AIMessage("", id="m1", tool_calls=[{"id": name, "name": name, "args": {}} for name in names]),
            *([AIMessage(then, id="m2")] if then else []),
        ]
    ):
        data = {"message": message_to_dict(message)}
        journal.append(Event(run_id=run_id, kind="llm.ai.response", data=data, call_id=f"c{place}"))
    journal.append(Event(run_id=run_id, kind="run.end", data=end))
    journal.flush()


def found(journal: RunJournal) -> list[tuple[str, str | None]]:
    return [(problem.what, problem.run_id) for problem in check(journal)]


def by_hand(path: Path, sql: str) -> None:
    """Work on the file by hand, while no journal has it open."""
    with closing(sqlite3.connect(path)) as con:
        con.executescript(sql)


def test_a_whole_journal_has_no_problem_and_tells_its_progress(journals: Journals) -> None:
    """After each run, the check reports the number of checked runs, of all runs, and of the events so far."""
    journal = journals()
    filled(journal, "a")
    filled(journal, "b", events=7)
    told: list[tuple[int, int, int]] = []
    assert list(check(journal, lambda *progress: told.append(progress))) == []
    assert told == [(1, 2, 9), (2, 2, 14)]


@pytest.mark.parametrize("gone", [1, 2, 3])
def test_missing_events_are_found(db: Path, journals: Journals, gone: int) -> None:
    """Events are missing at the beginning of a run, in its middle, or at its end."""
    for kind in ("run.start", "llm.ai.delta", "run.end"):
        with journals() as journal:  # each close writes a row of its own
            assert kind == "run.start" or journal.claim("r")
            journal.append(Event(run_id="r", kind=kind))
    assert list(check(journals())) == []
    by_hand(db, f"DELETE FROM segments WHERE first = {gone}; DELETE FROM live WHERE first = {gone}")
    (problem,) = check(journals())
    said = {
        1: "it lacks its beginning: the first that is left is 2",
        2: "it has a gap: 1 is followed by 3",
        3: "it lacks its end: it is completed, and the last event that is left is 2",
    }
    assert (problem.what, problem.run_id, problem.text) == ("damage", "r", said[gone])


def test_a_run_without_an_event_is_damage_if_it_has_spoken(db: Path, journals: Journals) -> None:
    """Its row says something that can only come from events. A run that has just begun has no event yet."""
    with journals() as journal:
        filled(journal, "gone")
        journal.append(Event(run_id="waits", kind="run.pause"))
    by_hand(db, "DELETE FROM segments; DELETE FROM live")
    journal = journals()
    begun = Run(run_id="begun", thread_id="t", name="agent", owner=journal.owner_id, started_at=1.0, metadata={"a": "b"})
    assert core_of(journal).store.begin(begun, ()) == []
    assert [(one.what, one.run_id, one.text) for one in check(journal)] == [
        ("damage", "waits", "it has no event left"),
        ("damage", "gone", "it has no event left"),
    ]


def test_a_run_that_was_ended_before_it_said_a_word_is_whole(journals: Journals) -> None:
    """Only its row knows its thread, because its process was killed before the first event."""
    with journals() as journal:
        begun = Run(run_id="begun", thread_id="t", name="agent", owner=journal.owner_id, started_at=1.0)
        assert core_of(journal).store.begin(begun, ()) == []
    journal = journals()
    assert found(journal) == [("abandoned", "begun")]
    assert journal.claim("begun")
    journal.append(Event(run_id="begun", kind="run.end", data={"status": "interrupted", "cause": "crash"}))
    journal.flush()
    assert (list(check(journal)), journal.run("begun").thread_id) == ([], "t")


@pytest.mark.parametrize(
    "damage",
    [
        "rest = substr(rest, 1, 20) || 'X'",
        "status = 'weird'",
        "rest = CAST(X'7bff22' AS TEXT)",
        "ended_at = 'never'",
        "rest = '[]'",
        """rest = '{"started_at": "noon"}'""",
    ],
)
def test_a_run_whose_row_is_damaged_is_named_and_the_others_are_looked_at(db: Path, journals: Journals, damage: str) -> None:
    """All other runs can be read. Every method that reads the damaged run says what is wrong with it."""
    with journals() as journal:
        filled(journal, "bad")
        filled(journal, "good", settled=False)
    by_hand(db, f"UPDATE runs SET {damage} WHERE run_id = 'bad'")
    journal = journals()
    problems = {problem.what: problem for problem in check(journal)}
    assert problems["damage"].text.startswith("the row of run bad cannot be read (")
    assert (problems["unsettled"].run_id, len(problems)) == ("good", 2)
    assert [run.run_id for run in journal.runs()] == ["good"]
    with pytest.raises(errors.StoreCorrupt, match="run bad"):
        journal.run("bad")
    filled(journal, "another")
    assert len(journal.read("another")) == 5


def test_a_table_that_is_missing_is_said_once(db: Path, journals: Journals) -> None:
    """The check does not report it as an error of the disk as well."""
    with journals() as journal:
        filled(journal, "r")
    by_hand(db, "DROP TABLE live")
    journal = RunJournal(db)
    assert [problem.text for problem in check(journal)] == ["the table live is missing"]
    with pytest.raises(errors.StoreCorrupt, match="no such table"):
        journal.runs()
    journal.close()


@pytest.mark.parametrize("column", ["body", "ats", "calls"])
@pytest.mark.parametrize("value", ["CAST(X'22736563726574ff22' AS TEXT)", "'[\"secret\"'", "'{}'", "'\"secret\"'"])
def test_what_nobody_has_written_is_damage(db: Path, journals: Journals, column: str, value: str) -> None:
    """The damage may be in any column. An error never repeats the words of a user that the column holds."""
    with journals() as journal:
        filled(journal, "r")
    by_hand(db, f"UPDATE segments SET {column} = {value}")
    (problem,) = check(journals())
    assert problem.what == "damage"
    assert "secret" not in problem.text
    with pytest.raises(errors.StoreCorrupt, match="run r") as caught:
        journals().read("r")
    assert "secret" not in str(caught.value)


def test_a_gap_is_not_read_over(db: Path, journals: Journals) -> None:
    """No reader takes a part of a run for the whole. The events on both sides of the gap can be read, also after `tidy`."""
    with journals() as journal:
        filled(journal, "r", events=20)
    for seq in (24, 26):
        by_hand(db, f"INSERT INTO live VALUES ({seq}, 1, {seq}, {seq}, 0, 0, '', '{seq},null', '[\"run.settled\",{{}}]')")
    for _ in range(2):
        with journals() as journal:
            with pytest.raises(errors.EventsMissing) as caught:
                journal.read("r")
            assert (caught.value.after, caught.value.found) == (22, 24)
            assert len(journal.read("r", limit=22)) == 22
            assert [event.seq for event in journal.read("r", after=23, limit=1)] == [24]
            assert [event.seq for event in journal.read("r", after=25)] == [26]
    with closing(sqlite3.connect(db)) as con:
        assert con.execute("SELECT (SELECT count(*) FROM live), count(*) FROM segments").fetchone() == (0, 3)


def test_what_is_missing_is_said_once(db: Path, journals: Journals) -> None:
    """The check does not also report the differences that follow from the gap."""
    for kind in ("run.start", "run.lost", "run.end"):
        with journals() as journal:  # each close writes a row of its own
            assert kind == "run.start" or journal.claim("r")
            journal.append(Event(run_id="r", kind=kind, data={"events": 5} if kind == "run.lost" else {}))
    by_hand(db, "DELETE FROM segments WHERE first = 2")
    assert [(one.what, one.text) for one in check(journals())] == [
        ("damage", "it has a gap: 1 is followed by 3"),
        ("lost", "5 events could not be kept"),
    ]


def test_a_damaged_body_is_found_and_the_other_runs_are_looked_at(db: Path, journals: Journals) -> None:
    """One run that cannot be read does not end the check."""
    with journals() as journal:
        filled(journal, "bad")
        filled(journal, "good", settled=False)
    by_hand(db, "UPDATE segments SET body = 'x' WHERE run = 1; UPDATE live SET body = 'x' WHERE run = 1")
    assert found(journals()) == [("unsettled", "good"), ("damage", "bad")]


def test_a_changed_schema_is_found(db: Path, journals: Journals) -> None:
    """An index is missing, or rows have no run."""
    with journals() as journal:
        filled(journal, "r")
    by_hand(db, "DROP INDEX runs_of_thread; INSERT INTO live VALUES (999, 77, 1, 1, 0, 0, '', '', '')")
    texts = [problem.text for problem in check(journals())]
    assert texts == ["the index runs_of_thread is missing", "live has 1 row without a run"]


def test_a_row_that_disagrees_with_its_events_is_found(db: Path, journals: Journals) -> None:
    """The row of a run must agree with the fold of its events."""
    with journals() as journal:
        filled(journal, "r")
    by_hand(db, "UPDATE runs SET status = 'failed'")
    (problem,) = check(journals())
    said = "it does not agree with its events: they say status completed, and its row status failed"
    assert (problem.what, problem.text) == ("damage", said)


def test_a_damaged_page_is_found(db: Path, journals: Journals) -> None:
    """The check reports what SQLite's own integrity check finds."""
    with journals() as journal:
        filled(journal, "r", events=2000)
        filled(journal, "s", events=2000)
    with closing(sqlite3.connect(db)) as con:
        page = con.execute("SELECT rootpage FROM sqlite_master WHERE name = 'segments_of_run'").fetchone()[0]
        size = con.execute("PRAGMA page_size").fetchone()[0]
    content = bytearray(db.read_bytes())
    content[(page - 1) * size + 8 : (page - 1) * size + 64] = b"\xff" * 56
    db.write_bytes(content)
    assert {what for what, _ in found(journals())} == {"damage"}


def test_what_runs_owe_is_found(journals: Journals) -> None:
    """A thread is not settled, or events were dropped."""
    journal = journals()
    filled(journal, "u", settled=False)
    journal.append(Event(run_id="l", kind="run.lost", data={"events": 5}))
    journal.append(Event(run_id="l", kind="run.end"))
    journal.flush()
    problems = {problem.what: problem for problem in check(journal)}
    assert problems["lost"].text == "5 events could not be kept"
    assert problems["unsettled"].run_id == "u"
    assert "recover" in problems["unsettled"].hint
    assert len(problems) == 2


def test_a_run_whose_process_is_gone_is_found(db: Path, journals: Journals) -> None:
    """The check does not report a run whose process is alive."""
    program = (
        "import os, sys; from langchain_runjournal import Event, RunJournal; journal = RunJournal(sys.argv[1])\n"
        "journal.append(Event(run_id='dead', kind='run.start', data={'metadata': {'runjournal_graph': 'g'}}))\n"
        "os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", program, os.fspath(db)], timeout=60)
    assert done.returncode == -9
    mine, other = journals(), journals()
    mine.append(Event(run_id="alive", kind="run.start"))
    mine.flush()
    (problem,) = check(other)
    assert (problem.what, problem.run_id) == ("abandoned", "dead")
    assert "--graph" in problem.hint


def test_open_pairs_are_found_where_nothing_settles_them(journals: Journals) -> None:
    """The check leaves out requests that a settlement has answered, and those of the last answer of a completed run, which
    the caller answers."""
    journal = journals()
    asked(journal, "cut", "search", "look", status="interrupted", cause="stop")
    asked(journal, "client", "pick")
    asked(journal, "odd", "gone", then="Never mind.")
    asked(journal, "settled", "search", status="interrupted", cause="stop")
    journal.append(Event(run_id="settled", kind="run.settled", data={"outcome": "settled"}))
    journal.flush()
    problems = list(check(journal))
    assert sorted((problem.what, problem.run_id) for problem in problems) == [
        ("open pair", "cut"),
        ("open pair", "cut"),
        ("open pair", "odd"),
    ]
    assert any("look (look)" in problem.text for problem in problems)


def test_spools_that_could_not_be_brought_in_are_found(db: Path, journals: Journals) -> None:
    """Damaged spool files stay beside the database until a user has examined them."""
    journal = journals()
    db.with_name(f"{db.name}-spool-abc-000001-damaged").write_bytes(b"")
    (problem,) = check(journal)
    assert isinstance(problem, Problem)
    assert "spool-abc-000001-damaged" in problem.text


@pytest.mark.parametrize("make", [postgres_url, redis_url])
def test_damage_in_a_database_of_a_server(make: Callable[[], str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The advice does not speak of a file, neither in `check` nor in the error of a read."""
    with RunJournal(make()) as journal:
        monkeypatch.setattr(core_of(journal).store, "check", lambda: ["the table runs lacks the column rest"], raising=False)
        [problem] = check(journal)
        assert problem.hint.startswith("Undo what another program has changed there")


def test_the_advice_about_damage_fits_the_store() -> None:
    """PRAGMA is for SQLite."""
    assert "PRAGMA" in str(errors.StoreCorrupt(path="runs.db", reason="bad"))
    assert "PRAGMA" not in str(errors.StoreCorrupt(path="redis://h", reason="bad", hint=RESTORE))
