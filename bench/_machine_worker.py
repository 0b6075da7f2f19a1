"""The worker of the section `machines`: it measures on its own machine.

python -m bench._machine_worker JOURNAL CHECKPOINTS LEASE
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

from langchain_runjournal.journal.core import core_of
from tests.support.machine_worker import Worker, main

from ._load import end, model_start, new_id, start, token
from ._stats import Sample

_TICK = 0.01


class Meter(Worker):
    """What the worker can be asked for, beside what a worker of the tests can."""

    async def stop_timed(self, run_id: str) -> float:
        """Stop a run, and return how long that took: until the run has ended and its thread is settled."""
        began = time.monotonic()
        run = await self.journal.astop(run_id, wait=True)
        if not run.settled:
            raise AssertionError(f"run {run_id} is not settled: {run.problem}")
        return time.monotonic() - began

    async def delays(self, run_id: str) -> list[float]:
        """Follow a run to its end, and return how late its tokens were, by the clock that all namespaces share."""
        events = [(time.time(), event) async for event in self.journal.afollow(run_id)]
        return [now - event.at for now, event in events if event.kind == "llm.ai.delta"]

    async def load(self, runs: int, seconds: float) -> Any:
        """Append a token to each run every 10 ms, as models with 100 tokens a second do."""
        return await asyncio.get_running_loop().run_in_executor(None, self._load, runs, seconds)

    def _load(self, runs: int, seconds: float) -> Any:
        journal, appender = self.journal, core_of(self.journal).appender
        calls = {new_id(): new_id() for _ in range(runs)}
        for run_id, call_id in calls.items():
            journal.append(start(run_id))
            journal.append(model_start(run_id, call_id))
        took: list[float] = []
        waiting: list[int] = []
        began, ticks = time.monotonic(), round(seconds / _TICK)
        for tick in range(ticks):
            for run_id, call_id in calls.items():
                event = token(run_id, call_id, "word ")
                at = time.perf_counter()
                journal.append(event)
                took.append(time.perf_counter() - at)
            waiting.append(appender.waiting)
            time.sleep(max(0.0, began + (tick + 1) * _TICK - time.monotonic()))
        late = time.monotonic() - began - seconds
        for run_id in calls:
            journal.append(end(run_id))
        at = time.monotonic()
        journal.flush()
        flush = time.monotonic() - at
        last = {journal.run(run_id).last_seq for run_id in calls}
        if last != {ticks + 3}:
            raise AssertionError(f"the runs end at {last}, not at {ticks + 3}")
        appends, queue = Sample(took), Sample([float(one) for one in waiting])
        found = {"p50": appends.median, "p99": appends.at(0.99), "p999": appends.at(0.999), "max": appends.most}
        return {**found, "late": late, "flush": flush, "waiting": queue.median, "most waiting": queue.most}


if __name__ == "__main__":
    asyncio.run(main(Meter, *sys.argv[1:]))
