"""The command line, in this process: what each command says, what it ends with, and what it does not do."""

from __future__ import annotations

import json
import os
import sqlite3
import stat
import types
from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import example as like
from hypothesis import given
from hypothesis import strategies as st

from langchain_runjournal import Event, RunJournal, errors
from langchain_runjournal.cli.app import commands
from langchain_runjournal.cli.run_lookup import Ids
from langchain_runjournal.cli.terminal_text import ago, clean, number, one_line, to_json, tokens
from langchain_runjournal.common.wording import duration
from tests.support.command_line import ALL, EVIL, example, run, write

DONE, STOPPED, FAILED, WAITS = ALL
KEYS = {
    "run_id",
    "short_id",
    "thread_id",
    "name",
    "status",
    "cause",
    "error",
    "started_at",
    "ended_at",
    "events",
    "settled",
    "problem",
    "stop",
    "lost",
    "owner",
    "owner_state",
    "epoch",
    "continues",
    "usage",
    "metadata",
}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of its own, in which the current directory is."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def journal(here: Path) -> Path:
    """runs.db, with a run of each kind."""
    example(here / "runs.db")
    return here / "runs.db"


def data(*args: str, exit_code: int = 0) -> list[Any]:
    """What a command says on stdout, which is JSON lines."""
    done = run(*args)
    assert done.exit_code == exit_code, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


def text(*args: str) -> str:
    """What it says to people."""
    done = run(*args, "--no-json")
    assert done.exit_code == 0, done.output
    return done.stdout


def complaint(*args: str, code: int = 1, **options: Any) -> str:
    """What it complains of: one line on stderr, and nothing on stdout."""
    done = run(*args, **options)
    assert (done.exit_code, done.stdout) == (code, ""), done.output
    assert done.stderr.startswith("runjournal: ")
    assert done.stderr.count("\n") == 1
    return done.stderr


# --- list -------------------------------------------------------------------------------------------------------------


def test_list_is_json_lines_where_no_terminal_is(journal: Path) -> None:
    """One object a line, newest first, always with the same keys."""
    found = data("list")
    assert [one["run_id"] for one in found] == list(reversed(ALL))
    assert {frozenset(one) for one in found} == {frozenset(KEYS)}
    by_id = {one["run_id"]: one for one in found}
    assert by_id[STOPPED]["cause"] == "stop"
    assert by_id[FAILED]["settled"] is False
    assert by_id[DONE]["usage"]["gpt-x"]["input_tokens"] == 812
    assert (by_id[DONE]["settled"], by_id[WAITS]["settled"]) == (True, None)  # who waits has a thread yet to be settled
    assert {one["owner_state"] for one in found} == {"nobody"}


def test_what_a_killed_process_left_can_be_found_in_json(here: Path) -> None:
    """By the owner that is gone; and nobody is told that its thread is settled."""
    with RunJournal(here / "runs.db") as opened:
        write(opened, "r1", "running")
        opened.flush()
        assert [(one["owner_state"], one["settled"]) for one in data("list")] == [("alive", None)]
    assert [(one["owner_state"], one["settled"]) for one in data("list") + data("show", "r1")] == [("gone", None)] * 2
    data("recover")
    assert [(one["owner_state"], one["settled"]) for one in data("list")] == [("nobody", True)]


def test_list_for_people_has_what_counts(journal: Path) -> None:
    """Id, thread, name, status, cause, events, usage and marks; no escape codes in a pipe, whatever the environment says."""
    done = run("list", "--no-json", env={"FORCE_COLOR": "1", "COLUMNS": "160"})
    rows = {line.split()[0]: line for line in done.stdout.splitlines()[1:]}
    assert set(rows) == {run_id[:8] for run_id in ALL}
    assert "interrupted (stop)" in rows["aaaa0001"]
    assert "not settled" in rows["bbbb0000"]
    assert "812 in, 97+ out" in rows["aaaa0000"]
    assert "agent" in rows["aaaa0000"]
    assert "\x1b" not in done.output


def test_why_a_thread_is_not_settled_is_shown_wherever_runs_are(here: Path) -> None:
    """`list`, `show` and `check` give the reason, for people and for programs."""
    why = "the checkpointer is down"
    with RunJournal(here / "runs.db") as journal:
        write(journal, "r1", "failed")
    for command in (["list"], ["show", "r1"]):
        found = run(*command, "--no-json")
        assert why in found.stdout + found.stderr
        [said] = data(*command)
        assert (said["settled"], said["problem"]) == (False, why)
    checked = run("check", "--no-json")
    assert (why in checked.output, checked.exit_code) == (True, 1)


def test_list_can_be_narrowed(journal: Path) -> None:
    """By thread, by status, by number; and says when there are more."""
    assert [one["run_id"] for one in data("list", "--thread", "t1")] == [FAILED, DONE]
    assert [one["run_id"] for one in data("list", "--status", "paused")] == [WAITS]
    done = run("list", "--limit", "1")
    assert len(done.stdout.splitlines()) == 1
    assert "there are more" in done.stderr
    assert "more" not in run("list", "--all").stderr
    none = run("list", "--thread", "nobody")
    assert (none.stdout, none.exit_code) == ("", 0)
    assert "no run matches" in none.stderr


# --- which journal ----------------------------------------------------------------------------------------------------


def test_the_journal_is_named_before_or_after_or_by_the_environment(journal: Path, here: Path) -> None:
    """And what is typed counts more than the environment, whichever side it is typed on."""
    with RunJournal(here / "other.db") as other:
        write(other, "other-run")
    env = {"RUNJOURNAL_URL": "other.db"}
    ways: list[tuple[list[str], dict[str, str], str]] = [
        (["list"], {}, WAITS),
        (["--journal", "other.db", "list"], {}, "other-run"),
        (["list", "--journal", "other.db"], {}, "other-run"),
        (["list", "--journal", f"sqlite:///{str(here).lstrip('/')}/other.db"], {}, "other-run"),
        (["list"], env, "other-run"),
        (["--journal", "runs.db", "list"], env, WAITS),
        (["list", "--journal", "runs.db"], env, WAITS),
        (["--journal", "other.db", "list", "--journal", "runs.db"], {}, WAITS),
    ]
    for args, environment, newest in ways:
        done = run(*args, env=environment)
        assert json.loads(done.stdout.splitlines()[0])["run_id"] == newest, args


@pytest.mark.parametrize(
    "command",
    [
        "list",
        "check",
        "recover",
        "export --all",
        "prune --keep-last 1",
        "prune --vacuum",
        "delete @last --yes",
        "show @last",
    ],
)
def test_a_journal_that_is_not_there_is_not_made(here: Path, command: str) -> None:
    """One line says what to do, and nothing has come into being."""
    said = complaint(*command.split())
    assert "The journal runs.db does not exist" in said
    assert "--journal" in said
    (here / "empty.db").touch()
    assert "empty" in complaint("--journal", "empty.db", *command.split())
    assert [path.name for path in here.iterdir()] == ["empty.db"]
    assert not (here / "empty.db").stat().st_size


def test_what_is_no_journal_is_said(here: Path) -> None:
    """In memory, a directory, another program's database, no database, a store that nobody knows."""
    (here / "notes.txt").write_text("x" * 2_000)
    with sqlite3.connect(here / "app.db") as con:
        con.execute("CREATE TABLE users (id)")
    con.close()
    assert "ends with its process" in complaint("--journal", ":memory:", "list", code=2)
    assert "is a directory" in complaint("--journal", ".", "list")
    assert "of another program" in complaint("--journal", "app.db", "list")
    assert "is not a SQLite database" in complaint("--journal", "notes.txt", "list")
    assert "--journal" in complaint("--journal", "app.db", "list")
    assert "for example" not in complaint("--journal", "app.db", "list")
    for url in ("redis://x", "sqlite://runs.db"):
        for said in (complaint("--journal", url, "list", code=2), complaint("list", code=2, env={"RUNJOURNAL_URL": url})):
            assert "names no journal" in said
            assert ":memory:" not in said


def test_a_locked_journal_is_one_line(journal: Path) -> None:
    """It says who is in the way, and how to wait longer."""
    con = sqlite3.connect(journal, isolation_level=None)
    con.execute("BEGIN IMMEDIATE")
    try:
        said = complaint("list", "--busy-timeout", "0.05")
    finally:
        con.close()
    assert "Another process holds its lock" in said
    assert "--busy-timeout" in said


# --- which run --------------------------------------------------------------------------------------------------------


def test_an_id_may_be_shortened_while_it_is_unique(journal: Path) -> None:
    """By its beginning, or counted from the newest."""
    for name, meant in {"b": FAILED, "aaaa0001": STOPPED, DONE: DONE, "@last": WAITS, "@1": WAITS, "@4": DONE}.items():
        assert data("show", name)[0]["run_id"] == meant


def test_an_id_that_is_not_enough_is_one_line(journal: Path) -> None:
    """With the candidates, or where to find them."""
    said = complaint("show", "aaaa")
    assert DONE in said
    assert STOPPED in said
    assert "runjournal list" in complaint("show", "zzzz")
    assert "4 runs" in complaint("show", "@5")
    assert "4 runs" in complaint("show", "@0")
    assert complaint("show", "")


def test_a_whole_id_that_begins_another_one_is_found(here: Path) -> None:
    """It means itself."""
    with RunJournal(here / "runs.db") as journal:
        for run_id in ("run-1", "run-10", "run-100"):
            write(journal, run_id)
    assert data("show", "run-1")[0]["run_id"] == "run-1"
    assert data("show", "run-10")[0]["run_id"] == "run-10"


@like({"00000000-0", "000000000"})
@given(st.sets(st.text("01-", min_size=1, max_size=20), min_size=1))
def test_short_ids_lead_back(ids: set[str]) -> None:
    """However alike they are, as those are that begin with the time: what is shown is enough to find the run."""
    runs = [types.SimpleNamespace(run_id=id) for id in ids]
    known = Ids(types.SimpleNamespace(runs=lambda limit: runs))  # type: ignore[arg-type]
    for id in ids:
        short = known.short(id)
        assert id.startswith(short)
        assert short == id or known.beginning_with(short) == [id]


# --- show, transcript -------------------------------------------------------------------------------------------------


def test_show_has_everything(journal: Path) -> None:
    """The run, its calls with how long they took, its settlement, and what to do next."""
    found = data("show", STOPPED)[0]
    assert set(found) > KEYS
    assert [(call["kind"], call["name"], call["outcome"]) for call in found["calls"]] == [
        ("model", "gpt-x", "complete"),
        ("tool", "weather", "complete"),
        ("model", "gpt-x", "cut off"),
    ]
    assert found["settlements"][0]["messages"][0]["origin"] == "partial"
    assert found["next"] == []
    assert found["inputs"] == ["How is Rome?"]
    shown = text("show", STOPPED)
    for words in (STOPPED, "interrupted (stop)", 'weather(city="Rome")', "cut off (stop)", "settled", "ai, partial: "):
        assert words in shown


def test_show_says_what_to_do(journal: Path) -> None:
    """When it waits for a human, or its thread is not whole."""
    assert "Book it?" in text("show", WAITS)
    assert "waits for a human" in data("show", WAITS)[0]["next"][0]
    failed = data("show", FAILED)[0]
    assert failed["problem"] == "the checkpointer is down"
    assert "recover --graph" in failed["next"][0]


def test_transcript_is_what_langchain_reads(journal: Path) -> None:
    """LangChain's own dicts; and for people what was cut off, and why."""
    from langchain_core.messages import messages_from_dict

    with RunJournal(journal) as opened:
        assert messages_from_dict(data("transcript", STOPPED)) == opened.transcript(STOPPED)
    shown = text("transcript", STOPPED)
    assert "ai (cut off: stop)\nIt is sunny\n" in shown
    assert '→ weather(city="Rome")' in shown
    assert "tool weather\nsunny\n" in shown


@pytest.mark.parametrize(
    ("of_tool", "ending", "said"),
    [
        (
            ("tool.error", {"error": "ValueError: no such city"}),
            {"status": "failed", "error": "x"},
            "failed: ValueError: no",
        ),
        (("tool.start", {"name": "weather"}), {"status": "interrupted", "cause": "timeout"}, "cut off: timeout"),
        (("tool.start", {"name": "weather"}), {"status": "failed", "error": "x"}, "cut off: error"),
        (("tool.start", {"name": "weather"}), None, "cut off: crash"),
        (None, {"status": "interrupted", "cause": "stop"}, "not begun: stop"),
        (None, {"status": "completed"}, "not run here: the caller answers it"),
        (("tool.error", {"interrupted": True}), {"status": "completed"}, "waited for a human"),
    ],
)
def test_a_request_without_a_result_is_marked(here: Path, of_tool: Any, ending: Any, said: str) -> None:
    """With what became of it: the next message would seem to be the answer to it."""
    from langchain_runjournal import Event

    asked = [{"name": name, "args": {}, "id": name} for name in ("ready", "weather")]
    answer = {"message": {"type": "ai", "data": {"type": "ai", "content": "", "id": "m", "tool_calls": asked}}}
    ready = {"type": "tool", "data": {"type": "tool", "content": "yes", "name": "ready", "tool_call_id": "ready"}}
    with RunJournal(here / "runs.db") as opened:

        def put(kind: Any, data: Any) -> None:
            opened.append(Event(run_id="r", kind=kind, data=data, call_id="c"))

        put("llm.ai.response", answer)
        put("llm.tool.result", {"tool_call_id": "ready", "message": ready})
        if of_tool is not None:
            put(of_tool[0], {"tool_call_id": "weather", **of_tool[1]})
        opened.flush()
        assert "→ weather()\n← " in text("transcript", "r")
        if ending is not None:
            opened.append(Event(run_id="r", kind="run.end", data=ending))
    shown = text("transcript", "r")
    assert f"→ ready()\n→ weather()\n← {said}" in shown
    assert shown.count("←") == 1


# --- follow, stop -----------------------------------------------------------------------------------------------------


def test_follow_of_what_is_over(journal: Path) -> None:
    """All of its events, or those after one; as text, the answers alone on stdout."""
    with RunJournal(journal) as opened:
        events = [event.to_dict() for event in opened.read(STOPPED)]
    assert data("follow", STOPPED) == events
    assert data("follow", STOPPED, "--after", "5") == events[5:]
    assert data("follow", STOPPED, "--after", "999") == []
    assert run("follow", STOPPED, "--after", "999").stderr == ""
    done = run("follow", STOPPED, "--no-json")
    assert done.stdout == "Let me look.\nIt is sunny\n"
    for line in ("human: How is Rome?", "→ weather", "← weather", "cut off: stop", "run interrupted (stop)"):
        assert line in done.stderr
    middle = next(event["seq"] for event in events if event["data"] == {"text": "is "})
    assert run("follow", STOPPED, "--no-json", "--after", str(middle)).stdout == "sunny\n"


def test_follow_of_what_waits_for_a_human_ends(journal: Path) -> None:
    """It says so, and all is fine."""
    done = run("follow", WAITS)
    assert done.exit_code == 0
    assert json.loads(done.stdout.splitlines()[-1])["kind"] == "run.pause"
    assert "waits for a human" in done.stderr


def test_answers_at_the_same_time_do_not_mix(here: Path) -> None:
    """One is shown as it comes, the other one when that has ended; what serves the program only is not shown."""
    from langchain_runjournal import Event

    with RunJournal(here / "runs.db") as opened:

        def put(kind: Any, call: str, **more: Any) -> None:
            opened.append(Event(run_id="r", kind=kind, data=more, call_id=call))

        for call, role in (("a", "answer"), ("b", "answer"), ("h", "helper")):
            put("llm.start", call, model="m", role=role)
        for word in ("1 ", "2 ", "3 "):
            for call in "abh":
                put("llm.ai.delta", call, text=f"{call}{word}")
        for call in "ab":
            put("llm.ai.partial", call, cause="stop")
        opened.append(Event(run_id="r", kind="run.end", data={"status": "interrupted", "cause": "stop"}))
    assert run("follow", "r", "--no-json").stdout == "a1 a2 a3 \nb1 b2 b3 \n"


def test_stop_of_what_is_over_is_fine(journal: Path) -> None:
    """It says so, asks for nothing, and gives the run."""
    for name, why in ((STOPPED, "ended already"), (WAITS, "waits for a human")):
        done = run("stop", name)
        assert done.exit_code == 0
        assert why in done.stderr
        assert json.loads(done.stdout)["stop"] is None


def test_stop_without_waiting_asks(here: Path) -> None:
    """The request is there, with its cause; and waiting for nobody to do it is a problem, in one line."""
    with RunJournal(here / "runs.db") as owner:
        write(owner, "r1", "running")
        owner.flush()
        assert data("stop", "r1", "--no-wait", "--cause", "shutdown")[0]["stop"] == "shutdown"
        assert owner.run("r1").stop == "shutdown"
        assert "has not ended within 0.05 s" in complaint("stop", "r1", "--timeout", "0.05")


# --- delete -----------------------------------------------------------------------------------------------------------


def test_delete_takes_runs_or_a_thread(journal: Path) -> None:
    """Whatever their state; the ids of what went are the data."""
    assert data("delete", "--thread", "t1", "--yes") == [{"run_id": name, "deleted": True} for name in (DONE, FAILED)]
    assert run("delete", "@last", "aaaa0001", "@last", "--yes", "--no-json").stdout == f"{WAITS}\n{STOPPED}\n"
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
    """Without a terminal it cannot, and wants --yes."""
    assert "give --yes" in complaint("delete", "@last", code=2)
    assert len(data("list")) == len(ALL)


def test_delete_of_a_run_that_goes_on(here: Path) -> None:
    """Refused, with what to do; --force stops it, or says that it has not stopped."""
    with RunJournal(here / "runs.db") as owner:
        write(owner, "r1", "running")
        owner.flush()
        assert "Use `runjournal stop`, or --force" in complaint("delete", "r1", "--yes")
        said = complaint("delete", "r1", "--yes", "--force", "--timeout", "0.05")
        assert "has not ended within 0.05 s" in said
        owner.on_stop("r1", lambda cause: owner.append(Event(run_id="r1", kind="run.end", data={"status": "interrupted"})))
        assert data("delete", "r1", "--yes", "--force") == [{"run_id": "r1", "deleted": True}]
        assert owner.runs() == []


# --- check, prune, export ---------------------------------------------------------------------------------------------


def test_check_counts_or_names(here: Path) -> None:
    """What is fine is said on stderr; each problem is a line of data, and ends it with 1."""
    with RunJournal(here / "runs.db") as opened:
        write(opened, DONE)
    done = run("check")
    assert (done.exit_code, done.stdout) == (0, "")
    assert "fine: 1 run, 13 events" in done.stderr
    with RunJournal(here / "runs.db") as opened:
        write(opened, FAILED, "failed")
    found = data("check", exit_code=1)
    assert {(one["what"], one["run_id"]) for one in found} >= {("unsettled", FAILED)}
    assert set(found[0]) == {"what", "run_id", "text", "hint"}
    assert f"{FAILED}  unsettled: " in run("check", "--no-json").stdout


def test_prune_needs_to_know_what(journal: Path) -> None:
    """Without a limit it would take everything; an age that is none is wrong usage."""
    assert "--older-than or --keep-last" in complaint("prune", code=2)
    assert "30d" in complaint("prune", "--older-than", "old", code=2)
    assert "30d" in complaint("prune", "--older-than", "30", code=2)  # days are meant, and seconds would take everything


def test_prune_may_only_vacuum(journal: Path) -> None:
    """Nothing is deleted by that, and it is no dry run."""
    done = run("prune", "--vacuum")
    assert (done.exit_code, done.stdout) == (0, "")
    assert "0 runs deleted" in done.stderr
    assert len(data("list")) == len(ALL)
    assert "--dry-run or --vacuum" in complaint("prune", "--vacuum", "--dry-run", code=2)
    assert [one["run_id"] for one in data("prune", "--keep-last", "1", "--vacuum")] == [DONE]


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


def test_export_is_every_event(journal: Path, here: Path) -> None:
    """Of some runs or of all, the oldest first; into a file that is there only when it is complete."""
    with RunJournal(journal) as opened:
        events = {run_id: [event.to_dict() for event in opened.read(run_id)] for run_id in ALL}
    assert data("export", STOPPED, "b") == events[STOPPED] + events[FAILED]
    assert data("export", STOPPED, "aaaa0001", "@3") == events[STOPPED]
    done = run("export", "--all", "-o", "all.jsonl")
    assert done.stdout == ""
    lines = (here / "all.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [event for run_id in ALL for event in events[run_id]]
    assert f"{len(lines)} events of 4 runs" in done.stderr
    assert sorted(path.name for path in here.iterdir()) == ["all.jsonl", "runs.db"]


def test_export_is_asked_rightly(journal: Path) -> None:
    """Runs or all of them; and never over the journal itself."""
    before = journal.read_bytes()
    complaint("export", code=2)
    complaint("export", "--all", DONE, code=2)
    assert "the journal itself" in complaint("export", "--all", "-o", "runs.db")
    assert journal.read_bytes() == before
    assert "runjournal: not/there/x.jsonl: " in complaint("export", "--all", "-o", "not/there/x.jsonl")


# --- recover ----------------------------------------------------------------------------------------------------------


def test_recover_leaves_to_the_living_what_is_theirs(here: Path) -> None:
    """A thread that could not be settled yet belongs to the process of its run, as long as that lives."""
    with RunJournal(here / "runs.db") as owner:
        write(owner, FAILED, "failed")
        owner.flush()
        done = run("recover")
    assert (done.exit_code, done.stdout) == (0, "")
    assert "belong to a process that is alive" in done.stderr
    assert data("recover", exit_code=1)[0]["outcome"] == "needs_graph"


@pytest.mark.parametrize("command", ["follow r1", "stop r1", "recover"])
def test_of_another_machine_the_heartbeat_tells(here: Path, command: str) -> None:
    """Its lease is waited for: before that nobody knows whether the owner lives, and after it all is as with one here."""
    with RunJournal(here / "runs.db") as owner:
        write(owner, "r1", "running")
        owner.flush()
        gone = owner.owner_id
    with sqlite3.connect(here / "runs.db") as con:
        con.execute("INSERT INTO owners VALUES (?, 'elsewhere', 1, '', 0.2, 7)", (gone,))
    con.close()
    assert data("show", "r1")[0]["owner_state"] == "unknown"
    if command == "recover":
        assert [one["outcome"] for one in data("recover")] == ["ended"]
    else:
        done = run(*command.split())
        assert done.exit_code == 1
        assert "is dead: its process ended" in done.stderr


def test_recover_with_nothing_to_do(journal: Path) -> None:
    """Names what needs a graph; with nothing at all to do, says that."""
    found = data("recover", exit_code=1)
    assert [(one["run_id"], one["outcome"], one["graph"]) for one in found] == [(FAILED, "needs_graph", "agent")]
    with RunJournal("other.db") as other:
        write(other, "other")
    done = run("recover", "--journal", "other.db")
    assert (done.exit_code, done.stdout) == (0, "")
    assert "nothing to recover" in done.stderr


GRAPHS = """
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph

def noop(state):
    return {}

builder = StateGraph(MessagesState).add_node("noop", noop).add_edge(START, "noop")
bare = builder.compile(name="agent")
number = 3

def make():
    print("a program says something")
    return builder.compile(checkpointer=InMemorySaver(), name="agent")

def broken():
    raise ValueError("no key")

def leaves():
    raise SystemExit(0)

class Down(InMemorySaver):
    def get_tuple(self, config):
        if config["configurable"]["thread_id"] == "t1":
            raise OSError("it is down")
        return super().get_tuple(config)

def down():
    return builder.compile(checkpointer=Down(), name="agent")
"""


def test_recover_says_what_is_wrong_with_the_graph(journal: Path, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each in one line."""
    (here / "app_of_cli.py").write_text(GRAPHS)
    (here / "app_needs.py").write_text("import nothing_of_the_kind")
    (here / "app_breaks.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(str(here))  # taken away again, with what was imported from there
    assert "module:attribute" in complaint("recover", "--graph", "app_of_cli", code=2)
    assert "The module nothing_there does not exist" in complaint("recover", "--graph", "nothing_there:graph")
    assert "nothing_of_the_kind" in complaint("recover", "--graph", "app_needs:graph")
    assert "ZeroDivisionError" in complaint("recover", "--graph", "app_breaks:graph")
    assert "has no graph" in complaint("recover", "--graph", "app_of_cli:graph")
    assert "is not a graph, but a int" in complaint("recover", "--graph", "app_of_cli:number")
    assert "compile()" in complaint("recover", "--graph", "app_of_cli:builder")
    assert "no checkpointer" in complaint("recover", "--graph", "app_of_cli:bare")
    assert "ValueError: no key" in complaint("recover", "--graph", "app_of_cli:broken")
    assert "SystemExit: 0" in complaint("recover", "--graph", "app_of_cli:leaves")
    failed = data("recover", "--graph", "app_of_cli:down", exit_code=1)
    assert [(one["run_id"], one["outcome"]) for one in failed] == [(FAILED, "failed")]
    assert "it is down" in failed[0]["reason"]
    told = run("recover", "--graph", "app_of_cli:down").stderr
    assert "runjournal: 1 run could not be settled by agent: " in told
    assert "it is down" in told
    assert "recover again" in told
    found = data("recover", "--graph", "app_of_cli:make")
    assert [(one["run_id"], one["graph"]) for one in found] == [(FAILED, "agent")]
    assert data("recover") == []


# --- view, demo -------------------------------------------------------------------------------------------------------


def test_view_writes_a_page(journal: Path, here: Path) -> None:
    """Into a file that is named by the run, over an older page, but over nothing else."""
    path = data("view", STOPPED)[0]["path"]
    assert path == "run-aaaa0001.html"
    assert (here / path).read_text().lstrip().lower().startswith("<!doctype html")
    assert data("view", STOPPED, DONE, STOPPED)[0]["runs"] == [STOPPED, DONE]
    assert run("view", STOPPED, "-o", "-").stdout.lstrip().lower().startswith("<!doctype html")
    for mine in ("", "<!doctype html><p>mine, about runjournal and langchain-runjournal"):
        (here / "mine.html").write_text(mine)
        assert "--force" in complaint("view", STOPPED, "-o", "mine.html")
        assert (here / "mine.html").read_text() == mine
    assert "the journal itself" in complaint("view", STOPPED, "-o", "runs.db", "--force")
    assert data("view", STOPPED, "-o", "mine.html", "--force")
    assert "mine" not in (here / "mine.html").read_text()[:30]


def test_what_is_written_is_for_its_owner(journal: Path, here: Path) -> None:
    """As the journal is: it holds what users wrote to a model."""
    before = os.umask(0)
    try:
        data("view", STOPPED, "-o", "run.html")
        run("export", "--all", "-o", "runs.jsonl")
    finally:
        os.umask(before)
    for name in ("run.html", "runs.jsonl"):
        assert stat.S_IMODE((here / name).stat().st_mode) == 0o600


def test_view_of_an_id_that_is_no_name_of_a_file(here: Path) -> None:
    """It cannot lead out of the directory."""
    with RunJournal(here / "runs.db") as opened:
        write(opened, "../../x")
    assert data("view", "@last")[0]["path"] == "run-------x.html"
    assert sorted(path.name for path in here.iterdir()) == ["run-------x.html", "runs.db"]


def test_demo_is_passed_on(monkeypatch: pytest.MonkeyPatch, here: Path) -> None:
    """Pass the directory to `play`; its return value is the exit code."""
    from langchain_runjournal import demo

    asked: list[Any] = []

    def play(console: object, **options: Any) -> int:
        asked.append(options)
        return 3

    monkeypatch.setattr(demo, "play", play)
    assert run("demo", "--directory", str(here)).exit_code == 3
    assert run("demo").exit_code == 3
    assert asked == [{"directory": here}, {"directory": None}]


# --- what is written --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["list", "show", "transcript", "follow", "check"])
def test_what_a_run_contains_is_not_obeyed(journal: Path, command: str) -> None:
    """No escape sequence of it reaches a terminal, no markup is interpreted, nothing turns the writing round."""
    names = [] if command in ("list", "check") else [FAILED]
    done = run(command, *names, "--no-json")
    for sign in ("\x1b", "\x07", "\x9b", "\u202e"):
        assert sign not in done.output
    if names:
        assert "[red]not red[/red]" in done.output
    raw = run(command, *names, "--json").output
    assert not any(sign in raw for sign in ("\x1b", "\x07", "\x9b", "\u202e"))


@given(st.text())
def test_no_text_can_command_a_terminal(said: str) -> None:
    """Whatever it is: what is left can be encoded and printed, in lines."""
    for sign in clean(said):
        assert sign in "\n\t" or not 0 <= ord(sign) < 32
        assert not 0x7F <= ord(sign) < 0xA0
    clean(said).encode()
    assert "\n" not in one_line(said)
    assert len(one_line(said, 5)) <= 5


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(st.characters()), st.lists))
def test_json_comes_back_as_it_was(value: Any) -> None:
    """Also with halves of pairs and controls in it; and one value is one line."""
    line = to_json(value)
    line.encode()
    assert len(line.splitlines()) == 1
    assert json.loads(line) == value


def test_clean_leaves_text_alone() -> None:
    """Lines, tabs and every language."""
    assert clean("a\tb\n日本語 العربية 👩‍👩‍👧\r\n") == "a\tb\n日本語 العربية 👩‍👩‍👧\n"
    assert clean(EVIL).startswith("␛]0;owned␇ [red]")


def test_times_and_numbers_read_well() -> None:
    """As a person would say them."""
    assert [ago(0, 0.5), ago(0, 42), ago(0, 600), ago(0, 7_200), ago(0, 3 * 86_400)] == [
        "now",
        "42 s ago",
        "10 min ago",
        "2 h ago",
        "3 days ago",
    ]
    assert [duration(0.04), duration(2.345), duration(63), duration(7_300), duration(-1)] == [
        "40 ms",
        "2.3 s",
        "1 min 3 s",
        "2 h 1 min",
        "0 ms",
    ]
    assert [number(12), number(12_345), number(1_234_567)] == ["12", "12.3k", "1.23M"]
    assert tokens({"m": {"calls": 1, "incomplete": 1}}) == ""


# --- errors, help -----------------------------------------------------------------------------------------------------


def test_wrong_usage_is_two(journal: Path) -> None:
    """One line that says where to look."""
    assert "runjournal list --help" in complaint("list", "--nothing", code=2)
    assert "runjournal --help" in complaint("nothing", code=2)
    assert "runjournal show --help" in complaint("show", code=2)
    for no_number in ("nan", "abc", "-1"):
        complaint("stop", STOPPED, "--timeout", no_number, code=2)
        complaint("list", code=2, env={"RUNJOURNAL_BUSY_TIMEOUT": no_number})
        complaint("list", "--busy-timeout", no_number, code=2)
    nothing = run()
    assert (nothing.exit_code, nothing.stdout) == (2, "")
    assert "Commands:" in nothing.stderr


def test_a_mistake_of_ours_is_one_line_too(journal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And --debug shows where it comes from."""
    monkeypatch.setattr(RunJournal, "runs", lambda *_, **__: 1 / 0)
    assert "ZeroDivisionError" in complaint("list")
    assert isinstance(run("--debug", "list").exception, ZeroDivisionError)


def test_what_the_package_logs_is_among_the_talk(journal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From warnings on, one line each, and not with the data."""
    import logging

    logger = logging.getLogger("langchain_runjournal")
    monkeypatch.setattr(RunJournal, "runs", lambda *_, **__: logger.warning("first\nsecond") or logger.info("no") or [])
    done = run("list")
    assert done.stdout == ""
    assert "runjournal: warning: first second\n" in done.stderr
    assert logger.handlers == []


@pytest.mark.parametrize("name", list(commands.commands))
def test_every_command_has_help_and_examples(name: str) -> None:
    """With what each option does, and the variable that sets it."""
    command = commands.commands[name]
    done = run(name, "--help")
    assert done.exit_code == 0
    assert "Examples:" in done.stdout
    assert f"runjournal {name}" in done.stdout
    assert command.short_help
    assert not command.short_help.endswith("...")
    shown = " ".join(done.stdout.split())
    options = [one for one in command.params if isinstance(one, click.Option) and one.name != "help"]
    assert {"journal", "json", "busy_timeout", "debug"} <= {one.name for one in options}
    for option in options:
        assert option.help, option.name
    assert shown.count("env var: RUNJOURNAL_") == len(options)


def test_an_option_can_be_set_by_its_variable(journal: Path) -> None:
    """As its help says."""
    assert len(run("list", env={"RUNJOURNAL_LIST_LIMIT": "2"}).stdout.splitlines()) == 2
    assert not run("list", env={"RUNJOURNAL_JSON": "0"}).stdout.startswith("{")


def test_version_is_said() -> None:
    """Of the package."""
    from langchain_runjournal import __version__

    assert run("--version").stdout == f"runjournal {__version__}\n"


@pytest.mark.parametrize("name", ["runs.db-wal", "runs.db-shm", "runs.db-spool-0123-000001"])
@pytest.mark.parametrize("command", [("export", "--all"), ("view", STOPPED)])
def test_nothing_is_written_over_what_belongs_to_the_journal(
    journal: Path, here: Path, command: tuple[str, ...], name: str
) -> None:
    """What SQLite keeps beside its file, and what a process that was killed has left, are parts of it."""
    with RunJournal(journal):
        assert name in complaint(*command, "-o", name, "--force" if command[0] == "view" else "--json")
    assert not (here / name).exists()  # the last one to close it has taken SQLite's files away
    assert len(data("list")) == len(ALL)


def test_a_variable_for_something_else_does_nothing(journal: Path) -> None:
    """RUNJOURNAL_VERSION is what images are built with, and no wish to be told the version."""
    for value in ("1", "0.1.0"):
        done = run("list", env={"RUNJOURNAL_VERSION": value})
        assert (done.exit_code, len(done.stdout.splitlines())) == (0, len(ALL))


@pytest.mark.parametrize("width", ["0", "40", "60"])
def test_a_narrow_list_says_how_the_runs_stand(journal: Path, width: str) -> None:
    """That is what one looks for: other columns go first."""
    shown = run("list", "--no-json", env={"COLUMNS": width}).stdout
    assert "status" in shown
    for status in ("completed", "failed", "paused"):
        assert status in shown


def test_an_id_that_is_no_text_is_none_of_a_run(journal: Path) -> None:
    """As a shell gives it where bytes are no UTF-8."""
    assert "not a run id" in complaint("show", "\udcff")
    with RunJournal(journal) as opened, pytest.raises(errors.InvalidArgument, match="run_id"):
        opened.run("\udcff")


def test_numbers_beyond_all_bounds_are_large_numbers(journal: Path) -> None:
    """And no trouble of the database's."""
    assert len(data("list", "--limit", "9" * 30)) == len(ALL)
    assert data("follow", STOPPED, "--after", "9" * 30) == []
