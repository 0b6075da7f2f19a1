"""Kills with `kill -9` at random moments: every event for which `append` had returned must survive."""

from __future__ import annotations

import collections
import concurrent.futures
import itertools
import json
import os
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from ._children import Child
from ._load import new_id
from ._stats import Sample, seconds, three
from ._tools import Bench, heading, note, table

Case = dict[str, Any]

_SHORT: Final = 0.1
_LONG, _LONG_SHARE = 0.6, 0.15
_EARLY, _EARLY_SHARE = 0.05, 0.1
_AGAIN, _AGAIN_SHARE = 0.03, 0.1
_CONTROL_SHARE: Final = 0.05


def run(bench: Bench) -> None:
    """Run the section."""
    bench.begin("kill")
    kills = bench.kills or bench.pick(1_000, 24)
    heading(f"7. {kills:,} times kill -9")
    cases = list(_cases(kills, bench.random))
    results: list[tuple[Case, Case]] = []
    with bench.directory() as directory, concurrent.futures.ThreadPoolExecutor(max(2, os.cpu_count() or 2)) as pool:
        nurseries = _Nurseries(directory)
        try:
            tasks = [pool.submit(nurseries.try_, case) for case in cases]
            for done, task in enumerate(concurrent.futures.as_completed(tasks), 1):
                results.append(task.result())
                bench.progress("kills", done, len(cases))
        finally:
            pool.shutdown(cancel_futures=True)
            nurseries.close()
    _report(bench, kills, results)


def _cases(kills: int, rng: random.Random) -> Iterator[Case]:
    kinds = itertools.cycle(itertools.product((True, False), (1, 4)))
    control = max(4, round(kills * _CONTROL_SHARE))
    cases = [_case(number, next(kinds), rng, control=number >= kills) for number in range(kills + control)]
    rng.shuffle(cases)
    yield from cases


def _case(number: int, kind: tuple[bool, int], rng: random.Random, *, control: bool) -> Case:
    paced, threads = kind
    early = not control and rng.random() < _EARLY_SHARE
    longest = _EARLY if early else _LONG if rng.random() < _LONG_SHARE else _SHORT
    shared = rng.random() < 0.5  # all threads in one run, or each in its own
    return {
        "number": number,
        "paced": paced,
        "threads": threads,
        "runs": [new_id()] * threads if shared else [new_id() for _ in range(threads)],
        "control": control,
        "early": early,
        "delay": rng.uniform(0, longest),
        "kill_recovery": rng.uniform(0, _AGAIN) if rng.random() < _AGAIN_SHARE else None,
    }


class _Nurseries:
    """One nursery per thread of the pool."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._mine = threading.local()
        self._all: list[Child] = []

    def try_(self, case: Case) -> tuple[Case, Case]:
        if not hasattr(self._mine, "child"):
            self._mine.child = Child("_nursery", str(self._directory))
            self._all.append(self._mine.child)
        return case, self._mine.child.ask(json.dumps(case))

    def close(self) -> None:
        for child in self._all:
            child.close()


def _report(bench: Bench, kills: int, results: list[tuple[Case, Case]]) -> None:
    note(f"Writers are killed 0 to {seconds(_SHORT)} after their first append ({_LONG_SHARE:.0%}: to {seconds(_LONG)};")
    note(
        f"{_EARLY_SHARE:.0%}: 0 to {seconds(_EARLY)} after they began, while the journal opens). Of those with four threads,"
    )
    note("half write one run together. A shared page, outside the journal, counts the appends that have returned.")
    note(f"In {_AGAIN_SHARE:.0%}, the process that imports the spool is killed too, 0 to {seconds(_AGAIN)} after it began.")
    note("Lost: given, but missing. Wrong: out of order, incomplete, a gap, a duplicate, a run without its start.")
    note("Untidy: the import reports a problem, or a spool file is left.")
    groups: dict[str, list[Case]] = collections.defaultdict(list)
    for case, result in sorted(results, key=lambda pair: (pair[0]["control"], not pair[0]["paced"], pair[0]["threads"])):
        groups[_name(case)].append(result)
    rows = [_row(name, group) for name, group in groups.items()]
    table(["", "kills", "given", "found", "lost", "at worst", "wrong", "untidy", "reopening p50", "p99", ""], rows)
    ours = [result for case, result in results if not case["control"]]
    for text, times in collections.Counter(text for result in ours for text in result["faults"]).most_common(10):
        note(f"{times} times: {text}")
    given, recovered = (sum(result[key] for result in ours) for key in ("given", "recovered"))
    lost, wrong, untidy = (sum(result[key] for result in ours) for key in ("lost", "wrong", "untidy"))
    note(f"{kills:,} kills, {given:,} tokens checked, {recovered:,} events imported from spools.")
    note(f"lost:   {three(lost)}; {bench.at_most(f'tokens lost in {kills:,} kills', lost, 0, three)}")
    note(f"wrong:  {three(wrong)}; {bench.at_most(f'runs wrong after {kills:,} kills', wrong, 0, three)}")
    note(f"untidy: {three(untidy)}; {bench.at_most(f'untidy recoveries after {kills:,} kills', untidy, 0, three)}")
    bench.lost = bench.lost or lost > 0 or wrong > 0


def _name(case: Case) -> str:
    rate = "200 tokens/s" if case["paced"] else "full speed"
    if case["control"]:
        return f"(control: list + commit each 50 ms, {rate})"
    return f"{rate}, {'one thread' if case['threads'] == 1 else 'four threads'}"


def _row(name: str, group: list[Case]) -> list[str]:
    given, found, lost = (sum(result[key] for result in group) for key in ("given", "found", "lost"))
    worst = max(result["lost"] for result in group)
    wrong, untidy = (sum(result[key] for result in group) for key in ("wrong", "untidy"))
    recovery = Sample([result["recovery"] for result in group if result["recovery"]])
    counts = [f"{number:,}" for number in (len(group), given, found, lost, worst, wrong, untidy)]
    return [name, *counts, seconds(recovery.median), seconds(recovery.at(0.99)), ""]
