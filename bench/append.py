"""The cost of one `append` for its caller, alone and beside a thread that competes for the GIL all the time."""

from __future__ import annotations

import gc
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path

from langchain_runjournal import Event, RunJournal

from ._load import busy_thread, end, new_id, start, tokens, words
from ._rivals import PlainSqlite, RawFile, nothing
from ._stats import Sample, seconds, spread, times
from ._tools import Bench, heading, note, table

Append = Callable[[Event], object]
Loop = Callable[[int], None]

_SHORT = 2_000
_OURS = "append(event)"
_BASE = "no-op function"


def run(bench: Bench) -> None:
    """Run the section."""
    bench.begin("append")
    heading("1. What one append costs the caller")
    with bench.directory() as directory:
        subjects = _Subjects(directory)
        try:
            _in_a_loop(bench, subjects)
            _in_a_busy_process(bench, subjects)
            _one_by_one(bench, subjects)
        finally:
            subjects.close()


class _Subjects:
    """The compared ways to keep events, all open at the same time."""

    def __init__(self, directory: Path) -> None:
        self.journal = RunJournal(directory / "runs.db")
        self.run_id, self.call_id = new_id(), new_id()
        self.journal.append(start(self.run_id))
        self.journal.flush()
        self.events = tokens(self.run_id, self.call_id, 1_000)
        self.list: list[Event] = []
        self.file = RawFile(directory / "raw")
        self.sqlite = PlainSqlite(directory / "plain.db")

    def rest(self) -> None:
        """Finish all background work, so that it does not disturb the next measurement."""
        self.journal.flush()
        self.list.clear()
        gc.collect()

    @contextmanager
    def followed(self) -> Iterator[list[Event]]:
        """Yield events of another run, which a thread of this process follows."""
        run_id = new_id()
        self.journal.append(start(run_id))
        thread = threading.Thread(target=lambda: deque(self.journal.follow(run_id), maxlen=0))
        thread.start()
        try:
            yield tokens(run_id, self.call_id, 1_000)
        finally:
            self.journal.append(end(run_id))
            thread.join()

    def close(self) -> None:
        self.journal.close()
        self.file.close()
        self.sqlite.close()


def _in_a_loop(bench: Bench, subjects: _Subjects) -> None:
    many, few = bench.pick((50_000, 1_000), (5_000, 100))
    loops: dict[str, tuple[Loop, int]] = {
        _BASE: (partial(_call, subjects.events, nothing), many),
        "list.append": (partial(_call, subjects.events, subjects.list.append), many),
        "Event(...) only": (partial(_build, subjects, nothing), many),
        _OURS: (partial(_call, subjects.events, subjects.journal.append), _SHORT),
        "append(Event(...))": (partial(_build, subjects, subjects.journal.append), _SHORT),
        f"append(event), {many:,} in a row": (partial(_call, subjects.events, subjects.journal.append), many),
        f"append(event), {many:,} by 4 threads": (partial(_by_threads, subjects.events, subjects.journal.append), many),
        "write(2) each": (partial(_call, subjects.events, subjects.file.append), 10 * few),
        "sqlite3 insert + commit each": (partial(_call, subjects.events, subjects.sqlite.append), few),
    }
    contenders = {name: partial(_timed, subjects, loop, count) for name, (loop, count) in loops.items()}
    found = bench.interleave("append, alone", contenders, bench.pick(21, 3))
    note(f"In a tight loop, alone; wall time per event, median of {len(found[_BASE])} shuffled repetitions.")
    note(f"{_OURS!r}: {_SHORT:,} at a time, while the writer waits; '... in a row': the writer works at the same time.")
    note("write(2): prepared bytes; sqlite3: one row with its JSON, WAL, synchronous=normal.")
    _show(found, found[_OURS])


def _in_a_busy_process(bench: Bench, subjects: _Subjects) -> None:
    lasting = bench.pick(0.3, 0.03)
    loops: dict[str, tuple[Loop, int]] = {
        _BASE: (partial(_call, subjects.events, nothing), 100_000),
        "list.append": (partial(_call, subjects.events, subjects.list.append), 100_000),
        "Event(...) only": (partial(_build, subjects, nothing), 1_000),
        _OURS: (partial(_call, subjects.events, subjects.journal.append), 1_000),
        "append(Event(...))": (partial(_build, subjects, subjects.journal.append), 1_000),
        "write(2) each": (partial(_call, subjects.events, subjects.file.append), 100),
        "sqlite3 insert + commit each": (partial(_call, subjects.events, subjects.sqlite.append), 1),
    }
    contenders = {name: partial(_timed_for, subjects, loop, step, lasting) for name, (loop, step) in loops.items()}
    found = bench.interleave("append, busy", contenders, bench.pick(15, 2))
    note(f"The same beside a CPU-bound Python thread, {seconds(lasting)} of each, median of {len(found[_BASE])}. That")
    note("thread and the writer take their share of the CPU from every row, so compare the ratios.")
    _show(found, found[_OURS])


def _show(found: dict[str, Sample], ours: Sample) -> None:
    base = found[_BASE].median
    rows = [
        [name, seconds(one.median), spread(one), times(one.median / base), times(one.median / ours.median), ""]
        for name, one in found.items()
    ]
    table(["", "per event", "p25 .. p75", "to no-op", f"to {_OURS}", ""], rows)


def _timed(subjects: _Subjects, loop: Loop, count: int) -> float:
    subjects.rest()
    began = time.perf_counter()
    loop(count)
    return (time.perf_counter() - began) / count


def _timed_for(subjects: _Subjects, loop: Loop, step: int, lasting: float) -> float:
    """Measure beside a busy thread, long enough to lose the GIL many times: a few calls might be lucky."""
    subjects.rest()
    with busy_thread():
        done, took, began = 0, 0.0, time.perf_counter()
        while took < lasting:
            loop(step)
            done += step
            took = time.perf_counter() - began
    return took / done


def _call(events: list[Event], append: Append, count: int) -> None:
    left = count
    while left > 0:
        for event in events if left >= len(events) else events[:left]:
            append(event)
        left -= len(events)


def _by_threads(events: list[Event], append: Append, count: int) -> None:
    threads = [threading.Thread(target=_call, args=(events, append, count // 4)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _build(subjects: _Subjects, append: Append, count: int) -> None:
    run_id, call_id = subjects.run_id, subjects.call_id
    for text in words(count):
        append(Event(run_id=run_id, kind="llm.ai.delta", call_id=call_id, data={"text": text}))


def _one_by_one(bench: Bench, subjects: _Subjects) -> None:
    alone, besides = bench.pick((2_000, 1_000), (60, 40))
    rows = []
    with subjects.followed() as followed:
        appends: dict[str, tuple[Append, list[Event]]] = {
            _BASE: (nothing, subjects.events),
            _OURS: (subjects.journal.append, subjects.events),
            "append(event), with a follower": (subjects.journal.append, followed),
            "write(2) each": (subjects.file.append, subjects.events),
            "sqlite3 insert + commit each": (subjects.sqlite.append, subjects.events),
        }
        for busy, turns in ((False, alone), (True, besides)):
            subjects.rest()
            found: dict[str, list[float]] = {name: [] for name in appends}
            with busy_thread() if busy else nullcontext():
                for turn in range(turns):
                    names = list(appends)
                    bench.random.shuffle(names)
                    for name in names:
                        append, events = appends[name]
                        found[name].append(_one(append, events[turn % len(events)]))
                    bench.progress(f"append, one by one, {'busy' if busy else 'alone'}", turn + 1, turns)
            for name, values in found.items():
                sample = Sample(values)
                shares = [seconds(sample.at(share)) for share in (0.5, 0.99, 0.999, 1)]
                rows.append([name, *shares, "beside a CPU-bound thread" if busy else "alone"])
    note(f"One call at a time, each after a sleep, as tokens arrive, with cold caches; shuffled, {alone:,} of each alone,")
    note(f"{besides:,} beside a CPU-bound thread. A call that releases the GIL must wait to reacquire it.")
    table(["", "p50", "p99", "p99.9", "max", ""], rows)


def _one(append: Append, event: Event) -> float:
    time.sleep(0.0005)
    began = time.perf_counter()
    append(event)
    return time.perf_counter() - began
