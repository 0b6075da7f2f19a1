"""The run buffer: the events of one run that the store does not have yet, in memory, as columns.

Rule: `pend` is the truth. It is a flat list of pairs (milliseconds since the event before, JSON). It grows by one operation
for each event, and the writer removes events from its beginning after it has stored them. Every other attribute describes
`pend`, or can be computed from it again (`heal`).
"""

from __future__ import annotations

import json
import threading
from typing import Final, Protocol, cast

from ..common import strict_json as _json
from ..errors import RunJournalError
from ..events import MARKS, Event, Kind, thaw_events
from ..events.segments import Segment, unpack
from .spool import SpoolFile

ROW_EVENTS: Final = 2_000
"""The most events in one row: a reader that wants one page should not have to decode a much longer row."""


class Waiter(Protocol):
    """A follower that sleeps until a run of this process has something new."""

    def wake(self) -> None:
        """Wake the follower, from any thread, without waiting."""


class RunBuffer:
    """The buffer of one run of this journal."""

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
        "unsafe",
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
        self.calls: list[int | str] = [0, "null"]
        """A flat list of pairs: a seq, and the JSON of the call to which the events from that seq on belong."""
        self.marks: list[Event] = []
        self.dirty = False
        self.ended = False
        self.paused = 0
        """The seq of the `run.pause`, set when that event was appended."""
        self.unsafe = 0
        """The seq of the last event that the spool lacks, because the event was too large for it."""
        self.tried = False
        """Whether the writer has tried to store any event of the run."""
        self.shut: RunJournalError | None = None
        self.file: SpoolFile | None = None
        self.spool_call: str | None = None
        self.stop: str | None = None
        self.waiters: dict[Waiter, None] = {}
        """The followers to wake; a dict, because each of them comes and goes with each event."""
        # Shared by the writer, which removes events from the beginning, and followers, which read. An append takes it only
        # after an exception (`heal`).
        self.tail_lock = threading.Lock()

    # --- for appends, under the lock of the appender ------------------------------------------------------------------

    def add(self, at: int, call: str | None, kind: Kind, text: str) -> None:
        """Add the next event. The appender has a copy of this code that also writes to the spool."""
        seq = self.seq + 1
        if call != self.call:
            self.switch(seq, call)
        if kind in MARKS:
            self.mark(seq, kind, at, text)
        self.pend += (at - self.at, text)
        self.at = at
        self.seq = seq

    def switch(self, seq: int, call: str | None) -> None:
        """Note that the events from `seq` on belong to this call."""
        self.calls += (seq, json.dumps(call))
        self.call = call

    def mark(self, seq: int, kind: Kind, at: int, text: str) -> None:
        """Keep a mark, which is an event that changes the state of the run, for the store."""
        data = _json.loads(text)[1]
        # Not validated: the event was validated before, and a change since then must not fail here. The fold takes any JSON.
        self.marks += thaw_events(self.run_id, [kind], [data], [None], seq, [at / 1000])

    def wake_waiters(self) -> None:
        """Wake the followers of the run."""
        while self.waiters:
            try:
                waiter, _ = self.waiters.popitem()
            except KeyError:
                return  # the last one has just left, on its own thread
            waiter.wake()

    def heal(self) -> None:
        """Make all attributes agree with `pend` again, after an exception (`KeyboardInterrupt`) interrupted an append."""
        with self.tail_lock:
            self._describe()
        # The spool may hold the interrupted event or not. A new `OPEN` record says there that the run continues after `seq`.
        self.file = None

    def cut(self, seq: int) -> None:
        """Remove the events after `seq`."""
        with self.tail_lock:
            del self.pend[2 * max(0, seq - self.base) :]
            self.base = min(self.base, seq)
            self._describe()

    def restart(self, seq: int) -> None:
        """Empty the buffer, and continue after `seq`."""
        with self.tail_lock:
            self.pend.clear()
            self.marks.clear()
            self.base, self.base_at = seq, self.at
            self.calls = [0, json.dumps(self.call)]
            self._describe()

    def _describe(self) -> None:
        self.seq = self.base + len(self.pend) // 2
        self.at = self.base_at + sum(cast("list[int]", self.pend[0::2]))
        while len(self.calls) > 2 and cast("int", self.calls[-2]) > self.seq:
            del self.calls[-2:]
        self.call = cast("str | None", json.loads(cast("str", self.calls[-1])))
        while self.marks and self.marks[-1].seq > self.seq:
            del self.marks[-1]

    def drop_all(self) -> int:
        """Drop all waiting events, and return their number. Called when another owner has the run."""
        with self.tail_lock:
            dropped = len(self.pend) // 2
            self.pend.clear()
            self.marks.clear()
            return dropped

    # --- for the writer -----------------------------------------------------------------------------------------------

    def take(self) -> list[Segment]:
        """Return the waiting events as rows for the store. They stay in the buffer until the writer calls `stored`."""
        count = len(self.pend) // 2
        if count <= ROW_EVENTS:
            return [self._row(0, count, self.base_at)] if count else []
        rows, at = [], self.base_at
        for start in range(0, count, ROW_EVENTS):
            rows.append(self._row(start, min(start + ROW_EVENTS, count), at))
            at = rows[-1].t1
        return rows

    def stored(self, last: int, at: int) -> None:
        """Remove the events up to `last`, which happened at `at`: the store has them."""
        with self.tail_lock:
            if last <= self.base:
                return
            del self.pend[: 2 * (last - self.base)]
            self.base, self.base_at = last, at
            while len(self.calls) > 2 and cast("int", self.calls[2]) <= last + 1:
                del self.calls[:2]
            while self.marks and self.marks[0].seq <= last:
                del self.marks[0]

    def _row(self, start: int, stop: int, at: int) -> Segment:
        steps = cast("list[int]", self.pend[2 * start : 2 * stop : 2])
        texts = cast("list[str]", self.pend[2 * start + 1 : 2 * stop : 2])
        first, last = self.base + start + 1, self.base + stop
        calls = self.calls
        marks = self.marks
        return Segment(
            self.run_id,
            self.epoch,
            first,
            last,
            at + steps[0],
            at + sum(steps),
            ",".join(map(str, steps[1:])),
            f"{first},{calls[1]}" if len(calls) == 2 else self._calls(first, last),
            ",".join(texts),
            tuple([mark for mark in marks if first <= mark.seq <= last]) if marks else (),
        )

    def _calls(self, first: int, last: int) -> str:
        calls = self.calls
        pairs = [str(first), "null"]
        for seq, call in zip(calls[0::2], calls[1::2], strict=False):
            if cast("int", seq) <= first:
                pairs[1] = cast("str", call)
            elif cast("int", seq) <= last:
                pairs += (str(seq), cast("str", call))
        return ",".join(pairs)

    # --- for followers ------------------------------------------------------------------------------------------------

    def tail(self, after: int, limit: int) -> list[Event] | None:
        """Return the events after `after` that the buffer holds, or None if only the store has the next one."""
        with self.tail_lock:
            start = after - self.base
            if start < 0:
                return None
            stop = min(len(self.pend) // 2, start + limit)
            if start >= stop:
                return []
            at = self.base_at + sum(cast("list[int]", self.pend[0 : 2 * start : 2]))
            row = self._row(start, stop, at)
        return unpack(row)
