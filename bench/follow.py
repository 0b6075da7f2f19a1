"""The time from the `append` of a token until a follower has it."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable

from langchain_runjournal import RunJournal

from ._children import Child
from ._load import end, new_id, start, token
from ._stats import Sample, seconds, spread
from ._tools import Bench, heading, note, table

_SHORTEST, _LONGEST = 0.004, 0.012
"""The shortest and the longest pause between two tokens of the run, in seconds."""


def run(bench: Bench) -> None:
    """Run the section."""
    bench.begin("follow")
    heading("5. From append to a follower")
    count, rounds = bench.pick(150, 20), bench.pick(7, 2)
    with bench.directory() as directory:
        path = directory / "runs.db"
        with RunJournal(path) as journal, Child("_reader", "follow", str(path)) as other:
            other.hear()
            ways: dict[str, Callable[[list[float]], list[float]]] = {
                "follow, a thread of the process": lambda pauses: _by_thread(journal, pauses),
                "afollow, the loop that appends": lambda pauses: asyncio.run(_by_loop(journal, pauses)),
                "follow, another process": lambda pauses: _by_process(journal, pauses, other),
                "(queue.Queue to a thread)": _queue,
                "(asyncio.Queue in the loop)": lambda pauses: asyncio.run(_async_queue(pauses)),
                "(pipe to another process)": lambda pauses: _pipe(pauses, other),
            }
            found: dict[str, list[float]] = {name: [] for name in ways}
            for done in range(rounds):
                names = list(ways)
                bench.random.shuffle(names)
                for name in names:
                    pauses = [bench.random.uniform(_SHORTEST, _LONGEST) for _ in range(count)]
                    delays = ways[name](pauses)
                    if len(delays) != count:
                        raise AssertionError(f"{name}: {len(delays)} of {count} tokens arrived")
                    found[name] += delays
                bench.noise.sample()
                bench.progress("follow, rounds", done + 1, rounds)
    note(f"Tokens {seconds(_SHORTEST)} to {seconds(_LONGEST)} apart, each carrying the monotonic clock of its append;")
    note(f"{count * rounds:,} of each, in {rounds} shuffled rounds. In parentheses: without a journal, as a lower bound.")
    note("Another process reads the store: it waits for the writer's batch, and polls every 10 ms.")
    rows = []
    for name, values in found.items():
        sample = Sample(values)
        rows.append([name, seconds(sample.median), spread(sample), seconds(sample.at(0.99)), seconds(sample.most), ""])
    table(["", "p50", "p25 .. p75", "p99", "max", ""], rows)


def _now() -> str:
    return str(time.monotonic_ns())


def _delay(text: str) -> float:
    return (time.monotonic_ns() - int(text)) / 1e9


def _produce(journal: RunJournal, run_id: str, pauses: list[float]) -> None:
    call_id = new_id()
    for pause in pauses:
        time.sleep(pause)
        journal.append(token(run_id, call_id, _now()))
    journal.append(end(run_id))


def _by_thread(journal: RunJournal, pauses: list[float]) -> list[float]:
    run_id = new_id()
    delays: list[float] = []
    journal.append(start(run_id))

    def follow() -> None:
        tokens = (event.data["text"] for event in journal.follow(run_id) if event.kind == "llm.ai.delta")
        delays.extend(map(_delay, tokens))

    thread = threading.Thread(target=follow)
    thread.start()
    _produce(journal, run_id, pauses)
    thread.join()
    return delays


async def _by_loop(journal: RunJournal, pauses: list[float]) -> list[float]:
    run_id, call_id = new_id(), new_id()
    delays: list[float] = []
    journal.append(start(run_id))

    async def follow() -> None:
        async for event in journal.afollow(run_id):
            if event.kind == "llm.ai.delta":
                delays.append(_delay(event.data["text"]))  # noqa: PERF401 - each delay is taken when its event arrives

    task = asyncio.create_task(follow())
    for pause in pauses:
        await asyncio.sleep(pause)
        journal.append(token(run_id, call_id, _now()))
    journal.append(end(run_id))
    await task
    return delays


def _by_process(journal: RunJournal, pauses: list[float], other: Child) -> list[float]:
    run_id = new_id()
    journal.append(start(run_id))
    journal.flush()
    other.ask(f"follow {run_id}")
    _produce(journal, run_id, pauses)
    return [delay / 1e9 for delay in other.hear()]


def _queue(pauses: list[float]) -> list[float]:
    texts: queue.Queue[str] = queue.Queue()
    delays: list[float] = []

    def follow() -> None:
        while text := texts.get():
            delays.append(_delay(text))

    thread = threading.Thread(target=follow)
    thread.start()
    for pause in pauses:
        time.sleep(pause)
        texts.put(_now())
    texts.put("")
    thread.join()
    return delays


async def _async_queue(pauses: list[float]) -> list[float]:
    texts: asyncio.Queue[str] = asyncio.Queue()
    delays: list[float] = []

    async def follow() -> None:
        while text := await texts.get():
            delays.append(_delay(text))

    task = asyncio.create_task(follow())
    for pause in pauses:
        await asyncio.sleep(pause)
        texts.put_nowait(_now())
    texts.put_nowait("")
    await task
    return delays


def _pipe(pauses: list[float], other: Child) -> list[float]:
    other.ask("pipe")
    for pause in pauses:
        time.sleep(pause)
        other.tell(_now())
    return [delay / 1e9 for delay in other.ask("end")]
