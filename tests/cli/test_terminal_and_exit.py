"""The command as a process: its imports, its exit codes, its signals, and what it prints on a terminal."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from langchain_runjournal import Event, RunJournal
from tests.support.command_line import ALL, COMMAND, PATIENCE, environment, example, on_terminal, started

IMPORTED = """
import atexit, json, sys
atexit.register(lambda: print(json.dumps(sorted(sys.modules)), file=sys.stderr))
from langchain_runjournal.cli import main
main()
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A directory with an example journal."""
    example(tmp_path / "runs.db")
    return tmp_path


@pytest.mark.parametrize("args", [("list",), ("show", "@last"), ("follow", "@last"), ("doctor",), ("--help",)])
def test_it_starts_without_langgraph(home: Path, args: tuple[str, ...]) -> None:
    """LangGraph takes half a second to import; LangChain's messages are not imported either."""
    command = [sys.executable, "-c", IMPORTED, *args]
    done = subprocess.run(command, cwd=home, env=environment(), capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == (args == ("doctor",)), done.stderr  # one run is not settled
    modules = json.loads(done.stderr.splitlines()[-1])
    assert "langchain_runjournal.cli.app" in modules
    assert not {"langgraph", "langchain_core", "pydantic"} & {name.partition(".")[0] for name in modules}


@pytest.mark.parametrize("package", ["click", "rich"])
def test_without_the_extra_it_says_how_to_get_it(tmp_path: Path, package: str) -> None:
    """In one line, with the exit code of wrong usage."""
    code = f"import sys; sys.modules[{package!r}] = None; from langchain_runjournal.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "list"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert (
        done.stderr == 'runjournal: the command line needs the extra "cli". Use `pip install "langchain-runjournal[cli]"`.\n'
    )


def test_only_the_command_line_needs_the_extra(tmp_path: Path) -> None:
    """Neither the package nor a journal imports click or rich."""
    code = "import sys; from langchain_runjournal import RunJournal; RunJournal('x.db').close(); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0
    assert not {"click", "rich"} & set(done.stdout.split())


def test_a_reader_that_has_gone_is_no_error(tmp_path: Path) -> None:
    """`| head -1`: it exits with 141 as other tools do, and prints nothing to stderr."""
    with RunJournal(tmp_path / "runs.db") as journal:
        for number in range(20_000):
            journal.append(Event(run_id="r", kind="llm.ai.delta", data={"text": f"word {number} "}, call_id="c"))
        journal.append(Event(run_id="r", kind="run.end", data={"status": "interrupted", "cause": "stop"}))
    for args in (["export", "--all"], ["follow", "r"], ["follow", "r"], ["transcript", "r"]):
        process = started(*args, cwd=tmp_path)
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(100)
        process.stdout.close()
        assert process.wait(PATIENCE) == 141, args
        told = process.stderr.read()
        process.stderr.close()
        assert "Traceback" not in told
        assert "runjournal:" not in told


def test_ctrl_c_is_130(home: Path) -> None:
    """Without a traceback; the request to stop stays."""
    with RunJournal(home / "runs.db") as owner:
        owner.append(Event(run_id="live", kind="run.start"))
        owner.flush()
        process = started("stop", "live", cwd=home)
        while owner.run("live").stop is None:
            pass
        process.send_signal(signal.SIGINT)
        said, told = process.communicate(timeout=PATIENCE)
    assert (process.returncode, said) == (130, "")
    assert "the request stays" in told
    assert "Traceback" not in told


def test_a_terminal_gets_colours_and_tables(home: Path) -> None:
    """The lines fit the terminal."""
    for width in (80, 140):
        code, said = on_terminal([*COMMAND, "list"], home, width)
        assert code == 0
        assert "\x1b[35minterrupted (stop)" in said
        lines = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in said.splitlines()]
        assert max(len(line) for line in lines) <= width
        assert [line.split()[0] for line in lines if re.match("[abc]{4}000", line)] == [id[:8] for id in reversed(ALL)]
        assert "not settled" in said
        assert ("812 in" in said) == (width == 140)


def test_a_terminal_without_colours(home: Path) -> None:
    """NO_COLOR turns colours off; --json prints JSON on a terminal too."""
    code, said = on_terminal([*COMMAND, "show", "@last"], home, NO_COLOR="1")
    assert code == 0
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]m", said)
    assert "Book it?" in said
    code, said = on_terminal([*COMMAND, "list", "--json"], home)
    assert [json.loads(line)["run_id"] for line in said.splitlines()] == list(reversed(ALL))


@pytest.mark.parametrize(("typed", "code", "left"), [("n\n", 130, len(ALL)), ("y\n", 0, len(ALL) - 1)])
def test_delete_asks_on_a_terminal(home: Path, typed: str, code: int, left: int) -> None:
    """It lists what it would delete, and deletes only after a yes."""
    ended, said = on_terminal([*COMMAND, "delete", "@last"], home, typed=typed)
    assert ended == code
    assert f"{ALL[-1]} paused" in said
    assert "Delete 1 run for ever? [y/N]" in said
    with RunJournal(home / "runs.db") as journal:
        assert len(journal.runs()) == left


def test_what_is_long_shows_progress_on_a_terminal(home: Path) -> None:
    """The bar restores the cursor, and the results follow it."""
    code, said = on_terminal([*COMMAND, "check"], home)
    assert code == 1
    assert "Checking" in said
    assert "\x1b[?25h" in said  # the cursor is visible again
    assert "unsettled" in said.rpartition("Checking")[2]


def test_a_locked_journal_ends_in_time(home: Path) -> None:
    """One line, and exit code 1."""
    con = sqlite3.connect(home / "runs.db", isolation_level=None)
    con.execute("BEGIN IMMEDIATE")
    try:
        process = started("list", "--busy-timeout", "0.1", cwd=home, env=environment())
        said, told = process.communicate(timeout=PATIENCE)
    finally:
        con.close()
    assert (process.returncode, said, told.count("\n")) == (1, "", 1)
    assert "Another process holds its lock" in told


def test_an_ascii_terminal_gets_question_marks(home: Path) -> None:
    """A character that the terminal cannot show becomes a question mark, not an error."""
    process = started("transcript", "bbbb", cwd=home, env=environment(PYTHONIOENCODING="ascii"))
    said, told = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, told
    assert "?]0;owned?" in said


def test_ids_are_completed(home: Path) -> None:
    """The shell completes ids, and nothing goes to stderr."""
    asked = {"_RUNJOURNAL_COMPLETE": "bash_complete", "COMP_WORDS": "runjournal show aaaa", "COMP_CWORD": "2"}
    process = started(cwd=home, env=environment(**asked))
    said, told = process.communicate(timeout=PATIENCE)
    assert said.split() == [f"plain,{ALL[1]}", f"plain,{ALL[0]}"]
    assert told == ""
    os.remove(home / "runs.db")
    process = started(cwd=home, env=environment(**asked))
    assert "".join(process.communicate(timeout=PATIENCE)).strip() == ""
    assert list(home.iterdir()) == []


@pytest.mark.parametrize(
    "args", ["list", "list --json", "export --all", "check", "--help", "--version", "list --help", "follow --json", "doctor"]
)
def test_an_output_that_is_full_is_one_line(home: Path, args: str) -> None:
    """The line says what to do, and the exit code is 1, also for the help."""
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*COMMAND, *args.split()], cwd=home, env=environment(), stdout=full, stderr=subprocess.PIPE, timeout=PATIENCE
        )
    assert done.returncode == 1
    assert done.stderr == b"runjournal: No space left on device. Free space there, or write elsewhere, then try again.\n"


def test_a_full_place_for_complaints_changes_no_exit_code(home: Path) -> None:
    """With a full stderr, only the exit code reports the outcome."""
    for args, code in {"list": 0, "show nothing": 1, "nothing": 2}.items():
        with open("/dev/full", "w") as full:
            done = subprocess.run(
                [*COMMAND, *args.split()], cwd=home, env=environment(), stdout=subprocess.PIPE, stderr=full, timeout=PATIENCE
            )
        assert done.returncode == code, args


DEMO = ["demo", "--directory", "demo"]  # it takes fifteen seconds


@pytest.mark.parametrize(
    ("args", "closed"),
    [
        *((["list"], closed) for closed in (">&-", "2>&-", ">&- 2>&-", "<&-", "<&- >&- 2>&-")),
        *(pytest.param(DEMO, closed, marks=pytest.mark.slow) for closed in (">&-", "<&- >&- 2>&-")),
    ],
)
def test_a_closed_stream_is_an_empty_one(home: Path, args: list[str], closed: str) -> None:
    """A daemon may start its children so: the command works, and exits with 0."""
    there = "" if "<" in closed else "</dev/null"
    command = f"{shlex.join([*COMMAND, *args])} {closed} {there}"
    done = subprocess.run(["bash", "-c", command], cwd=home, env=environment(), capture_output=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    assert b"Error" not in done.stderr


def test_an_input_that_is_closed_is_an_empty_one(home: Path) -> None:
    """A program that `recover` imports reads an empty stdin, not the journal's file under its number."""
    (home / "reads.py").write_text(
        "import os, sys\nassert sys.stdin.read() == ''\nassert os.read(0, 1) == b''\nnumber = 3\n"
    )
    command = f"{shlex.join([*COMMAND, 'recover', '--graph', 'reads:number'])} <&-"
    done = subprocess.run(["bash", "-c", command], cwd=home, env=environment(), capture_output=True, timeout=PATIENCE)
    assert b"is not a graph, but a int" in done.stderr
