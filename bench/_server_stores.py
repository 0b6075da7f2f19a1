"""The journal on a database server: the loads of the sections `postgres` and `redis`, each measured the same way."""

from __future__ import annotations

import asyncio
import gc
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from string import ascii_letters
from typing import Any, NamedTuple

from langchain_runjournal import Event, JournalCallbackHandler, RunJournal
from langchain_runjournal.stores import Segment, open_store

from ._load import WORDS, end, model_start, new_id, start, token, tokens
from ._models import Model, NoOp
from ._stats import Sample, seconds, spread, three, times
from ._tools import Bench, note, table

BATCH = 50
"""The tokens of a batch where a load forces its size: what half a second of one fast model gives."""
_RATE = 100  # tokens per second and run


class WatchedStore:
    """A store whose appends are timed, and delayed on request."""

    def __init__(self, store: Any, delay: float = 0.0) -> None:
        self._store = store
        self._delay = delay
        self.reset()

    def reset(self) -> None:
        """Forget what was measured."""
        self.took, self.batches, self.rows = 0.0, 0, 0

    def append(self, owner_id: str, segments: Sequence[Segment]) -> None:
        """Append, and note how long that took."""
        began = time.perf_counter()
        self._store.append(owner_id, segments)
        time.sleep(self._delay)
        self.took += time.perf_counter() - began
        self.batches += 1
        self.rows += len(segments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class Cost(NamedTuple):
    """What one load took, per token except for `tokens` and `rows`, which are per batch."""

    wall: float
    """From the first append until everything is durable. Of a paced load: nothing."""
    store: float
    """In the writer thread, inside the store: encoding, sending, waiting for the commit."""
    cpu: float
    """The CPU time of the writer thread."""
    tokens: float
    rows: float


@contextmanager
def watched(url: str, directory: Path, delay: float = 0.0) -> Iterator[tuple[RunJournal, WatchedStore]]:
    """Open a journal on a URL, and close it."""
    store = WatchedStore(open_store(url), delay)
    with RunJournal(store, spool_dir=directory) as journal:
        yield journal, store


class Loads:
    """The loads, on one journal."""

    def __init__(self, journal: RunJournal, store: WatchedStore) -> None:
        self._journal, self._store = journal, store
        writers = [thread for thread in threading.enumerate() if thread.name == "runjournal-writer"]
        self._writer = writers[-1]  # the youngest

    def in_a_row(self, count: int) -> Cost:
        """Append `count` tokens of one run as fast as possible, then flush."""
        with self._begun(1) as ((run_id, call_id),):
            events = tokens(run_id, call_id, count)
            return self._measure(count, lambda: self._append(events))

    def in_batches(self, count: int, batch: int = BATCH) -> Cost:
        """Append the tokens of one run, with a flush per batch, so that each batch is a transaction of its own."""
        with self._begun(1) as ((run_id, call_id),):
            events = tokens(run_id, call_id, count)
            batches = [events[at : at + batch] for at in range(0, count, batch)]
            return self._measure(count, lambda: [self._append(one) for one in batches])

    def paced(self, runs: int, lasting: float) -> Cost:
        """Append the tokens of many runs at the pace of models: the writer forms the batches by itself."""
        turns = round(lasting * _RATE)
        with self._begun(runs) as ids:
            cost = self._measure(runs * turns, lambda: self._stream(ids, turns))
        return cost._replace(wall=float("nan"))

    def _stream(self, ids: Sequence[tuple[str, str]], turns: int) -> None:
        append, began = self._journal.append, time.monotonic()
        for turn in range(turns):
            for number, (run_id, call_id) in enumerate(ids):
                wait = began + (turn + number / len(ids)) / _RATE - time.monotonic()
                if wait > 0.001:
                    time.sleep(wait)
                append(token(run_id, call_id, WORDS[(turn + number) % len(WORDS)]))
        self._journal.flush()

    def _append(self, events: Sequence[Event]) -> None:
        for event in events:
            self._journal.append(event)
        self._journal.flush()

    @contextmanager
    def _begun(self, runs: int) -> Iterator[list[tuple[str, str]]]:
        ids = [(new_id(), new_id()) for _ in range(runs)]
        for run_id, call_id in ids:
            self._journal.append(start(run_id))
            self._journal.append(model_start(run_id, call_id))
        self._journal.flush()
        yield ids
        for run_id, _ in ids:
            self._journal.append(end(run_id))
        self._journal.flush()

    def _measure(self, count: int, load: Callable[[], object]) -> Cost:
        gc.collect()
        clock = time.pthread_getcpuclockid(self._writer.ident or 0)
        self._store.reset()
        worked, began = time.clock_gettime(clock), time.perf_counter()
        load()
        took, cpu = time.perf_counter() - began, time.clock_gettime(clock) - worked
        batches = max(1, self._store.batches)
        return Cost(took / count, self._store.took / count, cpu / count, count / batches, self._store.rows / batches)


class Costs:
    """The costs of one load over all repetitions."""

    def __init__(self, load: Callable[[], Cost]) -> None:
        self._load = load
        self.found: list[Cost] = []

    def __call__(self) -> float:
        cost = self._load()
        self.found.append(cost)
        return cost.store

    def of(self, name: str) -> Sample:
        return Sample([getattr(cost, name) for cost in self.found])


def per_token(
    bench: Bench, name: str, loads: Loads, rivals: dict[str, Callable[[list[Event]], None]], base: str, few: int
) -> dict[str, tuple[Sample, Costs | None]]:
    """Measure the loads and what one would write by hand, shuffled, and show them. Each rival gets `few` tokens."""
    many, runs, lasting = bench.pick((20_000, 100, 2.0), (1_000, 10, 0.2))
    ours = {
        "journal: 100 runs at 100 tokens/s": Costs(lambda: loads.paced(runs, lasting)),
        "journal: 1 run at 100 tokens/s": Costs(lambda: loads.paced(1, lasting)),
        f"journal: {BATCH} tokens, flush": Costs(lambda: loads.in_batches(many // 10)),
        f"journal: {many:,} in a row, flush": Costs(lambda: loads.in_a_row(many)),
    }
    contenders: dict[str, Callable[[], float]] = {
        **{rival: partial(_timed, write, few) for rival, write in rivals.items()},
        **ours,
    }
    found = bench.interleave(f"{name}, per token", contenders, bench.pick(9, 2))
    anchor = found[base].median
    rows = []
    for what, sample in found.items():
        costs = ours.get(what)
        ratio, wide = [times(anchor / sample.median)], [seconds(sample.at(0)), spread(sample)]
        if costs is None:
            rows.append([what, seconds(sample.median), *wide, *ratio, seconds(sample.median), "", "", "", ""])
            continue
        shown = [seconds(costs.of(one).median) for one in ("wall", "cpu")]
        per_batch = [three(costs.of(one).median) for one in ("tokens", "rows")]
        rows.append([what, seconds(sample.median), *wide, *ratio, *shown, *per_batch, ""])
    note("Wall time per token, median of shuffled repetitions; 'times less' is to the first row. Of the journal, the first")
    note("column is the time that the writer thread spends in the store, 'to durable' counts from the first append until")
    note("flush() has returned, and 'CPU' is that of the writer thread.")
    columns = [
        "",
        "per token",
        "least",
        "p25 .. p75",
        "times less",
        "to durable",
        "writer CPU",
        "tokens/batch",
        "rows/batch",
        "",
    ]
    table(columns, rows)
    return {what: (sample, ours.get(what)) for what, sample in found.items()}


def _timed(write: Callable[[list[Event]], None], count: int) -> float:
    events = tokens(new_id(), new_id(), count)
    gc.collect()
    began = time.perf_counter()
    write(events)
    return (time.perf_counter() - began) / count


def replay(bench: Bench, journal: RunJournal, rival: str, read: Callable[[str], list[str]], run_id: str) -> None:
    """Measure how long it takes to read a run of many tokens back."""
    count = len(read(run_id))

    def ours() -> float:
        began = time.perf_counter()
        found = journal.read(run_id)
        took = time.perf_counter() - began
        if sum(event.kind == "llm.ai.delta" for event in found) != count:
            raise AssertionError(f"the journal has {len(found)} events, and {count} tokens were appended")
        return took

    def theirs() -> float:
        began = time.perf_counter()
        if len(read(run_id)) != count:
            raise AssertionError("the number of rows has changed")
        return time.perf_counter() - began

    found = bench.interleave(f"replay against {rival}", {"journal.read(run_id)": ours, rival: theirs}, bench.pick(9, 2))
    best = found["journal.read(run_id)"].median
    rows = [
        [name, seconds(one.median), spread(one), seconds(one.median / count), times(one.median / best), ""]
        for name, one in found.items()
    ]
    note(f"Reading {count:,} tokens of one run back, in this process. The journal builds an Event for each, the rival takes")
    note("the texts only.")
    table(["", "median", "p25 .. p75", "per token", "to read", ""], rows)


def write_run(journal: RunJournal, count: int, rng: random.Random | None = None) -> tuple[str, list[Event]]:
    """Write a run of `count` tokens in batches of 50, and return its id and its tokens. `rng`: for words that no server can
    compress."""
    run_id, call_id = new_id(), new_id()
    events = tokens(run_id, call_id, count)
    if rng is not None:
        events = [token(run_id, call_id, " " + "".join(rng.choices(ascii_letters, k=4))) for _ in range(count)]
    journal.append(start(run_id))
    journal.append(model_start(run_id, call_id))
    for at in range(0, count, BATCH):
        for event in events[at : at + BATCH]:
            journal.append(event)
        journal.flush()
    journal.append(end(run_id))
    journal.flush()
    return run_id, events


def sizes(text: float, rows: Sequence[tuple[str, float]]) -> None:
    """Show bytes per token. `text`: the characters of a token."""
    note(f"Bytes per token; {three(text)} of them are the text of the model.")
    table(["", "bytes", ""], [[name, three(value), ""] for name, value in rows])


def capture(bench: Bench, directory: Path, url: str, name: str) -> None:
    """Measure what capturing a token costs, by the store behind the journal: it never waits for the store."""
    count, delay = bench.pick(2_000, 200), 0.05
    loop = asyncio.new_event_loop()
    with (
        watched(str(directory / "capture.db"), directory) as (sqlite, _),
        watched(url, directory) as (ours, _),
        watched(url, directory, delay) as (slow, _),
    ):
        journals = {"SQLite": sqlite, name: ours, f"{name}, 50 ms away": slow}

        def stream(handler: Callable[[], Any]) -> float:
            for journal in journals.values():
                journal.flush()
            gc.collect()
            began = time.perf_counter()
            for _ in range(4):
                loop.run_until_complete(_consume(Model(tokens=count), handler()))
            return (time.perf_counter() - began) / count / 4

        contenders: dict[str, Callable[[], float]] = {"no-op inline handler": partial(stream, NoOp)}
        for store, journal in journals.items():
            contenders[f"journal on {store}"] = partial(stream, partial(JournalCallbackHandler, journal))
        for contender in contenders.values():
            contender()
        found = bench.interleave(f"{name}, capture", contenders, bench.pick(15, 2))
    loop.close()
    base = found["journal on SQLite"]
    noise = base.at(0.75) / base.median
    rows = []
    for what, sample in found.items():
        target = ""
        ratio = sample.median / base.median
        if what.startswith(f"journal on {name}"):
            label = what.removeprefix("journal on ")
            target = bench.at_most(f"capture of a token, {label}: to SQLite", ratio, max(1.05, noise), times)
        rows.append([what, seconds(sample.median), spread(sample), times(ratio), target])
    note("Time per token of model.astream with JournalCallbackHandler, without the last flush. The target is the noise of")
    note("the row of SQLite (its p75), or 1.05x if that is more.")
    table(["", "per token", "p25 .. p75", "to SQLite", "target"], rows)


async def _consume(model: Model, handler: Any) -> None:
    async for _chunk in model.astream("x", config={"callbacks": [handler]}):
        pass


def connections(bench: Bench, count: Callable[[], int], url: str, directory: Path) -> None:
    """Show how many connections one journal holds: open, while a thread follows a run, and while many threads read."""
    before = count()
    with watched(url, directory) as (journal, _):
        opened = count() - before
        live = new_id()
        journal.append(start(live))
        journal.flush()
        follower = threading.Thread(target=lambda: list(journal.follow(live)))
        follower.start()
        time.sleep(1.0)
        following = count() - before
        run_id, _ = write_run(journal, bench.pick(20_000, 1_000))
        readers = [threading.Thread(target=journal.read, args=(run_id,)) for _ in range(20)]
        for reader in readers:
            reader.start()
        most = following
        while any(reader.is_alive() for reader in readers):
            most = max(most, count() - before)
        for reader in readers:
            reader.join()
        rest = count() - before
        journal.append(end(live))
        follower.join()
    note(f"Connections of one journal: {opened} when it has opened, {following} while a run is followed, at most {most}")
    note(f"while 20 threads read as well, and {rest} after that.")
