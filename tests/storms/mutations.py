"""Files that change under a journal that was killed: a bit, a range of zeros, an end that is missing, another file's part.

Rule: a journal returns an event as it was written, or not at all; an error, the log or `check` reports each event that it
does not return; and a file can be opened, or the error says why not. SQLite's file has no checksums, so a changed word in it
goes unnoticed.
"""

from __future__ import annotations

import io
import logging
import os
import random
import shutil
import time
from pathlib import Path

from langchain_runjournal import RunJournal, errors
from tests.storms._judge import Case, Wrong
from tests.storms.writers import THREADS, text_of, write

KINDS = ("a bit", "zeros", "noise", "cut", "grown", "gone", "doubled")


def storm(case: Case) -> None:
    """Mutate one file that a kill has left, open the journal, and read all of it."""
    draw, db = case.random, case.home / "runs.db"
    ledger = case.shared(THREADS)
    pid = case.fork(lambda: write(db, "w", ledger, draw.choice((0, 0.001))))
    until = time.monotonic() + 30
    while not all(ledger) and time.monotonic() < until:
        time.sleep(0.001)
    case.kill(pid, draw.uniform(0, 0.1))
    appended = list(ledger)
    files = sorted(case.home.glob("runs.db*"))
    path = draw.choice(files)
    kind = draw.choice(KINDS)
    is_database = path == db
    spools = b"".join(one.read_bytes() for one in files if one != path and ".spool" in one.name)
    place = mutate(path, kind, draw)
    case.counts["mutations"] += 1
    print(f"{kind} in {path.name} at {place}; appended {appended}", flush=True)
    said = io.StringIO()
    logging.getLogger("langchain_runjournal").addHandler(logging.StreamHandler(said))
    logging.getLogger("langchain_runjournal").setLevel(logging.WARNING)
    missing, loud = look(case, db, appended, is_database=is_database)
    if path.name.endswith("-wal") and missing and not _is_in(spools, db, appended):
        # SQLite takes the end of the data that it can read for the end, and no journal can know of events that no spool has.
        case.counts["loss of a -wal file that nothing tells"] += 1
    elif kind == "gone" and not is_database and missing:
        case.counts["loss of a spool file that nothing tells"] += 1
    elif not missing:
        case.counts["whole"] += 1
    elif loud or said.getvalue() or list(case.home.glob("*damaged*")):
        case.counts["loss that is said"] += 1
    else:
        raise Wrong(f"{kind} in {path.name} at {place}: {missing} of {sum(appended)} events are gone without a word")


def _is_in(spools: bytes, db: Path, appended: list[int]) -> bool:
    """Return whether an event that the journal lacks stands in an unchanged spool file."""
    with RunJournal(db) as journal:
        last = {run.run_id: run.last_seq for run in journal.runs(limit=None)}
    missing = [
        (f"w-{at}", number) for at, count in enumerate(appended) for number in range(last.get(f"w-{at}", 0) + 1, count + 1)
    ]
    return any(text_of(run_id, number).encode() in spools for run_id, number in missing)


def mutate(path: Path, kind: str, draw: random.Random) -> int:
    """Change a file. Return the place of the change."""
    data = bytearray(path.read_bytes())
    used = len(data.rstrip(b"\0")) or 1
    # The beginning of a file matters most, so half of the changes are there.
    place = draw.choice((draw.randrange(used), draw.randrange(min(used, 256))))
    length = draw.choice((8, 64, 1024))
    match kind:
        case "a bit":
            data[place] ^= 1 << draw.randrange(8)
        case "zeros":
            data[place : place + length] = bytes(len(data[place : place + length]))
        case "noise":
            data[place : place + length] = draw.randbytes(len(data[place : place + length]))
        case "cut":
            del data[place:]
        case "grown":
            data += draw.randbytes(length)
        case "doubled":
            data[place : place + length] = data[:length]
        case "gone":
            path.unlink()
            return 0
    # In place, as a failing disk would do it: the file keeps its inode.
    with path.open("r+b") as file:
        file.write(data)
        file.truncate(len(data))
    return place


def look(case: Case, db: Path, appended: list[int], *, is_database: bool) -> tuple[int, bool]:
    """Return how many events are missing, and whether an error has said so."""
    missing, loud = 0, False
    try:
        journal = RunJournal(db)
    except errors.RunJournalError as exc:
        print(f"refused: {exc}", flush=True)
        case.counts["refused"] += 1
        keep_all(case, db)
        return sum(appended), True
    try:
        for thread, count in enumerate(appended):
            try:
                events = journal.read(f"w-{thread}")
            except errors.RunJournalError as exc:
                print(f"refused: {exc}", flush=True)
                loud = loud or not isinstance(exc, errors.RunNotFound)
                events = []
            for place, event in enumerate(events, 1):
                right = event.seq == place and event.text == text_of(f"w-{thread}", place) and event.kind == "llm.ai.delta"
                if not right and not is_database:
                    raise Wrong(f"run w-{thread} serves {event!r} at place {place}")
                if not right:
                    case.counts["changed words in SQLite's file"] += 1
                    loud = True
                    break
            missing += max(0, count - len(events))
        for run in journal.runs(limit=None):
            journal.run(run.run_id)
    except errors.RunJournalError as exc:
        print(f"refused: {exc}", flush=True)
        loud = True
    finally:
        try:
            journal.close()
        except errors.RunJournalError as exc:
            print(f"at the end: {exc}", flush=True)
            loud = True
    return missing, loud


def keep_all(case: Case, db: Path) -> None:
    """Check that a refused journal stays as it is: no file with which a user could repair it was deleted."""
    if not db.exists() and not any(case.home.glob("runs.db*")):
        raise Wrong("a journal that is refused has lost its files")


def copied(source: Path, to: Path) -> None:
    """Return copies of all files of a journal."""
    for path in source.parent.glob(f"{source.name}*"):
        shutil.copy2(path, to / path.name)
    os.sync()
