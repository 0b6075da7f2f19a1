"""A part of the matrix: every pair of client, place, cut and mode, every switch of provider. `make providers` plays all."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Iterator

import pytest

from tests.providers._cells import PLACES, Cell, controls, cuts_of, matrix, readable, sample
from tests.providers._clients import CLIENTS
from tests.providers._play import Stage, play
from tests.providers._verdict import Outcome, Problem, judge

pytestmark = [
    pytest.mark.slow,
    # What the client packages leave open behind a cut is theirs.
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(sys.version_info < (3, 11), reason="asynchronous nodes of Python 3.10 hand on no callbacks"),
]
INSTALLED = [one.name for one in CLIENTS.values() if one.installed]


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()


@pytest.fixture(scope="module")
def stage(loop: asyncio.AbstractEventLoop) -> Iterator[Stage]:
    pytest.importorskip("langchain")
    stage = Stage()
    yield stage
    stage.close()
    gc.collect()


def broken(loop: asyncio.AbstractEventLoop, stage: Stage, cells: list[Cell]) -> str:
    """What is wrong with which cells, as text; "" if all are whole or excused."""
    found = ""
    for cell in cells:
        verdict, why = judge(cell, loop.run_until_complete(play(stage, cell)))
        if verdict == "broken":
            found += "\n    ".join(["", str(cell), *why])
    return found


def begun_with(client: str, cells: list[Cell]) -> list[Cell]:
    """Those that can be played here."""
    if client not in INSTALLED:
        pytest.skip(f"{CLIENTS[client].package} is not installed")
    return [one for one in cells if one.client == client and (not one.then or one.then in INSTALLED)]


SAMPLE = sample(list(matrix()), 0)
CONTROLS = [one for one in controls() if not readable(one) or one.number % 12 == 0]


@pytest.mark.parametrize("client", CLIENTS)
def test_a_cut_answer_leaves_a_whole_thread(client: str, loop: asyncio.AbstractEventLoop, stage: Stage) -> None:
    """No later turn is refused, what was seen is kept, and no tool runs with cut arguments, or the reason is named."""
    assert broken(loop, stage, begun_with(client, SAMPLE)) == ""


@pytest.mark.parametrize("client", CLIENTS)
def test_the_server_takes_what_was_not_cut(client: str, loop: asyncio.AbstractEventLoop, stage: Stage) -> None:
    """What its rules refuse is refused because of a cut; answers that another client cannot send on are named."""
    assert broken(loop, stage, begun_with(client, CONTROLS)) == ""


def test_the_sample_has_every_pair() -> None:
    """Each client is cut at each place that it has, and in each way, in each mode; each switch is made."""
    cells = list(matrix())
    for left in ("client", "place", "cut", "mode"):
        for right in ("client", "place", "cut", "mode"):
            pairs = [{(getattr(one, left), getattr(one, right)) for one in some if not one.then} for some in (cells, SAMPLE)]
            assert pairs[0] == pairs[1]
    switches = [{(one.client, one.then) for one in some if one.then} for some in (cells, SAMPLE)]
    assert switches[0] == switches[1]
    assert all(one.cut in cuts_of(PLACES[one.place]) for one in SAMPLE)


def test_an_excuse_that_finds_nothing_wrong_is_an_error() -> None:
    """A cell that becomes whole where it was thought that it cannot is seen, and the table is mended."""
    cell = Cell("mistral", "in a tool", "stop", "agent")
    refused = Problem("refused", "Unexpected role 'user' after role 'tool'")
    assert judge(cell, Outcome([refused], roles=["human", "ai", "tool"]))[0] == "excused"
    assert judge(cell, Outcome([], roles=["human", "ai", "tool"]))[0] == "broken"
    assert judge(cell, Outcome([], roles=["human", "ai", "tool", "ai"]))[0] == "whole"
    assert judge(cell, Outcome([refused], roles=["human", "ai", "tool", "ai"]))[0] == "broken"
    assert judge(Cell("mistral", "in a tool", "stop", "agent+guard"), Outcome([refused], roles=["tool"]))[0] == "broken"
