"""Branches side by side in a program that is killed at any event of its run.

The processes are forked, as in `test_settle_crash`, from one that is started by
``python -m tests.journeys.test_branches_killed``.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from langchain_runjournal import attach
from tests.journeys.test_settle_crash import JOBS, Forker, die, serve
from tests.settle.test_branches import DURABILITIES, SIX, TWO, asserted
from tests.support.branches import KINDS, THREAD, UNHEARD, Cutter, Heard, Program, Shape
from tests.support.conversations import nothing_is_wrong
from tests.support.places import PLACES, make_place, marked, place_of

pytestmark = pytest.mark.skipif(os.name != "posix", reason="SIGKILL")

BRANCHES = {"two": TWO, "six": SIX}


class Writing(Heard):
    """Writes down what it hears, where a kill cannot take it."""

    def __init__(self, home: Path) -> None:
        super().__init__()
        self.file = os.open(home / "heard", os.O_APPEND | os.O_CREAT | os.O_WRONLY)

    def _note(self, *what: str) -> None:
        os.write(self.file, json.dumps(what).encode() + b"\n")

    def on_llm_new_token(self, token: Any, *, chunk: Any = None, run_id: Any = None, **about: Any) -> None:
        self._note("word", str(run_id), chunk.message.text)

    def on_tool_end(self, output: Any, **about: Any) -> None:
        self._note("result", output.tool_call_id, output.text)


def _heard(home: Path) -> Heard:
    heard = Heard()
    for line in (home / "heard").read_text().splitlines():
        kind, id, text = json.loads(line)
        if kind == "word":
            heard.words[id] = heard.words.get(id, "") + text
        else:
            heard.results[id] = text
    return heard


def killed_fan(home: Path, branches: str, kind: str, durability: Any, at: int) -> None:
    """A run of a program that dies when its journal has been given so many events."""

    async def run() -> None:
        async with place_of(home).asaver() as saver, place_of(home).open() as journal:
            agent = attach(Program(Shape(BRANCHES[branches], kind), saver).graph, journal)
            Cutter(journal, at, die)
            config: Any = {**THREAD, "callbacks": [Writing(home)]}
            given = {"messages": [("user", "hi")]}
            async for _ in agent.astream(given, config, stream_mode="messages", durability=durability):
                pass

    asyncio.run(run())


JOBS[killed_fan.__name__] = killed_fan


async def _recovered(home: Path, shape: Shape) -> None:
    async with place_of(home).asaver() as saver:
        program = Program(shape, saver)
        async with place_of(home).open() as journal:
            agent = attach(program.graph, journal)
            [killed] = await journal.aruns()
            outcomes = [one.outcome for one in await journal.arecover(agent)]
            # Its last event says that it is complete.
            assert outcomes == [] if killed.ended else outcomes in (["settled"], ["whole"])
            if (await agent.aget_state(THREAD)).values:
                await asserted(program, agent, _heard(home), ahead=1)
            else:
                # It died at its first event, which does not hold the input.
                assert (_heard(home).words, _heard(home).results, home.name) == ({}, {}, "1")


@pytest.fixture(scope="module")
def forker() -> Iterator[Forker]:
    found = Forker(__name__)
    yield found
    found.close()


def killed_everywhere(
    forker: Forker, home: Path, branches: str, kind: str, durability: str, step: int, where: str = "sqlite"
) -> int:
    """Kill a program at every event that it has. Returns how many there are."""
    if kind == "agents" and UNHEARD:
        pytest.skip("create_agent hands on its callbacks only from Python 3.11 on")
    at = step
    while True:
        directory = home / str(at)
        directory.mkdir()
        place = make_place(directory, where)
        if not forker.run(killed_fan, directory, branches=branches, kind=kind, durability=durability, at=at):
            place.drop()
            return at
        try:
            with nothing_is_wrong():
                asyncio.run(_recovered(directory, Shape(BRANCHES[branches], kind)))
        except AssertionError as exc:
            raise AssertionError(f"killed at event {at} of {branches} {kind}, {durability}: {exc}") from exc
        place.drop()
        at += step


@pytest.mark.parametrize(("branches", "kind", "durability"), [("two", "agents", "async"), ("six", "sends", "exit")])
@pytest.mark.parametrize("where", marked(PLACES, slow=["postgres"], storm=["redis"]))
def test_a_kill_at_some_events(
    where: str, branches: str, kind: str, durability: str, forker: Forker, tmp_path: Path
) -> None:
    """What the killed run had shown and done is in the thread after `recover`."""
    step = 7 if branches == "two" else 19
    assert killed_everywhere(forker, tmp_path, branches, kind, durability, step, where) > 20


@pytest.mark.storm
@pytest.mark.timeout(600)
@pytest.mark.parametrize("durability", DURABILITIES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("branches", BRANCHES)
@pytest.mark.parametrize("where", PLACES)
def test_a_kill_at_every_event(
    where: str, branches: str, kind: str, durability: str, forker: Forker, tmp_path: Path
) -> None:
    """The same at every event of two branches, and at every third of six."""
    step = 1 if branches == "two" else 3
    assert killed_everywhere(forker, tmp_path, branches, kind, durability, step, where) > 20


if __name__ == "__main__":
    serve()
