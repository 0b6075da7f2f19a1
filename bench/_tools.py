"""Tools for every section: repetitions in random order, tables, targets, progress, a place for files."""

from __future__ import annotations

import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from ._machine import Noise
from ._stats import Sample

_PROGRESS_EVERY = 5.0
_T = TypeVar("_T")


@dataclass(frozen=True)
class Target:
    """One target, and the measured result."""

    name: str
    measured: str
    limit: str
    reached: bool


class Bench:
    """One run of the bench."""

    def __init__(self, *, quick: bool, kills: int | None, seed: int) -> None:
        self.quick = quick
        self.kills = kills
        self.random = random.Random(seed)
        self.noise = Noise()
        self.targets: list[Target] = []
        self.lost = False
        """Whether an event was lost that the journal had promised to keep: the only result that fails the run."""
        self._began = time.monotonic()
        self._told = 0.0

    def pick(self, full: _T, quick: _T) -> _T:
        """Return `full`, or `quick` in a quick run."""
        return quick if self.quick else full

    @contextmanager
    def directory(self) -> Iterator[Path]:
        """Yield a temporary directory, and delete it afterwards."""
        path = Path(tempfile.mkdtemp(prefix="runjournal-bench-"))
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)

    def interleave(self, what: str, contenders: Mapping[str, Callable[[], float]], repetitions: int) -> dict[str, Sample]:
        """Measure every contender equally often, in a new order each time, so that slow minutes affect all of them."""
        return {name: Sample(found) for name, found in self.rounds(what, contenders, repetitions).items()}

    def rounds(self, what: str, contenders: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
        """Do what `interleave` does. Return the values in the order of the rounds, so that they can be compared in pairs."""
        values: dict[str, list[float]] = {name: [] for name in contenders}
        for done in range(rounds):
            order = list(contenders)
            self.random.shuffle(order)
            for name in order:
                values[name].append(contenders[name]())
            self.noise.sample()
            self.progress(what, done + 1, rounds)
        return values

    def progress(self, what: str, done: int, total: int) -> None:
        """Report the progress on stderr, every few seconds."""
        now = time.monotonic()
        if now - self._told >= _PROGRESS_EVERY or (done == total and self._told):
            self._told = now
            print(f"  {now - self._began:5.0f} s  {what}: {done:,} of {total:,}", file=sys.stderr, flush=True)

    def begin(self, name: str) -> None:
        """Report on stderr that a section begins."""
        self.noise.sample()
        now = self._told = time.monotonic()
        print(f"  {now - self._began:5.0f} s  {name}", file=sys.stderr, flush=True)

    def at_most(self, name: str, value: float, limit: float, show: Callable[[float], str]) -> str:
        """Record whether the target is reached, and return the remark to print beside the figure."""
        return self._judge(name, show(value), f"at most {show(limit)}", value <= limit)

    def at_least(self, name: str, value: float, limit: float, show: Callable[[float], str]) -> str:
        """Record whether the target is reached, and return the remark to print beside the figure."""
        return self._judge(name, show(value), f"at least {show(limit)}", value >= limit)

    def _judge(self, name: str, measured: str, limit: str, reached: bool) -> str:
        self.targets.append(Target(name, measured, limit, reached))
        return f"{limit}: {'ok' if reached else 'MISSED'}"


def heading(title: str) -> None:
    """Print the heading of a section."""
    print(f"\n{title}\n{'=' * len(title)}")


def note(text: str) -> None:
    """Print a line that says how something was measured."""
    print(f"  {text}")


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print aligned columns: the first and the last (a target, a remark) to the left, the figures to the right."""
    widths = [max(len(row[place]) for row in (columns, *rows)) for place in range(len(columns))]
    last = len(columns) - 1
    print()
    for number, row in enumerate((columns, *rows)):
        cells = [
            cell.ljust(width) if place in (0, last) else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        print(f"  {'  '.join(cells).rstrip()}")
        if number == 0:
            print(f"  {'  '.join('-' * width for width in widths).rstrip()}")
    print(flush=True)
