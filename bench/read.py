"""The time to read a finished run, in a fresh process."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from langchain_runjournal import Event, RunJournal

from ._children import Child
from ._load import end, new_id, start, tokens
from ._reader import digest
from ._rivals import PlainSqlite, write_lines
from ._stats import Sample, seconds, spread, times
from ._tools import Bench, heading, note, table

_TARGET = 50e-3


def run(bench: Bench) -> None:
    """Run the section."""
    bench.begin("read")
    count = bench.pick(100_000, 10_000)
    heading(f"6. Reading {count:,} events back")
    with bench.directory() as directory:
        run_id = new_id()
        events = [start(run_id), *tokens(run_id, new_id(), count - 2), end(run_id)]
        _write(directory, events)
        expected = digest(event.data.get("text", "") for event in events)
        ways = {
            "journal.read(run_id)": ("read", "runs.db"),
            "journal.read in pages of 500": ("page", "runs.db"),
            "journal.follow to the end": ("follow", "runs.db"),
            "sqlite3, a row for each event": ("rows", "plain.db"),
            "file of JSON lines": ("lines", "lines"),
        }
        opening: list[float] = []
        contenders: dict[str, Callable[[], float]] = {
            name: partial(_fresh, how, directory / file, run_id, count, expected, opening)
            for name, (how, file) in ways.items()
        }
        found = bench.interleave("read", contenders, bench.pick(11, 2))
    note(f"Each time in a fresh process, median of {len(found['journal.read(run_id)'])} in shuffled order. The file is in")
    note("the page cache; the time excludes the start of the interpreter and opening the file. Every event was compared.")
    own = found["journal.read(run_id)"].median
    rows = []
    for name, sample in found.items():
        target = ""
        if name == "journal.read(run_id)":
            target = bench.at_most("reading 100,000 events", sample.median * 100_000 / count, _TARGET, seconds)
        each = seconds(sample.median / count)
        rows.append([name, seconds(sample.median), spread(sample), each, times(sample.median / own), target])
    table(["", "median", "p25 .. p75", "per event", "to read", "target"], rows)
    note(f"Opening the journal took {seconds(Sample(opening).median)} (median).")


def _write(directory: Path, events: list[Event]) -> None:
    with RunJournal(directory / "runs.db") as journal:
        for event in events:
            journal.append(event)
    plain = PlainSqlite(directory / "plain.db")
    plain.append_all(events, 1_000)
    plain.close()
    write_lines(directory / "lines", events)


def _fresh(how: str, path: Path, run_id: str, count: int, expected: str, opening: list[float]) -> float:
    with Child("_reader", "once", how, str(path), run_id) as child:
        found = child.hear()
    if found["events"] != count or found["digest"] != expected:
        raise AssertionError(f"{how} read {found['events']} of {count} events, or other events")
    if how in ("read", "page", "follow"):
        opening.append(found["open"])
    return float(found["read"])
