"""The journal and the handler of a test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from langchain_runjournal import JournalCallbackHandler, RunJournal


@pytest.fixture
def journal() -> Iterator[RunJournal]:
    with RunJournal(":memory:") as journal:
        yield journal


@pytest.fixture
def handler(journal: RunJournal) -> JournalCallbackHandler:
    return JournalCallbackHandler(journal)
