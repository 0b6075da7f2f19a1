"""Whether a journal is whole: the file, the numbering of each run, and what its runs still owe to their threads."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from ..errors import EventsMissing, RunNotFound, StoreCorrupt
from ..events import GRAPH, MARKS, Event, Run, RunStatus
from ..events import run_state as _fold
from ..messages import loading as _messages
from ..messages import transcript as _transcript
from ..messages.tool_pairs import open_requests
from .core import core_of

if TYPE_CHECKING:
    from .run_journal import RunJournal

Progress: TypeAlias = Callable[[int, int, int], object]
"""Told after each run: how many have been looked at, of how many, and how many events they had."""

_PAGE: Final = 10_000
_TOLD: Final = ("thread_id", "status", "cause", "settled", "lost")
"""What a run says of itself in its row, and in its events as well."""
_OF_GRAPH: Final = "Run `runjournal recover --graph module:attribute`, or send the next message of its thread"
_GIVEN_UP: Final = "Nothing is tried again. `runjournal transcript` shows what was said; prune removes the run"
_OF_TRUST: Final = "Ask yourself who may have read it; docs/limits.md, under Trust, says what the journal allows"
_OF_NONE: Final = "Run `runjournal recover`"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is not as it should be, and what to do about it.

    "damage": events cannot be read, or are missing. "lost": events were dropped because nothing could be written.
    "abandoned": the process that worked on the run is gone. "unsettled": its thread may lack what the journal holds.
    "open pair": it asked for tools and recorded no result of theirs, and nothing settles its thread. "exposed": other users
    could read the journal's files, or replace them.
    """

    what: Literal["damage", "lost", "abandoned", "unsettled", "open pair", "exposed"]
    run_id: str | None
    text: str
    hint: str


class GapFinder:
    """Pure: what is missing among the events of a run, which go by in order; `after`: behind which of them this begins."""

    def __init__(self, run_id: str, after: int = 0) -> None:
        self.last = after
        self._gaps: list[str] = []
        self._has_gaps = False
        self._begins_late = after > 0
        self._run_id = run_id
        self._told: Run | None = None

    def see(self, events: Sequence[Event]) -> None:
        """The next ones."""
        for event in events:
            if event.seq > self.last + 1:
                self._has_gaps = True
                gap = f"has a gap: {self.last} is followed by"
                self._gaps.append(f"{gap if self.last else 'lacks its beginning: the first that is left is'} {event.seq}")
            self.last = event.seq
            if self._told is None:
                self._told = _fold.begin(self._run_id, event.at)
            if event.kind in MARKS:
                self._told = _fold.advance(self._told, event)

    def take_gaps(self) -> list[str]:
        """Those that nobody has been told of yet, each as what one says of the run."""
        gaps, self._gaps = self._gaps, []
        return gaps

    def differences(self, run: Run) -> list[str]:
        """When all have gone by: where the row of the run, as it was before that, says something else."""
        if self.last < run.last_seq:
            return [f"should continue to {run.last_seq}, and ends at {self.last}"]
        if self.last > run.last_seq or self._begins_late:
            return []  # it has gone on meanwhile, or what was not looked at may say it
        if self._told is None:
            spoken = _odd(run, _fold.begin(run.run_id, run.started_at), "error", "ended_at", "usage")
            return ["has no event left"] if spoken else []
        if run.ended and not self._told.ended:
            return [f"lacks its end: it is {run.status}, and the last event that is left is {self.last}"]
        if self._has_gaps:
            return []  # what is missing would have said it
        odd = _odd(run, self._told)
        said, has = (", ".join(f"{name} {getattr(one, name)!s}" for name in odd) for one in (self._told, run))
        return [f"does not agree with its events: they say {said}, and its row {has}"] if odd else []


def _odd(run: Run, told: Run, *more: str) -> list[str]:
    """In what a row says something else than its events do. What is known when a run begins, they need not say again."""
    told = replace(told, thread_id=told.thread_id or run.thread_id)
    return [name for name in (*_TOLD, *more) if getattr(run, name) != getattr(told, name)]


def read_on(journal: RunJournal, run_id: str, after: int, limit: int) -> list[Event]:
    """The next events of a run, at most so many, whatever is missing: they end before a gap, or begin behind it."""
    try:
        return journal.read(run_id, after, limit)
    except EventsMissing as gap:
        if gap.after > after:
            return journal.read(run_id, after, gap.after - after)
        return read_on(journal, run_id, gap.found - 1, limit)


def check(journal: RunJournal, progress: Progress | None = None) -> Iterator[Problem]:
    """Look at everything, one run after the other. Nothing is changed but what opening a journal brings in."""
    said = _check_store(journal)
    yield from (_damage(None, text) for text in said)
    yield from _check_spools(journal)
    yield from (Problem(what="exposed", run_id=None, text=text, hint=_OF_TRUST) for text in _exposed(journal))
    try:
        runs = journal.runs(limit=None)
    except StoreCorrupt as error:
        if not said:  # else it says the same of a table that is missing, say
            yield _damage(None, error.reason)
        return
    events = 0
    for place, run in enumerate(runs, 1):
        try:
            events += yield from _check_run(journal, run)
        except RunNotFound:
            pass  # pruned in the meantime
        except StoreCorrupt as error:
            yield _damage(run.run_id, error.reason)
        if progress is not None:
            progress(place, len(runs), events)


def _check_store(journal: RunJournal) -> list[str]:
    try:
        return core_of(journal).store.check()
    except StoreCorrupt as error:
        return [error.reason]


def _check_spools(journal: RunJournal) -> Iterator[Problem]:
    for place in core_of(journal).spool_bases:
        for path in sorted(place.parent.glob(f"{place.name}-spool-*-damaged")):
            hint = "Try `runjournal recover --spool` on it; delete it when you need it no more"
            yield Problem(what="damage", run_id=None, text=f"{path.name} could not be imported whole", hint=hint)


def _exposed(journal: RunJournal) -> Sequence[str]:
    """What the store found of permissions when it was opened. Only one that has files knows any."""
    found: Sequence[str] = getattr(core_of(journal).store, "exposed", ())
    return found


def _damage(run_id: str | None, text: str) -> Problem:
    hint = "Keep a copy of the file, and restore it from a backup, or continue with what can be read"
    return Problem(what="damage", run_id=run_id, text=text, hint=hint)


def _check_run(journal: RunJournal, run: Run) -> Generator[Problem, None, int]:
    events: list[Event] = []
    tally = GapFinder(run.run_id)
    while page := read_on(journal, run.run_id, tally.last, _PAGE):
        tally.see(page)
        events += page
    yield from (_damage(run.run_id, f"it {said}") for said in (*tally.take_gaps(), *tally.differences(run)))
    yield from _check_duties(journal, run, events)
    return len(events)


def _check_duties(journal: RunJournal, run: Run, events: Sequence[Event]) -> Iterator[Problem]:
    if run.lost:
        hint = "Look for a full disk or a lock in the log of its time; what was dropped cannot be had back"
        yield Problem(what="lost", run_id=run.run_id, text=f"{run.lost} events could not be kept", hint=hint)
    if run.status == RunStatus.RUNNING and run.owner != journal.owner_id and core_of(journal).dead_owners.owner_is_gone(run):
        hint = _OF_GRAPH if GRAPH in run.metadata else _OF_NONE
        yield Problem(what="abandoned", run_id=run.run_id, text="it never ended: its process is gone", hint=hint)
    elif run.ended and not run.settled:
        why = "" if run.problem is None else f": {run.problem}"
        text = f"it has ended, and its thread may lack what the journal holds{why}"
        yield Problem(what="unsettled", run_id=run.run_id, text=text, hint=_GIVEN_UP if run.given_up else _OF_GRAPH)
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
