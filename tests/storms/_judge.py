"""Runs cases, each in a process group of its own, and says which of them went wrong.

Rule: this process has no threads and opens no journal, so that every fork of it is a clean one, and needs no start of an
interpreter. A case does the same: it forks its victims before it opens a file itself.
"""

from __future__ import annotations

import json
import logging
import mmap
import os
import random
import shutil
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.support.places import PLACES, Place, make_place, place_of

PATIENCE: Final = 75.0
"""The seconds for a case: a lease (15 s), a wait for a thread (60 s), and no more."""


class Wrong(Exception):
    """A broken promise of the package. The text says which one, and how the case saw it."""


@dataclass
class Case:
    """One case, as its storm sees it."""

    storm: str
    number: int
    seed: int
    home: Path
    random: random.Random
    place: Place
    """Its journal and its threads."""
    counts: Counter[str] = field(default_factory=Counter)

    def fork(self, work: Callable[[], object]) -> int:
        """Fork a victim. An exception of the victim is written to the log of the case, and ends the victim with 1."""
        pid = os.fork()
        if pid:
            return pid
        code = 0
        try:
            work()
        except BaseException:
            code = 1
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)

    def kill(self, pid: int, after: float = 0.0) -> None:
        """Kill a victim after so many seconds."""
        time.sleep(after)
        os.kill(pid, signal.SIGKILL)
        self.counts["kills"] += os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL

    def end_of(self, pid: int) -> int:
        """Wait until a victim has ended by itself, and return its exit code."""
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def shared(self, count: int) -> memoryview:
        """Return numbers that a victim writes and this process reads, also after the victim was killed."""
        return memoryview(mmap.mmap(-1, 8 * count)).cast("Q")


@dataclass
class Found:
    """The result of a storm."""

    storm: str
    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[tuple[int, str]] = field(default_factory=list)
    seconds: float = 0.0
    slowest: float = 0.0
    """The seconds that the slowest case took."""


Storm = Callable[[Case], None]


def run(
    name: str,
    storm: Storm,
    numbers: range,
    seed: int,
    jobs: int,
    root: Path,
    *,
    store: str = PLACES[0],
    tell: bool = True,
) -> Found:
    """Run all cases of a storm. A case that went wrong keeps its directory, with the log of its processes."""
    found, begun, running = Found(name), time.monotonic(), {}
    waiting = iter(numbers)
    next_number = next(waiting, None)
    shown = begun
    while running or next_number is not None:
        while next_number is not None and len(running) < jobs:
            pid = _begin(name, storm, next_number, seed, root, store)
            running[pid] = next_number, time.monotonic()
            next_number = next(waiting, None)
        done, _ = os.waitpid(-1, os.WNOHANG)
        late = [pid for pid, (_, since) in running.items() if time.monotonic() > since + PATIENCE]
        for pid in (*([done] if done in running else []), *late):
            number, since = running.pop(pid)
            found.slowest = max(found.slowest, time.monotonic() - since)
            _end(found, pid, number, _home(root, name, number), is_late=pid in late)
        if not done:
            time.sleep(0.005)
        if tell and time.monotonic() - shown > 5:
            shown = time.monotonic()
            _tell(found, len(numbers), shown - begun)
    found.seconds = time.monotonic() - begun
    if tell:
        _tell(found, len(numbers), found.seconds, end="\n")
    return found


def _home(root: Path, name: str, number: int) -> Path:
    return root / f"{name}-{number}"


def _begin(name: str, storm: Storm, number: int, seed: int, root: Path, store: str) -> int:
    home = _home(root, name, number)
    home.mkdir()
    pid = os.fork()
    if pid:
        return pid
    os.setpgid(0, 0)
    log = os.open(home / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    logging.basicConfig(stream=sys.stderr, format="%(process)d %(levelname)s %(message)s", level=logging.INFO)
    said: dict[str, Any] = {}
    counts: Counter[str] = Counter()
    try:
        draw = random.Random(f"{seed}:{name}:{number}")
        storm(Case(name, number, seed, home, draw, make_place(home, store), counts))
    except Wrong as exc:
        said["wrong"] = str(exc)
    except BaseException as exc:
        traceback.print_exc()
        said["wrong"] = f"{type(exc).__name__}: {exc}"
    finally:
        (home / "said").write_text(json.dumps({**said, "counts": counts}))
        sys.stderr.flush()
        os._exit(0)


def _end(found: Found, pid: int, number: int, home: Path, *, is_late: bool) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)  # also the processes that a case has forgotten
    except ProcessLookupError:
        pass
    if is_late:
        os.waitpid(pid, 0)
    found.counts["cases"] += 1
    place_of(home).drop()
    try:
        said = json.loads((home / "said").read_text())
    except (OSError, ValueError):
        said = {"wrong": f"it hung for {PATIENCE:.0f} s" if is_late else "its process died"}
    found.counts.update(said.get("counts", {}))
    if "wrong" in said:
        found.wrong.append((number, said["wrong"]))
    else:
        shutil.rmtree(home, ignore_errors=True)


def _tell(found: Found, total: int, seconds: float, end: str = "\r") -> None:
    counts = ", ".join(f"{count:,} {what}" for what, count in sorted(found.counts.items()) if what != "cases")
    line = f"{found.storm}: {found.counts['cases']} of {total} cases, {len(found.wrong)} wrong, {seconds:.0f} s; {counts}"
    print(line, end=end if sys.stderr.isatty() else "\n", file=sys.stderr, flush=True)
