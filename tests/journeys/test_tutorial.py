"""docs/tutorial.md, step by step in an empty directory: its files, its commands, what it says that they print."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from langchain_runjournal import RunJournal
from tests.support.imports import ROOT

PAGE = (ROOT / "docs" / "tutorial.md").read_text("utf-8")
SIGNALS = {"press Ctrl+C": signal.SIGINT, "kill -9": signal.SIGKILL}


def blocks() -> Iterator[tuple[str, str]]:
    """The files and the terminals of the page, in their order."""
    yield from re.findall(r"^```(\w+[^\n]*)\n(.*?)^```", PAGE, re.M | re.S)


def commands(terminal: str) -> Iterator[tuple[list[str], str, list[str]]]:
    """Each command of a terminal, what the reader does meanwhile, and the lines that it prints."""
    for part in re.split(r"^\$ ", terminal, flags=re.M)[1:]:
        line, *printed = part.splitlines()
        command, _, meanwhile = line.partition("    # ")
        yield shlex.split(command), meanwhile, printed


def run(command: list[str], meanwhile: str, place: Path) -> str:
    """Run a command; cut it off after some words, if the reader does."""
    program = {"python": [sys.executable], "runjournal": [sys.executable, "-m", "langchain_runjournal"]}[command[0]]
    env = {**os.environ, "PYTHONPATH": os.environ.get("PYTHONPATH", ""), "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen([*program, *command[1:]], cwd=place, env=env, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process:
        if not meanwhile:
            said = process.stdout.read()
            assert process.wait() == 0, said
            return said
        said = process.stdout.read(len("Once upon a time"))
        process.send_signal(SIGNALS[meanwhile])
        return said + process.stdout.read()


@pytest.mark.slow
@pytest.mark.timeout(600)  # eleven programs, one after the other, each of which imports LangGraph
def test_each_step_of_the_tutorial(tmp_path: Path) -> None:
    """Copied and pasted, each command prints what the page says."""
    steps = 0
    for language, text in blocks():
        if title := re.fullmatch(r'python title="(.+)"', language):
            (tmp_path / title[1]).write_text(text)
            continue
        for command, meanwhile, printed in commands(text):
            if "pip" in command or "venv" in command:
                continue
            said = run(command, meanwhile, tmp_path)
            steps += 1
            assert len(said.splitlines()) >= len(printed)
            for shown, line in zip(printed, said.splitlines(), strict=False):
                if shown.endswith("(cut off)"):  # where, is up to the reader
                    assert re.fullmatch(r"ai: Once upon a time.*\(cut off\)", line), command
                else:
                    assert line == shown, command
    assert steps == 11
    assert (tmp_path / "run.html").read_text().startswith("<!")
    with RunJournal(tmp_path / "runs.db") as journal:
        found = [(run.thread_id, run.status, run.cause, run.settled) for run in journal.runs()]
    assert found[0] == ("killed", "interrupted", "crash", True)
    assert found[2][:2] == ("stopped", "interrupted")
    assert [one[:2] for one in found[1::2]] == [("stopped", "completed"), ("first", "completed")]


def test_three_lines_of_the_agent_are_about_the_journal() -> None:
    """As the page says."""
    ((_, agent),) = [one for one in blocks() if "agent.py" in one[0]]
    lines = [line for line in agent.splitlines() if re.search("RunJournal|attach|journal", line) and "testing" not in line]
    assert len(lines) == 3
