"""The cost of a long history: `recover` and a new message beside very many runs that were settled long ago."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from click.testing import CliRunner
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver

from langchain_runjournal import Event, RunJournal, attach
from langchain_runjournal.cli.app import commands
from langchain_runjournal.events.segments import pack
from langchain_runjournal.stores import open_store

from ._load import new_id
from ._stats import Sample, seconds, spread, times
from ._threads import Answers, by_hand
from ._tools import Bench, heading, note, table

_GRAPH: Final = "agent"
_THREADS: Final = 50
"""The number of threads over which the old runs are distributed."""
_OPEN, _IDLE, _LEFT = "RunJournal(...), and close", "recover, no run is left", "recover, a run was killed"
_PRUNE, _KEEP, _LIST = "prune, no run is so old", "prune, all are kept", "runjournal list, 20 runs"
_TURN, _CUT = "a turn of 1 token", "a turn after a run that was killed"
_LIMIT: Final = 2
_BATCH: Final = 2_000


def run(bench: Bench) -> None:
    """Run the section."""
    bench.begin("history")
    heading("17. A long history")
    few, many = bench.pick(10_000, 200), bench.pick(100_000, 2_000)
    repetitions = bench.pick(15, 3)
    with (
        bench.directory() as directory,
        _stage(directory / "few.db", few) as short,
        _stage(directory / "many.db", many) as long,
    ):
        contenders: dict[str, Callable[[], float]] = {}
        for stage, count in ((short, few), (long, many)):
            for name, act in _ACTS.items():
                contenders[f"{name}, {count:,}"] = partial(_timed, stage, act)
        for one in contenders.values():
            one()
        found = bench.interleave("history", contenders, repetitions)
    note(f"Journals that hold {few:,} and {many:,} runs that were interrupted and settled, on {_THREADS} threads; median of")
    note(f"{repetitions} in shuffled order. Each turn is on one of these threads. InMemorySaver.")
    note(f"{_KEEP!r} counts the runs that are kept in the index, so it grows with them.")
    rows = [_row(bench, name, found[f"{name}, {few:,}"], found[f"{name}, {many:,}"]) for name in _ACTS]
    table(["", f"{few:,} runs", f"{many:,} runs", "p25 .. p75", "ratio", "target"], rows)


def _row(bench: Bench, name: str, few: Sample, many: Sample) -> list[str]:
    ratio = many.median / few.median
    said = "" if name == _KEEP else bench.at_most(f"history, {name}: many runs to few", ratio, _LIMIT, times)
    return [name, seconds(few.median), seconds(many.median), spread(many), times(ratio), said]


@contextmanager
def _stage(path: Path, count: int) -> Iterator[Any]:
    _fill(path, count)
    graph = by_hand(Answers(tokens=1), [], InMemorySaver(), _GRAPH)
    with RunJournal(path) as journal:
        yield SimpleNamespace(path=path, journal=journal, graph=graph, attached=attach(graph, journal))


def _fill(path: Path, count: int) -> None:
    store, rows = open_store(path), []
    for number in range(count):
        about = {"runjournal_graph": _GRAPH}
        start = {"thread_id": f"thread-{number % _THREADS}", "name": _GRAPH, "metadata": about}
        end = {"status": "interrupted", "cause": "stop"}
        run_id, at = new_id(), 1_700_000_000.0 + number
        rows.append(
            pack(
                run_id,
                1,
                [
                    Event(run_id=run_id, kind="run.start", data=start, seq=1, at=at),
                    Event(run_id=run_id, kind="run.end", data=end, seq=2, at=at),
                ],
            )
        )
        if len(rows) == _BATCH or number == count - 1:
            store.append("a-dead-owner", rows)
            rows = []
    store.close()


def _killed(stage: Any, thread_id: str) -> None:
    """Leave a run without its end, as a killed process does."""
    with RunJournal(stage.path) as journal:
        run_id = new_id()
        about = {"thread_id": thread_id, "name": _GRAPH, "metadata": {"runjournal_graph": _GRAPH}}
        journal.append(Event(run_id=run_id, kind="run.start", data=about))
        message = {"type": "human", "data": {"type": "human", "content": "hi", "id": new_id()}}
        journal.append(Event(run_id=run_id, kind="llm.human.input", data={"message": message}))


def _open(stage: Any) -> Callable[[], object]:
    return lambda: RunJournal(stage.path).close()


def _idle(stage: Any) -> Callable[[], object]:
    return lambda: _expect(0, stage.journal.recover(stage.graph))


def _left(stage: Any) -> Callable[[], object]:
    _killed(stage, new_id())
    return lambda: _expect(1, stage.journal.recover(stage.graph))


def _none(act: Callable[[], list[str]]) -> None:
    if found := act():
        raise AssertionError(f"{len(found)} runs were deleted")


def _list(stage: Any) -> Callable[[], object]:
    def work() -> None:
        found = CliRunner().invoke(commands, ["list", "--journal", str(stage.path), "--json"])
        if found.exit_code or found.stdout.count("\n") != 20:
            raise AssertionError(found.output)

    return work


def _turn(stage: Any) -> Callable[[], object]:
    stage.graph.checkpointer.delete_thread("thread-1")  # the thread does not grow, only its runs do
    return partial(stage.attached.invoke, {"messages": [HumanMessage("hi")]}, {"configurable": {"thread_id": "thread-1"}})


def _cut(stage: Any) -> Callable[[], object]:
    turn = _turn(stage)
    _killed(stage, "thread-1")
    return turn


_ACTS: Final[dict[str, Callable[[Any], Callable[[], object]]]] = {
    _OPEN: _open,
    _IDLE: _idle,
    _LEFT: _left,
    _PRUNE: lambda stage: partial(_none, lambda: stage.journal.prune(older_than=1e9)),
    _KEEP: lambda stage: partial(_none, lambda: stage.journal.prune(keep_last=100_000_000)),
    _LIST: _list,
    _TURN: _turn,
    _CUT: _cut,
}


def _expect(count: int, reports: list[Any]) -> None:
    if len(reports) != count or any(report.outcome not in ("settled", "whole") for report in reports):
        raise AssertionError(f"expected {count} settled runs: {reports}")


def _timed(stage: Any, act: Callable[[Any], Callable[[], object]]) -> float:
    work = act(stage)
    stage.journal.flush()
    gc.collect()
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
