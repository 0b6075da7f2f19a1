"""What several test modules need."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from langchain_runjournal import RunJournal


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@pytest.fixture
def journals(db: Path) -> Iterator[Callable[..., RunJournal]]:
    """Opens journals on one file, and closes those that are still open."""
    opened: list[RunJournal] = []

    def open_journal(**options: object) -> RunJournal:
        journal = RunJournal(options.pop("url", db), **options)
        opened.append(journal)
        return journal

    yield open_journal
    for journal in opened:
        journal.close()
