"""The entry of all events: `append` numbers an event, puts it into the spool, and leaves it for the writer thread.

Rule: observers never wait. No function in this module does I/O, holds its lock for more than a few microseconds, or releases
the GIL. The one exception is `Spool.rotate`, when a burst of events outruns the writer thread.

Only threads that append take the lock. The writer thread and the followers read a run buffer without it: the buffer grows at
its end only, by single operations that the interpreter does not divide, and only the writer thread removes events from its
beginning, under `RunBuffer.tail_lock`.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ..common.clock import Clock
from ..errors import RunFenced, RunJournalError
from ..events import DELTA, MARKS, NO_DATA, Event, Kind
from ..events.encoding import encode_text, encode_value
from .deleted_runs import DeletedRuns
from .ended_runs import EndedRuns
from .overflow import Entry, Overflow
from .pending_errors import Complaints
from .run_buffer import RunBuffer
from .spool import TEXT, VALUE, Spool, SpoolFile
from .spool_records import SpoolRecords

logger = logging.getLogger("langchain_runjournal")

_KEPT_BUFFERS: Final = 10_000
_LARGEST: Final = 256 << 20
"""The bytes of the largest event, as JSON. Redis takes values up to 512 MB, SQLite and Postgres up to 1 GB. An event that no
store takes would be tried again and again, with all later events of the process behind it."""
_NOT_KEPT: Final = "could not record an event: %.200r"
_NO_EVENT: Final = "RunJournal.append takes a langchain_runjournal.Event, so it could not record %.200r"
_IS_OWNED: Final = "_is_owned"  # a method of every RLock, which no type stub knows


class Moment(NamedTuple):
    """A point in the order of all appends: the spool holds the first `events` events before `pos` in `file`."""

    events: int
    file: SpoolFile | None
    pos: int


class Appender:
    """The events that were appended and that the store does not have yet."""

    def __init__(self, url: str, clock: Clock, spool: Spool | None, wake: Callable[[], None], room: int) -> None:
        self._url = url
        self._wall = clock.wall
        self.spool = spool
        self._wake = wake
        self._room = room
        # Reentrant: a finalizer or a signal handler may append while it interrupts an append of the same thread.
        self._lock = threading.RLock()
        self._inside = False
        self._nested: deque[Entry] = deque()
        self._overflow = Overflow()
        self._slots = 0
        self.spool_records = SpoolRecords()
        self.forgotten = False
        self._paused: deque[RunBuffer] = deque()
        self.ended_runs = EndedRuns()
        self._ended = 0
        self.buffers: dict[str, RunBuffer] = {}
        self.dirty: deque[RunBuffer] = deque()
        self.count = 0
        self.durable = 0
        self.complaints = Complaints(url)
        self.closed = False
        self.deleted_runs = DeletedRuns()
        self.asleep = False

    def append(self, event: Event) -> None:
        """Implement `RunJournal.append`."""
        try:
            at = round(event.at * 1000) if event.at else None
            self.record(event.run_id, event.call_id, event.kind, event.bare, None, at)
        except Exception:
            # No error may reach the agent. The next barrier raises `EventsLost`.
            self.miss()
            is_event = issubclass(type(event), Event)
            logger.error(_NOT_KEPT if is_event else _NO_EVENT, event, exc_info=is_event)

    def record(
        self,
        run_id: str,
        call: str | None,
        kind: Kind,
        data: str | Mapping[str, Any] | None,
        written: str | None = None,
        at: int | None = None,
    ) -> None:
        """Make an event of `data`. Every event passes here while it is data: `redaction` overrides this. May raise.

        `data`: a str is the text of a delta. `written`: the JSON of the data, as `encode_value` makes it, from a caller
        that has it already; `data` may be None then.
        """
        if written is not None:
            type_ = VALUE
        elif type(data) is str:
            type_, written = TEXT, encode_text(data)
        else:
            type_, written = VALUE, encode_value(kind, data or NO_DATA)
        raw = written.encode()
        if len(raw) > _LARGEST:
            raise ValueError(f"it takes {len(raw):,} bytes as JSON, and an event may take {_LARGEST:,}")
        if at is None:
            at = self._wall()
        with self._lock:
            if self.closed:
                self.complaints.refuse_late(run_id)
                return
            if self._inside:
                # The append that this one interrupts keeps the event before it returns. No code of this thread can see
                # earlier that this call has returned.
                self._nested.append(Entry(run_id, kind, call, at, type_, written))
                return
            try:
                self._inside = True
                if self._overflow or not self._place(run_id, kind, call, at, type_, written, raw):
                    self._keep_for_later(Entry(run_id, kind, call, at, type_, written))
                while self._nested:
                    self._keep_for_later(self._nested.popleft())
                    self.refill(16)
            finally:
                self._inside = False

    def as_recorded(self, messages: Sequence[Any]) -> Sequence[Any]:
        """Return messages as the journal has them: as they are, without a redaction."""
        return messages

    def miss(self) -> None:
        """Count something that could not be made into an event. The next barrier raises `EventsLost`."""
        self.complaints.unreadable += 1

    def _place(
        self,
        run_id: str,
        kind: Kind,
        call: str | None,
        at: int,
        type: int,
        text: str,
        raw: bytes,
        force: bool = False,
    ) -> bool:
        """Give the event its number, and put it into the spool. Return False if there is not enough room.

        `force`: number the event without the spool, so that there is always room.
        """
        buffer = self.buffers.get(run_id)
        if buffer is None:
            if self.deleted_runs.drops(run_id, kind):
                return True
            buffer = self._unpack(run_id) or self._open_buffer(run_id)
        if buffer.shut:
            self.complaints.refuse(buffer.run_id)
            return True
        try:
            seq = buffer.seq + 1
            spool = self.spool
            if force:
                # The spool lacks this event. It must not hold later events of the run without this one, so they wait until
                # the store has it.
                buffer.file, buffer.unsafe = None, seq
            elif spool is None:
                if self.count - self.durable >= self._room:
                    return False
            elif not (
                buffer.file is spool.file and buffer.spool_call == call and spool.put(buffer.slot, seq, at, type, raw)
            ) and not self.spool_records.put(spool, buffer, call, (seq, at, type, raw)):
                return False
            if call != buffer.call:
                buffer.switch(seq, call)
            is_mark = kind is not DELTA and kind in MARKS
            if is_mark:
                buffer.mark(seq, kind, at, text)
            pend = buffer.pend
            pend += (at - buffer.at, text)
            buffer.at = at
            buffer.seq = seq
        except BaseException:
            buffer.heal()
            raise
        finally:
            self.count += 1
            if not buffer.dirty:
                buffer.dirty = True
                self.dirty.append(buffer)
        if is_mark:
            self._retire(buffer, kind)
        if buffer.waiters:
            buffer.wake_waiters()
        if self.asleep:
            self.asleep = False
            self._wake()
        return True

    # --- run buffers --------------------------------------------------------------------------------------------------

    def buffer_of(self, run_id: str) -> RunBuffer | None:
        """Return the buffer of a run that this journal writes or has written, or None.

        Who asks for waiting events alone looks into `buffers`: the store has all of a run that is not there.
        """
        buffer = self.buffers.get(run_id)
        if buffer is None and run_id in self.ended_runs:
            with self._lock:
                buffer = self.buffers.get(run_id) or self._unpack(run_id)
        return buffer

    def _unpack(self, run_id: str) -> RunBuffer | None:
        buffer = self.ended_runs.take(run_id)
        if buffer is not None:
            self.buffers[run_id] = buffer
            self._ended += 1
        return buffer

    def _open_buffer(self, run_id: str) -> RunBuffer:
        self._slots += 1
        buffer = self.buffers[run_id] = RunBuffer(run_id, self._slots)
        return buffer

    def refuse_run(self, run_id: str) -> None:
        """Refuse all events of a run, because another process owns it."""
        self._open_buffer(run_id).shut = RunFenced(run_ids=[run_id], refused=0)

    def adopt(self, run_id: str, epoch: int, seq: int) -> None:
        """Accept events of a run that this journal has claimed."""
        with self._lock:
            self._slots += 1
            buffer = RunBuffer(run_id, self._slots, epoch=epoch, seq=seq)
            old = self.buffer_of(run_id)
            if old:
                buffer.waiters = old.waiters
                self.fence(old, RunFenced(run_ids=[run_id], refused=0))
            self.buffers[run_id] = buffer

    def forget(self, run_ids: Iterable[str]) -> None:
        """Forget runs that were pruned."""
        with self._lock:
            for run_id in run_ids:
                buffer = self.buffer_of(run_id)
                self.buffers.pop(run_id, None)
                self._ended -= buffer is not None and buffer.ended
            self.forgotten = True

    def drop_deleted(self, run_ids: Iterable[str]) -> None:
        """Drop all waiting and all later events of runs that were deleted."""
        with self._lock:
            for buffer in [found for run_id in run_ids if (found := self.buffer_of(run_id)) is not None]:
                self.forget([buffer.run_id])
                self.fence(buffer, RunFenced(run_ids=[buffer.run_id], refused=0))
                buffer.wake_waiters()

    def rotate_spool(self, *, only_if_ready: bool = False) -> None:
        """Switch to another spool file, so that the writer deletes the current one as soon as the store has its events.

        `only_if_ready`: do nothing if a file would have to be created first, which takes a millisecond.
        """
        with self._lock:
            spool = self.spool
            if spool is None or self._inside or not spool.is_used or (only_if_ready and not spool.is_ready):
                return
            self.spool_records.rotate(spool, 0)

    def _retire(self, buffer: RunBuffer, kind: Kind) -> None:
        """Keep the buffer of a run that has ended or is paused for a while.

        A human may resume a paused run with a new run, or never.
        """
        if buffer.ended or kind not in ("run.end", "run.pause"):
            return
        if kind == "run.end":
            buffer.ended = True  # after `pend` has the event: a follower that sees the flag must find the event
            self._ended += 1
            self.ended_runs.add(buffer)
        else:
            buffer.paused = buffer.seq
            self._paused.append(buffer)
        for old in self.ended_runs.to_pack():
            if self.buffers.get(old.run_id) is old:
                self.ended_runs.pack(old)
                old.file = None
                self._ended -= 1
                del self.buffers[old.run_id]
        while len(self.ended_runs) > _KEPT_BUFFERS:
            self.ended_runs.drop_oldest()
            self.forgotten = True
        while len(self._paused) > _KEPT_BUFFERS:
            oldest = self._paused[0]
            if oldest.pend:
                break  # the store does not have all of it yet: the next run that ends tries again
            self._paused.popleft()
            if not oldest.ended and oldest.paused == oldest.seq and self.buffers.get(oldest.run_id) is oldest:
                del self.buffers[oldest.run_id]
                self.forgotten = True

    @property
    def live(self) -> bool:
        """Whether any run of this journal has not ended."""
        return len(self.buffers) > self._ended

    def fence(self, buffer: RunBuffer, error: RunJournalError) -> None:
        """Refuse all waiting and all later events of a run. `error` says why: another owner has the run, for example."""
        with self._lock:
            buffer.shut = error
            dropped = buffer.drop_all()
            if dropped and buffer.run_id not in self.deleted_runs:
                self.complaints.refuse_dropped(buffer.run_id, dropped, error)

    # --- under pressure -----------------------------------------------------------------------------------------------

    def _keep_for_later(self, entry: Entry) -> None:
        if not self._overflow:
            logger.info("the spool of %s is full: events wait in memory", self._url)
        if not self._overflow.add(entry):
            self.complaints.lose()
        if self.asleep:
            self.asleep = False
            self._wake()

    def refill(self, most: int, *, force: bool = False) -> bool:
        """Move events from the overflow to the spool, oldest first. Return True if the overflow is empty.

        `force`: number the first event without the spool, so that the writer can store it from memory.
        """
        with self._lock:
            outer = self._inside
            try:
                self._inside = True
                for _ in range(most):
                    entry = self._overflow.first(self._wall())
                    if entry is None or not self._place_or_drop(entry, force):
                        break
                    force = False
                    self._overflow.drop_first()
                while self._nested and not outer:
                    self._keep_for_later(self._nested.popleft())
                return not self._overflow
            finally:
                self._inside = outer

    def _place_or_drop(self, entry: Entry, force: bool) -> bool:
        try:
            return self._place(*entry, entry.json.encode(), force)
        except Exception:
            # An event that cannot be placed must not block the events behind it.
            self.complaints.unreadable += 1
            logger.exception("could not record an event of run %s", entry.run_id)
            return True

    @property
    def waiting(self) -> int:
        """The number of events that the store does not have yet."""
        return sum(len(buffer.pend) // 2 for buffer in list(self.buffers.values())) + self.overflowing

    @property
    def waiting_in_memory(self) -> int:
        """The number of waiting events that a kill would lose."""
        return self.waiting if self.spool is None else self.overflowing

    @property
    def overflowing(self) -> int:
        """The number of events that wait in memory only, because the spool is full."""
        return len(self._overflow.entries)

    def moment(self) -> Moment:
        """Return the current point in the order of all appends."""
        with self._lock:
            spool = self.spool
            return Moment(self.count, spool.file if spool else None, spool.file.pos if spool else 0)

    def is_inside(self) -> bool:
        """Return whether the caller is a signal handler or a finalizer that interrupts an append of its own thread."""
        # `threading.Condition` asks its lock in the same way. A flag of our own would be set an instant too late.
        return bool(getattr(self._lock, _IS_OWNED)())

    def close(self) -> None:
        """Refuse all later events. Earlier events stay, and the writer stores them."""
        with self._lock:
            self.closed = True

    def complaint(self) -> RunJournalError | None:
        """Return the error that the next barrier raises. Each error is returned once, and one error at a time."""
        with self._lock:
            return self.complaints.take()

    def take_late(self) -> int:
        """Return how many events came after the journal was closed, and reset that number."""
        with self._lock:
            return self.complaints.take_late()
