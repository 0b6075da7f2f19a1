"""The time of a barrier: one `append`, then `flush`."""

from __future__ import annotations

import time
from collections.abc import Callable

from langchain_runjournal import Event, RunJournal

from ._load import new_id, start, tokens
from ._rivals import PlainSqlite
from ._stats import Sample, seconds, spread, times
from ._tools import Bench, heading, note, table

_TARGET = 1e-3


def run(bench: Bench) -> None:
    """Run the section."""
    bench.begin("flush")
    heading("4. flush() after one append")
    turns = bench.pick(2_000, 100)
    run_id = new_id()
    events = tokens(run_id, new_id(), turns)
    with bench.directory() as directory:
        journals = {kind: RunJournal(directory / kind, synchronous=kind) for kind in ("normal", "full")}
        plains = {kind: PlainSqlite(directory / f"plain-{kind}", kind) for kind in ("normal", "full")}
        for journal in journals.values():
            journal.append(start(run_id))
            journal.flush()
        acts: dict[str, Callable[[Event], None]] = {
            "append + flush, normal": lambda event: _flush(journals["normal"], event),
            "append + flush, full": lambda event: _flush(journals["full"], event),
            "sqlite3 insert + commit, normal": plains["normal"].append,
            "sqlite3 insert + commit, full": plains["full"].append,
        }
        found: dict[str, list[float]] = {name: [] for name in acts}
        for turn, event in enumerate(events):
            names = list(acts)
            bench.random.shuffle(names)
            for name in names:
                time.sleep(0.0005)  # so that every writer sleeps, as before a single barrier
                began = time.perf_counter()
                acts[name](event)
                found[name].append(time.perf_counter() - began)
            bench.progress("flush", turn + 1, turns)
        for journal in journals.values():
            journal.close()
        for plain in plains.values():
            plain.close()
    note(f"{turns:,} of each, shuffled; the writer sleeps before each. 'full' waits for the disk, 'normal' does not.")
    rows = []
    for name, values in found.items():
        sample = Sample(values)
        target = bench.at_most("flush(), median", sample.median, _TARGET, seconds) if name.endswith("flush, normal") else ""
        rival = Sample(found[f"sqlite3 insert + commit, {name.rpartition(' ')[2]}"])
        ratio = times(sample.median / rival.median)
        rows.append(
            [name, seconds(sample.median), spread(sample), seconds(sample.at(0.99)), seconds(sample.most), ratio, target]
        )
    table(["", "p50", "p25 .. p75", "p99", "max", "to sqlite3", "target"], rows)


def _flush(journal: RunJournal, event: Event) -> None:
    journal.append(event)
    journal.flush()
