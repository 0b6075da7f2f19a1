"""Pure: what one append changes, decided from what the store knows of its runs.

Rule: the statement that writes a batch names for each run the number of its row, its id and its version. Something else
there means that this module decided from something outdated: then nothing is written, and the store reads the rows and
decides again. The number alone does not do: after a failover, a server may give one again that the old server had given.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from ...errors import RunFenced, SeqGap
from ...events import Run
from ...events.run_state import advance
from ...events.run_state import begin as new_run
from ...events.segments import Segment, pack, trim, unpack
from .names import encoded, key
from .run_rows import run_row

Span = tuple[int, int]


@dataclass(slots=True)
class Known:
    """What a store remembers of a run: its row as of `version`. Others may have changed `run.stop` since."""

    number: int
    """The number of its row; 0 for a run that does not exist yet."""
    version: int
    run: Run
    pieces: int = 0
    """The short rows that this store has written of it since they were last merged."""


@dataclass(slots=True)
class Batch:
    """One append: its rows, and the runs as they are after it."""

    owner_id: str
    known: Mapping[str, Known]
    """The runs that exist, by id."""
    gaps: bool = False
    spans: Mapping[str, Sequence[Span]] = field(default_factory=dict)
    """With `gaps`: the first and the last seq of each row that a run has, in order."""
    rows: list[Segment] = field(default_factory=list)
    after: dict[str, Known] = field(default_factory=dict)
    """The runs of the batch, as they are then, also those that have all its events: the server fences them as well."""

    def plan(self, segments: Sequence[Segment]) -> None:
        """Decide about all segments. Raises `RunFenced` or `SeqGap`."""
        fenced = {segment.run_id for segment in segments if not self._may_append(segment)}
        if fenced:
            raise RunFenced(run_ids=sorted(fenced), refused=0)
        for segment in segments:
            self._add(segment)

    def _may_append(self, segment: Segment) -> bool:
        known = self.known.get(segment.run_id)
        return known is None or (known.run.owner, known.run.epoch) == (self.owner_id, segment.epoch)

    def _add(self, segment: Segment) -> None:
        run_id, first = segment.run_id, segment.first
        known = self.after.get(run_id) or self.known.get(run_id)
        last = known.run.last_seq if known is not None else 0
        if first > last + 1 and not self.gaps:
            raise SeqGap(run_id=run_id, last=last, first=first)
        if known is None:
            begun = new_run(run_id, segment.t0 / 1000, self.owner_id)
            known = Known(0, 0, replace(begun, epoch=segment.epoch))
        if first <= last and self.gaps:
            known = self._fill(known, segment)
        if segment.last > last:
            lost = known.run.lost + max(0, first - last - 1)
            known = self._with(known, trim(segment, last), lost=lost, last_seq=segment.last)
        self.after[run_id] = known

    def _fill(self, known: Known, segment: Segment) -> Known:
        """Put those events of a segment that the run lacks into their places."""
        spans = [*self.spans.get(segment.run_id, ()), *((s.first, s.last) for s in self.rows if s.run_id == segment.run_id)]
        for first, last in missing(spans, segment.first, min(segment.last, known.run.last_seq)):
            events = [event for event in unpack(segment, first - 1) if event.seq <= last]
            part = pack(segment.run_id, segment.epoch, events)
            known = self._with(known, part, lost=known.run.lost - len(events))
        return known

    def _with(self, known: Known, segment: Segment, **fields: Any) -> Known:
        self.rows.append(segment)
        run = replace(known.run, **fields)
        for mark in segment.marks:
            run = advance(run, mark)
        return Known(known.number, known.version, run, known.pieces + 1)

    # --- columns of the statement -------------------------------------------------------------------------------------

    def continuation(self) -> dict[str, Any] | None:
        """Return the values of the statement `_CONTINUE`, or None for a batch that needs `_APPEND`."""
        if len(self.after) != 1:
            return None
        [(run_id, known)] = self.after.items()
        if not known.number or _changes(self.known[run_id].run, known.run):
            return None
        return {
            "run": known.number,
            "run_id": key(run_id),
            "version": known.version,
            "epoch": known.run.epoch,
            "owner": encoded(self.owner_id),
            "last_seq": known.run.last_seq,
            **rows_of(self.rows),
        }

    def values(self) -> dict[str, Any]:
        """Return the values of the statement `_APPEND`."""
        heads = [(self.known[run_id], known) for run_id, known in self.after.items() if known.number]
        changed = [_changes(before.run, known.run) for before, known in heads]
        fresh = {run_id: run_row(known.run) for run_id, known in self.after.items() if not known.number}
        return {
            "owner": encoded(self.owner_id),
            "count": len(heads),
            "run": _numbers(known.number for _, known in heads),
            "run_id": [key(run_id) for run_id, known in self.after.items() if known.number],
            "version": _numbers(known.version for _, known in heads),
            "epoch": _numbers(known.run.epoch for _, known in heads),
            "last_seq": _numbers(known.run.last_seq for _, known in heads),
            "ended_at": _numbers(row.get("ended_at") for row in changed),
            "settled": _numbers(row.get("settled") for row in changed),
            **{name: [row.get(name) for row in changed] for name in ("thread_id", "status", "stop", "rest")},
            **{f"new_{name}": [row[name] for row in fresh.values()] for name in _NEW_TEXTS},
            **{f"new_{name}": _numbers(row[name] for row in fresh.values()) for name in _NEW_NUMBERS},
            "of": _numbers(self.after[row.run_id].number for row in self.rows),
            "of_new": [fresh[row.run_id]["run_id"] if row.run_id in fresh else None for row in self.rows],
            **rows_of(self.rows),
        }


_NEW_TEXTS: Final = ("run_id", "thread_id", "status", "owner_id", "stop", "rest")
_NEW_NUMBERS: Final = ("epoch", "settled", "ended_at", "last_seq")


def rows_of(rows: Sequence[Segment]) -> dict[str, Any]:
    """Return the columns of rows of events."""
    return {
        **{name: _numbers(getattr(row, name) for row in rows) for name in ("first", "last", "t0", "t1")},
        **{name: [getattr(row, name) for row in rows] for name in ("ats", "calls", "body")},
    }


def _changes(before: Run, after: Run) -> dict[str, Any]:
    """Return the columns of a run that a batch with a mark writes; none without a mark, as nearly always.

    A column that is None is not written: no mark takes a thread, an end or a request to stop away.
    """
    return {} if replace(before, last_seq=after.last_seq) == after else run_row(after)


def _numbers(values: Iterable[int | None]) -> str:
    """Return integers as an array of Postgres. The type of a list would depend on its largest number."""
    return f"{{{','.join('NULL' if value is None else str(value) for value in values)}}}"


def missing(spans: Sequence[Span], first: int, last: int) -> list[Span]:
    """Return the parts of `first` to `last` that no span covers."""
    found = []
    for begin, end in sorted(spans):
        if end < first or begin > last:
            continue
        if begin > first:
            found.append((first, begin - 1))
        first = max(first, end + 1)
    if first <= last:
        found.append((first, last))
    return found
