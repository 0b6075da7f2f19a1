"""The group of commands: errors, logs, help and the version."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest

from langchain_runjournal import RunJournal
from langchain_runjournal.cli.app import commands
from tests.support.command_line import (
    complaint,
    run,
)


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


def test_a_mistake_of_ours_is_one_line_too(journal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And --debug raises it with its traceback."""
    monkeypatch.setattr(RunJournal, "runs", lambda *_, **__: 1 / 0)
    assert "ZeroDivisionError" in complaint("list")
    assert isinstance(run("--debug", "list").exception, ZeroDivisionError)


def test_what_the_package_logs_is_among_the_talk(journal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Warnings go to stderr, one line each."""
    import logging

    logger = logging.getLogger("langchain_runjournal")
    monkeypatch.setattr(RunJournal, "runs", lambda *_, **__: logger.warning("first\nsecond") or logger.info("no") or [])
    done = run("list")
    assert done.stdout == ""
    assert "runjournal: warning: first second\n" in done.stderr
    assert logger.handlers == []


@pytest.mark.parametrize("name", list(commands.commands))
def test_every_command_has_help_and_examples(name: str) -> None:
    """The help explains each option; those that all commands have stand in the help of the group, and work all the same."""
    command = commands.commands[name]
    done = run(name, "--help")
    assert done.exit_code == 0
    assert "Examples:" in done.stdout
    assert f"runjournal {name}" in done.stdout
    assert command.short_help
    assert not command.short_help.endswith("...")
    shown = " ".join(done.stdout.split())
    options = [one for one in command.params if isinstance(one, click.Option) and one.name != "help"]
    of_all = {"journal", "json", "busy_timeout", "spool_dir", "debug"}
    assert of_all <= {one.name for one in options}
    of_group = " ".join(run("--help").stdout.split())
    for option in options:
        assert option.help, option.name
        assert (f"{option.opts[-1]} " in shown.partition("Options of every")[0]) == (option.name not in of_all), option.name
        assert option.name not in of_all or option.opts[0] in of_group
    assert "see `runjournal --help`" in shown


def test_version_is_said() -> None:
    """The version is that of the package."""
    from langchain_runjournal import __version__

    for option in ("--version", "-V"):
        assert run(option).stdout == f"runjournal {__version__}\n"
