"""What several test modules need."""

from __future__ import annotations

import gc
import os
import signal
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any, Final
from zlib import crc32

import pytest

from langchain_runjournal import RunJournal
from tests.support.places import Place, make_place
from tests.support.servers import ServerMissing

# Whoever starts us in the background of a script has Ctrl-C ignored, and with us all processes that we start.
signal.signal(signal.SIGINT, signal.default_int_handler)


_MANY: Final = 30
"""The sets of parameters from which on `--part` leaves some out."""


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


def pytest_addoption(parser: pytest.Parser) -> None:
    about = "of each test with many parameters, run only the Kth of N parts of them: suites beside the whole one share them"
    parser.addoption("--part", metavar="K/N", help=about)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the storms, unless they are asked for by name: they take most of an hour. Then leave out other parts."""
    wanted = items
    if "storm" not in config.option.markexpr:
        wanted = [one for one in wanted if not one.get_closest_marker("storm")]
    if config.option.part:
        wanted = part_of(wanted, config.option.part)
    kept = set(wanted)
    config.hook.pytest_deselected(items=[one for one in items if one not in kept])
    items[:] = wanted


def part_of(items: list[pytest.Item], part: str) -> list[pytest.Item]:
    """Return the items of one part, `K/N`: all tests with few parameters, and a part of the others, by their names."""
    number, _, parts = part.partition("/")
    if not (number.isdecimal() and parts.isdecimal() and 1 <= int(number) <= int(parts)):
        raise pytest.UsageError(f"--part takes K/N, such as 1/3, and not {part!r}")
    size = Counter(one.nodeid.partition("[")[0] for one in items)

    def is_wanted(item: pytest.Item) -> bool:
        few = size[item.nodeid.partition("[")[0]] < _MANY
        return few or crc32(item.nodeid.encode()) % int(parts) == int(number) - 1

    return [one for one in items if is_wanted(one)]
