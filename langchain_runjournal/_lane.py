"""What a journal holds in memory of one run that it writes: the events that are not in the store yet, as columns.

Rule: `pend` is the truth. It is a flat list of pairs (milliseconds since the event before, JSON), which grows by one
operation per event and shrinks, from its beginning, once the writer has stored what it held. Everything else here either
describes it or can be made again from it (`heal`).
"""

from __future__ import annotations

import json
import threading
from collections import deque
from typing import Final, Protocol, cast

from ._segments import Segment, unpack
from ._spool import SpoolFile
from .errors import RunJournalError
from .events import MARKS, Event, Kind

ROW_EVENTS: Final = 1_000
"""Most events in one row: a reader that wants a page should not have to decode a book."""


class Waiter(Protocol):
    """A follower that sleeps until a run of this process has something new."""

    def wake(self) -> None:
        """Wake it, from any thread, without waiting for anything."""


class Lane:
    """One run of this journal."""

    __slots__ = (
        "at",
        "base",
        "base_at",
        "call",
        "calls",
        "dirty",
        "ended",
        "epoch",
        "file",
        "marks",
        "paused",
        "pend",
        "run_id",
        "seq",
        "shut",
        "slot",
        "spool_call",
        "stop",
        "tail_lock",
        "tried",
        "waiters",
    )

    def __init__(self, run_id: str, slot: int, *, epoch: int = 1, seq: int = 0) -> None:
        self.run_id = run_id
        self.slot = slot
        self.epoch = epoch
        self.seq = seq
        self.at = 0
        self.call: str | None = None
        self.base = seq
        self.base_at = 0
        self.pend: list[int | str] = []
        self.calls: list[int | str | None] = [0, None]
        self.marks: list[Event] = []
        self.dirty = False
        self.ended = False
        self.paused = 0
        """The seq of its `run.pause`, when it was the last event."""
        self.tried = False
        """Whether the writer has tried to store any of it."""
        self.shut: RunJournalError | None = None
        self.file: SpoolFile | None = None
        self.spool_call: str | None = None
        self.stop: str | None = None
        self.waiters: deque[Waiter] = deque()
        # Between the writer, which takes away from the beginning, and followers, which read. Never held by an append.
        self.tail_lock = threading.Lock()

    # --- for whoever appends, under the lock of the intake ------------------------------------------------------------

    def add(self, at: int, call: str | None, kind: Kind, text: str) -> None:
        """The next event. The intake does the same by hand, with a spool in between."""
        seq = self.seq + 1
        if call != self.call:
            self.switch(seq, call)
        if kind in MARKS:
            self.mark(seq, kind, at, text)
        self.pend += (at - self.at, text)
        self.at = at
        self.seq = seq

    def switch(self, seq: int, call: str | None) -> None:
        """From `seq` on, events belong to this call."""
        self.calls += (seq, call)
        self.call = call

    def mark(self, seq: int, kind: Kind, at: int, text: str) -> None:
        """Keep an event that changes what the run says of itself, for the store."""
        data = json.loads(text)[1]
        self.marks.append(Event(run_id=self.run_id, kind=kind, data=data, seq=seq, at=at / 1000))

    def wake_waiters(self) -> None:
        """There is something new."""
        while self.waiters:
            self.waiters.popleft().wake()

    def heal(self) -> None:
        """Put right what an exception in the middle of an append (a Ctrl-C) has left half done, by what `pend` says."""
        with self.tail_lock:
            self._describe()
        # The spool may hold the event or not: introduced anew, the run goes on there from `seq`.
        self.file = None

    def cut(self, seq: int) -> None:
        """Take back what comes after `seq`."""
        with self.tail_lock:
            del self.pend[2 * max(0, seq - self.base) :]
            self.base = min(self.base, seq)
            self._describe()

    def restart(self, seq: int) -> None:
        """Go on after `seq`: what was before is no longer of interest here."""
        with self.tail_lock:
            self.pend.clear()
            self.marks.clear()
            self.base, self.base_at = seq, self.at
            self.calls = [0, self.call]
            self._describe()

    def _describe(self) -> None:
        self.seq = self.base + len(self.pend) // 2
        self.at = self.base_at + sum(cast("list[int]", self.pend[0::2]))
        while len(self.calls) > 2 and cast("int", self.calls[-2]) > self.seq:
            del self.calls[-2:]
        self.call = cast("str | None", self.calls[-1])
        while self.marks and self.marks[-1].seq > self.seq:
            del self.marks[-1]

    def drop_all(self) -> int:
        """Forget what waits: another owner has the run. Returns how many events that were."""
        with self.tail_lock:
            dropped = len(self.pend) // 2
            self.pend.clear()
            self.marks.clear()
            return dropped

    # --- for the writer -----------------------------------------------------------------------------------------------

    def take(self) -> list[Segment]:
        """What waits, as rows for the store. It stays here until `stored` says that it is there."""
        count = len(self.pend) // 2
        if not count:
            return []
        end = self.base + count
        marks = [mark for mark in self.marks if mark.seq <= end]
        rows, at = [], self.base_at
        for start in range(0, count, ROW_EVENTS):
            row, at = self._row(start, min(start + ROW_EVENTS, count), at, marks)
            rows.append(row)
        return rows

    def stored(self, last: int) -> None:
        """Everything up to `last` is in the store: no need to hold it any longer."""
        with self.tail_lock:
            count = last - self.base
            self.base_at += sum(cast("list[int]", self.pend[0 : 2 * count : 2]))
            del self.pend[: 2 * count]
            self.base = last
            while len(self.calls) > 2 and cast("int", self.calls[2]) <= last + 1:
                del self.calls[:2]
            while self.marks and self.marks[0].seq <= last:
                del self.marks[0]

    def _row(self, start: int, stop: int, at: int, marks: list[Event]) -> tuple[Segment, int]:
        steps = cast("list[int]", self.pend[2 * start : 2 * stop : 2])
        texts = cast("list[str]", self.pend[2 * start + 1 : 2 * stop : 2])
        first, last = self.base + start + 1, self.base + stop
        t0 = at + steps[0]
        t1 = at + sum(steps)
        row = Segment(
            self.run_id,
            self.epoch,
            first,
            last,
            t0,
            t1,
            ",".join(map(str, steps[1:])),
            self._calls(first, last),
            ",".join(texts),
            tuple(mark for mark in marks if first <= mark.seq <= last) if marks else (),
        )
        return row, t1

    def _calls(self, first: int, last: int) -> str:
        calls = self.calls
        if len(calls) == 2:
            call = calls[1]
            return f"{first},null" if call is None else f"{first},{json.dumps(call)}"
        pairs: list[int | str | None] = [first, None]
        for seq, call in zip(calls[0::2], calls[1::2], strict=False):
            if cast("int", seq) <= first:
                pairs[1] = call
            elif cast("int", seq) <= last:
                pairs += (seq, call)
        return json.dumps(pairs, separators=(",", ":"))[1:-1]

    # --- for followers ------------------------------------------------------------------------------------------------

    def tail(self, after: int, limit: int) -> list[Event] | None:
        """Events after `after` that are here already, or None if what comes next has to be read from the store."""
        with self.tail_lock:
            start = after - self.base
            if start < 0:
                return None
            stop = min(len(self.pend) // 2, start + limit)
            if start >= stop:
                return []
            at = self.base_at + sum(cast("list[int]", self.pend[0 : 2 * start : 2]))
            row, _ = self._row(start, stop, at, [])
        return unpack(row)
