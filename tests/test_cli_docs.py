"""docs/cli.md says what the command line does: each command and option is there, and each example runs."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

from langchain_runjournal.cli._app import commands
from tests._cli import PATIENCE, ROOT, environment

PAGE = (ROOT / "docs" / "cli.md").read_text()
SECTIONS = dict(re.findall(r"^## ([a-z]+)[^\n]*\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S))
COMMON = PAGE.partition("## What holds for every command")[2].partition("\n## ")[0]
EXAMPLES = [line[2:] for block in re.findall(r"^```console\n(.*?)^```", PAGE, re.M | re.S) for line in block.splitlines()]


@pytest.mark.parametrize("name", list(commands.commands))
def test_every_command_is_documented(name: str) -> None:
    """With all of its options, and at least one example."""
    section = SECTIONS[name]
    assert f"$ runjournal {name}" in section or f" {name} " in section
    for option in commands.commands[name].params:
        if isinstance(option, click.Option):
            for spelling in (*option.opts, *option.secondary_opts):
                assert f"`{spelling}" in section + COMMON, spelling


def test_no_command_is_documented_that_is_none() -> None:
    """And in the order in which the help has them."""
    documented = [name for name in SECTIONS if name in commands.commands]
    assert documented == list(commands.commands)
    assert set(SECTIONS) == set(commands.commands)


def test_every_example_of_the_page_runs(tmp_path: Path) -> None:
    """One after the other in one directory, as a reader would, and each ends with 0 and says something."""
    (tmp_path / "my_app.py").write_text(re.findall(r"^```python\n(.*?)^```", PAGE, re.M | re.S)[0])
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, words in {"runjournal": [sys.executable, "-m", "langchain_runjournal"], "python": [sys.executable]}.items():
        (programs / name).write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
        (programs / name).chmod(0o755)
    env = environment(PATH=f"{programs}:/usr/local/bin:/usr/bin:/bin", BROWSER="true", RUNJOURNAL_DEMO_PACE="0.1")
    for example in EXAMPLES:
        done = subprocess.run(
            ["bash", "-c", example], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=PATIENCE
        )
        assert done.returncode == 0, (example, done.stderr)
        assert "Traceback" not in done.stderr, example
        if example.startswith("runjournal"):
            assert done.stdout or done.stderr, example
    assert (tmp_path / "runs.html").exists()


def examples_of(name: str) -> list[str]:
    epilog = commands.commands[name].epilog or ""
    return [line.strip() for line in epilog.splitlines() if line.startswith("  runjournal ")]


@pytest.mark.parametrize("name", list(commands.commands))
def test_every_example_of_the_help_is_one(name: str) -> None:
    """It has options and arguments that the command knows. What they are given, nobody has here."""
    command = commands.commands[name]
    assert examples_of(name)
    for example in examples_of(name):
        words = shlex.split(re.split(r" [|>] ", example)[0])
        assert words[:2] == ["runjournal", name]
        with command.make_context(name, words[2:]) as ctx:
            assert ctx.command is command
