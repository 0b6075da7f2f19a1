"""The rows of events in the SQLite file: what one append does in its transaction, and how segments are written."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from ...errors import RunFenced, SeqGap, StoreCorrupt
from ...events import Run
from ...events import run_state as _run_state
from ...events.segments import Damaged, Segment, last_call, long_segments, pack, trim, unpack
from ..run_columns import run_of, run_row
from .run_rows import RUN, last_seq, missing

_LONG_ROW: Final = 500
_ROW_BYTES: Final = 25  # of a row, besides its text
COLUMNS: Final = "first, last, t0, t1, ats, calls, body"
_INSERT_LIVE: Final = f"INSERT INTO live (run, {COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
_INSERT_SEGMENT: Final = f"INSERT INTO segments (run, {COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
READ_LIVE: Final = f"SELECT {COLUMNS}, id FROM live WHERE id > ? AND run = ? AND last > ? ORDER BY id"
_INSERT_RUN: Final = (
    "INSERT INTO runs (run_id, thread_id, status, owner_id, epoch, stop, settled, ended_at, rest)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_UPDATE_RUN: Final = (
    "UPDATE runs SET run_id = ?, thread_id = ?, status = ?, owner_id = ?, epoch = ?, stop = ?, settled = ?,"
    " ended_at = ?, rest = ? WHERE run = ?"
)
_IN_THE_WAY: Final = (
    "SELECT run_id FROM runs WHERE thread_id = :thread_id AND status = 'running' AND run_id <> :run_id"
    " UNION ALL SELECT run_id FROM runs WHERE run_id = :run_id"
)
_WITHDRAW: Final = (
    "DELETE FROM runs WHERE run_id = :run_id AND owner_id = :owner_id"
    " AND NOT EXISTS (SELECT 1 FROM live WHERE live.run = runs.run)"
    " AND NOT EXISTS (SELECT 1 FROM segments WHERE segments.run = runs.run)"
)
_CALLS_IN_LIVE: Final = "SELECT calls FROM live WHERE run = ? AND last < ? AND calls <> '' ORDER BY id DESC LIMIT 1"
_CALLS_AT_REST: Final = "SELECT calls FROM segments WHERE run = ? AND last < ? ORDER BY first DESC LIMIT 1"
CLAIM: Final = (
    "UPDATE runs SET owner_id = ?, epoch = epoch + 1 WHERE run_id = ? AND epoch = ? AND (ended_at IS NULL OR NOT settled)"
)


class Known:
    """What a store remembers of a run, so that an append need not read. The store forgets all of it when anything fails."""

    __slots__ = ("call", "epoch", "in_live", "last", "owner_id", "run")

    def __init__(self, run: int, owner_id: str, epoch: int, last: int) -> None:
        self.run = run
        self.owner_id = owner_id
        self.epoch = epoch
        self.last = last
        self.call = ""
        """The call of its last row in `live`, as JSON, or "" if that is unknown."""
        self.in_live = True
        """Whether it may have rows in `live`."""

    def tidied(self) -> None:
        """Note that all its rows are in `segments`."""
        self.call, self.in_live = "", False


class Batch:
    """One append, inside its transaction."""

    def __init__(self, con: sqlite3.Connection, owner_id: str, known: dict[str, Known], *, gaps: bool = False) -> None:
        self._con = con
        self._owner_id = owner_id
        self._known = known
        self._gaps = gaps
        self._fenced: list[str] = []
        self._live: list[tuple[int, int, int, int, int, str, str, str]] = []
        self.adopted: set[str] = set()
        self.begun: set[str] = set()
        self._ended: list[str] = []
        self.bytes = 0

    def add(self, segment: Segment) -> None:
        """Add a segment, or refuse it. The first lines are the path of nearly every segment."""
        run_id, epoch, first, last, _, _, _, _, _, marks = segment
        known = self._known.get(run_id)
        if known is None:
            known = self._known[run_id] = self._look_up(segment)
        if known.owner_id != self._owner_id or known.epoch != epoch:
            self._fenced.append(run_id)
            return
        if first != known.last + 1:
            if first > known.last:
                self._leave_gap(known, run_id, first)
            else:
                if self._gaps:
                    self._fill(known, segment)
                if last <= known.last:
                    return
                segment = trim(segment, known.last)
        if marks:
            self._mark(known.run, segment)
            if any(mark.kind == "run.end" for mark in marks):
                self._ended.append(run_id)
        known.last = last
        if last - first >= _LONG_ROW:
            self._write_long(known, segment)
        else:
            self._write_short(known, segment)

    def finish(self) -> None:
        """Write all added segments, or raise `RunFenced` and write none."""
        if self._fenced:
            raise RunFenced(run_ids=sorted(set(self._fenced)), refused=0)
        self._flush()
        for run_id in self._ended:  # if late events come, they are looked up again
            self._known.pop(run_id, None)

    def _flush(self) -> None:
        self._con.executemany(_INSERT_LIVE, self._live)
        self._live.clear()

    def _write_short(self, known: Known, segment: Segment) -> None:
        _, _, first, last, t0, t1, ats, calls, body, _ = segment
        # The id of a call is longer than the text of 50 ms, so a row has it only if the row before has another id.
        call = calls.partition(",")[2] if calls.count(",") == 1 else ""
        if call and call == known.call:
            calls = ""
        known.call, known.in_live = call, True
        self._live.append((known.run, first, last, t0, t1, ats, calls, body))
        self.bytes += len(body) + len(ats) + len(calls) + _ROW_BYTES

    def _write_long(self, known: Known, segment: Segment) -> None:
        # Long enough for `segments`, together with the rows of `live` before it: events in `segments` must not be newer than
        # events in `live`.
        parts = [segment]
        if known.in_live:
            parts = [*self._take_from_live(known, segment.run_id), segment]
        known.tidied()
        put_to_rest(self._con, known.run, parts)

    def _take_from_live(self, known: Known, run_id: str) -> list[Segment]:
        self._flush()
        rows = self._con.execute(READ_LIVE, (0, known.run, 0)).fetchall()
        self._con.execute("DELETE FROM live WHERE run = ?", (known.run,))
        known.tidied()
        return [Segment(run_id, 0, *row[:7]) for row in rows]

    def _look_up(self, segment: Segment) -> Known:
        row = self._con.execute(f"SELECT {RUN} FROM runs WHERE run_id = ?", (segment.run_id,)).fetchone()
        if row is None:
            if segment.first != 1 and not self._gaps:
                raise SeqGap(run_id=segment.run_id, last=0, first=segment.first)
            run = replace(_run_state.begin(segment.run_id, segment.t0 / 1000, self._owner_id), epoch=segment.epoch)
            self.begun.add(segment.run_id)
            return Known(_insert_run(self._con, run), self._owner_id, segment.epoch, 0)
        self.adopted.add(segment.run_id)
        return Known(row[9], row[3], row[4], last_seq(self._con, row[9]))

    def _leave_gap(self, known: Known, run_id: str, first: int) -> None:
        """Skip missing events, if the caller allows gaps. `Run.lost` counts them."""
        if not self._gaps:
            raise SeqGap(run_id=run_id, last=known.last, first=first)
        run = run_of(self._con.execute(f"SELECT {RUN} FROM runs WHERE run = ?", (known.run,)).fetchone())
        run = replace(run, lost=run.lost + first - known.last - 1)
        self._con.execute(_UPDATE_RUN, (*run_row(run), known.run))
        known.last, known.call = first - 1, ""

    def _fill(self, known: Known, segment: Segment) -> None:
        """Write those events of a segment that the run lacks into their places."""
        number = known.run
        self._flush()
        gaps = list(missing(self._con, number, segment.first, min(segment.last, known.last)))
        if gaps and (there := self._take_from_live(known, segment.run_id)):
            put_to_rest(self._con, number, there)
        for first, end in gaps:
            events = [event for event in unpack(segment, first - 1) if event.seq <= end]
            part = pack(segment.run_id, segment.epoch, events)
            self._con.execute(_INSERT_SEGMENT, (number, *part[2:9]))
            self._mark(number, part, found=len(events))

    def _mark(self, number: int, segment: Segment, *, found: int = 0) -> None:
        row = self._con.execute(f"SELECT {RUN} FROM runs WHERE run = ?", (number,)).fetchone()
        run = run_of(row)
        run = replace(run, lost=run.lost - found) if found else run
        for mark in segment.marks:
            run = _run_state.advance(run, mark)
        self._con.execute(_UPDATE_RUN, (*run_row(run), number))


def begin(con: sqlite3.Connection, run: Run, besides: Collection[str]) -> list[str]:
    """Begin the run on its thread, unless other runs are in the way. Return their ids."""
    found = con.execute(_IN_THE_WAY, {"run_id": run.run_id, "thread_id": run.thread_id}).fetchall()
    in_the_way = [run_id for (run_id,) in found if run_id not in besides or run_id == run.run_id]
    if not in_the_way:
        _insert_run(con, run)
    return in_the_way


def withdraw(con: sqlite3.Connection, run_id: str, owner_id: str) -> bool:
    """Delete a run that has no event yet. Return whether it was deleted."""
    return con.execute(_WITHDRAW, {"run_id": run_id, "owner_id": owner_id}).rowcount == 1


def _insert_run(con: sqlite3.Connection, run: Run) -> int:
    """Insert a run, and return its row number."""
    return con.execute(_INSERT_RUN, run_row(run)).lastrowid or 0


def with_call(con: sqlite3.Connection, run: int, head: Segment) -> Segment:
    """Return the segment with its call, also if its row has none because the row before has the same call."""
    if head.calls:
        return head
    for sql in (_CALLS_IN_LIVE, _CALLS_AT_REST):
        found = con.execute(sql, (run, head.first)).fetchone()
        if found:
            return head._replace(calls=f"{head.first},{last_call(found[0])}")
    return head  # unpack() will raise that the segment has lost its calls


def put_to_rest(con: sqlite3.Connection, run: int, parts: Sequence[Segment]) -> None:
    """Write neighbouring segments of a run to `segments`."""
    parts = [with_call(con, run, parts[0]), *parts[1:]]
    con.executemany(_INSERT_SEGMENT, [(run, *long[2:9]) for long in long_segments(parts)])


def tidy(con: sqlite3.Connection) -> None:
    """Move the rows of `live` to `segments`, each run together."""
    # The rows have the shape of a Segment, with the row number of the run in place of the marks, so that none need be built.
    # They are grouped here, because SQLite would carry all columns through its sorter.
    rows: dict[int, list[Segment]] = {}
    for row in con.execute(f"SELECT '', 0, {COLUMNS}, run FROM live ORDER BY id"):
        run = row[9]
        if run in rows:
            rows[run].append(row)
        else:
            rows[run] = [row]
    # Delete the rows before writing them again, so that they use the same pages.
    con.execute("DELETE FROM live")
    for run, group in rows.items():
        group[0] = Segment(*group[0])._replace(run_id=f"number {run}")
        put_to_rest(con, run, group)


@contextmanager
def damage(path: Path, run_id: str) -> Iterator[None]:
    """Raise `StoreCorrupt` for events that cannot be unpacked: no store has written them."""
    try:
        yield
    except (LookupError, TypeError, ValueError) as exc:
        reason = str(exc) if isinstance(exc, Damaged) else f"the events of run {run_id} are not what was written ({exc})"
        raise StoreCorrupt(path=str(path), reason=reason) from exc
