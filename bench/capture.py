"""The cost of a token on its way through LangChain, with and without handlers that record it."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from langchain_runjournal import JournalCallbackHandler, RunJournal

from ._load import busy_thread
from ._models import KINDS, AsyncIteratorCallbackHandler, CommitEach, Model, NoOp, tracer
from ._stats import Sample, seconds, spread, times
from ._tools import Bench, heading, note, table

_NONE = "no handler"
_BASE = "no-op inline handler"
_OURS = "JournalCallbackHandler, SQLite"
_TRACER = "LangChainTracer, null client"
_QUEUE = "AsyncIteratorCallbackHandler"
_COMMITS = "insert + commit each token"
_SLOW = (_QUEUE, _COMMITS)
"""Handlers that release the GIL for each token: beside a busy thread, each token costs them milliseconds."""

_LIMITS = {"text": 1.08, "blocks": 1.15, "tool calls": 1.15}
_MORE = 0.8e-6
_TO_TRACER = 0.5
_BUSY = 1.3


def run(bench: Bench) -> None:
    """Run the section."""
    bench.begin("capture")
    heading("9. The cost of capturing a token, through model.astream")
    with bench.directory() as directory, _Stage(directory, bench.pick(2_000, 200)) as stage:
        stage.warm_up()
        for kind in KINDS:
            _alone(bench, stage, kind)
        for kind in KINDS:
            _busy(bench, stage, kind)


class _Stage:
    """The compared handlers, all ready at the same time."""

    def __init__(self, directory: Path, tokens: int) -> None:
        self.tokens = tokens
        self.loop = asyncio.new_event_loop()
        self.journal = RunJournal(directory / "runs.db")
        self._commits = CommitEach(directory / "plain.db")
        self.handlers: dict[str, Callable[[], list[Any]]] = {
            _NONE: list,
            _BASE: lambda: [NoOp()],
            _OURS: lambda: [JournalCallbackHandler(self.journal)],
            _TRACER: lambda: [tracer()],
            _QUEUE: lambda: [AsyncIteratorCallbackHandler()],
            _COMMITS: lambda: [self._commits],
        }

    def __enter__(self) -> _Stage:  # noqa: PYI034 - Self is not in the oldest Python that we run on
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.loop.close()
        self.journal.close()
        self._commits.close()

    def warm_up(self) -> None:
        """Run one stream of each, so that later ones find imports and caches ready."""
        for name in self.handlers:
            for kind in KINDS:
                self.stream(name, Model(kind=kind, tokens=50), 1)

    def rest(self) -> None:
        """Finish all background work, so that it does not disturb the next measurement."""
        self.journal.flush()
        gc.collect()

    def stream(self, name: str, model: Model, streams: int) -> None:
        """Run `streams` streams, one after the other."""
        config: Any = {"callbacks": self.handlers[name]()}

        async def consume() -> None:
            for _ in range(streams):
                async for _chunk in model.astream("x", config=config):
                    pass

        self.loop.run_until_complete(consume())


def _alone(bench: Bench, stage: _Stage, kind: str) -> None:
    streams = bench.pick(3 if kind == "tool calls" else 6, 2)  # LangChain parses the arguments of each chunk
    processor: dict[str, list[float]] = {name: [] for name in stage.handlers}
    contenders = {name: partial(_timed, stage, name, kind, streams, processor[name]) for name in stage.handlers}
    found = bench.interleave(f"capture, {kind}", contenders, bench.pick(15, 2))
    note(f"{kind}: {streams} streams of {stage.tokens:,} tokens in a row, as fast as they come; time per token, median of")
    note(f"{len(found[_BASE])} shuffled repetitions, from the first call until the journal is flushed, writer included.")
    note("CPU: all threads of the process.")
    cpu = {name: Sample(values) for name, values in processor.items()}
    _show(found, cpu, {_OURS: _judge(bench, kind, found)})


def _judge(bench: Bench, kind: str, found: dict[str, Sample]) -> str:
    base = found[_BASE].median
    ours, theirs = found[_OURS].median - base, found[_TRACER].median - base
    said = bench.at_most(f"capture, {kind}: to a no-op handler", found[_OURS].median / base, _LIMITS[kind], times)
    if kind == "text":
        bench.at_most("capture, text: over a no-op handler", ours, _MORE, seconds)
    bench.at_most(f"capture, {kind}: to what LangSmith's tracer adds", ours / theirs, _TO_TRACER, times)
    return said


def _busy(bench: Bench, stage: _Stage, kind: str) -> None:
    lasting, few = bench.pick(0.4, 0.05), bench.pick(60, 5)
    models = {name: Model(kind=kind, tokens=few if name in _SLOW else stage.tokens) for name in stage.handlers}
    contenders = {name: partial(_timed_for, stage, name, models[name], lasting) for name in stage.handlers}
    found = bench.interleave(f"capture, {kind}, busy", contenders, bench.pick(9, 1))
    note(
        f"{kind}, beside a CPU-bound Python thread: at least {seconds(lasting)} of each, median of {len(found[_BASE])}. The"
    )
    note("writer competes for the GIL too; the last flush is not counted.")
    ratio = found[_OURS].median / found[_BASE].median
    said = bench.at_most(f"capture, {kind}, busy: to a no-op handler", ratio, _BUSY, times)
    _show(found, None, {_OURS: said})


def _show(found: dict[str, Sample], cpu: dict[str, Sample] | None, judged: dict[str, str]) -> None:
    base = found[_BASE].median
    tracer = found[_TRACER].median - base
    rows = []
    for name, one in found.items():
        more = one.median - base
        row = [name, seconds(one.median), spread(one), times(one.median / base), seconds(more), times(more / tracer)]
        if cpu is not None:
            row += [seconds(cpu[name].median), times(cpu[name].median / cpu[_BASE].median)]
        rows.append([*row, judged.get(name, "")])
    columns = ["", "per token", "p25 .. p75", "to no-op", "over no-op", "to tracer's", *(["CPU", "to no-op"] if cpu else [])]
    table([*columns, "target"], rows)


def _timed(stage: _Stage, name: str, kind: str, streams: int, processor: list[float]) -> float:
    model, tokens = Model(kind=kind, tokens=stage.tokens), streams * stage.tokens
    stage.rest()
    began, worked = time.perf_counter(), time.process_time()
    stage.stream(name, model, streams)
    stage.journal.flush()
    took = time.perf_counter() - began
    processor.append((time.process_time() - worked) / tokens)
    return took / tokens


def _timed_for(stage: _Stage, name: str, model: Model, lasting: float) -> float:
    """Measure beside a busy thread, long enough to lose the GIL many times."""
    stage.rest()
    with busy_thread():
        done, took, began = 0, 0.0, time.perf_counter()
        while took < lasting:
            stage.stream(name, model, 1)
            done += model.tokens
            took = time.perf_counter() - began
    return took / done
