"""Pure: what one append changes, worked out from what the store takes its runs for.

Rule: nothing is decided on the server. It compares each run with what it was taken for, and changes either everything or
nothing: if a run has become another one meanwhile, all of this is worked out again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...errors import RunFenced, SeqGap
from ...events import Run
from ...events import run_state as _run_state
from ...events.segments import Damaged, Segment, pack, trim, unpack
from ..run_columns import run_row
from .keys import encoded


class Known:
    """What a store takes a run for. `run` may lack its last seq: that is `last`."""

    __slots__ = ("last", "run", "there", "version")

    def __init__(self, run: Run, last: int, version: int) -> None:
        self.run = run
        self.last = last
        self.version = version
        """How often the row was written; 0 for a run that does not exist yet."""
        self.there: list[Segment] | None = None
        """All its events, for a restore that may have to fill its gaps."""


class Change:
    """What an append changes of one run."""

    __slots__ = ("before", "entries", "has_row", "last", "replaces", "run")

    def __init__(self, before: Known) -> None:
        self.before = before
        self.run = before.run
        self.last = before.last
        self.has_row = before.version == 0
        self.replaces = False
        self.entries: list[Segment] = []

    def after(self) -> Known:
        """Return what the run is when the change is made."""
        return Known(self.run, self.last, self.before.version + self.has_row)

    def arguments(self) -> Iterator[Any]:
        """Yield the arguments of the script `append` for this run."""
        yield encoded(self.run.run_id)
        yield self.run.epoch
        yield self.before.last if self.before.version else 0
        yield self.before.version
        yield b"1" if self.replaces else b"0"
        if self.has_row:
            yield b"1"
            _, thread_id, status, _, _, stop, settled, ended_at, rest = run_row(self.run)
            yield status
            yield b"" if thread_id is None else b"t" + encoded(thread_id)
            yield int(settled and ended_at is not None)
            yield b"" if ended_at is None else ended_at
            yield b"" if stop is None else b"s" + encoded(stop)
            yield rest
            yield int(settled)
        else:
            yield b"0"
        yield len(self.entries)
        for entry in self.entries:
            yield entry.last
            yield text_of(entry)

    def add(self, segment: Segment, gaps: bool) -> None:
        """Add a segment: what is new of it. Raise `SeqGap`."""
        last = self.last
        if segment.first != last + 1:
            if segment.first > last:
                if not gaps:
                    raise SeqGap(run_id=segment.run_id, last=last, first=segment.first)
                self.run = replace(self.run, lost=self.run.lost + segment.first - last - 1)
                self.has_row = True
            else:
                if self.before.there is not None:
                    self._fill(segment)
                if segment.last <= last:
                    return
                segment = trim(segment, last)
        self._mark(segment)
        self.entries.append(segment)
        self.last = segment.last

    def _mark(self, segment: Segment) -> None:
        for mark in segment.marks:
            self.run = _run_state.advance(self.run, mark)
            self.has_row = True

    def _fill(self, segment: Segment) -> None:
        """Take those events of a segment that the run lacks."""
        there = self.before.there or []
        events = {event.seq: event for event in unpack(segment)}
        if not self.replaces:
            self.entries = [*there, *self.entries]
        for first, end in gaps_in(self.entries, segment.first, min(segment.last, self.last)):
            part = pack(segment.run_id, segment.epoch, [events[seq] for seq in range(first, end + 1)])
            self.run = replace(self.run, lost=self.run.lost - (end - first + 1))
            self._mark(part)
            self.entries = sorted([*self.entries, part], key=lambda entry: entry.first)
            self.has_row = True
        self.replaces = True


def changes_of(
    owner_id: str, segments: Sequence[Segment], known: Mapping[str, Known | None], *, gaps: bool = False
) -> dict[str, Change]:
    """Return what these segments change of each run. Raise `RunFenced` or `SeqGap` if the store must not take them.

    A run that has all its events changes by nothing: it stands here so that the server fences it as well.
    """
    changes: dict[str, Change] = {}
    fenced: set[str] = set()
    for segment in segments:
        run_id = segment.run_id
        if run_id not in changes:
            changes[run_id] = Change(known[run_id] or _new(owner_id, segment))
        run = changes[run_id].run
        if run.owner != owner_id or run.epoch != segment.epoch:
            fenced.add(run_id)
    if fenced:
        raise RunFenced(run_ids=sorted(fenced), refused=0)
    for segment in segments:
        changes[segment.run_id].add(segment, gaps)
    return changes


def _new(owner_id: str, segment: Segment) -> Known:
    run = _run_state.begin(segment.run_id, segment.t0 / 1000, owner_id)
    return Known(replace(run, epoch=segment.epoch), 0, 0)


def gaps_in(parts: Sequence[Segment], first: int, last: int) -> Iterator[tuple[int, int]]:
    """Yield the parts of `first` to `last` that these segments, in order, lack."""
    for part in parts:
        if part.last < first:
            continue
        if part.first > last:
            break
        if part.first > first:
            yield first, part.first - 1
        first = part.last + 1
    if first <= last:
        yield first, last


def text_of(segment: Segment) -> bytes:
    """Return an entry of a stream: the columns of a segment but its last seq, which is the id of the entry.

    The JSON of the columns has no line breaks: they are escaped there.
    """
    _, _, first, _, t0, t1, ats, calls, body, _ = segment
    return f"{first}\n{t0}\n{t1}\n{ats}\n{calls}\n{body}".encode()


def segment_of(run_id: str, entry: Sequence[Any]) -> Segment:
    """Return the segment of an entry. Raise `Damaged`."""
    try:
        columns = entry[1][1].decode().split("\n", 5)
        first, t0, t1 = map(int, columns[:3])
        return Segment(run_id, 0, first, int(entry[0].partition(b"-")[0]), t0, t1, *columns[3:])
    except (LookupError, TypeError, ValueError) as exc:
        raise Damaged(f"entry {entry[0]!r} of run {run_id} is not what was written") from exc
