"""Facts about the machine, and how noisy it was during the run."""

from __future__ import annotations

import os
import platform
import sqlite3
import sys
import tempfile
import time
from pathlib import Path

from langchain_runjournal import __version__

from ._stats import Sample, seconds

_LOOP = 40_000


class Noise:
    """A fixed piece of work, repeated throughout the run: the spread of its times is the accuracy of the figures."""

    def __init__(self) -> None:
        self._values: list[float] = []

    def sample(self) -> None:
        """Do the work once more, which takes about 2 ms."""
        began = time.perf_counter()
        total = 0
        for number in range(_LOOP):
            total += number
        self._values.append(time.perf_counter() - began)

    def __str__(self) -> str:
        found = Sample(self._values)
        return (
            f"a fixed loop took {seconds(found.median)} (median of {len(found)}, throughout the run);"
            f" p25..p75 {_share(found, 0.25)} .. {_share(found, 0.75)},"
            f" min..max {_share(found, 0)} .. {_share(found, 1)} of the median"
        )


def _share(sample: Sample, place: float) -> str:
    return f"{sample.at(place) / sample.median:.2f}x"


def facts() -> list[str]:
    """Return the facts to print first."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    place = tempfile.gettempdir()
    return [
        f"langchain-runjournal {__version__}, Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}",
        f"{platform.system()} {platform.release()} {platform.machine()}, {cores} cores, {_processor()}",
        f"files in {place} ({_file_system(place)}), one fdatasync of 4 KiB: {seconds(_fdatasync())};"
        f" GIL switch interval {seconds(sys.getswitchinterval())}",
    ]


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or "unknown processor"


def _file_system(place: str) -> str:
    try:
        mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    except OSError:
        return "unknown file system"
    path = os.path.realpath(place)
    fitting = [(len(point), kind) for point, kind in mounts if path == point or path.startswith(point.rstrip("/") + "/")]
    return max(fitting)[1] if fitting else "unknown file system"


def _fdatasync() -> float:
    sync = getattr(os, "fdatasync", os.fsync)
    values = []
    with tempfile.TemporaryFile(buffering=0) as file:
        for _ in range(21):
            file.write(bytes(4096))
            began = time.perf_counter()
            sync(file.fileno())
            values.append(time.perf_counter() - began)
    return Sample(values).median
