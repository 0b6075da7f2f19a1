"""Where a stream begins: a cursor against the run, or the thread, as it stands.

Rule: nothing is decided by an exception. Each cell of the table in docs/server.md is a line here.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from ..errors import RunNotFound
from ..events import Run
from ..journal.core import core_of
from . import cursor as _cursor
from .cursor import Cursor, Place
from .feed import RunFeed, View, owner_is_gone
from .thread_feed import ThreadFeed

if TYPE_CHECKING:
    from ..journal.run_journal import RunJournal

_LATE: Final = 100
"""How many events behind `run.end` are read first to find it: results of tools that came late."""
_CATCH_UP: Final = 1.0
"""Seconds that a cursor ahead of the store may wait for the store: the reader got the event from the process that writes
the run, which stores it a moment later."""
_LOOK_AGAIN: Final = 0.02


async def open_run(journal: RunJournal, run: Run, text: str | None, view: View) -> RunFeed | None:
    """Return the feed of a run; None if the run is over, and the reader has all of it."""
    run, place = await place_of(journal, run, text)
    return None if run.ended and place.is_tip else RunFeed(journal, run, place, view)


async def place_of(journal: RunJournal, run: Run, text: str | None) -> tuple[Run, Place]:
    """Return the run as it stands now, and where a cursor stands in it."""
    return await core_of(journal).off_loop(partial(_place_in, journal, run, _cursor.parse(text, run.run_id)))


async def open_thread(journal: RunJournal, thread_id: str, text: str | None, view: View) -> ThreadFeed:
    """Return the feed of a thread."""
    found = _cursor.parse(text, None)
    run, place = await core_of(journal).off_loop(partial(_place_on, journal, thread_id, found))
    return ThreadFeed(journal, thread_id, run, place, view)


def _place_in(journal: RunJournal, run: Run, cursor: Cursor) -> tuple[Run, Place]:
    place = _cursor.place(cursor, run.last_seq)
    if place.reset == "ahead" and not run.ended:
        run = _caught_up(journal, run, cursor.seq)
        place = _cursor.place(cursor, run.last_seq)
    if run.ended and place.reset is None and not place.is_tip and cursor.kind == "at":
        # What came behind the end of the run is late: a reader that stayed has not seen it.
        place = replace(place, is_tip=cursor.frame is None and cursor.seq >= _end(journal, run, cursor.seq))
    return run, place


def _caught_up(journal: RunJournal, run: Run, seq: int) -> Run:
    """Return the run as soon as the store has an event, or is not going to have it."""
    give_up = time.monotonic() + _CATCH_UP
    owner_is_gone(journal, run.run_id)  # imports what its spool has
    while True:
        run = journal.run(run.run_id)
        if run.last_seq >= seq or run.ended or time.monotonic() > give_up:
            return run
        time.sleep(_LOOK_AGAIN)


def _end(journal: RunJournal, run: Run, after: int) -> int:
    """Return the seq of the event `run.end` of a run that has ended; 0 if it is not behind `after`."""
    for begin in (max(after, run.last_seq - _LATE), after):
        for event in journal.read(run.run_id, begin):
            if event.kind == "run.end":
                return event.seq
    return 0


def _place_on(journal: RunJournal, thread_id: str, cursor: Cursor) -> tuple[Run | None, Place]:
    if cursor.kind == "now":
        newest = journal.runs(thread_id, None, 1)
        return (newest[0], Place(newest[0].last_seq, is_tip=True)) if newest else (None, Place())
    if cursor.kind == "at" and cursor.run is not None:
        try:
            run = journal.run(unquote(cursor.run, errors="replace"))
        except RunNotFound:
            return None, Place(reset="foreign")
        if run.thread_id != thread_id:
            return None, Place(reset="foreign")
        run, place = _place_in(journal, run, cursor)
        return (None if place.reset else run), place
    return None, (Place(reset="bad") if cursor.kind == "bad" else Place())
