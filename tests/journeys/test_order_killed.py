"""The order of settlements when the settling processes are killed: real processes, on threads that they share.

The processes are forked, as in `test_settle_crash`, from one that is started by ``python -m
tests.journeys.test_order_killed``.
"""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from langchain_runjournal import Event, attach
from langchain_runjournal.journal.core import core_of
from tests.journeys.test_settle_crash import JOBS, Forker, die, serve, until
from tests.settle.test_settle import made_by_hand, model, say, shown
from tests.support.agents import words
from tests.support.left_runs import begin, leave, words_of
from tests.support.places import PLACES, Place, make_place, on, place_of

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.name != "posix", reason="SIGKILL")]

OLD = ("a", "b", "c")
PATIENCE = 60.0


class World:
    """The attached graph, its threads and its journal, in a directory."""

    def __init__(self, home: Path, saver: Any) -> None:
        self.saver = saver
        self.asked = model(words("fine"))
        self.journal = place_of(home).open(busy_timeout=30.0)
        self.agent = attach(made_by_hand(self.asked, [], checkpointer=saver, name="agent"), self.journal)

    def work(self, how: str, thread_id: str) -> list[str]:
        """Recover all, or send a message to a thread. Return the outcomes, or what the model was asked."""
        if how == "recover":
            return [report.outcome for report in self.journal.recover(self.agent)]
        self.agent.invoke(say("next"), {"configurable": {"thread_id": thread_id}})
        return shown(self.asked.seen[-1])


def in_world(home: Path, work: Callable[[World], None]) -> None:
    with place_of(home).saver() as saver:
        world = World(home, saver)
        work(world)
        world.journal.close()


# --- the jobs -----------------------------------------------------------------------------------------------------------


def settles_for_ever(home: Path, owns: bool = False) -> None:
    """Claim the oldest run, and then write nothing until the process is killed. `owns`: the runs are its own, and have
    ended."""

    def work(world: World) -> None:
        if owns:
            own(world, "t")

        def put(*given: Any) -> Any:
            (home / "settler").write_text(str(os.getpid()))
            threading.Event().wait()

        world.saver.put = put
        world.journal.recover(world.agent)

    in_world(home, work)


def own(world: World, *threads: str) -> None:
    """Leave three runs of this process on each thread, begun alternately, which have ended and are not settled."""
    for name in OLD:
        for thread_id in threads:
            run_id = f"{name} of {thread_id}"
            begin(world.journal, run_id, thread_id)
            cut = {"status": "interrupted", "cause": "stop", "settled": False}
            world.journal.append(Event(run_id=run_id, kind="run.end", data=cut))
    world.journal.flush()


def waits(home: Path, thread_id: str) -> None:
    """Send a message that has to wait for a settling process: for its run, or for its thread."""

    def work(world: World) -> None:
        store: Any = core_of(world.journal).store
        claim, hold, looks = world.journal.claim, store.hold, [0]

        def look(is_there: bool) -> None:
            looks[0] += is_there
            if looks[0] == 3:
                (home / "waits").touch()

        def looking(run_id: str) -> bool:
            look(True)
            return claim(run_id)

        def asking(*given: Any) -> Any:
            found = hold(*given)
            look(not found.startswith(world.journal.owner_id))
            return found

        world.journal.claim = looking  # type: ignore[method-assign]
        store.hold = asking
        began = time.monotonic()
        seen = world.work("message", thread_id)
        (home / "seen").write_text(json.dumps([seen, time.monotonic() - began]))

    in_world(home, work)


def settles_and_dies(home: Path, how: str, thread_id: str, after: int, owns: bool = False) -> None:
    """Recover, or send a message, and die after so many steps: writes to the checkpointer and to the journal's store.

    `owns`: the runs belong to this process, and the other processes begin when it has recorded them.
    """

    def work(world: World) -> None:
        if owns:
            own(world, "t", "u")
            (home / "owns").touch()
        left, lock = [after], threading.Lock()

        def counted(verb: Any) -> Any:
            def counting(*given: Any, **more: Any) -> Any:
                result = verb(*given, **more)
                with lock:
                    left[0] -= 1
                    if left[0] == 0:
                        die()
                return result

            return counting

        store: Any = core_of(world.journal).store
        world.saver.put = counted(world.saver.put)
        store.append, store.claim, store.hold = counted(store.append), counted(store.claim), counted(store.hold)
        world.work(how, thread_id)

    in_world(home, work)


JOBS |= {job.__name__: job for job in (settles_for_ever, waits, settles_and_dies)}

# --- the tests ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def forker() -> Iterator[Forker]:
    found = Forker(__name__ if __name__ != "__main__" else "tests.journeys.test_order_killed")
    yield found
    found.close()


def left(home: Path, *threads: str) -> None:
    """Leave three killed runs on each thread, begun alternately."""
    for name in OLD:
        for thread_id in threads:
            leave(place_of(home).open, f"{name} of {thread_id}", thread_id=thread_id)


def words_on(thread_id: str) -> list[str]:
    return words_of(*(f"{name} of {thread_id}" for name in OLD))


@pytest.mark.parametrize("owns", [False, True])
@on(*PLACES)
def test_a_message_whose_settler_is_killed(owns: bool, forker: Forker, place: Place) -> None:
    """The message settles what the killed process had claimed or owned, and the newer runs, and begins at once, not after a
    minute."""
    tmp_path = Path(place.home)
    if not owns:
        left(tmp_path, "t")
    forker.begin(settles_for_ever, tmp_path, owns=owns)
    until(lambda: (tmp_path / "settler").exists() and (tmp_path / "settler").read_text() != "")
    forker.begin(waits, tmp_path, thread_id="t")
    until((tmp_path / "waits").exists)
    assert not (tmp_path / "seen").exists()
    os.kill(int((tmp_path / "settler").read_text()), signal.SIGKILL)
    assert forker.wait() == [-signal.SIGKILL, 0]
    seen, _ = json.loads((tmp_path / "seen").read_text())
    assert seen == [*words_on("t"), "U next"]


def _storm(forker: Forker, home: Path, seed: int, owns: bool = False) -> None:
    """Run recoveries and messages on two threads, each killed at a random step or not at all; then one process recovers.

    `owns`: the runs to settle belong to one of these processes, and have ended.
    """
    chance = random.Random(seed)
    if owns:
        how, thread_id = chance.choice(["recover", "message"]), chance.choice("tu")
        forker.begin(settles_and_dies, home, how=how, thread_id=thread_id, after=chance.randint(1, 40), owns=True)
        until((home / "owns").exists)
    else:
        left(home, "t", "u")
    for _ in range(chance.randint(2, 4)):
        how, thread_id = chance.choice(["recover", "message"]), chance.choice("tu")
        forker.begin(settles_and_dies, home, how=how, thread_id=thread_id, after=chance.randint(1, 25))
    codes = forker.wait()
    assert set(codes) <= {0, -signal.SIGKILL}, f"seed {seed}: {codes}"

    def look(world: World) -> None:
        world.journal.recover(world.agent)
        runs = world.journal.runs(limit=None)
        assert all(run.done for run in runs), f"seed {seed}"
        # Two messages at once run in parallel: one of them may have left the other behind.
        lost = {run.run_id: run.problem for run in runs if not run.settled and run.run_id[0] in OLD and " of " in run.run_id}
        assert lost == {}, f"seed {seed}"
        for thread_id in "tu":
            state = world.agent.get_state({"configurable": {"thread_id": thread_id}})
            found = shown(state.values["messages"])
            assert found[:6] == words_on(thread_id), f"seed {seed}"
            assert state.next == (), f"seed {seed}"

    in_world(home, look)


@pytest.mark.parametrize("seed", range(6))
@on(*PLACES, storm=["redis"])
def test_settling_processes_are_killed_anywhere(seed: int, forker: Forker, place: Place) -> None:
    """Of recoveries and messages in parallel, no run is left behind, and each thread holds all words, in order."""
    _storm(forker, Path(place.home), seed)


@pytest.mark.parametrize("seed", range(6))
@on(*PLACES)
def test_an_owner_and_other_settling_processes_are_killed_anywhere(seed: int, forker: Forker, place: Place) -> None:
    """The same holds where the owner of the runs is alive at first, and settles them at the same time."""
    _storm(forker, Path(place.home), seed, owns=True)


@pytest.mark.storm
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("kind", PLACES)
def test_a_storm_of_settling_processes(kind: str, forker: Forker, tmp_path: Path) -> None:
    """The same holds five hundred times."""
    for seed in range(1_000, 1_500):
        home = tmp_path / str(seed)
        home.mkdir()
        place = make_place(home, kind)
        _storm(forker, home, seed, owns=seed % 2 == 0)
        place.drop()


if __name__ == "__main__":
    serve()
