"""The writer thread: the one place where a journal does I/O on its own.

Rule: everything that waits, waits here. It drains the intake into the store by natural batching, resolves barriers, keeps
the owner's heartbeat, sees stop requests, collects what dead processes left, and wakes followers.

A barrier is resolved by the first batch that was *begun* after it was set, never by one that happened to be under way.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from ..common.clock import Clock
from ..errors import EventUnusable, JournalClosed, RunFenced, RunJournalError, SeqGap, WouldDeadlock, WriteFailed
from ..events.segments import Segment
from ..stores import Owner, Store
from .append import Appender
from .barrier import Barrier, fail
from .dead_owners import DeadOwners
from .ownership import living
from .run_buffer import RunBuffer, Waiter
from .spool import Spool
from .spool_watch import SpoolWatch
from .stop_requests import Stops

logger = logging.getLogger("langchain_runjournal")

_LINGER: Final = 0.02
_LINGER_PER_RUN: Final = 0.0005
_LINGER_MOST: Final = 0.07
"""How long events wait for company, in seconds: 20 ms, and up to 70 ms where a hundred runs would make thin rows."""
_LOOK_FOR_STOPS: Final = 0.05
_LOOK_FOR_OTHERS: Final = 0.01
_RETRY: Final = 0.1
_RETRY_MOST: Final = 2.0
_STEP: Final = 64
_PORTION: Final = 1 << 20


class Writer:
    """The thread and its duties. `start` begins it, `close` ends it, `leave` lets it end by itself."""

    def __init__(self, store: Store, owner: Owner, clock: Clock, spool: Spool | None, room: int) -> None:
        self.store = store
        self.owner = owner
        self.clock = clock
        self.appender = Appender(store.url, clock, spool, self.poke, room)
        self.dead_owners = DeadOwners(store, clock)
        self.watch = SpoolWatch(self.appender, self.beat, store.url)
        self.listeners: set[Waiter] = set()
        self.errands: deque[Callable[[], None]] = deque()
        self.stops = Stops(self.appender)
        self._barriers: deque[Barrier] = deque()
        self._wake = threading.Lock()
        self._wake.acquire()
        self._leaving = False
        self._done = threading.Event()
        self._close_lock = threading.Lock()
        self._failure: BaseException | None = None
        self._retry = _RETRY
        self._rows = 0
        self._seen_for_stops = self._seen_for_others = -1
        now = clock.monotonic()
        self._due_beat = now + owner.lease / 3
        self._due_stops = self._due_retry = now
        self._thread = threading.Thread(target=self._live, name="runjournal-writer", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def is_current(self) -> bool:
        """Whether this is the thread itself: then it must not wait for what it would have to do."""
        return threading.current_thread() is self._thread

    def poke(self) -> None:
        """Wake the thread. Costs no I/O and does not wait."""
        with contextlib.suppress(RuntimeError):  # it has been woken already
            self._wake.release()

    def barrier(self, *, quiet: bool = False, then: Callable[[], object] | None = None) -> Barrier:
        """Ask for all that has been appended to be made durable, and for something to be done when it is."""
        if self.is_current():
            raise WouldDeadlock(url=self.store.url, where="in a callback of on_stop, which its writer thread runs")
        if self.appender.is_inside():
            raise WouldDeadlock(url=self.store.url, where="in a signal handler or a finalizer that interrupts an append")
        barrier = Barrier(quiet=quiet, then=then)
        self._barriers.append(barrier)
        if self._done.is_set():
            fail(self._take_barriers(), lambda: JournalClosed(url=self.store.url, refused=self.appender.take_late()))
        self.poke()
        return barrier

    def leave(self) -> None:
        """End by itself once everything is stored: for a journal that was dropped without `close()`."""
        self.appender.close()
        self._leaving = True
        self.poke()

    def close(self) -> None:
        """Drain, and end. Raises what there is to tell: it is the last barrier."""
        with self._close_lock:
            self.leave()
            if self._thread.is_alive():
                self._thread.join()
            failure, self._failure = self._failure, None
        if failure is not None:
            raise self._write_failed(failure, closed=True) from failure
        complaint = self.appender.complaint()
        if complaint is not None:
            raise complaint

    # --- the thread ---------------------------------------------------------------------------------------------------

    def _live(self) -> None:
        while not self._leaving:
            try:
                self._turn()
            except BaseException:
                # Never the end of the thread: whoever waits at a barrier would wait for ever.
                logger.exception("unexpected error in the journal writer of %s; retrying", self.store.url)
                self._wake.acquire(timeout=_RETRY)
        self._finish()

    def _turn(self) -> None:
        appender = self.appender
        self._duties()
        if appender.spool is not None and self._failure is None:
            appender.spool.prepare()
        if not self._has_work():
            appender.asleep = True
            # Looked at again: an append in between has not seen that we are about to sleep.
            if not self._has_work():
                self._wake.acquire(timeout=self._patience())
            appender.asleep = False
        self._run_errands()
        if self._has_work():
            self._linger()
            self._drain()

    def _linger(self) -> None:
        """Let events gather, unless somebody waits for them. By the real clock: it is no decision that a test may turn."""
        most = min(_LINGER_MOST, _LINGER + _LINGER_PER_RUN * self._rows)
        deadline = time.monotonic() + (_LOOK_FOR_OTHERS if self.listeners else most)
        while not self._barriers and not self._leaving and (left := deadline - time.monotonic()) > 0:
            self._wake.acquire(timeout=left)
            self._run_errands()

    def _has_work(self) -> bool:
        if self._barriers or self._leaving or self.errands:
            return True
        return bool(self.appender.dirty or self.appender.overflowing) and self.clock.monotonic() >= self._due_retry

    def _patience(self) -> float:
        """How long to sleep at most."""
        if self.listeners:
            return _LOOK_FOR_OTHERS
        due = self._due_beat
        if self.appender.live:
            due = min(due, self._due_stops)
        if self.appender.dirty:
            due = min(due, self._due_retry)
        return max(0.001, due - self.clock.monotonic())

    def _finish(self) -> None:
        """The last batch, and a clean farewell."""
        try:
            self._take_leave()
        except Exception:
            logger.exception("could not shut down the journal writer of %s cleanly", self.store.url)
        finally:
            self._done.set()
            self.store.close()
            fail(self._take_barriers(), lambda: JournalClosed(url=self.store.url, refused=0))

    def _take_leave(self) -> None:
        self._drain()
        failed = self._failure is not None
        spool = self.appender.spool
        # What it left is nobody's from here on: the next journal on the file takes it, also one of this process.
        living.discard(self.owner.owner_id)
        if spool is not None:
            left = spool.close(keep=failed)
            if left:
                logger.error("could not store all events of %s: its next open imports %s", self.store.url, left)
        if not failed:
            self.store.forget(self.owner.owner_id)
            self.store.tidy()

    # --- draining -----------------------------------------------------------------------------------------------------

    def _drain(self) -> None:
        barriers = self._take_barriers()
        failure = self._try_to_store()
        self._run_errands()
        if failure is not None:
            self.watch.look()  # before anybody hears that what waits is safe from a kill
            self._note_failure(failure)
            fail(barriers, lambda: self._write_failed(failure), failure)
            return
        self.watch.look_in_passing()
        if self._failure is not None:
            logger.warning("the journal %s can be written again", self.store.url)
        self._failure, self._retry, self._due_retry = None, _RETRY, self.clock.monotonic()
        self._resolve(barriers)

    def _try_to_store(self) -> Exception | None:
        try:
            while not self._store_all(self.appender.refill(_STEP)):
                pass
            if self.appender.spool is not None:
                self.appender.spool.release()
        except Exception as exc:  # noqa: BLE001 - whatever the store raises belongs to the barriers, and is raised there
            return exc
        return None

    def _store_all(self, settled: bool) -> bool:
        """Store what is in the lanes. Whether that was all there is: `settled` says that nothing waits for room."""
        appender = self.appender
        moment = appender.moment()
        buffers = []
        while appender.dirty:
            buffer = appender.dirty.popleft()
            if buffer.dirty:  # or it stands here twice, after a failure
                buffer.dirty = False  # before it is read: an append from here on makes it dirty again
                buffers.append(buffer)
        try:
            stored = self._store(buffers)
        except BaseException:
            for buffer in buffers:
                buffer.dirty = True
                appender.dirty.append(buffer)
            raise
        appender.durable = moment.events
        if moment.file is not None:
            moment.file.mark_drained(moment.pos)
        if not stored and not settled:
            # Nothing is left to make room for what waits: it is larger than the spool may be, or the disk is full.
            appender.refill(1, force=True)
        return settled

    def _store(self, buffers: list[RunBuffer]) -> int:
        rows = deque((buffer, row) for buffer in buffers for row in buffer.take() if self._may_begin(buffer))
        self._rows = len({row.run_id for _, row in rows})
        count = len(rows)
        while rows:
            batch: list[tuple[RunBuffer, Segment]] = []
            size = 0
            # In portions, so that a full disk gets spool files back while a long queue is being stored.
            while rows and size < _PORTION:
                batch.append(rows.popleft())
                size += len(batch[-1][1].body)
            self._append([(buffer, row) for buffer, row in batch if buffer.shut is None])
            if self.appender.spool is not None:
                self.appender.spool.release()
        return count

    def _append(self, batch: list[tuple[RunBuffer, Segment]]) -> None:
        while batch:
            try:
                self.store.append(self.owner.owner_id, [row for _, row in batch])
                break
            except (RunFenced, SeqGap) as exc:
                run_ids = exc.run_ids if isinstance(exc, RunFenced) else [exc.run_id]
                refused = [buffer for buffer, _ in batch if buffer.run_id in run_ids]
                if not refused:
                    raise  # it speaks of nothing that it was given: to try again would be to try for ever
                for buffer in refused:
                    self.appender.fence(buffer, exc)
                batch = [(buffer, row) for buffer, row in batch if buffer.shut is None]
            except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as exc:
                # Not the disk, not a lock: something in the batch. Alone, each run is stored or shows that it was it.
                if len({row.run_id for _, row in batch}) == 1:
                    self._set_aside(batch[0][0], exc)
                else:
                    for one in batch:
                        self._append([one] if one[0].shut is None else [])
                return
        for buffer, row in batch:
            buffer.stored(row.last, row.t1)

    def _set_aside(self, buffer: RunBuffer, exc: Exception) -> None:
        waiting = len(buffer.pend) // 2
        reason = f"{type(exc).__name__}: {exc}"
        error = EventUnusable(run_id=buffer.run_id, reason=reason, refused=waiting)
        error.__cause__ = exc
        self.appender.fence(buffer, error)
        self.appender.refused.pop(buffer.run_id, None)
        self.appender.unusable.append(error)

    def _may_begin(self, buffer: RunBuffer) -> bool:
        """Whether the lane is that of a new run, or has been stored before.

        When old lanes have been forgotten, a new one may be that of an old run that got a late event. Its numbers would
        begin at 1 again, and the store would take them for a retry of what it has.
        """
        if self.appender.forgotten and not buffer.base and not buffer.tried and self._has_events(buffer.run_id):
            self.appender.fence(buffer, RunFenced(run_ids=[buffer.run_id], refused=0))
            return False
        buffer.tried = True
        return True

    def _has_events(self, run_id: str) -> bool:
        found = self.store.run(run_id)
        # One that `start_run` has begun is there before its first event, and ours.
        return found is not None and (found.last_seq > 0 or found.owner != self.owner.owner_id)

    def _note_failure(self, exc: Exception) -> None:
        if self._failure is None:
            logger.error("could not write the journal %s; retrying: %s", self.store.url, exc)
        self._failure = exc
        if self.appender.spool is not None:
            self.appender.spool.drop_spares()
        self._due_retry = self.clock.monotonic() + self._retry
        self._retry = min(_RETRY_MOST, self._retry * 2)

    def _write_failed(self, exc: BaseException, *, closed: bool = False) -> WriteFailed:
        waiting, in_memory = self.appender.waiting, self.appender.waiting_in_memory
        lost = self.appender.lost + (in_memory if closed else 0)
        if closed:
            waiting, in_memory = waiting - in_memory, 0
        where = f"{in_memory} of them only in memory" if in_memory else "in the spool beside it, safe from a kill"
        return WriteFailed(url=self.store.url, reason=str(exc).rstrip("."), waiting=waiting, where=where, lost=lost)

    # --- barriers -----------------------------------------------------------------------------------------------------

    def _take_barriers(self) -> list[Barrier]:
        taken = []
        while self._barriers:
            barrier = self._barriers.popleft()
            # False for one whose waiter has been cancelled: setting a result on it would raise.
            if barrier.set_running_or_notify_cancel():
                taken.append(barrier)
        return taken

    def _resolve(self, barriers: list[Barrier]) -> None:
        loud = [barrier for barrier in barriers if not barrier.quiet]
        if loud:
            complaint = self.appender.complaint()
            if complaint is not None:
                fail(loud, lambda: type(complaint)(**complaint.values), complaint.__cause__)
                loud = []
        for barrier in [barrier for barrier in barriers if barrier.quiet] + loud:
            barrier.open()

    # --- duties -------------------------------------------------------------------------------------------------------

    def _duties(self) -> None:
        self._run_errands()
        try:
            self._do_what_is_due()
        except RunJournalError as exc:
            # The store is locked or full. Draining finds out for itself, and its barriers tell.
            logger.warning("postponing the background duties of the journal writer of %s: %s", self.store.url, exc)

    def _do_what_is_due(self) -> None:
        now = self.clock.monotonic()
        if self.listeners:
            self._look_for_others()
        if now >= self._due_stops:
            self._due_stops = now + _LOOK_FOR_STOPS
            self._look_for_stops()
        if now >= self._due_beat:
            self._due_beat = now + self.owner.lease / 3
            self.watch.look(again=True)
            self.beat()
            self.dead_owners.collect()
            # Text that is stored does not stay in a spool file for longer: another process may delete its run.
            self.appender.turn_over(only_if_ready=True)
            if self.appender.spool is not None:
                self.appender.spool.release()

    def _run_errands(self) -> None:
        while self.errands:
            try:
                self.errands.popleft()()
            except Exception:
                logger.exception("a task of the journal writer of %s failed; a follower polls instead", self.store.url)

    def _look_for_others(self) -> None:
        version = self.store.changed()
        if version != self._seen_for_others:
            self._seen_for_others = version
            for waiter in list(self.listeners):
                waiter.wake()

    def _look_for_stops(self) -> None:
        version = self.store.changed()
        if version == self._seen_for_stops:
            return
        self._seen_for_stops = version
        for run_id, cause in self.store.stops(self.owner.owner_id).items():
            self.stops.deliver(run_id, cause)

    def beat(self) -> None:
        """One heartbeat."""
        self.owner = replace(self.owner, beats=self.owner.beats + 1)
        self.store.beat(self.owner)
