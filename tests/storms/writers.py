"""Writers that are killed: every event whose `append` returned is there, in order, without a gap or an extra character."""

from __future__ import annotations

import time
from collections.abc import Sequence

from langchain_runjournal import Event, RunJournal
from langchain_runjournal.errors import RunNotFound
from tests.storms._judge import Case, Wrong

THREADS = 4


def text_of(name: str, number: int) -> str:
    return f"{name}:{number} "


def write(db: str, name: str, ledger: memoryview, pace: float, *, short: bool = False) -> None:
    """Append in some threads, and count in shared memory what has been appended, until killed. `short`: the last thread
    writes run after run, each of five events."""
    import threading

    journal = RunJournal(db)

    def work(thread: int) -> None:
        for number in range(1, 1_000_000):
            run_id = f"{name}-{thread}"
            journal.append(
                Event(run_id=run_id, kind="llm.ai.delta", data={"text": text_of(run_id, number)}, call_id=f"c{number // 7}")
            )
            ledger[thread] = number
            if pace and not number % 5:
                time.sleep(pace)

    def work_shortly() -> None:
        for number in range(1, 1_000_000):
            run_id = f"{name}-s{number}"
            for step in range(1, 5):
                journal.append(Event(run_id=run_id, kind="llm.ai.delta", data={"text": text_of(run_id, step)}))
            journal.append(Event(run_id=run_id, kind="run.end"))
            ledger[THREADS - 1] = number
            time.sleep(pace)

    for thread in range(THREADS - 1):
        threading.Thread(target=work, args=(thread,), daemon=True).start()
    work_shortly() if short else work(THREADS - 1)


def check(journal: RunJournal, name: str, appended: Sequence[int], *, short: bool) -> int:
    """Compare the runs of a writer with the events that it had appended. Return the number of events found."""
    there = 0
    for thread, count in enumerate(appended):
        if short and thread == THREADS - 1:
            for number in range(1, count + 1):
                there += _check_run(journal, f"{name}-s{number}", 5)
        else:
            there += _check_run(journal, f"{name}-{thread}", count)
    return there


def _check_run(journal: RunJournal, run_id: str, appended: int) -> int:
    try:
        events = journal.read(run_id)
    except RunNotFound:
        events = []
    if len(events) < appended:
        raise Wrong(f"run {run_id} has {len(events)} events, and {appended} were appended")
    for place, event in enumerate(events, 1):
        if event.seq != place or (event.kind == "llm.ai.delta" and event.text != text_of(run_id, place)):
            raise Wrong(f"run {run_id} has {event!r} at place {place}")
    return len(events)


def storm(case: Case) -> None:
    """Run one to three writers on one journal. Each is killed at a random moment, also while it opens the file or imports
    the spool of another. Then a process opens the journal and may be killed, and the next one checks the journal."""
    draw, db = case.random, case.place.journal
    writers = []
    for place in range(draw.choice((1, 1, 2, 3))):
        name, ledger, pace, short = (
            f"w{place}",
            case.shared(THREADS),
            draw.choice((0, 0, 0.0005, 0.003)),
            draw.random() < 0.5,
        )
        pid = case.fork(lambda name=name, ledger=ledger, pace=pace, short=short: write(db, name, ledger, pace, short=short))
        writers.append((name, pid, ledger, short))
        if draw.random() < 0.6:
            _wait_for_the_first(pid, ledger)
        case.kill(pid, draw.choice((draw.uniform(0, 0.02), draw.uniform(0, 0.15)))) if draw.random() < 0.7 else None
    for _, pid, _, _ in writers:
        if _is_there(pid):
            case.kill(pid, draw.uniform(0, 0.1))
    while draw.random() < 0.4:
        case.kill(case.fork(lambda: RunJournal(db).runs()), draw.uniform(0, 0.04))
    with RunJournal(db) as journal:
        for name, _, ledger, short in writers:
            case.counts["events"] += check(journal, name, ledger, short=short)
        journal.flush(timeout=30)
    case.counts["appended"] += sum(sum(ledger) for _, _, ledger, _ in writers)


def _wait_for_the_first(pid: int, ledger: memoryview) -> None:
    until = time.monotonic() + 30
    while not any(ledger):
        if time.monotonic() > until or not _is_there(pid):
            raise Wrong("a writer did not begin")
        time.sleep(0.0005)


def _is_there(pid: int) -> bool:
    import os

    try:
        return os.waitpid(pid, os.WNOHANG)[0] == 0
    except ChildProcessError:
        return False
