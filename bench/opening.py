"""Opening a journal after a crash: the time until the spool of a killed process is in the store.

The code of the journal itself writes the spool, in a process that ends without closing it.
"""

from __future__ import annotations

import gc
import time
from pathlib import Path
from typing import Final

from langchain_runjournal import RunJournal
from langchain_runjournal.events.segments import Segment
from langchain_runjournal.journal.spool import OPEN, TEXT, Spool
from langchain_runjournal.stores.sqlite import SqliteStore

from ._stats import seconds
from ._tools import Bench, heading, note, table

_RUNS, _EVENTS = 1_000, 1_000
_AT: Final = 1_700_000_000_000
_OWNER: Final = b"o" * 16
_ALL_STORED, _HALF_STORED, _NONE_STORED = "all events are stored already", "half of them", "none of them"
_TARGET: Final = 2.0


def run(bench: Bench) -> None:
    """Run the section."""
    bench.begin("opening")
    heading("15. Opening after a crash")
    runs = bench.pick(_RUNS, 20)
    took: dict[str, list[tuple[float, float]]] = {}
    for repetition in range(bench.pick(5, 1)):
        for name, stored in ((_ALL_STORED, _EVENTS), (_HALF_STORED, _EVENTS // 2), (_NONE_STORED, 0)):
            with bench.directory() as directory:
                took.setdefault(name, []).append(opened(directory / f"{repetition}.db", runs, _EVENTS, stored))
    # Take the best time: other work on the machine can only make it longer.
    rows = []
    for name, found in took.items():
        best, processor = min(whole for whole, _ in found), min(cpu for _, cpu in found)
        judged = bench.at_most(f"opening, {runs} runs, {name}", best, _TARGET, seconds)
        rows.append([name, seconds(best), seconds(processor), judged])
    table(["what was left", "until it is open", "processor", "target"], rows)
    note(f"{runs} runs, {runs * _EVENTS} events; the best of {bench.pick(5, 1)}")


def opened(path: Path, runs: int, events: int, stored: int) -> tuple[float, float]:
    """Return the wall time and the CPU time, in seconds, to open a journal beside such a spool. The store already has
    `stored` events of each run."""
    leave(path, runs, events, stored)
    gc.collect()
    began, worked = time.perf_counter(), time.process_time()
    journal = RunJournal(path)
    took = time.perf_counter() - began, time.process_time() - worked
    try:
        last = {run.last_seq for run in journal.runs(limit=None)}
        if last != {events} or any(report.problem for report in journal.recovered):
            raise AssertionError(f"the runs end at {last}")
    finally:
        journal.close()
    return took


def leave(path: Path, runs: int, events: int, stored: int) -> None:
    """Create what a killed process leaves: its spool, and a store that has a part of it."""
    store = SqliteStore(path)
    spool = Spool(path, store.store_id, _OWNER, limit=1 << 30)
    introduced: dict[int, object] = {}
    for first in range(1, events + 1, 20):  # the runs take turns, as in a server
        for slot in range(1, runs + 1):
            for seq in range(first, min(first + 20, events + 1)):
                _put(spool, introduced, slot, seq)
    for slot in range(1, runs + 1) if stored else ():
        store.append(_OWNER.hex(), [_segment(slot, stored)])
    store.close()
    spool.abandon()


def _put(spool: Spool, introduced: dict[int, object], slot: int, seq: int) -> None:
    for _ in range(2):
        about = b'{"run_id": "run-%d", "epoch": 1}' % slot
        is_known = introduced.get(slot) is spool.file or spool.put(slot, seq - 1, _AT, OPEN, about)
        if is_known:
            introduced[slot] = spool.file
            if spool.put(slot, seq, _AT + seq, TEXT, b'"tok%05d"' % seq):
                return
        spool.rotate(100, lambda: False)
    raise AssertionError("the spool is full")


def _segment(slot: int, last: int) -> Segment:
    body = ",".join(f'"tok{seq:05d}"' for seq in range(1, last + 1))
    ats = ",".join(["1"] * (last - 1))
    return Segment(f"run-{slot}", 1, 1, last, _AT + 1, _AT + last, ats, "1,null", body)
