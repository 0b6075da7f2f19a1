"""Whether a journal is whole: the file, the numbering of each run, and what its runs still owe to their threads."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from . import _fold, _messages, _transcript
from ._pairs import open_requests
from .errors import RunJournalError, RunNotFound, StoreCorrupt
from .events import GRAPH, MARKS, Event, Run, RunStatus

if TYPE_CHECKING:
    from ._journal import RunJournal

Progress: TypeAlias = Callable[[int, int, int], object]
"""Told after each run: how many have been looked at, of how many, and how many events they had."""

_PAGE: Final = 10_000
_OF_GRAPH: Final = "Run `runjournal recover --graph module:attribute`, or send the next message of its thread"
_OF_NONE: Final = "Run `runjournal recover`"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is not as it should be, and what to do about it.

    "damage": events cannot be read, or are missing. "lost": events were dropped because nothing could be written.
    "abandoned": the process that worked on the run is gone. "unsettled": its thread may lack what the journal holds.
    "open pair": it asked for tools and recorded no result of theirs, and nothing settles its thread.
    """

    what: Literal["damage", "lost", "abandoned", "unsettled", "open pair"]
    run_id: str | None
    text: str
    hint: str


def check(journal: RunJournal, progress: Progress | None = None) -> Iterator[Problem]:
    """Look at everything, one run after the other. Nothing is changed but what opening a journal brings in."""
    yield from _check_store(journal)
    try:
        runs = journal.runs(limit=None)
    except StoreCorrupt as error:
        yield _damage(None, str(error))
        return
    events = 0
    for place, run in enumerate(runs, 1):
        try:
            events += yield from _check_run(journal, run)
        except RunJournalError as error:
            if not isinstance(error, RunNotFound):  # pruned in the meantime
                yield _damage(run.run_id, str(error))
        if progress is not None:
            progress(place, len(runs), events)


def _check_store(journal: RunJournal) -> Iterator[Problem]:
    store = journal._store
    try:
        yield from (_damage(None, said) for said in store.check())
    except RunJournalError as error:
        yield _damage(None, str(error))
    if store.path is not None:
        for path in sorted(store.path.parent.glob(f"{store.path.name}-spool-*-damaged")):
            hint = "Look into the log of the process that found it; delete it when you need it no more"
            yield Problem(what="damage", run_id=None, text=f"{path.name} could not be brought in whole", hint=hint)


def _damage(run_id: str | None, text: str) -> Problem:
    hint = "Keep a copy of the file, and restore it from a backup, or go on with what can be read"
    return Problem(what="damage", run_id=run_id, text=text, hint=hint)


def _check_run(journal: RunJournal, run: Run) -> Generator[Problem, None, int]:
    events: list[Event] = []
    last = 0
    while page := journal.read(run.run_id, last, _PAGE):
        for event in page:
            if event.seq != last + 1:
                yield _damage(run.run_id, f"the events between seq {last} and {event.seq} are missing")
            last = event.seq
        events += page
    if last < run.last_seq:
        yield _damage(run.run_id, f"it should go on to seq {run.last_seq}, and ends at {last}")
    if last == run.last_seq:  # else it has gone on while it was read
        yield from _check_words(run, events)
    yield from _check_duties(journal, run, events)
    return len(events)


def _check_words(run: Run, events: Sequence[Event]) -> Iterator[Problem]:
    """Whether the run says of itself what its events do."""
    if not events:
        return
    told = _fold.begin(run.run_id, events[0].at)
    for event in events:
        if event.kind in MARKS:
            told = _fold.advance(told, event)
    for name in ("thread_id", "status", "cause", "settled", "lost"):
        if getattr(run, name) != getattr(told, name):
            text = f"its events say {name} {getattr(told, name)!s}, and its row {getattr(run, name)!s}"
            yield _damage(run.run_id, text)


def _check_duties(journal: RunJournal, run: Run, events: Sequence[Event]) -> Iterator[Problem]:
    if run.lost:
        hint = "Look for a full disk or a lock in the log of its time; what was dropped cannot be had back"
        yield Problem(what="lost", run_id=run.run_id, text=f"{run.lost} events could not be kept", hint=hint)
    if run.status == RunStatus.RUNNING and run.owner != journal.owner_id and journal._writer.janitor.is_free(run):
        hint = _OF_GRAPH if GRAPH in run.metadata else _OF_NONE
        yield Problem(what="abandoned", run_id=run.run_id, text="it never ended: its process is gone", hint=hint)
    elif run.ended and not run.settled:
        text = "it has ended, and its thread may still lack what the journal holds"
        yield Problem(what="unsettled", run_id=run.run_id, text=text, hint=_OF_GRAPH)
    elif run.ended and not any(event.kind == "run.settled" for event in events):
        yield from _check_pairs(run, events)


def _check_pairs(run: Run, events: Sequence[Event]) -> Iterator[Problem]:
    """Requests that nobody has answered. Those of the last answer of a complete run are the caller's to answer."""
    messages = _messages.load(run.run_id, _transcript.transcript(run.run_id, events))
    last = max((place for place, message in enumerate(messages) if message.type == "ai"), default=-1)
    for place, request in open_requests(messages):
        if run.status != RunStatus.COMPLETED or place != last:
            text = f"no result of {request.name or 'a tool'} ({request.id}) was recorded, and no settlement answered it"
            hint = "Attach the graph, or give its history to `repair_tool_pairs` before the next request"
            yield Problem(what="open pair", run_id=run.run_id, text=text, hint=hint)
