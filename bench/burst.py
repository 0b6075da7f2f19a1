"""The time from the first `append` of a burst until all of it is durable."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from langchain_runjournal import Event, RunJournal

from ._load import new_id, start, tokens, words
from ._rivals import PlainSqlite, write_lines
from ._stats import Sample, seconds, three, times
from ._tools import Bench, heading, note, table

_EVENTS = 100_000
_TARGET = 200_000


def run(bench: Bench) -> None:
    """Run the section."""
    bench.begin("burst")
    count = bench.pick(_EVENTS, 10_000)
    few = bench.pick(10_000, 500)
    heading(f"3. A burst of {count:,} events, to durable")
    with bench.directory() as directory:
        ahead = tokens(new_id(), new_id(), count)
        fresh = (directory / f"{number}" for number in range(1_000_000))
        contenders: dict[str, Callable[[], float]] = {
            "append(Event(...)) + flush": lambda: _ours(next(fresh), count, None),
            "append(event) + flush": lambda: _ours(next(fresh), count, ahead),
            "buffered file, no fsync": lambda: _lines(next(fresh), ahead),
            "sqlite3 executemany, 1,000 per commit": lambda: _sqlite(next(fresh), ahead, 1_000),
            "sqlite3 insert + commit each": lambda: _sqlite(next(fresh), ahead[:few], 1),
        }
        found = bench.interleave("burst", contenders, bench.pick(9, 2))
    note("Events per second, median; 'durable' as with synchronous=normal, which does not wait for the disk.")
    note(f"'append(Event(...))' builds the events in the loop. sqlite3 one by one: {few:,} events, scaled.")
    own = found["append(Event(...)) + flush"].median
    rows = []
    for name, sample in found.items():
        rate = 1 / sample.median
        target = ""
        if name.startswith("append(Event"):
            target = bench.at_least("burst to durable, events/s", rate, _TARGET, three)
        rows.append([name, three(rate), _rates(sample), seconds(sample.median), times(sample.median / own), target])
    table(["", "events/s", "p25 .. p75", "each", "to ours", "target"], rows)


def _rates(sample: Sample) -> str:
    return f"{three(1 / sample.at(0.75))} .. {three(1 / sample.at(0.25))}"


def _ours(path: Path, count: int, ahead: list[Event] | None) -> float:
    with RunJournal(path) as journal:
        run_id = ahead[0].run_id if ahead else new_id()
        call_id = new_id()
        journal.append(start(run_id))
        journal.flush()
        texts = words(count)
        took = _measured(
            partial(_append_all, journal, ahead) if ahead else partial(_build_all, journal, run_id, call_id, texts)
        )
        stored = journal.run(run_id).last_seq
    if stored != count + 1:
        raise AssertionError(f"the store has {stored} of {count + 1} events")
    return took / count


def _append_all(journal: RunJournal, events: list[Event]) -> None:
    append = journal.append
    for event in events:
        append(event)
    journal.flush()


def _build_all(journal: RunJournal, run_id: str, call_id: str, texts: list[str]) -> None:
    append = journal.append
    for text in texts:
        append(Event(run_id=run_id, kind="llm.ai.delta", call_id=call_id, data={"text": text}))
    journal.flush()


def _lines(path: Path, events: list[Event]) -> float:
    return _measured(partial(write_lines, path, events)) / len(events)


def _sqlite(path: Path, events: list[Event], batch: int) -> float:
    plain = PlainSqlite(path)
    try:
        if batch == 1:
            return _measured(partial(plain.append_each, events)) / len(events)
        return _measured(partial(plain.append_all, events, batch)) / len(events)
    finally:
        plain.close()


def _measured(work: Callable[[], None]) -> float:
    gc.collect()
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
