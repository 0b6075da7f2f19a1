"""What several test modules need."""

from __future__ import annotations

import gc
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from langchain_runjournal import RunJournal

# Whoever starts us in the background of a script has Ctrl-C ignored, and with us all processes that we start.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="module")
def grown_old() -> None:
    """What is there already is of no interest to the garbage collector, which many tests ask: for all that modules before
    this one have imported, it takes half a second."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@pytest.fixture
def journal() -> Iterator[RunJournal]:
    """Yield a journal in memory. A module whose tests need another one defines its own."""
    with RunJournal(":memory:") as opened:
        yield opened


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


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the storms, unless they are asked for by name: they take most of an hour."""
    if "storm" not in config.option.markexpr:
        storms = [one for one in items if one.get_closest_marker("storm")]
        config.hook.pytest_deselected(items=storms)
        items[:] = [one for one in items if one not in storms]
