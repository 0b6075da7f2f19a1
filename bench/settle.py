"""The cost of settling a thread, compared with the supersteps that a settlement contains."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from langgraph.types import StateUpdate

from langchain_runjournal import RunJournal
from langchain_runjournal.common.twins import run_sync
from langchain_runjournal.settle.graph_thread import GraphThreads
from langchain_runjournal.settle.settler import Settler

from ._stats import Sample, paired, seconds, spread, times
from ._threads import THREAD, Cut, cut_off
from ._tools import Bench, heading, note, table

_BARE, _READ, _SETTLE, _RECOVER = "three supersteps", "read, three supersteps, read", "settle", "journal.recover"
_LIMITS = {10: 1.2, 1_000: 0.8}
_CLEAR = [StateUpdate(None, "__end__")]


def run(bench: Bench) -> None:
    """Run the section."""
    bench.begin("settle")
    heading("11. Settling a run whose third tool was cut off")
    repetitions = bench.pick(25, 2)
    with bench.directory() as directory:
        rows = [
            row
            for cut in cut_off(directory, bench.pick((10, 100, 1_000), (10, 100)))
            for row in _rows(bench, cut, repetitions)
        ]
    note(
        f"Copies of what a killed process left, SqliteSaver on a file, median of {repetitions} in shuffled order, each with"
    )
    note("a freshly opened file. The three supersteps are those that a program would write by hand if it knew the missing")
    note("messages. settle is what a Stop does: it finds the missing messages, writes them, and reads the thread back.")
    note("recover also looks for such runs, claims this one, and records its end. Of create_agent, the checkpointer has the")
    note(
        "results of the finished tools (two supersteps); of ToolNode, it has none (one). A ratio is the median of the ratios"
    )
    note("of the rounds.")
    table(["graph", "messages", "", "median", "p25 .. p75", "to bare", "target"], rows)


def _rows(bench: Bench, cut: Cut, repetitions: int) -> list[list[str]]:
    missing = _missing(cut)
    acts: dict[str, Callable[[Any, RunJournal], Callable[[], object]]] = {
        _BARE: partial(_bare, missing),
        _READ: partial(_read, missing),
        _SETTLE: partial(_settle, cut.run_id),
        _RECOVER: lambda graph, journal: partial(journal.recover, graph),
    }
    expected = len(missing[0])
    contenders = {name: partial(_timed, cut, act, expected) for name, act in acts.items()}
    found = bench.rounds(f"settle, {cut.kind}, {cut.messages:,}", contenders, repetitions)
    return [_row(bench, cut, name, found) for name in acts]


def _row(bench: Bench, cut: Cut, name: str, found: dict[str, list[float]]) -> list[str]:
    ratio, said, sample = paired(found[name], found[_BARE]), "", Sample(found[name])
    if name == _SETTLE and cut.messages in _LIMITS:
        limit = _LIMITS[cut.messages]
        said = bench.at_most(f"settle, {cut.kind}, {cut.messages:,} messages: to bare", ratio, limit, times)
    told = [cut.kind, f"{cut.messages:,}"] if name == _BARE else ["", ""]
    return [*told, name, seconds(sample.median), spread(sample), times(ratio), said]


def _missing(cut: Cut) -> tuple[list[str], list[Any]]:
    """Return the ids of the messages of the whole thread, and the messages that the checkpoint of this graph lacks."""
    with cut.copy() as (graph, journal):
        (settlement,) = journal.recover(graph)
        thread = graph.get_state(THREAD).values["messages"]
    if settlement.outcome != "settled":
        raise AssertionError(f"the run could not be settled: {settlement}")
    added = {message["id"] for message in settlement.messages}
    return [message.id for message in thread], [message for message in thread if message.id in added]


def _bare(missing: tuple[list[str], list[Any]], graph: Any, journal: RunJournal) -> Callable[[], object]:
    steps = [_CLEAR, [StateUpdate({"messages": missing[1]}, "__start__")], _CLEAR]
    return partial(graph.bulk_update_state, THREAD, steps)


def _read(missing: tuple[list[str], list[Any]], graph: Any, journal: RunJournal) -> Callable[[], object]:
    write = _bare(missing, graph, journal)

    def work() -> None:
        graph.get_state(THREAD)
        write()
        graph.get_state(THREAD)

    return work


def _settle(run_id: str, graph: Any, journal: RunJournal) -> Callable[[], object]:
    # As at a Stop, the journal owns the run.
    if not journal.claim(run_id):
        raise AssertionError("the run could not be claimed")
    settler = Settler(journal, GraphThreads(graph), None)
    return lambda: run_sync(settler.settle(run_id, "stop"))


def _timed(cut: Cut, act: Callable[[Any, RunJournal], Callable[[], object]], expected: int) -> float:
    with cut.copy() as (graph, journal):
        work = act(graph, journal)
        journal.flush()
        gc.collect()
        began = time.perf_counter()
        work()
        took = time.perf_counter() - began
        state = graph.get_state(THREAD)
        if state.next or state.tasks or len(state.values["messages"]) != expected:
            raise AssertionError(f"the thread is not whole: {state.next}, {len(state.values['messages'])} messages")
    return took
