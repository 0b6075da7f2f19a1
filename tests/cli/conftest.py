"""A directory with a journal, for the tests of the commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command_line import example


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A new directory, which is the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def journal(here: Path) -> Path:
    """The path of runs.db in that directory, with one run of each kind."""
    example(here / "runs.db")
    return here / "runs.db"
