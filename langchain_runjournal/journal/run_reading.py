"""Reads of runs: for `RunJournal.read`, for the picture of a run in a notebook, and for settlements."""

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
    """Return the runs with a way to read their events for display. The runs do not keep the journal open or in memory."""
    read = partial(_events, weakref.ref(journal), core_of(journal).store.path)
    return [with_events(run, partial(read, run.run_id, run.last_seq)) for run in runs]


def read(journal: RunJournal, run_id: str, after: int, limit: int | None) -> list[Event]:
    """Implement `RunJournal.read`."""
    core = core_of(journal)
    for _ in range(2):  # twice, if the writer moved events from the buffer to the store while we read the store
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
    """Return the runs that are running, and those that have ended and whose thread may lack something.

    They are sorted from the oldest to the newest, and include all that this process has appended.
    """
    core = core_of(journal)
    core.check_open()
    core.catch_up()
    return core.store.unsettled(thread_id=thread_id)


def read_if_there(journal: RunJournal, run_id: str, limit: int | None = None) -> list[Event]:
    """Return the events of a run, or none if the run was deleted after the caller listed it.

    A settled run may be pruned at any time.
    """
    try:
        return read_what_is_left(journal, run_id, limit)
    except RunNotFound:
        return []


def read_what_is_left(journal: RunJournal, run_id: str, limit: int | None = None) -> list[Event]:
    """Return all events of a run that can be read, at most `limit`, even if others between them are missing.

    A settlement uses this, because it keeps what the user saw as far as it is known. `Run.lost` counts the missing events.
    """
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
    """Return the events up to `last`, or None if they cannot be read.

    A run is a value, so its picture must show the same moment.
    """
    from .run_journal import RunJournal

    journal = ref()
    try:
        if journal is not None and not core_of(journal).is_closed:
            return journal.read(run_id, limit=last)
        if path is not None and path.exists():
            with RunJournal(path) as again:  # in a notebook, the cell that shows a run often comes after the `with` block
                return again.read(run_id, limit=last)
    except RunJournalError as problem:
        logger.warning("could not read the events of run %s to show them: %s", run_id, problem)
    return None
