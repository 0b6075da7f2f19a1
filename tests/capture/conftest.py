"""The handler of a test."""

from __future__ import annotations

import pytest

from langchain_runjournal import JournalCallbackHandler, RunJournal


@pytest.fixture
def handler(journal: RunJournal) -> JournalCallbackHandler:
    return JournalCallbackHandler(journal)
