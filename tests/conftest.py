"""What several test modules need."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from langchain_runjournal import RunJournal
from tests.support.places import Place, make_place
from tests.support.servers import ServerMissing

# Whoever starts us in the background of a script has Ctrl-C ignored, and with us all processes that we start.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def state_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Give journals on servers, also those of processes that tests start, a state directory of their own for spools."""
    before = os.environ.get("XDG_STATE_HOME")
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))
    yield
    if before is None:
        del os.environ["XDG_STATE_HOME"]
    else:
        os.environ["XDG_STATE_HOME"] = before


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
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """Where the journal and the threads of a test are: files, unless the test says otherwise (`tests.support.places.on`)."""
    kind = getattr(request, "param", "sqlite")
    found = make_place(tmp_path, kind)
    yield found
    found.drop()


@pytest.fixture
def journals(place: Place) -> Iterator[Callable[..., RunJournal]]:
    """Opens journals on one place, and closes those that are still open."""
    opened: list[RunJournal] = []

    def open_journal(**options: Any) -> RunJournal:
        journal = RunJournal(options.pop("url"), **options) if "url" in options else place.open(**options)
        opened.append(journal)
        return journal

    yield open_journal
    for journal in opened:
        journal.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None, None, None]:
    return (yield from _skipped_without_its_server())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, None, None]:
    return (yield from _skipped_without_its_server())


def _skipped_without_its_server() -> Generator[None, None, None]:
    """Skip a test whose server is not installed. With CI=true it fails: there, these tests must run."""
    try:
        return (yield)
    except ServerMissing as missing:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(missing))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the storms, unless they are asked for by name: they take most of an hour."""
    if "storm" not in config.option.markexpr:
        storms = [one for one in items if one.get_closest_marker("storm")]
        config.hook.pytest_deselected(items=storms)
        items[:] = [one for one in items if one not in storms]
