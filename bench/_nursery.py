"""A process that forks writers, kills them, and checks what they left: `python -m bench._nursery DIRECTORY`.

Only forked children touch a journal. The nursery itself has no threads, so that each fork is safe, and a fork needs no
time to start an interpreter. The nursery reads cases as lines of JSON, and answers each with a line.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import re
import shutil
import signal
import struct
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from langchain_runjournal import RunJournal
from langchain_runjournal.errors import RunNotFound

from ._load import WORDS, start, token
from ._rivals import GroupCommit, read_rows

Case = dict[str, Any]

_COUNTER: Final = struct.Struct("@q")
_PATIENCE: Final = 60.0
_PAUSE: Final = 0.005  # between two tokens at 200 a second


def main(root: Path) -> None:
    """Run the cases of stdin one after the other, until its end."""
    for line in iter(sys.stdin.readline, ""):
        case = json.loads(line)
        case["directory"] = root / f"case-{case['number']}"
        case["directory"].mkdir()
        try:
            print(json.dumps(_try(case)), flush=True)
        finally:
            shutil.rmtree(case["directory"], ignore_errors=True)


def _try(case: Case) -> Case:
    # Shared and anonymous memory: after a kill, this process still reads what the child stored there.
    counters = mmap.mmap(-1, _COUNTER.size * (case["threads"] + 1))
    pid = _fork(lambda: _write(case, counters))
    if not case["early"]:
        _wait_for_the_first(case, pid, counters)
    time.sleep(case["delay"])
    _kill(pid)
    (started,), *given = _COUNTER.iter_unpack(counters[: _COUNTER.size * (case["threads"] + 1)])
    counters.close()
    again = case["kill_recovery"]
    if again is not None:
        pid = _fork(lambda: _open_only(case))
        time.sleep(again)
        _kill(pid)
    return _asked(lambda: _check(case, started, [count for (count,) in given]))


def _wait_for_the_first(case: Case, pid: int, counters: mmap.mmap) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not any(counters[_COUNTER.size :]):
        if time.monotonic() > deadline or os.waitpid(pid, os.WNOHANG)[0]:
            raise AssertionError(f"the writer of {case} did not begin")
        time.sleep(0.0002)


def _fork(work: Callable[[], None]) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    return pid


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def _asked(work: Callable[[], Case]) -> Case:
    """Run `work` in a forked child, and return its result."""
    read_end, write_end = os.pipe()

    def tell() -> None:
        os.close(read_end)
        with os.fdopen(write_end, "w") as pipe:
            json.dump(work(), pipe)

    pid = _fork(tell)
    os.close(write_end)
    with os.fdopen(read_end) as pipe:
        text = pipe.read()
    os.waitpid(pid, 0)
    if not text:
        raise AssertionError("the check itself failed")
    answer: Case = json.loads(text)
    return answer


# --- the process that is killed -------------------------------------------------------------------------------------------


def _write(case: Case, counters: mmap.mmap) -> None:
    path = case["directory"] / "runs.db"
    journal: RunJournal | GroupCommit = GroupCommit(path) if case["control"] else RunJournal(path)
    # A memoryview stores each number atomically; struct.pack_into writes zeros first, and a kill may come in between.
    numbers = memoryview(counters).cast("q")
    for count, run_id in enumerate(dict.fromkeys(case["runs"]), 1):
        journal.append(start(run_id))
        numbers[0] = count
    threads = [
        threading.Thread(target=_stream, args=(case, journal, number, numbers)) for number in range(1, case["threads"])
    ]
    for thread in threads:
        thread.start()
    _stream(case, journal, 0, numbers)


def _stream(case: Case, journal: RunJournal | GroupCommit, number: int, numbers: memoryview) -> None:
    """Append tokens until the kill. After each append, store in the shared page how many have returned."""
    run_id, call_id, paced = case["runs"][number], f"call-{number}", case["paced"]
    place, count = number + 1, 0
    while True:
        count += 1
        event = token(run_id, call_id, _text(number, count))
        journal.append(event)
        # This store needs no system call and survives the process: it follows the append as closely as possible.
        numbers[place] = count
        if paced:
            time.sleep(_PAUSE)


def _text(number: int, count: int) -> str:
    return f"{number}:{count}:{WORDS[count % len(WORDS)]}"


# --- the processes after the kill -----------------------------------------------------------------------------------------


def _open_only(case: Case) -> None:
    """Open the journal, which imports the spool, until the kill comes or the import has finished."""
    if not case["control"]:
        RunJournal(case["directory"] / "runs.db").close()


class _Left:
    """The texts of each run after the kill, and what is wrong with them."""

    def __init__(self, case: Case) -> None:
        self.wrong: list[str] = []
        self.untidy: list[str] = []
        self.recovery = 0.0
        self.recovered = 0
        self.runs = list(dict.fromkeys(case["runs"]))
        path = case["directory"] / "runs.db"
        if case["control"]:
            self.texts = {run_id: read_rows(path, run_id) for run_id in self.runs}
        else:
            self.texts = self._recover(path)

    def _recover(self, path: Path) -> dict[str, list[str]]:
        began = time.perf_counter()
        with RunJournal(path) as journal:
            self.recovery = time.perf_counter() - began
            self.recovered = sum(report.events for report in journal.recovered)
            for report in journal.recovered:
                if report.problem:
                    self.untidy.append(f"the import reports {_general(report.problem)}")
            texts = {run_id: self._read(journal, run_id) for run_id in self.runs}
        if list(path.parent.glob(f"{path.name}-spool-*")):
            self.untidy.append("a spool file was left behind")
        return texts

    def _read(self, journal: RunJournal, run_id: str) -> list[str]:
        try:
            events = journal.read(run_id)
        except RunNotFound:
            return []
        if [event.seq for event in events] != list(range(1, len(events) + 1)):
            self.wrong.append("the numbers of a run have a gap")
        if events[0].kind != "run.start":
            self.wrong.append("the first event of a run is not run.start")
        if journal.run(run_id).last_seq != len(events):
            self.wrong.append("last_seq of a run is not the seq of its last event")
        return [event.data.get("text", event.kind) for event in events]


def _general(problem: str) -> str:
    """Remove the ids, so that equal problems are counted together."""
    return re.sub(r"-spool-[0-9a-f-]+", "-spool-*", problem)


def _check(case: Case, started: int, given: list[int]) -> Case:
    left, lost, found = _Left(case), 0, 0
    if not case["control"]:
        lost = sum(not left.texts[run_id] for run_id in left.runs[:started])
    for number, (run_id, count) in enumerate(zip(case["runs"], given, strict=True)):
        mine = [text for text in left.texts[run_id] if text.startswith(f"{number}:")]
        if mine != [_text(number, place) for place in range(1, len(mine) + 1)]:
            left.wrong.append("the tokens of a thread are out of order, incomplete or duplicated")
        # One token more is fine: its append had stored it, and the kill came before the append returned.
        if not case["control"] and len(mine) > count + 1:
            left.wrong.append("a thread has more tokens than were appended")
        lost += max(0, count - len(mine))
        found += len(mine)
    return {
        "given": sum(given),
        "found": found,
        "lost": lost,
        "wrong": bool(left.wrong),
        "untidy": bool(left.untidy),
        "faults": sorted({*left.wrong, *left.untidy}),
        "recovery": left.recovery,
        "recovered": left.recovered,
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]))
