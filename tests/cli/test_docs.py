"""docs/cli.md documents every command and option, and each of its examples runs."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

from langchain_runjournal.cli.app import commands
from tests.support.command_line import PATIENCE, ROOT, environment

PAGE = (ROOT / "docs" / "cli.md").read_text()
SECTIONS = dict(re.findall(r"^## ([a-z]+)[^\n]*\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S))
COMMON = PAGE.partition("## What holds for every command")[2].partition("\n## ")[0]


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
    """The page has the commands in the order of the help."""
    documented = [name for name in SECTIONS if name in commands.commands]
    assert documented == list(commands.commands)
    assert set(SECTIONS) == set(commands.commands)


def commands_of(page: str) -> list[str]:
    """List the commands of a page's consoles, without comments."""
    blocks = re.findall(r"^```console\n(.*?)^```", page, re.M | re.S)
    return [line[2:].partition("  #")[0].strip() for block in blocks for line in block.splitlines() if line.startswith("$ ")]


def typed(lines: list[str], home: Path) -> None:
    """Run commands one after the other in one directory. Each exits with 0, and prints something."""
    programs = home / "bin"
    programs.mkdir()
    for name, words in {"runjournal": [sys.executable, "-m", "langchain_runjournal"], "python": [sys.executable]}.items():
        (programs / name).write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
        (programs / name).chmod(0o755)
    path = f"{programs}:/usr/local/bin:/usr/bin:/bin"
    env = environment(PATH=path, BROWSER="true", RUNJOURNAL_DEMO_PACE="0.1")
    for line in lines:
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=home,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert done.returncode == 0, (line, done.stderr)
        assert "Traceback" not in done.stderr, line
        assert done.stdout or done.stderr or not line.startswith("runjournal"), line


@pytest.mark.slow
def test_every_example_of_the_page_runs(tmp_path: Path) -> None:
    """They run on the journal of the program at the top of the page."""
    (tmp_path / "my_app.py").write_text(re.findall(r"^```python\n(.*?)^```", PAGE, re.M | re.S)[0])
    typed(commands_of(PAGE), tmp_path)
    assert (tmp_path / "runs.html").exists()


@pytest.mark.slow
def test_every_command_of_the_readme_runs(tmp_path: Path) -> None:
    """They run on the journal of its first snippet. Commands that install something are left out."""
    page = (ROOT / "README.md").read_text()
    (tmp_path / "quickstart.py").write_text(re.findall(r"^```python\n(.*?)^```", page, re.M | re.S)[0])
    commands = [line for line in commands_of(page) if not line.startswith(("make ", "pip install "))]
    assert {line.split()[1] for line in commands} >= {"demo", "list", "show", "view", "check"}
    typed(["python quickstart.py", *commands], tmp_path)
    assert (tmp_path / "run.html").exists()


def examples_of(name: str) -> list[str]:
    epilog = commands.commands[name].epilog or ""
    return [line.strip() for line in epilog.splitlines() if line.startswith("  runjournal ")]


@pytest.mark.parametrize("name", list(commands.commands))
def test_every_example_of_the_help_is_one(name: str) -> None:
    """The command accepts its options and arguments. Their values are not checked."""
    command = commands.commands[name]
    assert examples_of(name)
    for example in examples_of(name):
        words = shlex.split(re.split(r" [|>] ", example)[0])
        assert words[:2] == ["runjournal", name]
        with command.make_context(name, words[2:]) as ctx:
            assert ctx.command is command
