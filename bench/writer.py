"""The cost of the writer thread with a hundred concurrent runs at a realistic pace."""

from __future__ import annotations

import random
import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from langchain_runjournal import Event, RunJournal

from ._load import WORDS, end, model_start, new_id, start, token
from ._stats import Sample, seconds, size, three
from ._tools import Bench, heading, note, table

_RATE = 100  # tokens per second and run
_TIME_TARGET, _WAL_TARGET, _REST_TARGET = 1e-6, 60, 15


class _Figures(NamedTuple):
    """The figures of one round, per token except for `tokens` and `late`."""

    tokens: int
    late: Sample
    live_cpu: float
    close_cpu: float
    written: float
    wal_live: float
    wal: float
    rest: float
    free: float
    text: float


def run(bench: Bench) -> None:
    """Run the section."""
    bench.begin("writer")
    runs, lasting, rounds = bench.pick(100, 20), bench.pick(10.0, 1.0), bench.pick(3, 1)
    heading(f"2. The writer thread: {runs} runs at {_RATE} tokens/s each, for {lasting:.0f} s, {rounds} times")
    timed: list[_Figures] = []
    pinned: list[_Figures] = []
    for done in range(rounds + 1):
        # The last round measures only the WAL: its reader prevents checkpoints of SQLite, which cost time too.
        pin = done == rounds
        with bench.directory() as directory:
            (pinned if pin else timed).append(_round(directory / "runs.db", runs, lasting, bench.random, pin=pin))
        bench.noise.sample()
        bench.progress("writer, rounds", done + 1, rounds + 1)
    _report(bench, timed, pinned[0])


def _round(path: Path, runs: int, lasting: float, rng: random.Random, *, pin: bool) -> _Figures:
    with RunJournal(path):
        pass
    empty = path.stat().st_size
    journal = RunJournal(path)
    thread = next(thread for thread in threading.enumerate() if thread.name == "runjournal-writer")
    ids = [(new_id(), new_id()) for _ in range(runs)]
    schedule = _schedule(runs, lasting, rng)
    texts = rng.choices(WORDS, k=len(schedule))
    reader = _pin(path) if pin else None
    wal = path.with_name(f"{path.name}-wal")
    wal_before = wal.stat().st_size
    for run_id, call_id in ids:
        journal.append(start(run_id))
        journal.append(model_start(run_id, call_id))
    journal.flush()
    cpu_before, written_before = _cpu(thread), _written(thread)
    late = _stream(journal, ids, schedule, texts)
    for run_id, _ in ids:
        journal.append(end(run_id))
    journal.flush()
    live_cpu, written = _cpu(thread) - cpu_before, _written(thread) - written_before
    wal_live = wal.stat().st_size - wal_before
    process_before, ours_before = time.process_time(), time.thread_time()
    journal.close()
    close_cpu = (time.process_time() - process_before) - (time.thread_time() - ours_before)
    wal_after = wal.stat().st_size - wal_before if reader else 0
    if reader is not None:
        reader.execute("ROLLBACK")
        reader.close()
    if wal.exists():
        raise AssertionError(f"{wal} still exists after the last connection was closed")
    count, rest = len(schedule), path.stat().st_size - empty
    values = (live_cpu, close_cpu, written, wal_live, wal_after, rest, _free(path), sum(map(len, texts)))
    per = (value / count for value in values)
    return _Figures(count, late, *per)


def _schedule(runs: int, lasting: float, rng: random.Random) -> list[tuple[float, int]]:
    """Return when each run gets its tokens: each run has a phase of its own and a jitter."""
    moments = []
    for number in range(runs):
        phase = rng.random()
        moments += [((turn + phase + rng.uniform(-0.4, 0.4)) / _RATE, number) for turn in range(round(lasting * _RATE))]
    return sorted(moments)


def _stream(journal: RunJournal, ids: list[tuple[str, str]], schedule: list[tuple[float, int]], texts: list[str]) -> Sample:
    """Append the tokens when they are due, and return how late each one was."""
    append, clock, late = journal.append, time.monotonic, []
    began = clock()
    for (due, number), text in zip(schedule, texts, strict=True):
        wait = due - (clock() - began)
        if wait > 0:
            time.sleep(max(wait, 0.001))  # at most a thousand wake-ups a second, which are not part of the measurement
        run_id, call_id = ids[number]
        event: Event = token(run_id, call_id, text)
        append(event)
        late.append(clock() - began - due)
    return Sample(late)


def _pin(path: Path) -> sqlite3.Connection:
    """Open a read transaction: the WAL can then only grow, so its size is the number of bytes written."""
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM facts").fetchone()
    return reader


def _free(path: Path) -> int:
    """Return the bytes of the free pages, which SQLite keeps for later use."""
    with closing(sqlite3.connect(path)) as con:
        pages, each = (con.execute(f"PRAGMA {name}").fetchone()[0] for name in ("freelist_count", "page_size"))
    return int(pages * each)


def _cpu(thread: threading.Thread) -> float:
    return time.clock_gettime(time.pthread_getcpuclockid(thread.ident or 0))


def _written(thread: threading.Thread) -> float:
    """Return the bytes that this thread passed to write(2) and similar calls, if the system counts them."""
    try:
        lines = Path(f"/proc/self/task/{thread.native_id}/io").read_text().splitlines()
    except OSError:
        return float("nan")
    return float(dict(line.split(": ") for line in lines)["wchar"])


def _report(bench: Bench, timed: list[_Figures], pinned: _Figures) -> None:
    total = Sample([figures.live_cpu + figures.close_cpu for figures in timed])
    live, last = Sample([f.live_cpu for f in timed]), Sample([f.close_cpu for f in timed])
    rest, written = Sample([f.rest for f in timed]), Sample([f.written for f in timed])
    late, tokens = timed[0].late, timed[0].tokens
    note(f"{tokens:,} tokens of 4 to 5 characters per round; each run has a start, a model call with a UUID, and an end.")
    note("Time: CPU time of the thread 'runjournal-writer' by its own clock; for closing, of the process without its main")
    note("thread. WAL: exact, from one more round with a long read transaction, so that the file only grows.")
    note(f"Pacing: tokens came {seconds(late.median)} late (p50), {seconds(late.at(0.99))} (p99).")
    time_target = bench.at_most("writer time per token, 100 runs", total.median, _TIME_TARGET, seconds)
    wal_target = bench.at_most("WAL bytes per token, 100 runs", pinned.wal, _WAL_TARGET, three)
    rest_target = bench.at_most("bytes per token at rest", rest.median, _REST_TARGET, three)
    table(
        ["per token", "median", "min .. max", "target"],
        [
            ["writer CPU while streaming", seconds(live.median), _range(live), ""],
            ["writer CPU for closing", seconds(last.median), _range(last), ""],
            ["writer CPU, all", seconds(total.median), _range(total), time_target],
            ["WAL bytes while streaming", three(pinned.wal_live), "(one round)", ""],
            ["WAL bytes, all, with closing", three(pinned.wal), "(one round)", wal_target],
            ["bytes to write(2), checkpoints included", three(written.median), _range(written, plain=True), ""],
            ["bytes at rest, without -wal", three(rest.median), _range(rest, plain=True), rest_target],
            ["of these, free pages for later use", three(timed[0].free), "", ""],
            ["of these, text of the model", three(timed[0].text), "", ""],
        ],
    )
    note(f"At rest that is {size(rest.median * tokens)} for {tokens:,} tokens.")


def _range(sample: Sample, *, plain: bool = False) -> str:
    show = three if plain else seconds
    return f"{show(sample.at(0))} .. {show(sample.most)}"
