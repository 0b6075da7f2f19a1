"""Runs as they are looked at: how they show themselves, which are to be settled, and which are gone meanwhile."""

from __future__ import annotations

import logging
import weakref
from functools import partial
from typing import TYPE_CHECKING

from ..errors import EventsMissing, RunJournalError, RunNotFound
from ..events import Event, Run, with_events
from . import follow as _follow
from .core import core_of

if TYPE_CHECKING:
    from pathlib import Path

    from .run_journal import RunJournal

logger = logging.getLogger("langchain_runjournal")


def with_sources(journal: RunJournal, runs: list[Run]) -> list[Run]:
    """The runs, which will find their events. They do not keep the journal open, or alive."""
    read = partial(_events, weakref.ref(journal), core_of(journal).store.path)
    return [with_events(run, partial(read, run.run_id, run.last_seq)) for run in runs]


def read(journal: RunJournal, run_id: str, after: int, limit: int | None) -> list[Event]:
    """See `RunJournal.read`."""
    core = core_of(journal)
    for _ in range(2):  # again, if the lane gave something to the store while we looked there
        events = core.store.read(run_id, after, limit)
        missing = 1 << 62 if limit is None else limit - len(events)
        buffer = core.appender.buffers.get(run_id)
        if buffer is None or buffer.shut:
            break
        tail = buffer.tail(events[-1].seq if events else after, missing)
        if tail is not None:
            events += tail
            break
    if not events:
        _follow.find(core, run_id)
    return events


def unsettled(journal: RunJournal, thread_id: str | None = None) -> list[Run]:
    """The runs that run, or have ended and may lack something in their thread; oldest first, with all that this process has
    appended."""
    core = core_of(journal)
    core.check_open()
    core.catch_up()
    return core.store.unsettled(thread_id=thread_id)


def read_if_there(journal: RunJournal, run_id: str, limit: int | None = None) -> list[Event]:
    """The events of a run; none if it was deleted since it was listed: a run that is settled may be pruned at any time."""
    try:
        return read_what_is_left(journal, run_id, limit)
    except RunNotFound:
        return []


def read_what_is_left(journal: RunJournal, run_id: str, limit: int | None = None) -> list[Event]:
    """All events of a run that can be read, whatever is missing between them (`Run.lost` counts it): for a settlement, which
    keeps what the user saw as far as it is known. At most `limit`."""
    found: list[Event] = []
    after = 0
    while True:
        missing = None if limit is None else limit - len(found)
        try:
            return found + journal.read(run_id, after, missing)
        except EventsMissing as gap:
            if gap.after > after:
                found += journal.read(run_id, after, gap.after - after)
            after = gap.found - 1


def _events(ref: weakref.ref[RunJournal], path: Path | None, run_id: str, last: int) -> list[Event] | None:
    """The events up to `last`: a run is a value, and its picture that of the same moment. None if they cannot be had."""
    from .run_journal import RunJournal

    journal = ref()
    try:
        if journal is not None and not core_of(journal).is_closed:
            return journal.read(run_id, limit=last)
        if path is not None and path.exists():
            with RunJournal(path) as again:  # in a notebook, the cell that looks often comes after the `with`
                return again.read(run_id, limit=last)
    except RunJournalError as problem:
        logger.warning("could not read the events of run %s to show them: %s", run_id, problem)
    return None
