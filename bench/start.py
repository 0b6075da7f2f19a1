"""The cost of a run in a task of its own, and the time to stop one, in this process and in another.

`python -m bench.start DIRECTORY` is that other process: it begins a run for each line on stdin, and reports when the run was
cut off.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from itertools import cycle
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage
from langchain_core.outputs import ChatGenerationChunk
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.types import StateUpdate

from langchain_runjournal import RunJournal, attach, is_partial, start_run

from ._children import Child
from ._load import WORDS, new_id
from ._models import Model
from ._stats import Sample, seconds, spread, times
from ._threads import Answers, by_hand
from ._tools import Bench, heading, note, table

_PLAIN, _QUEUE = "astream, not recorded", "the same in a task, by a queue"
_ATTACHED, _FLUSHED, _STARTED = "attached.astream", "attached.astream, aflush", "start_run, stream, wait"
_CUT_PLAIN, _CUT_BY_HAND = "cancel, not recorded", "the same, and three supersteps by hand"
_CUT_ATTACHED, _STOPPED = "cancel attached.astream", "journal.astop(wait=True)"
_SHORT, _LONG = 1, 2_000
_SAID: Final = 12
"""The maximum number of chunks before a run is stopped."""
_PACE: Final = 0.001
"""Seconds between two tokens of a run that is stopped."""
_LONGEST: Final = 0.3
"""The maximum number of seconds before another process stops a run: more than the polling interval of the owner."""
_ROOM: Final = 64
"""The capacity of the queue in chunks: as far as a reader of `start_run` may fall behind."""
_ASKED: Final[Any] = {"messages": [HumanMessage("What does the cat do?")]}


def run(bench: Bench) -> None:
    """Run the section."""
    bench.begin("start")
    heading("14. A run in a task of its own")
    with bench.directory() as directory:
        with _stage(directory / "short", Answers(tokens=_SHORT)) as stage:
            short = _turns(bench, stage, "start, per run", bench.pick(41, 2), bench.pick(10, 2))
        with _stage(directory / "long", Answers(tokens=_LONG)) as stage:
            long = _turns(bench, stage, "start, per chunk", bench.pick(31, 2), 1)
        _tell_costs(short, long)
        with _stage(directory / "here", _Talks()) as stage:
            _stop_here(bench, stage)
        _stop_there(bench, directory / "there")


# --- the cost ----------------------------------------------------------------------------------------------------


def _turns(bench: Bench, stage: Any, what: str, repetitions: int, turns: int) -> dict[str, dict[str, Sample]]:
    """Return, for each contender, the time of a turn, the time until its first chunk, and its CPU time."""
    ways: dict[str, Callable[..., Awaitable[int]]] = {
        _PLAIN: partial(_read, stage.plain),
        _QUEUE: partial(_by_queue, stage.plain),
        _ATTACHED: partial(_read, stage.attached),
        _FLUSHED: partial(_read_and_flush, stage),
        _STARTED: partial(_started, stage),
    }
    first: dict[str, list[float]] = {name: [] for name in ways}
    processor: dict[str, list[float]] = {name: [] for name in ways}
    contenders = {name: partial(_timed, stage, way, turns, first[name], processor[name]) for name, way in ways.items()}
    for one in contenders.values():
        one()
    whole = bench.interleave(what, contenders, repetitions)
    runs = stage.journal.runs(limit=None)
    expected = 3 * turns * (repetitions + 1)
    if len(runs) != expected or any(run.status != "completed" for run in runs):
        raise AssertionError(f"{len(runs)} of {expected} turns were recorded")
    return {name: {"whole": whole[name], "first": Sample(first[name]), "cpu": Sample(processor[name])} for name in ways}


def _timed(stage: Any, way: Callable[..., Awaitable[int]], turns: int, first: list[float], processor: list[float]) -> float:
    config: Any = {"configurable": {"thread_id": new_id()}}
    stage.journal.flush()
    gc.collect()
    came: list[float] = []
    began, worked = time.monotonic(), time.process_time()
    for _ in range(turns):
        asked = time.monotonic()
        said = stage.loop.run_until_complete(way(config, came))
        came[-1] -= asked
        if said < stage.model.tokens:
            raise AssertionError(f"only {said} chunks arrived")
    took = time.monotonic() - began
    processor.append((time.process_time() - worked) / turns)
    first.append(Sample(came).median)
    return took / turns


async def _read(graph: Any, config: Any, came: list[float]) -> int:
    return await _count(graph.astream(_ASKED, config, stream_mode="messages"), came)


async def _count(chunks: Any, came: list[float]) -> int:
    said = 0
    async for _ in chunks:
        if not said:
            came.append(time.monotonic())
        said += 1
    return said


async def _read_and_flush(stage: Any, config: Any, came: list[float]) -> int:
    said = await _read(stage.attached, config, came)
    await stage.journal.aflush()
    return said


async def _by_queue(graph: Any, config: Any, came: list[float]) -> int:
    """Do by hand what lets a graph outlive its client: a task and a queue."""
    queue: asyncio.Queue[Any] = asyncio.Queue(_ROOM)

    async def work() -> None:
        async for chunk in graph.astream(_ASKED, config, stream_mode="messages"):
            await queue.put(chunk)
        await queue.put(None)

    async def chunks() -> AsyncIterator[Any]:
        while (chunk := await queue.get()) is not None:
            yield chunk

    task = asyncio.create_task(work())
    said = await _count(chunks(), came)
    await task
    return said


async def _started(stage: Any, config: Any, came: list[float]) -> int:
    handle = await start_run(stage.attached, _ASKED, config, stream_mode="messages")
    said = await _count(handle.stream(), came)
    await handle.wait()
    return said


def _tell_costs(short: dict[str, dict[str, Sample]], long: dict[str, dict[str, Sample]]) -> None:
    note(f"One node that calls a model, stream_mode messages, AsyncSqliteSaver on a file. A run: of {_SHORT} token, on a")
    note("thread with a few turns. First chunk: since the call. CPU: all threads of the process. The wait() of start_run")
    note("returns the run when it is durable, like aflush after attached.astream.")
    names = ["", "a run", "p25 .. p75", "to plain", "to attached", "first chunk", "CPU", ""]
    table(names, [_run_row(name, short) for name in short])
    note(f"A chunk: a run of {_LONG:,} tokens, minus the run of {_SHORT}, divided by {_LONG - _SHORT:,}.")
    each = {name: (long[name]["whole"].median - short[name]["whole"].median) / (_LONG - _SHORT) for name in short}
    busy = {name: (long[name]["cpu"].median - short[name]["cpu"].median) / (_LONG - _SHORT) for name in short}
    rows = [
        [
            name,
            seconds(each[name]),
            times(each[name] / each[_PLAIN]),
            times(each[name] / each[_ATTACHED]),
            seconds(busy[name]),
            seconds(long[name]["whole"].median),
            spread(long[name]["whole"]),
            "",
        ]
        for name in each
    ]
    table(["", "a chunk", "to plain", "to attached", "CPU", "the run", "p25 .. p75", ""], rows)


def _run_row(name: str, found: dict[str, dict[str, Sample]]) -> list[str]:
    whole = found[name]["whole"]
    ratios = [times(whole.median / found[base]["whole"].median) for base in (_PLAIN, _ATTACHED)]
    rest = [seconds(found[name][part].median) for part in ("first", "cpu")]
    return [name, seconds(whole.median), spread(whole), *ratios, *rest, ""]


# --- the time to stop ----------------------------------------------------------------------------------------


class _Talks(Model):
    """A model that streams without end, and can be cancelled at once."""

    cut: Any = None
    """Called when the model has been cancelled."""

    async def _astream(self, *args: Any, **kwargs: Any) -> AsyncIterator[ChatGenerationChunk]:
        try:
            for word in cycle(WORDS):
                yield ChatGenerationChunk(message=AIMessageChunk(content=word))
                await asyncio.sleep(_PACE)
        finally:
            self.cut()


def _stop_here(bench: Bench, stage: Any) -> None:
    count = bench.pick(300, 4)
    acts: dict[str, Callable[..., Awaitable[tuple[float, float]]]] = {
        _CUT_PLAIN: partial(_cancelled, stage.plain),
        _CUT_BY_HAND: partial(_settled_by_hand, stage.plain),
        _CUT_ATTACHED: partial(_cancelled, stage.attached),
        _STOPPED: partial(_stopped, stage),
    }
    parts: dict[str, list[float]] = {name: [] for name in acts}
    contenders = {name: partial(_cut_short, bench, stage, act, parts[name]) for name, act in acts.items()}
    for one in contenders.values():
        one()
    found = bench.interleave("start, stops in the process", contenders, count)
    _check(stage, 2 * (count + 1))
    note(f"{count} runs each, in shuffled order, stopped in mid-stream, after 1 to {_SAID} tokens, {seconds(_PACE)} apart.")
    note("Over: the task has ended; with a journal, the thread is also settled and everything durable. By hand: the")
    note("supersteps of LangGraph that put a given message into the thread and leave no pending step.")
    base = found[_CUT_BY_HAND].median
    rows = [_stop_row(name, found[name], Sample(parts[name][1:]), base) for name in acts]
    table(["in one process", "asked to over, p50", "p99", "max", "to by hand", "asked to cut, p50", "p99", ""], rows)


def _stop_row(name: str, whole: Sample, until_cut: Sample, base: float) -> list[str]:
    told = [seconds(whole.median), seconds(whole.at(0.99)), seconds(whole.most), times(whole.median / base)]
    return [name, *told, seconds(until_cut.median), seconds(until_cut.at(0.99)), ""]


def _cut_short(
    bench: Bench, stage: Any, act: Callable[..., Awaitable[tuple[float, float]]], until_cut: list[float]
) -> float:
    """Begin one run, and return how long it took to stop it."""
    config: Any = {"configurable": {"thread_id": new_id()}}
    gc.collect()
    asked, over = stage.loop.run_until_complete(act(config, bench.random.randint(1, _SAID)))
    until_cut.append(stage.cuts.pop() - asked)
    return float(over - asked)


async def _cancelled(graph: Any, config: Any, most: int) -> tuple[float, float]:
    heard = asyncio.Event()
    task = asyncio.create_task(_hear(graph.astream(_ASKED, config, stream_mode="messages"), most, heard))
    await heard.wait()
    asked = time.monotonic()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    return asked, time.monotonic()


async def _settled_by_hand(graph: Any, config: Any, most: int) -> tuple[float, float]:
    asked, _ = await _cancelled(graph, config, most)
    said = StateUpdate({"messages": [AIMessage("It sat", id="said")]}, "__start__")
    clear = StateUpdate(None, "__end__")
    await graph.abulk_update_state(config, [[clear], [said], [clear]])
    return asked, time.monotonic()


async def _stopped(stage: Any, config: Any, most: int) -> tuple[float, float]:
    heard = asyncio.Event()
    handle = await start_run(stage.attached, _ASKED, config, stream_mode="messages")
    reader = asyncio.create_task(_hear(handle.stream(), most, heard))
    await heard.wait()
    asked = time.monotonic()
    await stage.journal.astop(handle.run_id, wait=True)
    over = time.monotonic()
    await reader
    return asked, over


async def _hear(chunks: Any, most: int, heard: asyncio.Event) -> None:
    said = 0
    async for _ in chunks:
        said += 1
        if said == most:
            heard.set()


def _check(stage: Any, count: int) -> None:
    """Check that every run was stopped and settled, and that its partial answer is in the thread."""
    runs = stage.journal.runs(limit=None)
    if len(runs) != count or any(run.status != "interrupted" or not run.settled for run in runs):
        raise AssertionError(f"{len(runs)} of {count} runs were recorded, and not all of them were settled")
    for run in runs:
        config: Any = {"configurable": {"thread_id": run.thread_id}}
        state = stage.loop.run_until_complete(stage.plain.aget_state(config))
        if state.next or not is_partial(state.values["messages"][-1]):
            raise AssertionError(f"thread {run.thread_id} is not whole: {state.next}")


# --- in another process -----------------------------------------------------------------------------------------------


def _stop_there(bench: Bench, directory: Path) -> None:
    """Stop runs of another process from this one."""
    count = bench.pick(100, 4)
    whole, until_cut, until_over = [], [], []
    directory.mkdir()
    with Child("start", str(directory)) as other:
        other.hear()
        with RunJournal(directory / "runs.db") as journal:
            for done in range(count + 1):
                run_id = other.ask(str(bench.random.randint(1, _SAID)))
                time.sleep(bench.random.uniform(0, _LONGEST))
                asked = time.monotonic()
                run = journal.stop(run_id, wait=True)
                whole.append(time.monotonic() - asked)
                cut, over = other.hear()
                until_cut.append(cut - asked)
                until_over.append(over - cut)
                if run.status != "interrupted" or not run.settled:
                    raise AssertionError(f"run {run_id} was not stopped: {run}")
                bench.noise.sample()
                bench.progress("start, stops in another process", done, count)
    parts = {"in all": whole, "until the owner has noticed and cut the model": until_cut}
    parts["until the thread is settled and everything durable"] = until_over
    parts["until this process sees that"] = [all_ - a - b for all_, a, b in zip(whole, until_cut, until_over, strict=True)]
    note(f"{count} runs in another process, in mid-stream, each at a random moment; all clocks are of one machine.")
    rows = []
    for name, values in parts.items():
        found = Sample(values[1:])  # the first one warms up
        rows.append([name, seconds(found.median), spread(found), seconds(found.at(0.99)), seconds(found.most), ""])
    table(["journal.stop(wait=True), from another process", "p50", "p25 .. p75", "p99", "max", ""], rows)


async def _serve(directory: Path) -> None:
    """Run the other process: begin a run, and report when it streams, when it was cut off, and when it was over."""
    async with _opened(directory, _Talks()) as stage:
        print(json.dumps("ready"), flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            heard = asyncio.Event()
            config: Any = {"configurable": {"thread_id": new_id()}}
            handle = await start_run(stage.attached, _ASKED, config, stream_mode="messages")
            reader = asyncio.create_task(_hear(handle.stream(), int(line), heard))
            await heard.wait()
            print(json.dumps(handle.run_id), flush=True)
            await handle.wait()
            over = time.monotonic()
            await reader
            print(json.dumps([stage.cuts.pop(), over]), flush=True)


# --- the graphs -------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _opened(directory: Path, model: Model) -> AsyncIterator[Any]:
    """Yield a graph with that model, attached and plain, on files of its own."""
    cuts: list[float] = []
    if isinstance(model, _Talks):
        model.cut = lambda: cuts.append(time.monotonic())
    with RunJournal(directory / "runs.db") as journal:
        async with AsyncSqliteSaver.from_conn_string(str(directory / "threads.db")) as saver:
            await saver.setup()
            plain = by_hand(model, [], saver, "bench")
            yield SimpleNamespace(journal=journal, plain=plain, attached=attach(plain, journal), model=model, cuts=cuts)


@contextmanager
def _stage(directory: Path, model: Model) -> Iterator[Any]:
    """Yield the same, with an event loop to run it on."""
    directory.mkdir()
    loop = asyncio.new_event_loop()
    try:
        opened = _opened(directory, model)
        stage = loop.run_until_complete(opened.__aenter__())
        stage.loop = loop
        try:
            yield stage
        finally:
            loop.run_until_complete(opened.__aexit__(None, None, None))
    finally:
        loop.close()


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1])))
