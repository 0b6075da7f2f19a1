"""The cost of a whole turn of a graph: not recorded, with a handler, and attached."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiosqlite
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from langchain_runjournal import JournalCallbackHandler, RunJournal, attach

from ._load import new_id
from ._stats import Sample, seconds, spread, times
from ._threads import Answers, by_hand, opened
from ._tools import Bench, heading, note, table

_PLAIN, _HANDLER, _ATTACHED = "(not recorded)", "JournalCallbackHandler", "attach"
_WAYS = ("stream", "astream")
_TOKENS = 100


def run(bench: Bench) -> None:
    """Run the section."""
    bench.begin("attach")
    turns, repetitions = bench.pick(10, 2), bench.pick(31, 2)
    heading(f"13. A turn of a graph, {_TOKENS} tokens")
    rows = []
    with bench.directory() as directory, _stage(directory) as stage:
        for way in _WAYS:
            processor: dict[str, list[float]] = {name: [] for name in stage.graphs[way]}
            contenders = {name: partial(_timed, stage, way, name, turns, used) for name, used in processor.items()}
            for one in contenders.values():
                one()
            found = bench.interleave(f"attach, {way}", contenders, repetitions)
            cpu = {name: Sample(used) for name, used in processor.items()}
            rows += [_row(way, name, found, cpu) for name in found]
        _check(stage.journal, repetitions * turns)
    note("One node that calls a model, stream_mode messages; time per turn until the journal is flushed, median of")
    note(f"{repetitions} in shuffled order, each of {turns} turns on a new thread. stream uses SqliteSaver, astream")
    note("AsyncSqliteSaver, both on files. Attached, each checkpoint waits until the journal has what led to it.")
    note("CPU: all threads of the process.")
    table(["", "recorded by", "a turn", "p25 .. p75", "to plain", "CPU", "to plain", "more CPU"], rows)


def _row(way: str, name: str, found: dict[str, Sample], cpu: dict[str, Sample]) -> list[str]:
    took, worked, base = found[name], cpu[name].median, cpu[_PLAIN].median
    row = [
        way if name == _PLAIN else "",
        name,
        seconds(took.median),
        spread(took),
        times(took.median / found[_PLAIN].median),
    ]
    return [*row, seconds(worked), times(worked / base), seconds(worked - base)]


def _check(journal: RunJournal, turns: int) -> None:
    """Check that the handler and the attached graph recorded every turn, in both ways."""
    runs = journal.runs(limit=None)
    if len(runs) < 4 * turns or any(run.status != "completed" for run in runs):
        raise AssertionError(f"{len(runs)} of {4 * turns} turns were recorded")


@contextmanager
def _stage(directory: Path) -> Iterator[Any]:
    """Yield the compared graphs, all ready at the same time."""
    loop, model = asyncio.new_event_loop(), Answers(tokens=_TOKENS)
    with RunJournal(directory / "runs.db") as journal, opened(directory / "threads.db") as saver:
        con = loop.run_until_complete(aiosqlite.connect(directory / "threads-async.db"))
        try:
            asaver = loop.run_until_complete(_saver(con))
            plain = {"stream": by_hand(model, [], saver, "bench"), "astream": by_hand(model, [], asaver, "bench")}
            graphs = {
                way: {_PLAIN: graph, _HANDLER: graph, _ATTACHED: attach(graph, journal)} for way, graph in plain.items()
            }
            yield SimpleNamespace(loop=loop, journal=journal, graphs=graphs)
        finally:
            loop.run_until_complete(con.close())
            loop.close()


async def _saver(con: aiosqlite.Connection) -> AsyncSqliteSaver:
    saver = AsyncSqliteSaver(con)
    await saver.setup()
    return saver


def _timed(stage: Any, way: str, name: str, turns: int, processor: list[float]) -> float:
    graph = stage.graphs[way][name]
    config: Any = {"configurable": {"thread_id": new_id()}}
    if name == _HANDLER:
        config["callbacks"] = [JournalCallbackHandler(stage.journal)]
    stage.journal.flush()
    gc.collect()
    began, worked = time.perf_counter(), time.process_time()
    for _ in range(turns):
        asked = {"messages": [HumanMessage("What does the cat do?")]}
        if way == "stream":
            said = sum(1 for _ in graph.stream(asked, config, stream_mode="messages"))
        else:
            said = stage.loop.run_until_complete(_heard(graph, asked, config))
        if said < _TOKENS:
            raise AssertionError(f"only {said} tokens arrived")
    stage.journal.flush()
    took = time.perf_counter() - began
    processor.append((time.process_time() - worked) / turns)
    return took / turns


async def _heard(graph: Any, asked: Any, config: Any) -> int:
    said = 0
    async for _ in graph.astream(asked, config, stream_mode="messages"):
        said += 1
    return said
