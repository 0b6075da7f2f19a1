"""Programs that fork while they write: parent and child each keep the events that they appended. No run has two owners."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

from langchain_runjournal import Event, RunJournal
from tests.storms._judge import Case, Wrong
from tests.storms.writers import _check_run, text_of

THREADS = 2


class _Appender:
    """An appender to runs of its own, in some threads, until it is asked to end."""

    def __init__(self, journal: RunJournal, name: str, ledger: memoryview, first: int) -> None:
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._work, args=(journal, f"{name}-{at}", ledger, first + at), daemon=True)
            for at in range(THREADS)
        ]
        for thread in self._threads:
            thread.start()

    def _work(self, journal: RunJournal, run_id: str, ledger: memoryview, slot: int) -> None:
        for number in range(1, 1_000_000):
            if self._stop.is_set():
                return
            journal.append(Event(run_id=run_id, kind="llm.ai.delta", data={"text": text_of(run_id, number)}))
            ledger[slot] = number
            if not number % 3:
                time.sleep(0.0005)

    def end(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


def parent(db: str, ledger: memoryview, pids: memoryview, delays: list[float], endings: list[str]) -> None:
    """Write, fork children that write, and end in the given way."""
    journal = RunJournal(db)
    mine = _Appender(journal, "p", ledger, 0)
    for at, (delay, ending) in enumerate(zip(delays, endings[1:], strict=True)):
        time.sleep(delay)
        pid = os.fork()
        if pid == 0:
            child(journal, f"c{at}", ledger, (at + 1) * THREADS, delay, ending)
        pids[at] = pid
    time.sleep(delays[0])
    finish(journal, mine, endings[0])


def child(journal: RunJournal, name: str, ledger: memoryview, first: int, delay: float, ending: str) -> None:
    """Use the inherited journal, which belongs to the child from its first append on."""
    try:
        appender = _Appender(journal, name, ledger, first)
        time.sleep(delay)
        finish(journal, appender, ending)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(1)


def finish(journal: RunJournal, appender: _Appender, ending: str) -> None:
    if ending == "killed":
        os.kill(os.getpid(), 9)
    appender.end()
    if ending == "closed":
        journal.close()
    elif ending == "flushed":
        journal.flush(timeout=30)
    os._exit(0)


def storm(case: Case) -> None:
    """Run a parent with up to three children. The journal is in use at each fork; some are killed, some close it, some just
    exit."""
    draw, db = case.random, case.place.journal
    count = draw.choice((1, 1, 2, 3))
    ledger, pids = case.shared((count + 1) * THREADS), case.shared(count)
    delays = [draw.choice((0, draw.uniform(0, 0.03))) for _ in range(count)]
    endings = [draw.choice(("killed", "closed", "flushed", "left")) for _ in range(count + 1)]
    code = case.end_of(case.fork(lambda: parent(db, ledger, pids, delays, endings)))
    if code != (-9 if endings[0] == "killed" else 0):
        raise Wrong(f"the parent ended with {code}")
    for pid in pids:
        if pid:
            _wait_until_gone(pid)
    names = ["p", *(f"c{at}" for at in range(count))]
    case.counts["forks"] += sum(pid != 0 for pid in pids)
    with RunJournal(db) as journal:
        for place, name in enumerate(names):
            for at in range(THREADS):
                case.counts["events"] += _check_run(journal, f"{name}-{at}", ledger[place * THREADS + at])
        owners = {run.run_id: run.owner for run in journal.runs(limit=None)}
        by_name = {name: {owner for run_id, owner in owners.items() if run_id.startswith(f"{name}-")} for name in names}
    shared = [name for name in names if len(by_name[name]) > 1]
    if shared:
        raise Wrong(f"the runs of {shared} have more than one owner each")
    taken = [owner for owners_ in by_name.values() for owner in owners_]
    if len(set(taken)) != len(taken):
        raise Wrong(f"two processes share an owner: {by_name}")


def _wait_until_gone(pid: int) -> None:
    """Wait for a grandchild, because `waitpid` knows only children."""
    until = time.monotonic() + 40
    while time.monotonic() < until:
        try:
            os.kill(pid, 0)
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (ProcessLookupError, FileNotFoundError):
            return
        if state == "Z":
            return
        time.sleep(0.002)
    raise Wrong(f"process {pid} does not end")
