"""The memory and the disk space of a long live run."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from typing import Any

from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver

from langchain_runjournal import JournalCallbackHandler, RunJournal, attach

from ._children import Child
from ._load import new_id
from ._stats import size, three
from ._threads import Answers, by_hand
from ._tools import Bench, heading, note, table

_ENDED = 600
_FLAT, _DISK = 5, 30
"""Bytes per token: the limit below which memory counts as flat (a list of the tokens takes 60), and the target on disk."""


def run(bench: Bench) -> None:
    """Run the section."""
    bench.begin("memory")
    low, high, later, last = bench.pick((10_000, 100_000, 250_000, 400_000), (500, 2_000, 3_000, 5_000))
    heading(f"8. A live run of {high:,} tokens, continued to {last:,}")
    for through, name in (("append", "live run"), ("handler", "captured run")):
        traced = _lives(bench, "trace", through, [low, high])
        plain = _lives(bench, "plain", through, [low, high, later, last])
        if through == "append":
            note("One run that does not end, some 15,000 tokens/s. Two processes: one traced, one not.")
            note("Python: memory that tracemalloc counts. Private: resident pages without a file (RssAnon), with SQLite's")
            note(
                "page cache. Disk: sizes of the files; the spool has two or three of 4 MiB, the -wal is reused at a few MiB."
            )
        else:
            note("The same through JournalCallbackHandler, with chunks that the bench drops.")
        _show(traced, plain)
        _judge(bench, name, traced, plain)
    _ended(bench)


def _ended(bench: Bench) -> None:
    """Measure what a journal keeps of a run that has ended."""
    count = bench.pick(5_000, 500)
    note(f"Runs that have ended, {count:,} of them: memory that tracemalloc counts for each, with the id of the run.")
    rows = []
    with bench.directory() as directory, RunJournal(directory / "runs.db") as journal:
        model, handler = Answers(tokens=1), JournalCallbackHandler(journal)
        saver = InMemorySaver()
        graph = attach(by_hand(model, [], saver, "bench"), journal)

        def turn() -> None:
            thread_id = new_id()
            graph.invoke({"messages": [HumanMessage("hi")]}, {"configurable": {"thread_id": thread_id}})
            saver.delete_thread(thread_id)  # not with the runs of the thread, as the graph's checkpointer would

        acts: dict[str, Callable[[], object]] = {
            "JournalCallbackHandler": lambda: model.invoke("hi", {"callbacks": [handler]}),
            "attach": turn,
        }
        for name, act in acts.items():
            each = _grown(journal, act, count)
            rows.append([name, three(each), bench.at_most(f"memory of an ended run, {name}", each, _ENDED, three)])
    table(["recorded by", "bytes each", "target"], rows)


def _grown(journal: RunJournal, act: Callable[[], object], count: int) -> float:
    for _ in range(200):
        act()
    journal.flush()
    gc.collect()
    tracemalloc.start()
    for _ in range(count):
        act()
    journal.flush()
    gc.collect()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return size / count


def _show(traced: list[Any], plain: list[Any]) -> None:
    rows = []
    for number, one in enumerate(plain):
        disk, all_ = one["disk"], sum(one["disk"].values())
        python = size(traced[number]["traced"]) if number < 2 else "-"
        when = f"{one['tokens']:,} tokens" if one is not plain[-1] else "closed"
        sizes = [size(disk[kind]) for kind in ("db", "wal", "spool")]
        rows.append([when, python, size(one["private"]), *sizes, size(all_), three(all_ / one["tokens"])])
    table(["after", "Python", "private", ".db", "-wal, -shm", "spool", "disk", "per token"], rows)


def _judge(bench: Bench, name: str, traced: list[Any], plain: list[Any]) -> None:
    first = _more(traced[0], traced[1]), _more(plain[0], plain[1])
    late, closed = _more(plain[-3], plain[-2]), plain[-1]
    at_rest = _disk(closed) / closed["tokens"]
    flat = bench.at_most(f"{name}: memory, bytes more per token (Python)", first[0]["traced"], _FLAT, three)
    flat_late = bench.at_most(f"{name}: memory, bytes more per token (private, later)", late["private"], _FLAT, three)
    growth = bench.at_most(f"{name}: disk, bytes more per token (later)", late["disk"], _DISK, three)
    rest = bench.at_most(f"{name}: disk, bytes per token, closed", at_rest, _DISK, three)
    span = f"{plain[0]['tokens']:,} to {plain[1]['tokens']:,}"
    span_late = f"{plain[-3]['tokens']:,} to {plain[-2]['tokens']:,}"
    table(
        ["what a token adds", "from .. to", "bytes", "target"],
        [
            ["Python memory", span, three(first[0]["traced"]), flat],
            ["private memory", span, three(first[1]["private"]), "(SQLite's page cache and the first move to segments)"],
            ["private memory", span_late, three(late["private"]), flat_late],
            ["disk, all files", span, three(first[1]["disk"]), "(the -wal fills up once)"],
            ["disk, all files", span_late, three(late["disk"]), growth],
            ["disk, when closed", f"0 to {closed['tokens']:,}", three(at_rest), rest],
        ],
    )


def _more(one: Any, other: Any) -> dict[str, float]:
    """Return the growth per token between two measurements."""
    tokens = other["tokens"] - one["tokens"]
    found = {key: (other[key] - one[key]) / tokens for key in ("traced", "private")}
    return {**found, "disk": (_disk(other) - _disk(one)) / tokens}


def _disk(one: Any) -> float:
    return float(sum(one["disk"].values()))


def _lives(bench: Bench, trace: str, through: str, counts: list[int]) -> list[Any]:
    figures: list[Any] = []
    arguments = (trace, through, *map(str, counts))
    with bench.directory() as directory, Child("_long_run", str(directory / "runs.db"), *arguments) as child:
        while len(figures) <= len(counts):
            figures.append(child.hear())
            bench.progress(f"memory, {through}, {trace}", len(figures), len(counts) + 1)
    bench.noise.sample()
    return figures
