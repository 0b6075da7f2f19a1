"""Programs that are really killed: in a run, in the middle of a settlement, and in a resumed run.

A process that has imported everything and has no thread forks one process for each kill. That costs milliseconds, where a
program that starts from scratch costs a second. The forker is started by ``python -m tests.journeys.test_settle_crash``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage, messages_to_dict
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool

from langchain_runjournal import Event, attach, errors
from langchain_runjournal.journal.core import core_of
from tests.settle.test_settle import (
    THREAD,
    Asked,
    Hear,
    _sends,
    made_by_hand,
    made_by_langchain,
    model,
    shown,
    without_recovered,
)
from tests.support.agents import asks, words
from tests.support.places import PLACES, Place, copied_place, on, place_of

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.name != "posix", reason="SIGKILL")]

MAKERS: dict[str, Any] = {"hand": made_by_hand, "agent": made_by_langchain, "sends": _sends}
ASKING = asks(("c1", "fast", {"x": 1}), ("c2", "deadly", {"x": 2}))


# --- the programs -------------------------------------------------------------------------------------------------------


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def until(true: Callable[[], bool]) -> None:
    while not true():
        threading.Event().wait(0.002)  # for another process, which can set no event of ours


class World:
    """A graph, its threads and its journal in a directory, and how often each tool has run."""

    def __init__(self, home: Path, make: str, saver: Any, **about: Any) -> None:
        self.home = home
        self.saver = saver
        self.hear = Hear(1)
        self.requested, self.noted = threading.Event(), threading.Event()
        self.deadly: Callable[[], object] = die

        @tool
        def fast(x: int) -> str:
            """Fast."""
            self.note("fast")
            return f"fast{x}"

        @tool
        def deadly(x: int, config: RunnableConfig) -> str:
            """Kills the program, once its neighbour is known to have ended."""
            self.note("deadly")
            if self.deadly is die:
                assert self.hear.event.wait(30)
                if about.get("durability") != "exit":
                    assert self.requested.wait(30)
                    # In a node that runs all the calls, the saver gets no result before the others.
                    assert config["metadata"]["langgraph_path"][0] != "__pregel_push" or self.noted.wait(30)
            self.deadly()
            return f"deadly{x}"

        self.asked: Asked = model(*about.get("scripts", (words("fine"),)))
        self.graph = MAKERS[make](self.asked, [fast, deadly], checkpointer=saver, name="agent")
        self.journal = place_of(home).open()
        self.agent = attach(self.graph, self.journal, capture_invoke=True, **about.get("options", {}))
        self.config: RunnableConfig = {**THREAD, "callbacks": [self.hear]}

    def note(self, name: str) -> None:
        with (self.home / "ran").open("a") as file:
            file.write(f"{name}\n")

    def ran(self) -> list[str]:
        return sorted((self.home / "ran").read_text().split())

    def listen(self) -> None:
        """Notice when the saver has received the request for the tools, and the result of one."""
        saver = self.saver
        if not is_async(saver):
            put, put_writes = saver.put, saver.put_writes

            def noting(config: Any, checkpoint: Any, *rest: Any) -> Any:
                stored = put(config, checkpoint, *rest)
                self._look(self.requested, "ai", checkpoint["channel_values"].get("messages", []))
                return stored

            def noting_writes(config: Any, writes: Any, *rest: Any) -> None:
                put_writes(config, writes, *rest)
                self._look(self.noted, "tool", [value for channel, value in writes if channel == "messages"])

            saver.put, saver.put_writes = noting, noting_writes
        else:
            aput, aput_writes = saver.aput, saver.aput_writes

            async def anoting(config: Any, checkpoint: Any, *rest: Any) -> Any:
                stored = await aput(config, checkpoint, *rest)
                self._look(self.requested, "ai", checkpoint["channel_values"].get("messages", []))
                return stored

            async def anoting_writes(config: Any, writes: Any, *rest: Any) -> None:
                await aput_writes(config, writes, *rest)
                self._look(self.noted, "tool", [value for channel, value in writes if channel == "messages"])

            saver.aput, saver.aput_writes = anoting, anoting_writes

    def _look(self, event: threading.Event, kind: str, found: list[Any]) -> None:
        for one in [one for value in found for one in (value if isinstance(value, list) else [value])]:
            if one.type == kind and (kind == "tool" or one.tool_calls):
                event.set()


def is_async(saver: Any) -> bool:
    """Whether a checkpointer was opened for calls on a loop."""
    return hasattr(saver, "loop")


def human(text: str) -> Any:
    return {"messages": [HumanMessage(text, id=f"id of {text}")]}


@contextlib.contextmanager
def opened(home: Path, make: str, **about: Any) -> Iterator[World]:
    with place_of(home).saver() as saver:
        world = World(home, make, saver, **about)
        yield world
        world.journal.close()


@contextlib.asynccontextmanager
async def aopened(home: Path, make: str, **about: Any) -> Any:
    async with place_of(home).asaver() as saver:
        world = World(home, make, saver, **about)
        yield world
        await world.journal.aclose()


SCRIPTS = {
    "tools": [words("hello"), ASKING],
    "model": [words("hello"), [*words("one ", "two "), die, *words("three")]],
    "second": [words("hello"), asks(("c0", "fast", {"x": 0}), text="First. "), [*words("one ", "two "), die]],
}


def killed_run(home: Path, make: str, durability: Any, place: str, loop: bool) -> None:
    """Run two turns, of which the second one ends in the death of the program."""
    about = {"scripts": SCRIPTS[place], "durability": durability}

    async def later() -> None:
        async with aopened(home, make, **about) as world:
            await world.agent.ainvoke(human("first"), world.config, durability=durability)
            world.listen()
            await world.agent.ainvoke(human("hi"), world.config, durability=durability)

    if loop:
        asyncio.run(later())
    with opened(home, make, **about) as world:
        world.agent.invoke(human("first"), world.config, durability=durability)
        world.listen()
        world.agent.invoke(human("hi"), world.config, durability=durability)


def killed_settling(home: Path, make: str, loop: bool, how: str, step: int) -> None:
    """Settle, and die after so many steps: writes to the checkpointer, events, and writes to the journal's store."""

    async def later() -> None:
        async with aopened(home, make) as world:
            with _dies_after(world, step):
                if how == "recover":
                    await world.journal.arecover(world.agent)
                else:
                    await world.agent.ainvoke(human("next"), THREAD)

    if loop:
        asyncio.run(later())
        return
    with opened(home, make) as world, _dies_after(world, step):
        if how == "recover":
            world.journal.recover(world.agent)
        else:
            world.agent.invoke(human("next"), THREAD)


@contextlib.contextmanager
def _dies_after(world: World, step: int) -> Iterator[None]:
    lock = threading.Lock()
    left = [step]
    over: list[bool] = []

    def passed() -> None:
        with lock:
            left[0] -= 1
            if left[0] < 0 and not over:
                die()

    def counted(work: Any) -> Any:
        def counting(*args: Any, **kwargs: Any) -> Any:
            result = work(*args, **kwargs)
            passed()
            return result

        return counting

    saver: Any = world.saver
    if not is_async(saver):
        saver.put = counted(saver.put)
    else:
        aput = saver.aput

        async def acounting(*args: Any) -> Any:
            result = await aput(*args)
            passed()
            return result

        saver.aput = acounting
    store: Any = core_of(world.journal).store
    world.journal.append = counted(world.journal.append)  # type: ignore[method-assign]
    store.append, store.claim = counted(store.append), counted(store.claim)
    # Count only until the model is asked: what comes then belongs to the next run.
    world.asked.scripts.insert(0, [lambda: over.append(True), *words("fine")])
    passed()
    yield
    over.append(True)


def resumed(home: Path, make: str, durability: Any) -> None:
    """Resume the killed run, and be killed in it."""
    with opened(home, make) as world:
        world.hear.event.set()
        world.requested.set()
        world.noted.set()
        [run] = world.journal.runs(status="running")
        world.agent.invoke(None, world.journal.resume_config(run.run_id), durability=durability)


def lives(home: Path, make: str) -> None:
    """Run until a file says to end."""
    with opened(home, make, scripts=[ASKING, words("fine")]) as world:

        def wait() -> None:
            (home / "there").touch()
            until((home / "go").exists)

        world.deadly = wait
        world.agent.invoke(human("hi"), world.config, durability="sync")


def settles(home: Path, make: str, how: str) -> None:
    """Settle at the same time as another process, when a file says so."""
    with opened(home, make) as world:
        (home / f"there-{os.getpid()}").touch()
        until((home / "go").exists)
        if how == "recover":
            found = [report.outcome for report in world.journal.recover(world.agent)]
        else:
            world.agent.invoke(human("next"), THREAD)
            found = shown(world.asked.seen[-1])
        (home / f"found-{os.getpid()}").write_text(json.dumps(found))


JOBS = {job.__name__: job for job in (killed_run, killed_settling, resumed, lives, settles)}


def _forked(job: str, args: dict[str, Any]) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        JOBS[job](**{**args, "home": Path(args["home"])})
        code = 0
    except BaseException:  # no exception may continue into the tests
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def serve() -> None:
    """Fork a process for each line; for an empty line, answer with the exit codes."""
    assert threading.active_count() == 1, "it could not be forked safely"
    pids: list[int] = []
    print("ready", flush=True)
    for line in sys.stdin:
        if line.strip():
            job = json.loads(line)
            pids.append(_forked(job["job"], job["args"]))
            continue
        print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]), flush=True)
        pids.clear()
    for pid in pids:  # these belong to a test that has failed
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


# --- the tests ----------------------------------------------------------------------------------------------------------


class Forker:
    """The process that forks."""

    def __init__(self, module: str = "tests.journeys.test_settle_crash") -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.stdin, self.stdout = self.process.stdin, self.process.stdout
        assert self.stdout.readline() == "ready\n"
        self.begun = 0

    def begin(self, job: Callable[..., None], home: Path, **args: Any) -> None:
        self.begun += 1
        print(json.dumps({"job": job.__name__, "args": {"home": str(home), **args}}), file=self.stdin, flush=True)

    def wait(self) -> list[int]:
        print(file=self.stdin, flush=True)
        found: list[int] = json.loads(self.stdout.readline())
        self.begun = 0
        return found

    def run(self, job: Callable[..., None], home: Path, **args: Any) -> bool:
        """Return whether the process was killed. Any other exit than a kill or success is an error."""
        self.begin(job, home, **args)
        [code] = self.wait()
        assert code in (0, -signal.SIGKILL), f"it failed, see above: {code}"
        return code != 0

    def close(self) -> None:
        self.stdin.close()
        self.process.wait(30)
        self.stdout.close()


@pytest.fixture(scope="module")
def forkers() -> Iterator[list[Forker]]:
    found = [Forker()]
    yield found
    for one in found:
        one.close()


@pytest.fixture
def forker(forkers: list[Forker]) -> Forker:
    """Return a forker. Replace it after a test that failed in the middle, whose processes may still be running."""
    if forkers[-1].begun:
        forkers.append(Forker())
    return forkers[-1]


@pytest.fixture
def home(place: Place) -> Path:
    return Path(place.home)


Copy = Callable[[Path], Path]


@pytest.fixture
def copy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Copy]:
    """Copies a directory with all that is kept there, and deletes the databases of the copies at the end."""
    made: list[Place] = []

    def copy_home(home: Path) -> Path:
        made.append(copied_place(home, tmp_path_factory.mktemp("copies") / "home"))
        return Path(made[-1].home)

    yield copy_home
    for place in made:
        place.drop()


def _killed(forker: Forker, home: Path, make: str, durability: str, place: str, loop: bool) -> None:
    assert forker.run(killed_run, home, make=make, durability=durability, place=place, loop=loop)


EXPECTED = {
    "tools": ["U first", "A hello", "U hi", "A Looking. (c1,c2)", "T c1=fast1", "T* c2=started"],
    "model": ["U first", "A hello", "U hi", "A~ one two "],
    "second": ["U first", "A hello", "U hi", "A First. (c0)", "T c0=fast0", "A~ one two "],
}

CASES = [
    ("hand", "async", "tools", False),
    ("agent", "async", "tools", False),
    ("hand", "exit", "tools", False),
    ("agent", "exit", "second", False),
    ("sends", "async", "tools", True),
    ("hand", "exit", "model", True),
]
IN_CI = {"sqlite": CASES, "postgres": [CASES[0], CASES[4]], "redis": [CASES[5]]}
CASES_AT = [
    pytest.param(kind, *case, marks=() if case in IN_CI[kind] else pytest.mark.storm) for kind in PLACES for case in CASES
]


@pytest.mark.guarantee("before the next message")
@pytest.mark.parametrize(("place", "make", "durability", "where", "loop"), CASES_AT, indirect=["place"])
def test_killed_between_any_two_steps_of_a_settlement(
    home: Path, make: str, durability: str, where: str, loop: bool, forker: Forker, copy: Copy
) -> None:
    """Wherever the first settlement is killed, `recover` or the next message makes the same thread, ids included, and one
    end."""
    base = home
    _killed(forker, base, make, durability, where, loop)
    wanted = _settled(copy(base), make, "recover")
    assert without_recovered(shown(wanted)) == EXPECTED[where]
    step, killed = 0, True
    while killed:
        home = copy(base)
        how = ("recover", "message")[step % 2]
        killed = forker.run(killed_settling, home, make=make, loop=loop, how=how, step=step)
        # The process must not get any further than the settlement.
        then = ("recover", "message")[step // 2 % 2] if killed else "recover"
        found = _settled(home, make, then)
        assert _comparable(found[: len(wanted)]) == _comparable(wanted), f"killed after step {step}"
        tail = shown(found[len(wanted) :])
        # The message of the run that was killed in the middle of its settlement is not lost either.
        assert tail[: len(tail) - (2 if then == "message" else 0)] in ([], ["U+ next"], ["U next", "A fine"])
        assert then == "recover" or tail[-2:] == ["U again", "A fine"]
        step += 1
    assert step > 6


def _comparable(messages: list[Any]) -> list[Any]:
    """Return what must be equal. LangGraph gives the result of a finished task an id when it is applied, so ids of results
    may differ."""
    found = messages_to_dict(messages)
    for one in found:
        if one["type"] == "tool" and not one["data"]["additional_kwargs"]:
            del one["data"]["id"]
    return found


def _settled(home: Path, make: str, how: str) -> list[Any]:
    """Return the thread after a settlement in this process."""
    with opened(home, make) as world:
        if how == "recover":
            world.journal.recover(world.agent)
        else:
            world.agent.invoke(human("again"), THREAD)
        state = world.agent.get_state(THREAD)
        assert (state.next, state.tasks) == ((), ())
        runs = [run for run in world.journal.runs() if run.status != "completed"]
        for run in runs:
            kinds = [event.kind for event in world.journal.read(run.run_id)]
            assert (run.status, run.cause, run.settled, kinds.count("run.end")) == ("interrupted", "crash", True, 1)
        assert world.journal.recover(world.agent) == []
        messages: list[Any] = state.values["messages"]
        return messages


@pytest.mark.guarantee("user's message")
@pytest.mark.parametrize("durability", ["async", "exit"])
@pytest.mark.parametrize("how", ["recover", "message"])
@on(*PLACES, storm=["redis"])
def test_what_a_killed_program_left(how: str, durability: str, forker: Forker, home: Path) -> None:
    """`recover` reports the run and what it wrote, or the next message settles it and its model gets the whole thread."""
    _killed(forker, home, "agent", durability, "tools", False)
    with opened(home, "agent") as world:
        if how == "recover":
            [report] = world.journal.recover(world.agent)
            assert (report.thread_id, report.outcome) == ("t", "settled")
            assert [told["origin"] for told in report.messages].count("synthetic") == 1
        world.agent.invoke(human("next"), THREAD)
        assert without_recovered(shown(world.asked.seen[-1])) == [*EXPECTED["tools"], "U next"]


def test_never_also_means_what_a_killed_program_left(forker: Forker, home: Path) -> None:
    """With "never", the next message does not settle it; `recover` does."""
    _killed(forker, home, "agent", "async", "tools", False)
    with opened(home, "agent", options={"settle": "never"}) as world:
        [run] = world.journal.runs(status="running")
        [report] = world.journal.recover(world.agent)
        assert (report.run_id, report.outcome) == (run.run_id, "settled")


@pytest.mark.parametrize("second", ["recover", "message"])
@on(*PLACES)
def test_two_programs_settle_at_once(second: str, forker: Forker, home: Path, copy: Copy) -> None:
    """One of them settles, the thread is the same, and a new message waits for it."""
    _killed(forker, home, "hand", "async", "tools", False)
    wanted = _settled(copy(home), "hand", "recover")
    for how in ("recover", second):
        forker.begin(settles, home, make="hand", how=how)
    until(lambda: len(list(home.glob("there-*"))) == 2)
    (home / "go").touch()
    assert forker.wait() == [0, 0]
    found = [json.loads(file.read_text()) for file in home.glob("found-*")]
    reports = [outcome for one in found for outcome in one if outcome == "settled"]
    if second == "message":
        [seen] = [one for one in found if one and one[-1] == "U next"]
        assert without_recovered(seen) == [*EXPECTED["tools"], "U next"]
        assert len(reports) <= 1
    else:
        assert reports == ["settled"]
    after = _settled(home, "hand", "recover")
    assert _comparable(after[: len(wanted)]) == _comparable(wanted)


@on(*PLACES, storm=["redis"])
def test_a_new_message_settles_what_another_program_has_claimed_and_left(forker: Forker, home: Path) -> None:
    """A message waits for another process that could not settle because of that very message, and settles in its place."""
    _killed(forker, home, "agent", "async", "tools", False)
    with opened(home, "agent") as world, place_of(home).open() as other:
        [run] = other.runs(status="running")
        assert other.claim(run.run_id)
        look = world.journal.run

        def looking(run_id: str) -> Any:
            found = look(run_id)
            if run_id == run.run_id and not found.ended:
                ending = {"status": "interrupted", "cause": "crash", "settled": False}
                other.append(Event(run_id=run_id, kind="run.end", data=ending))
                other.flush()
            return found

        world.journal.run = looking  # type: ignore[method-assign]
        world.agent.invoke(human("next"), THREAD)
        assert without_recovered(shown(world.asked.seen[-1])) == [*EXPECTED["tools"], "U next"]
        assert [event.kind for event in other.read(run.run_id)].count("run.end") == 1


@on(*PLACES)
def test_a_run_of_a_program_that_lives_is_never_touched(forker: Forker, home: Path) -> None:
    """Neither `recover` nor a new message on its thread touches a run of a living process, which runs to its end."""
    forker.begin(lives, home, make="agent")
    until((home / "there").exists)
    with opened(home, "agent") as world:
        before = world.agent.get_state(THREAD)
        assert world.journal.recover(world.agent) == []
        [run] = world.journal.runs()
        assert (run.status, run.owner == world.journal.owner_id) == ("running", False)
        assert world.agent.get_state(THREAD) == before
        world.agent.invoke(human("next"), THREAD)
        assert shown(world.asked.seen[-1]) == ["U hi", "A Looking. (c1,c2)", "U next"]
        assert world.journal.run(run.run_id).status == "running"
        (home / "go").touch()
        assert forker.wait() == [0]
        ended = world.journal.run(run.run_id)
        assert (ended.status, ended.settled, ended.epoch) == ("completed", True, 1)
        assert "run.settled" not in [event.kind for event in world.journal.read(run.run_id)]


@pytest.mark.parametrize("durability", ["sync", "async"])
@pytest.mark.parametrize("make", ["hand", "agent"])
@pytest.mark.parametrize("first", ["at-once", "recovered"])
@on(*PLACES, storm=PLACES[1:])
def test_resumed_again_after_it_was_killed_twice(first: str, make: str, durability: str, forker: Forker, home: Path) -> None:
    """With one task for each call, a tool that has finished never runs again, however often the program is killed."""
    _killed(forker, home, make, durability, "tools", False)
    assert forker.run(resumed, home, make=make, durability=durability)
    with opened(home, make) as world:
        runs = world.journal.runs()
        assert [run.status for run in runs] == ["running", "running", "completed"]
        if first == "recovered":
            assert [report.is_final for report in world.journal.recover(world.agent)] == [True, True]
            assert without_recovered(shown(world.agent.get_state(THREAD).values["messages"])) == EXPECTED["tools"]
        world.deadly = lambda: None
        world.agent.invoke(None, world.journal.resume_config(runs[1].run_id))
        found = shown(world.agent.get_state(THREAD).values["messages"])
        assert found == [*EXPECTED["tools"][:5], "T c2=deadly2", "A fine"]
        assert world.ran().count("deadly") == 3
        assert world.ran().count("fast") in ((1,) if make == "agent" else (2, 3))


@pytest.mark.parametrize("recovered", [True, False])
def test_there_is_nothing_to_resume_where_nothing_was_checkpointed(recovered: bool, forker: Forker, home: Path) -> None:
    """With durability="exit" a killed run has no checkpoint, and the error says what to do."""
    _killed(forker, home, "agent", "exit", "tools", False)
    with opened(home, "agent") as world:
        [run] = world.journal.runs(status="running")
        if recovered:
            world.journal.recover(world.agent)
        with pytest.raises(errors.NothingToResume, match="before its first checkpoint"):
            world.journal.resume_config(run.run_id)


if __name__ == "__main__":
    serve()
