"""Several machines: a stop from another machine, a follower on another machine, and four processes that write at once."""

from __future__ import annotations

from typing import Any

from tests.support.company import Company, company_of, new_thread
from tests.support.machines import why_not

from ._stats import Sample, seconds, spread, three
from ._tools import Bench, heading, note, table

_PROCESSES = 4
_RUNS = 25
_STOP, _FOLLOW = 0.1, 0.05
_STORES = ("postgres", "redis")


def run(bench: Bench) -> None:
    """Run the section."""
    bench.begin("machines")
    heading("20. Several machines")
    if (reason := why_not()) is not None:
        note(f"not measured: {reason}")
        return
    note("Three machines for workers and one for the servers: network namespaces behind a bridge, on this computer. So the")
    note("network costs some 50 us a round trip, and all processes share this computer's processors. Threads in Postgres,")
    note("by AsyncPostgresSaver; the servers do not wait for their disk.")
    found: dict[str, dict[str, Any]] = {}
    for store in _STORES:
        with bench.directory() as home, company_of(home, store, lease=15.0) as company:
            company.module = "bench._machine_worker"
            found[store] = {
                "stop": _stops(bench, company),
                "follow": _delays(bench, company),
                "load": _load(bench, company),
            }
    _tell(bench, found)


def _stops(bench: Bench, company: Company) -> Sample:
    """Stop runs of one machine from another one."""
    owner, other, _ = company.all()
    took = []
    count = bench.pick(100, 3)
    for done in range(count):
        run_id = owner.do("start", thread=new_thread(), text="talk")
        other.do("hear", run_id=run_id, times=bench.random.randint(1, 12))
        took.append(other.do("stop_timed", run_id=run_id))
        bench.progress("machines, stops", done + 1, count)
    bench.noise.sample()
    return Sample(took[1:])


def _delays(bench: Bench, company: Company) -> Sample:
    """Follow runs of one machine on another one."""
    owner, other, _ = company.all()
    found: list[float] = []
    count = bench.pick(10, 1)
    for done in range(count):
        run_id = owner.do("start", thread=new_thread(), text="count 200")
        found += other.do("delays", run_id=run_id)[10:]
        bench.progress("machines, followed runs", done + 1, count)
    bench.noise.sample()
    return Sample(found)


def _load(bench: Bench, company: Company) -> list[dict[str, float]]:
    """Let four processes write at once."""
    workers = [*company.all(), company.start("a")][:_PROCESSES]
    last = bench.pick(20.0, 1.0)
    asked = [worker.ask("load", runs=_RUNS, seconds=last) for worker in workers]
    found = [one.result(last * 3 + 60) for one in asked]
    bench.noise.sample()
    return found


def _tell(bench: Bench, found: dict[str, dict[str, Any]]) -> None:
    rows = []
    for store, told in found.items():
        stop: Sample = told["stop"]
        remark = bench.at_most(f"stop from another machine, {store}", stop.median, _STOP, seconds)
        rows.append([f"stop to settled, {store}", seconds(stop.median), spread(stop), seconds(stop.at(0.99)), remark])
    for store, told in found.items():
        late: Sample = told["follow"]
        remark = bench.at_most(f"a follower on another machine, {store}", late.median, _FOLLOW, seconds)
        rows.append([f"append to a follower, {store}", seconds(late.median), spread(late), seconds(late.at(0.99)), remark])
    table(["from one machine to another", "p50", "p25 .. p75", "p99", ""], rows)
    note(f"{_PROCESSES} processes at once, each with {_RUNS} runs of 100 tokens a second. Late: how much longer the whole")
    note("took than planned. Waiting: events that the store does not have yet. Of the slowest process, but for the p50.")
    rows = []
    for store, told in found.items():
        load = told["load"]

        def most(name: str, load: list[dict[str, float]] = load) -> float:
            return max(one[name] for one in load)

        remark = bench.at_most(f"append under load, p99, {store}", most("p99"), 0.001, seconds)
        times = [seconds(Sample([one["p50"] for one in load]).median), *(seconds(most(name)) for name in ("p99", "max"))]
        waits = [three(most("waiting")), three(most("most waiting"))]
        rows.append([store, *times, seconds(most("late")), *waits, seconds(most("flush")), remark])
    columns = ["", "append, p50", "p99", "max", "late", "waiting, p50", "most", "last flush", ""]
    table(columns, rows)
