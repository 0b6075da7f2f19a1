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
from langchain_runjournal.settle.attached_graph import attachments_of

from ._load import new_id
from ._models import tracer
from ._stats import Sample, paired, seconds, spread, times
from ._threads import Answers, by_hand, opened
from ._tools import Bench, heading, note, table

_PLAIN, _TRACER, _HANDLER, _ATTACHED = "(not recorded)", "LangSmith's tracer", "JournalCallbackHandler", "attach"
_INHERITED = "the same, its calls inherit all handlers"
_WAYS = ("stream", "astream")
_LIMITS = {1: 1.20, 100: 1.30, 1_000: 1.25}


def run(bench: Bench) -> None:
    """Run the section."""
    bench.begin("attach")
    turns, repetitions = bench.pick(10, 2), bench.pick(31, 2)
    heading("13. A turn of a graph")
    rows = []
    with bench.directory() as directory, RunJournal(directory / "runs.db") as journal:
        for tokens in _LIMITS:
            (directory / str(tokens)).mkdir()
            with _stage(directory / str(tokens), journal, tokens) as stage:
                for way in _WAYS:
                    rows += _measured(bench, stage, way, turns, repetitions)
        _check(journal, 6 * repetitions * turns)
    note("One node that calls a model, stream_mode messages; time per turn until the journal is flushed, median of")
    note(f"{repetitions} rounds in shuffled order, each of {turns} turns on a new thread (fewer if they are long). A ratio")
    note("is the median of the ratios of the rounds. The garbage collector is off while a contender runs.")
    note("stream uses SqliteSaver, astream AsyncSqliteSaver, both on files. Attached, each checkpoint waits until the")
    note("journal has what led to it. The row")
    note(f"{_INHERITED!r} passes the handlers that settle on to the model, as earlier releases did.")
    note("CPU: all threads of the process. The tracer has a client that does nothing.")
    table(["", "recorded by", "a turn", "p25 .. p75", "to plain", "CPU", "to plain", "more CPU", "target"], rows)


def _measured(bench: Bench, stage: Any, way: str, turns: int, repetitions: int) -> list[list[str]]:
    used: dict[str, list[float]] = {name: [] for name in stage.graphs[way]}
    turns = turns // 3 + 1 if stage.tokens >= 1_000 else turns
    contenders = {name: partial(_timed, stage, way, name, turns, cpu) for name, cpu in used.items()}
    for one in contenders.values():
        one()
    for cpu in used.values():
        cpu.clear()
    found = bench.rounds(f"attach, {way}, {stage.tokens:,} tokens", contenders, repetitions)
    return [_row(bench, stage.tokens, way, name, found, used) for name in found]


def _row(
    bench: Bench, tokens: int, way: str, name: str, found: dict[str, list[float]], used: dict[str, list[float]]
) -> list[str]:
    took, to_plain, said = Sample(found[name]), paired(found[name], found[_PLAIN]), ""
    if name == _ATTACHED:
        said = bench.at_most(f"attach, {way}, {tokens:,} tokens: to plain", to_plain, _LIMITS[tokens], times)
        to_tracer = paired(found[name], found[_TRACER])
        bench.at_most(f"attach, {way}, {tokens:,} tokens: to LangSmith's tracer", to_tracer, 1, times)
    told = f"{way}, {tokens:,} tokens" if name == _PLAIN else ""
    more = Sample([ours - base for ours, base in zip(used[name], used[_PLAIN], strict=True)]).median
    row = [told, name, seconds(took.median), spread(took), times(to_plain)]
    return [*row, seconds(Sample(used[name]).median), times(paired(used[name], used[_PLAIN])), seconds(more), said]


def _check(journal: RunJournal, least: int) -> None:
    """Check that the handler and the attached graph recorded every turn, in both ways."""
    runs = journal.runs(limit=None)
    if len(runs) < least or any(run.status != "completed" for run in runs):
        raise AssertionError(f"{len(runs)} of {least} turns were recorded")


@contextmanager
def _stage(directory: Path, journal: RunJournal, tokens: int) -> Iterator[Any]:
    """Yield the compared graphs, all ready at the same time."""
    loop, model = asyncio.new_event_loop(), Answers(tokens=tokens)
    with opened(directory / "threads.db") as saver:
        con = loop.run_until_complete(aiosqlite.connect(directory / "threads-async.db"))
        try:
            asaver = loop.run_until_complete(_saver(con))
            plain = {"stream": by_hand(model, [], saver, "bench"), "astream": by_hand(model, [], asaver, "bench")}
            graphs = {way: _compared(graph, attach(graph, journal)) for way, graph in plain.items()}
            yield SimpleNamespace(loop=loop, journal=journal, graphs=graphs, tokens=tokens)
        finally:
            loop.run_until_complete(con.close())
            loop.close()


def _compared(plain: Any, attached: Any) -> dict[str, Any]:
    return {_PLAIN: plain, _TRACER: plain, _HANDLER: plain, _INHERITED: attached, _ATTACHED: attached}


def _callbacks(stage: Any, graph: Any, name: str) -> list[Any]:
    if name == _TRACER:
        return [tracer()]
    if name == _INHERITED:
        return [handler for one in attachments_of(graph) for handler in one.settling]
    return [JournalCallbackHandler(stage.journal)] if name == _HANDLER else []


async def _saver(con: aiosqlite.Connection) -> AsyncSqliteSaver:
    saver = AsyncSqliteSaver(con)
    await saver.setup()
    return saver


def _timed(stage: Any, way: str, name: str, turns: int, processor: list[float]) -> float:
    graph = stage.graphs[way][name]
    config: Any = {"configurable": {"thread_id": new_id()}}
    if callbacks := _callbacks(stage, graph, name):
        config["callbacks"] = callbacks
    stage.journal.flush()
    gc.collect()
    gc.disable()  # one collection of a long history would make any figure
    began, worked = time.perf_counter(), time.process_time()
    for _ in range(turns):
        asked = {"messages": [HumanMessage("What does the cat do?")]}
        if way == "stream":
            said = sum(1 for _ in graph.stream(asked, config, stream_mode="messages"))
        else:
            said = stage.loop.run_until_complete(_heard(graph, asked, config))
        if said < stage.tokens:
            raise AssertionError(f"only {said} tokens arrived")
    stage.journal.flush()
    took = time.perf_counter() - began
    processor.append((time.process_time() - worked) / turns)
    gc.enable()
    return took / turns


async def _heard(graph: Any, asked: Any, config: Any) -> int:
    said = 0
    async for _ in graph.astream(asked, config, stream_mode="messages"):
        said += 1
    return said
