"""Where events come in: `append` numbers them, makes them safe from a kill, and leaves them for the writer.

Rule: observers never wait. Nothing here does I/O, holds its lock for more than a few microseconds or gives up the GIL,
with one exception, `Spool.rotate`, when a burst outruns the writer.

The lock is for those who append. The writer and the followers do without it: what a lane holds only grows at its end,
by single operations that the interpreter does not divide, and only the writer takes away from its beginning, under
`RunBuffer.tail_lock`.
"""

from __future__ import annotations

import json
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from ..common.clock import Clock
from ..errors import RunFenced, RunJournalError
from ..events import DELTA, MARKS, Event, Kind
from ..events.encoding import encode_value
from .complaints import Complaints
from .deleted_runs import Buried
from .overflow import Entry, Overflow
from .run_buffer import RunBuffer
from .spool import CALL, OPEN, TEXT, VALUE, Spool, SpoolFile

logger = logging.getLogger("langchain_runjournal")

_KEPT_LANES: Final = 10_000
_NOT_KEPT: Final = "could not record an event: %.200r"
_NO_EVENT: Final = "RunJournal.append takes a langchain_runjournal.Event, so it could not record %.200r"
_IS_OWNED: Final = "_is_owned"  # a method of every RLock, which no type stub knows


class Moment(NamedTuple):
    """A moment in the order of all appends: the first `events` of them lie before `pos` in `file`."""

    events: int
    file: SpoolFile | None
    pos: int


class Appender:
    """All that was appended and is not in the store yet."""

    def __init__(self, url: str, clock: Clock, spool: Spool | None, wake: Callable[[], None], room: int) -> None:
        self._url = url
        self._wall = clock.wall
        self.spool = spool
        self._wake = wake
        self._room = room
        # Reentrant, because a finaliser or a signal handler may append in the middle of an append of its own thread.
        self._lock = threading.RLock()
        self._inside = False
        self._nested: deque[Entry] = deque()
        self._overflow = Overflow()
        self._slots = 0
        self._introduced: list[RunBuffer] = []
        self.forgotten = False
        self._at_rest: deque[RunBuffer] = deque()
        self._ended = 0
        self.buffers: dict[str, RunBuffer] = {}
        self.dirty: deque[RunBuffer] = deque()
        self.count = 0
        self.durable = 0
        self.complaints = Complaints(url)
        self.closed = False
        self.buried = Buried()
        self.asleep = False

    def append(self, event: Event) -> None:
        """See `RunJournal.append`."""
        try:
            value, kind = event.bare, event.kind
            form = TEXT if isinstance(value, str) else VALUE
            at = round(event.at * 1000) if event.at else None
            self.add(event.run_id, event.call_id, kind, form, encode_value(kind, value), at)
        except Exception:
            # Whatever it was, the agent goes on; the next barrier tells.
            self.miss()
            is_event = issubclass(type(event), Event)
            logger.error(_NOT_KEPT if is_event else _NO_EVENT, event, exc_info=is_event)

    def add(self, run_id: str, call: str | None, kind: Kind, type: int, json: str, at: int | None = None) -> None:
        """What `append` does, of an event whose data is JSON already, as `encode_value` makes it. May raise."""
        raw = json.encode()
        if at is None:
            at = self._wall()
        with self._lock:
            if self.closed:
                self.complaints.refuse_late(run_id)
                return
            if self._inside:
                # Kept when the outer append of this thread returns, which is before this one can be observed to have.
                self._nested.append(Entry(run_id, kind, call, at, type, json))
                return
            try:
                self._inside = True
                if self._overflow or not self._place(run_id, kind, call, at, type, json, raw):
                    self._keep_for_later(Entry(run_id, kind, call, at, type, json))
                while self._nested:
                    self._keep_for_later(self._nested.popleft())
                    self.refill(16)
            finally:
                self._inside = False

    def miss(self) -> None:
        """Something could not even be made into an event: the next barrier tells."""
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
        """Number the event and make it safe. False when there is no room, unless forced to do without the spool."""
        buffer = self.buffers.get(run_id)
        if buffer is None:
            if self.buried.drops(run_id, kind):
                return True
            buffer = self._open_lane(run_id)
        if buffer.shut:
            self.complaints.refuse(buffer.run_id)
            return True
        try:
            seq = buffer.seq + 1
            spool = self.spool
            if force:
                # The spool lacks this one. What follows must not be there without it: it waits until this one is stored.
                buffer.file, buffer.unsafe = None, seq
            elif spool is None:
                if self.count - self.durable >= self._room:
                    return False
            elif not (
                buffer.file is spool.file and buffer.spool_call == call and spool.put(buffer.slot, seq, at, type, raw)
            ) and not self.put_slowly(spool, buffer, call, (seq, at, type, raw)):
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
            self._lay_to_rest(buffer, kind)
        if buffer.waiters:
            buffer.wake_waiters()
        if self.asleep:
            self.asleep = False
            self._wake()
        return True

    def put_slowly(self, spool: Spool, buffer: RunBuffer, call: str | None, record: tuple[int, int, int, bytes]) -> bool:
        """Put a record that needs more than itself: a new file, the introduction of its run, another call."""
        if buffer.unsafe > buffer.base:
            return False
        before = record[0] - 1
        for attempt in range(2):
            if (
                self._introduce(spool, buffer, before)
                and self._switch(spool, buffer, call)
                and spool.put(buffer.slot, *record)
            ):
                return True
            need = len(record[3]) + len(buffer.run_id) + len(call or "") + 400
            if attempt or not spool.rotate(need, self._all_stored()):
                break
            self._introduced = []
        return False

    def _all_stored(self) -> Callable[[], bool]:
        """Whether the events that are in the current file of the spool, and in no later one, are in the store."""
        until = [(buffer, buffer.seq) for buffer in self._introduced]
        return lambda: all(buffer.base >= seq or buffer.shut is not None for buffer, seq in until)

    def _introduce(self, spool: Spool, buffer: RunBuffer, seq: int) -> bool:
        if buffer.file is spool.file:
            return True
        about = json.dumps({"run_id": buffer.run_id, "epoch": buffer.epoch}).encode()
        if not spool.put(buffer.slot, seq, buffer.at, OPEN, about):
            return False
        buffer.file, buffer.spool_call = spool.file, None
        self._introduced.append(buffer)
        return True

    def _switch(self, spool: Spool, buffer: RunBuffer, call: str | None) -> bool:
        if buffer.spool_call == call:
            return True
        if not spool.put(buffer.slot, buffer.seq, buffer.at, CALL, json.dumps(call).encode()):
            return False
        buffer.spool_call = call
        return True

    # --- lanes --------------------------------------------------------------------------------------------------------

    def _open_lane(self, run_id: str) -> RunBuffer:
        self._slots += 1
        buffer = self.buffers[run_id] = RunBuffer(run_id, self._slots)
        return buffer

    def shut_out(self, run_id: str) -> None:
        """A run that another process owns: what is appended to it here is refused."""
        self._open_lane(run_id).shut = RunFenced(run_ids=[run_id], refused=0)

    def adopt(self, run_id: str, epoch: int, seq: int) -> None:
        """A run that was claimed: from now on it can be appended to here."""
        with self._lock:
            self._slots += 1
            buffer = RunBuffer(run_id, self._slots, epoch=epoch, seq=seq)
            old = self.buffers.get(run_id)
            if old:
                buffer.waiters = old.waiters
                self.fence(old, RunFenced(run_ids=[run_id], refused=0))
            self.buffers[run_id] = buffer

    def forget(self, run_ids: Iterable[str]) -> None:
        """Runs that have been pruned: nothing is known of them any more."""
        with self._lock:
            for run_id in run_ids:
                buffer = self.buffers.pop(run_id, None)
                self._ended -= buffer is not None and buffer.ended
            self.forgotten = True

    def bury(self, run_ids: Iterable[str]) -> None:
        """Runs that have been deleted: what waits for them is dropped, and so is what still comes."""
        with self._lock:
            for buffer in [self.buffers[run_id] for run_id in run_ids if run_id in self.buffers]:
                self.forget([buffer.run_id])
                self.fence(buffer, RunFenced(run_ids=[buffer.run_id], refused=0))
                buffer.wake_waiters()

    def turn_over(self, *, only_if_ready: bool = False) -> None:
        """Go on in another spool file, so that the one with the words so far is deleted as soon as they are stored.

        `only_if_ready`: not if another file would have to be made first, which takes a millisecond.
        """
        with self._lock:
            spool = self.spool
            if spool is None or self._inside or not spool.is_used or (only_if_ready and not spool.is_ready):
                return
            if spool.rotate(0, self._all_stored()):
                self._introduced = []

    def _lay_to_rest(self, buffer: RunBuffer, kind: Kind) -> None:
        """A run that has ended, or waits for a human (who may go on with a new run, or never), is kept for a while."""
        if buffer.ended or kind not in ("run.end", "run.pause"):
            return
        if kind == "run.end":
            buffer.ended = True  # not before `pend` has it: a follower that sees the flag must find the event
            self._ended += 1
        else:
            buffer.paused = buffer.seq
        self._at_rest.append(buffer)
        while len(self._at_rest) > _KEPT_LANES:
            oldest = self._at_rest[0]
            if oldest.pend:
                break  # not stored yet: the next one to end looks again
            self._at_rest.popleft()
            if (oldest.ended or oldest.paused == oldest.seq) and self.buffers.get(oldest.run_id) is oldest:
                del self.buffers[oldest.run_id]
                self._ended -= oldest.ended
                self.forgotten = True

    @property
    def live(self) -> bool:
        """Whether any run of this journal has not ended."""
        return len(self.buffers) > self._ended

    def fence(self, buffer: RunBuffer, error: RunJournalError) -> None:
        """Another owner has the run: refuse what waits for it, and what comes."""
        with self._lock:
            buffer.shut = error
            dropped = buffer.drop_all()
            if dropped and buffer.run_id not in self.buried:
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
        """Find places for what waits in the overflow, oldest first. True when nothing waits any more.

        With `force` the first one finds its place in memory, for the writer to store: there is no other.
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
            # One that cannot be placed must not block all that wait behind it.
            self.complaints.unreadable += 1
            logger.exception("could not record an event of run %s", entry.run_id)
            return True

    @property
    def waiting(self) -> int:
        """How many events are not in the store yet."""
        return sum(len(buffer.pend) // 2 for buffer in list(self.buffers.values())) + self.overflowing

    @property
    def waiting_in_memory(self) -> int:
        """How many of them a kill would lose."""
        return self.waiting if self.spool is None else self.overflowing

    @property
    def overflowing(self) -> int:
        """How many events wait in memory only, for lack of room."""
        return len(self._overflow.entries)

    def moment(self) -> Moment:
        """Now, in the order of all appends."""
        with self._lock:
            spool = self.spool
            return Moment(self.count, spool.file if spool else None, spool.file.pos if spool else 0)

    def is_inside(self) -> bool:
        """Whether the calling thread is in the middle of an append: it is a signal handler, or a finaliser."""
        # What threading.Condition asks its lock as well. A flag of our own would be set an instant too late.
        return bool(getattr(self._lock, _IS_OWNED)())

    def close(self) -> None:
        """Refuse whatever comes from now on. What came before stays, for the writer."""
        with self._lock:
            self.closed = True

    def complaint(self) -> RunJournalError | None:
        """What the next barrier has to tell: each thing once, and one thing at a barrier."""
        with self._lock:
            return self.complaints.take()

    def take_late(self) -> int:
        """How many events came after the end, once."""
        with self._lock:
            return self.complaints.take_late()
