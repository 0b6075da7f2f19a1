"""A crowd: 200 runs at once, a random half of them stopped at random moments, in one process or in four.

python -m tests.runs.test_start_run_many HOME WORKER
"""

from __future__ import annotations

import asyncio
import gc
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.language_models.chat_models import agenerate_from_stream
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

from langchain_runjournal import RunHandle, RunJournal, attach, is_partial, is_synthetic, start_run
from tests.support.agents import asks, words
from tests.support.conversations import PATIENCE, Observer, build, nothing_is_wrong, open_saver, the_rest
from tests.support.places import PLACES, Place, place_of
from tests.support.places import on as on_places
from tests.support.started_agent import KINDS, facts, nothing_is_left, on, say

RUNS = 200
ROOT = Path(__file__).parents[2]


@dataclass
class One:
    """A run of the crowd: what it does when, and what the test saw of it."""

    number: int
    stop_at: int | None
    """The number of the step of its model and its tools at which the test stops it, if it gets that far."""
    is_stopped_elsewhere: bool = False
    """Whether another process stops it. The run then waits for the stop at that step."""
    steps: int = 0
    heard: str = ""
    handle: RunHandle | None = None
    observer: Observer = field(default_factory=Observer)
    calls: int = 0

    async def step(self) -> None:
        self.steps += 1
        await asyncio.sleep(0)
        if self.steps == self.stop_at and self.is_stopped_elsewhere:
            await asyncio.Event().wait()
        elif self.steps == self.stop_at and self.handle is not None:
            # In another task, as a stop is: the stop cancels the run itself.
            await self.handle._journal.astop(self.handle.run_id)

    def script(self) -> list[Any]:
        self.calls += 1
        if self.calls == 1:
            said = [*words(*(f"a{word} " for word in range(10)))]
            number = {"number": self.number}
            return [*said, *asks(("quick", "quick", number), ("plod", "plod", number), ("long", "long", number), text="")]
        return words(*(f"b{word} " for word in range(10)))


class Crowded(BaseChatModel):
    """A model that says to each run what is meant for it."""

    crowd: Any

    @property
    def _llm_type(self) -> str:
        return "crowded"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self

    async def _astream(self, messages: Any, *args: Any, **kwargs: Any) -> AsyncIterator[ChatGenerationChunk]:
        asked = [message.text for message in messages if message.type == "human"][-1]
        if asked == "next":
            yield ChatGenerationChunk(message=words("fine")[0])
            return
        one = self.crowd[int(asked)]
        for chunk in one.script():
            await one.step()
            yield ChatGenerationChunk(message=chunk)

    def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
        raise NotImplementedError

    async def _agenerate(self, messages: Any, *args: Any, **kwargs: Any) -> ChatResult:
        return await agenerate_from_stream(self._astream(messages))


def tools_of(crowd: list[One]) -> list[Any]:
    @tool
    async def quick(number: int) -> str:
        """Quick."""
        await crowd[number].step()
        return f"quick {number}"

    @tool
    def plod(number: int) -> str:
        """On a thread."""
        return f"plod {number}"

    @tool
    async def long(number: int) -> str:
        """Takes its time."""
        for _ in range(20):
            await crowd[number].step()
        return f"long {number}"

    return [quick, plod, long]


async def live(agent: Any, one: One) -> None:
    """Run one of the crowd from its start to its end, with a reader of its chunks."""
    config = on(f"t{one.number}", callbacks=[one.observer])
    one.handle = await start_run(agent, say(str(one.number)), config, stream_mode="messages", grace=5.0)
    async for chunk, _ in one.handle.stream():
        if chunk.type == "AIMessageChunk":
            one.heard += chunk.text


async def check(agent: Any, journal: RunJournal, one: One) -> str:
    """Assert all that must hold of a run that is over, and return how it has ended."""
    assert one.handle is not None
    run = await one.handle.wait()
    assert facts(run) in (("completed", None, True), ("interrupted", "stop", True)), facts(run)
    assert run.status != "completed" or one.stop_at is None or one.steps < one.stop_at or run.stop is None
    events = await journal.aread(run.run_id)
    assert [event.seq for event in events] == list(range(1, run.last_seq + 1))
    kinds = [event.kind for event in events]
    assert (kinds[0], kinds.count("run.end"), kinds.count("run.stop")) == ("run.start", 1, int(run.stop is not None))
    state = await agent.aget_state(on(f"t{one.number}"))
    assert (state.next, state.tasks) == ((), ())
    messages = state.values["messages"]
    held = "".join(message.text for message in messages if message.type == "ai")
    whole = "".join(f"{part}{word} " for part in "ab" for word in range(10))
    journaled = "".join(event.text for event in events if event.kind == "llm.ai.delta")
    assert held.startswith(one.heard), "the thread lacks what its reader has heard"
    assert (whole.startswith(held), journaled) == (True, held)
    assert (held == whole) or run.status == "interrupted"
    results = {message.tool_call_id: message for message in messages if message.type == "tool"}
    asked = {call["id"] for message in messages if message.type == "ai" for call in message.tool_calls}
    assert set(results) == asked
    for id, result in results.items():
        assert is_synthetic(result) == (f"0 {id}" not in one.observer.results), f"{id} of {one.number}"
        assert is_synthetic(result) or result.text == f"{id} {one.number}"
    assert not [message for message in messages[:-1] if message.type == "ai" and is_partial(message)]
    return run.status.value


def crowd_of(rng: random.Random, *, is_stopped_elsewhere: bool = False) -> list[One]:
    stopped = set(rng.sample(range(RUNS), RUNS // 2))
    most = 30 if is_stopped_elsewhere else 50  # each run has 33 steps at least
    return [One(number, rng.randint(1, most) if number in stopped else None, is_stopped_elsewhere) for number in range(RUNS)]


@pytest.mark.parametrize("saver", ["memory", "file"])
@pytest.mark.parametrize("kind", KINDS[-1:])
@on_places(*PLACES, slow=["postgres"], storm=["redis"])
def test_a_crowd(place: Place, kind: str, saver: str) -> None:
    """All runs have ended and are settled, no event is missing, and nothing is left: no task, thread, file, or memory."""
    rng = random.Random(5)
    crowd = crowd_of(rng)
    stopped = {one.number for one in crowd if one.stop_at is not None}
    path = None if saver == "memory" else place.threads

    async def all_of_them() -> None:
        async with open_saver(InMemorySaver(), path) as opened, place.open() as journal:
            agent = attach(build(kind, Crowded(crowd=crowd), tools_of(crowd), opened), journal)  # type: ignore[arg-type]
            await asyncio.wait_for(asyncio.gather(*[live(agent, one) for one in crowd]), 3 * PATIENCE)
            ends = [await check(agent, journal, one) for one in crowd]
            assert RUNS // 4 < ends.count("interrupted") <= RUNS // 2
            assert all(ends[number] == "completed" for number in range(RUNS) if number not in stopped)
            assert len(await journal.aruns(limit=None)) == RUNS
            for number in rng.sample(range(RUNS), 20):
                run = await (await start_run(agent, say("next"), on(f"t{number}"))).wait()
                assert facts(run) == ("completed", None, True)
            await the_rest()
            assert asyncio.all_tasks() == {asyncio.current_task()}
            nothing_is_left(journal)

    def left() -> tuple[set[str], int]:
        gc.collect()
        return {thread.name for thread in threading.enumerate()}, len(os.listdir("/proc/self/fd"))

    def is_no_more(now: tuple[set[str], int], than: tuple[set[str], int]) -> bool:
        # A thread of the test before may still have been about to end.
        return now[0] <= than[0] and now[1] <= than[1]

    with nothing_is_wrong():
        asyncio.run(asyncio.sleep(0))
        before = left()
        asyncio.run(all_of_them())
        give_up = time.monotonic() + PATIENCE
        while not is_no_more(left(), before) and time.monotonic() < give_up:
            time.sleep(0.01)  # a thread that was asked to end
        assert is_no_more(left(), before)


# --- in several processes -----------------------------------------------------------------------------------------------

WORKERS = 4


async def stop(journal: RunJournal, number: int) -> None:
    """Follow a run of another process until it has said something, and stop it."""
    while not (runs := await journal.aruns(f"t{number}")):  # noqa: ASYNC110 - another process can set no event of ours
        await asyncio.sleep(0.01)
    async for event in journal.afollow(runs[0].run_id):
        if event.kind == "llm.ai.delta":
            break
    run = await journal.astop(runs[0].run_id, wait=True, timeout=PATIENCE)
    assert facts(run) == ("interrupted", "stop", True), run


async def work(home: Path, worker: int) -> None:
    """Run every fourth run of the crowd, and stop those of the next worker that are to be stopped."""
    crowd, place = crowd_of(random.Random(5), is_stopped_elsewhere=True), place_of(home)
    async with place.asaver("pool") as saver, place.open() as journal:
        agent = attach(build("by hand", Crowded(crowd=crowd), tools_of(crowd), saver), journal)  # type: ignore[arg-type]
        mine, others = crowd[worker::WORKERS], crowd[(worker + 1) % WORKERS :: WORKERS]
        stops = [stop(journal, one.number) for one in others if one.stop_at is not None]
        with nothing_is_wrong():
            await asyncio.wait_for(asyncio.gather(*[live(agent, one) for one in mine], *stops), 3 * PATIENCE)
            ends = [await check(agent, journal, one) for one in mine]
        assert [end == "completed" for end in ends] == [one.stop_at is None for one in mine]
        await the_rest()
        nothing_is_left(journal)


@pytest.mark.slow
@on_places("postgres", "redis", storm=["redis"])
def test_a_crowd_in_several_processes(place: Place) -> None:
    """Each of four processes runs fifty, and stops half of another's: all have ended, are settled, and lack no event."""
    command = [sys.executable, "-m", "tests.runs.test_start_run_many", place.home]
    workers = [
        subprocess.Popen([*command, str(worker)], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for worker in range(WORKERS)
    ]
    try:
        said = [worker.communicate(timeout=4 * PATIENCE)[0] for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()
    assert said == [""] * WORKERS
    with place.open() as journal:
        runs = journal.runs(limit=None)
        assert [facts(run)[2] for run in runs] == [True] * RUNS
        assert len([run for run in runs if run.status == "interrupted"]) == RUNS // 2
        assert len({run.thread_id for run in runs}) == RUNS


if __name__ == "__main__":
    asyncio.run(work(Path(sys.argv[1]), int(sys.argv[2])))
