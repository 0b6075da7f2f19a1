"""The options of every command: which journal they name, by option or by variable, and what is wrong usage."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from langchain_runjournal import RunJournal
from tests.support.command_line import (
    ALL,
    STOPPED,
    WAITS,
    complaint,
    run,
    write,
)
from tests.support.far_store import kill_a_writer


def test_the_journal_is_named_before_or_after_or_by_the_environment(journal: Path, here: Path) -> None:
    """The command line overrides the environment, before the name of the command and after it."""
    with RunJournal(here / "other.db") as other:
        write(other, "other-run")
    env = {"RUNJOURNAL_URL": "other.db"}
    ways: list[tuple[list[str], dict[str, str], str]] = [
        (["list"], {}, WAITS),
        (["--journal", "other.db", "list"], {}, "other-run"),
        (["list", "--journal", "other.db"], {}, "other-run"),
        (["list", "--journal", f"sqlite:///{here}/other.db"], {}, "other-run"),
        (["list", "--journal", "sqlite:///other.db"], {}, "other-run"),
        (["list"], env, "other-run"),
        (["--journal", "runs.db", "list"], env, WAITS),
        (["list", "--journal", "runs.db"], env, WAITS),
        (["--journal", "other.db", "list", "--journal", "runs.db"], {}, WAITS),
    ]
    for args, environment, newest in ways:
        done = run(*args, "--json", env=environment)
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
    """One line says what to do, and no file is created."""
    said = complaint(*command.split())
    assert "The journal runs.db does not exist" in said
    assert "--journal" in said
    (here / "empty.db").touch()
    assert "empty" in complaint("--journal", "empty.db", *command.split())
    assert [path.name for path in here.iterdir()] == ["empty.db"]
    assert not (here / "empty.db").stat().st_size


def test_what_is_not_a_journal_is_reported(here: Path) -> None:
    """In memory, a directory, another program's database, not a database, an unknown store."""
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
    for url in ("mysql://x", "sqlite://runs.db"):
        for said in (complaint("--journal", url, "list", code=2), complaint("list", code=2, env={"RUNJOURNAL_URL": url})):
            assert "names no journal" in said
            assert ":memory:" not in said


def test_a_locked_journal_is_one_line(journal: Path) -> None:
    """The line says that another process holds the lock, and how to wait longer."""
    con = sqlite3.connect(journal, isolation_level=None)
    con.execute("BEGIN IMMEDIATE")
    try:
        said = complaint("list", "--busy-timeout", "0.05")
    finally:
        con.close()
    assert "Another process holds its lock" in said
    assert "--busy-timeout" in said


def test_wrong_usage_is_two(journal: Path) -> None:
    """One line names the help to read."""
    assert "runjournal list --help" in complaint("list", "--nothing", code=2)
    assert "runjournal --help" in complaint("nothing", code=2)
    assert "runjournal stop --help" in complaint("stop", code=2)
    for no_number in ("nan", "abc", "-1"):
        complaint("stop", STOPPED, "--timeout", no_number, code=2)
        complaint("list", "--busy-timeout", no_number, code=2)
    nothing = run()
    assert (nothing.exit_code, nothing.stdout) == (2, "")
    assert "Commands:" in nothing.stderr


def test_a_pipe_changes_no_format(journal: Path) -> None:
    """JSON needs --json or its variable, which --no-json overrides; `export` is JSON lines in any case."""
    for args in (["list"], ["show"], ["transcript"], ["follow"], ["check"], ["view", "-o", "page.html"]):
        assert not run(*args).stdout.startswith("{"), args
        assert json.loads(run(*args, "--json").stdout.splitlines()[0]), args
        assert json.loads(run(*args, env={"RUNJOURNAL_JSON": "1"}).stdout.splitlines()[0]), args
        assert not run(*args, "--no-json", env={"RUNJOURNAL_JSON": "1"}).stdout.startswith("{"), args
    assert json.loads(run("export", "--all").stdout.splitlines()[0])["seq"] == 1


def test_no_variable_switches_what_deletes_or_decides(journal: Path) -> None:
    """Only the journal, colour, JSON and the token of `serve`, a secret, can be set by a variable."""
    dangerous = {
        "RUNJOURNAL_PRUNE_KEEP_LAST": "0",
        "RUNJOURNAL_PRUNE_VACUUM": "1",
        "RUNJOURNAL_DELETE_FORCE": "1",
        "RUNJOURNAL_DELETE_YES": "1",
        "RUNJOURNAL_FORCE": "1",
        "RUNJOURNAL_LIST_LIMIT": "1",
        "RUNJOURNAL_BUSY_TIMEOUT": "nonsense",
    }
    assert "Give --older-than" in complaint("prune", code=2, env=dangerous)
    assert "give --yes to delete" in complaint("delete", STOPPED, code=2, env=dangerous)
    assert len(run("list", "--json", env=dangerous).stdout.splitlines()) == len(ALL)
    from langchain_runjournal.cli.app import commands

    read = {str(one.envvar) for command in (commands, *commands.commands.values()) for one in command.params if one.envvar}
    assert read == {"RUNJOURNAL_URL", "RUNJOURNAL_JSON", "RUNJOURNAL_SPOOL_DIR", "RUNJOURNAL_SERVE_TOKEN"}


def test_a_misspelled_command() -> None:
    """Sentences end once."""
    said = complaint("lsit", code=2)
    suggestion = "Did you mean 'list'? " if "Did you mean" in said else ""  # click 8.1 suggests no command
    assert said.endswith(f"No such command 'lsit'. {suggestion}See `runjournal --help`.\n")
    assert complaint("export", code=2).endswith("Give the runs to export, or --all. See `runjournal export --help`.\n")


def test_a_variable_for_something_else_does_nothing(journal: Path) -> None:
    """RUNJOURNAL_VERSION, which image builds set, does not print the version."""
    for value in ("1", "0.1.0"):
        done = run("list", env={"RUNJOURNAL_VERSION": value})
        assert (done.exit_code, len(done.stdout.splitlines())) == (0, 1 + len(ALL))


@pytest.mark.slow
def test_the_spools_of_a_directory_are_imported(here: Path) -> None:
    """`--spool-dir`, or its variable, names the `spool_dir` of the program that was killed; without it, they stay there."""
    RunJournal(here / "runs.db").close()
    (here / "spools").mkdir(mode=0o700)
    run_id = kill_a_writer(here / "runs.db", here / "spools", "words")
    assert run_id not in run("list", "--json").stdout
    done = run("list", "--json", env={"RUNJOURNAL_SPOOL_DIR": "spools"})
    assert run_id in done.stdout
    assert "imported 100 events of 1 run" in done.stderr
    assert not list((here / "spools").iterdir())
    assert "missing: it does not exist. Give --spool-dir an existing" in complaint("list", "--spool-dir", "missing")
