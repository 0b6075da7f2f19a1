"""`runjournal check`: finds damage in the file, gaps in the numbering of each run, and threads that are not settled."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from ..common.wording import plural
from ..errors import EventsMissing, RunNotFound, StoreCorrupt
from ..events import GRAPH, MARKS, Event, Run, RunStatus
from ..events import run_state as _run_state
from ..messages import loading as _loading
from ..messages import transcript as _transcript
from ..messages.tool_pairs import open_requests
from .core import core_of

if TYPE_CHECKING:
    from .run_journal import RunJournal

Progress: TypeAlias = Callable[[int, int, int], object]
"""Called after each run, with the number of runs checked so far, the number of all runs, and the number of their events."""

_PAGE: Final = 10_000
_IN_EVENTS: Final = ("thread_id", "status", "cause", "settled", "lost")
"""The fields that a run has in its row and that follow from its events as well."""
_OF_GRAPH: Final = "Run `runjournal recover --graph module:attribute`, or send the next message of its thread"
_GIVEN_UP: Final = "The journal does not try again. `runjournal transcript` shows what was said; prune removes the run"
_OF_TRUST: Final = "Ask yourself who may have read it; docs/limits.md, under Trust, says what the journal allows"
_MEND_FILE: Final = "Keep a copy of the file, and restore it from a backup, or continue with what can be read"
_MEND_DATABASE: Final = (
    "Undo what another program has changed there, or restore the database from a backup; or continue with what can be read"
)
_OF_NONE: Final = "Run `runjournal recover`"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One problem that the check found, and what to do about it.

    "damage": events cannot be read, or are missing. "lost": the journal dropped events because it could not write.
    "abandoned": the owner of the run is dead, and the run has not ended. "unsettled": the thread of the run may lack what
    the journal holds. "open pair": the run requested tools, recorded no result of them, and nothing settles its thread.
    "exposed": other users could read the journal's files, or replace them.
    """

    what: Literal["damage", "lost", "abandoned", "unsettled", "open pair", "exposed"]
    run_id: str | None
    text: str
    hint: str


class GapFinder:
    """Pure: finds what is missing among the events of one run.

    The caller passes the events to `see`, in order. `after`: the seq behind which the events begin.
    """

    def __init__(self, run_id: str, after: int = 0) -> None:
        self.last = after
        self._gaps: list[str] = []
        self._has_gaps = False
        self._begins_late = after > 0
        self._run_id = run_id
        self._from_events: Run | None = None

    def see(self, events: Sequence[Event]) -> None:
        """Examine the next events."""
        for event in events:
            if event.seq > self.last + 1:
                self._has_gaps = True
                gap = f"has a gap: {self.last} is followed by"
                self._gaps.append(f"{gap if self.last else 'lacks its beginning: the first that is left is'} {event.seq}")
            self.last = event.seq
            if self._from_events is None:
                self._from_events = _run_state.begin(self._run_id, event.at)
            if event.kind in MARKS:
                self._from_events = _run_state.advance(self._from_events, event)

    def take_gaps(self) -> list[str]:
        """Return the gaps found since the last call, each as the rest of a sentence about the run."""
        gaps, self._gaps = self._gaps, []
        return gaps

    def differences(self, run: Run) -> list[str]:
        """Return where the row of the run disagrees with its events, each as the rest of a sentence about the run.

        Call this after `see` has had all events. `run` is the row as it was before the events were read.
        """
        if self.last < run.last_seq:
            return [f"should continue to {run.last_seq}, and ends at {self.last}"]
        if self.last > run.last_seq or self._begins_late:
            return []  # the run got more events meanwhile, or the events before `after` explain the difference
        if self._from_events is None:
            spoken = _odd(run, _run_state.begin(run.run_id, run.started_at), "error", "ended_at", "usage")
            return ["has no event left"] if spoken else []
        if run.ended and not self._from_events.ended:
            return [f"lacks its end: it is {run.status}, and the last event that is left is {self.last}"]
        if self._has_gaps:
            return []  # the missing events may explain the difference
        odd = _odd(run, self._from_events)
        said, has = (", ".join(f"{name} {getattr(one, name)!s}" for name in odd) for one in (self._from_events, run))
        return [f"does not agree with its events: they say {said}, and its row {has}"] if odd else []


def _odd(run: Run, from_events: Run, *more: str) -> list[str]:
    """Return the fields in which a row differs from its events.

    The thread is known when a run begins, so the events need not repeat it.
    """
    from_events = replace(from_events, thread_id=from_events.thread_id or run.thread_id)
    return [name for name in (*_IN_EVENTS, *more) if getattr(run, name) != getattr(from_events, name)]


def read_on(journal: RunJournal, run_id: str, after: int, limit: int) -> list[Event]:
    """Return the next events of a run, at most `limit`. They end before a gap, or begin behind one; a gap does not raise."""
    try:
        return journal.read(run_id, after, limit)
    except EventsMissing as gap:
        if gap.after > after:
            return journal.read(run_id, after, gap.after - after)
        return read_on(journal, run_id, gap.found - 1, limit)


def how_to_end(run: Run) -> str:
    """Return what ends a run whose owner is dead, as a sentence without its full stop."""
    return _OF_GRAPH if GRAPH in run.metadata else _OF_NONE


def check(journal: RunJournal, progress: Progress | None = None) -> Iterator[Problem]:
    """Check the store, the spools, the permissions and then each run. The check changes nothing.

    Opening the journal, before this call, may have imported spools.
    """
    said = _check_store(journal)
    yield from (_damage(None, text, journal) for text in said)
    yield from _check_spools(journal)
    yield from (Problem(what="exposed", run_id=None, text=text, hint=_OF_TRUST) for text in _exposed(journal))
    try:
        runs = journal.runs(limit=None)
    except StoreCorrupt as error:
        if not said:  # `_check_store` may have reported the same already, for example a missing table
            yield _damage(None, error.reason, journal)
        return
    events = 0
    for place, run in enumerate(runs, 1):
        try:
            events += yield from _check_run(journal, run)
        except RunNotFound:
            pass  # another call has pruned the run meanwhile
        except StoreCorrupt as error:
            yield _damage(run.run_id, error.reason, journal)
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
            hint = "Try `runjournal recover --spool` on it; delete it when you no longer need it"
            yield Problem(what="damage", run_id=None, text=f"{path.name} could not be imported whole", hint=hint)


def _exposed(journal: RunJournal) -> Sequence[str]:
    """Return what the store found about permissions when it was opened. Only a store with files has the attribute."""
    found: Sequence[str] = getattr(core_of(journal).store, "exposed", ())
    return found


def _damage(run_id: str | None, text: str, journal: RunJournal) -> Problem:
    hint = _MEND_DATABASE if core_of(journal).is_far else _MEND_FILE
    return Problem(what="damage", run_id=run_id, text=text, hint=hint)


def _check_run(journal: RunJournal, run: Run) -> Generator[Problem, None, int]:
    events: list[Event] = []
    finder = GapFinder(run.run_id)
    while page := read_on(journal, run.run_id, finder.last, _PAGE):
        finder.see(page)
        events += page
    yield from (_damage(run.run_id, f"it {said}", journal) for said in (*finder.take_gaps(), *finder.differences(run)))
    yield from _check_duties(journal, run, events)
    return len(events)


def _check_duties(journal: RunJournal, run: Run, events: Sequence[Event]) -> Iterator[Problem]:
    if run.lost:
        hint = "Look for a full disk or a lock in the log of its time; dropped events cannot be restored"
        yield Problem(what="lost", run_id=run.run_id, text=f"{plural(run.lost, 'event')} could not be kept", hint=hint)
    if run.status == RunStatus.RUNNING and run.owner != journal.owner_id and core_of(journal).dead_owners.owner_is_gone(run):
        text = "it never ended: its owner is dead"
        yield Problem(what="abandoned", run_id=run.run_id, text=text, hint=how_to_end(run))
    elif run.ended and not run.settled:
        why = "" if run.problem is None else f": {run.problem}"
        text = f"it has ended, and its thread may lack what the journal holds{why}"
        yield Problem(what="unsettled", run_id=run.run_id, text=text, hint=_GIVEN_UP if run.given_up else _OF_GRAPH)
    elif run.ended and not any(event.kind == "run.settled" for event in events):
        yield from _check_pairs(run, events)


def _check_pairs(run: Run, events: Sequence[Event]) -> Iterator[Problem]:
    """Yield the tool requests without a result. The caller answers those of the last answer of a completed run."""
    messages = _loading.load(run.run_id, _transcript.transcript(run.run_id, events))
    last = max((place for place, message in enumerate(messages) if message.type == "ai"), default=-1)
    for place, request in open_requests(messages):
        if run.status != RunStatus.COMPLETED or place != last:
            text = f"no result of {request.name or 'a tool'} ({request.id}) was recorded, and no settlement answered it"
            hint = "Attach the graph, or give its history to `repair_tool_pairs` before the next request"
            yield Problem(what="open pair", run_id=run.run_id, text=text, hint=hint)
