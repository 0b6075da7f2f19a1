"""The writer thread: the one place where a journal does I/O on its own.

Rule: everything that waits, waits here. The thread drains the appender into the store by natural batching, resolves
barriers, and does its `Duties` in between.

A barrier is resolved by the first batch that was *begun* after it was set, never by one that happened to be under way.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from ..common.clock import Clock
from ..errors import EventUnusable, JournalClosed, RunFenced, SeqGap, WouldDeadlock, WriteFailed
from ..events.segments import Segment
from ..stores import Store
from .append import Appender
from .barrier import Barrier, fail
from .bell import Bell
from .duties import LOOK_FOR_OTHERS, Duties
from .ownership import living
from .run_buffer import RunBuffer

logger = logging.getLogger("langchain_runjournal")

_LINGER: Final = 0.02
_LINGER_PER_RUN: Final = 0.0005
_LINGER_MOST: Final = 0.07
"""How long events wait for company, in seconds: 20 ms, and up to 70 ms where a hundred runs would make thin rows."""
_RETRY: Final = 0.1
_RETRY_MOST: Final = 2.0
_STEP: Final = 64
_PORTION: Final = 1 << 20


class Writer:
    """The thread and its duties. `start` begins it, `close` ends it, `leave` lets it end by itself."""

    def __init__(self, store: Store, clock: Clock, appender: Appender, duties: Duties, bell: Bell) -> None:
        self.store = store
        self.clock = clock
        self.appender = appender
        self.duties = duties
        self._bell = bell
        self._barriers: deque[Barrier] = deque()
        self._leaving = False
        self._done = threading.Event()
        self._close_lock = threading.Lock()
        self._failure: BaseException | None = None
        self._retry = _RETRY
        self._rows = 0
        self._due_retry = clock.monotonic()
        self._thread = threading.Thread(target=self._live, name="runjournal-writer", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def is_current(self) -> bool:
        """Whether this is the thread itself: then it must not wait for what it would have to do."""
        return threading.current_thread() is self._thread

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
        self._bell.ring()
        return barrier

    def leave(self) -> None:
        """End by itself once everything is stored: for a journal that was dropped without `close()`."""
        self.appender.close()
        self._leaving = True
        self._bell.ring()

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
                self._bell.wait(_RETRY)
        self._finish()

    def _turn(self) -> None:
        appender = self.appender
        self.duties.do()
        if appender.spool is not None and self._failure is None:
            appender.spool.prepare()
        if not self._has_work():
            appender.asleep = True
            # Looked at again: an append in between has not seen that we are about to sleep.
            if not self._has_work():
                self._bell.wait(self._patience())
            appender.asleep = False
        self.duties.run_errands()
        if self._has_work():
            self._linger()
            self._drain()

    def _linger(self) -> None:
        """Let events gather, unless somebody waits for them. By the real clock: it is no decision that a test may turn."""
        most = min(_LINGER_MOST, _LINGER + _LINGER_PER_RUN * self._rows)
        deadline = time.monotonic() + (LOOK_FOR_OTHERS if self.duties.listeners else most)
        while not self._barriers and not self._leaving and (left := deadline - time.monotonic()) > 0:
            self._bell.wait(left)
            self.duties.run_errands()

    def _has_work(self) -> bool:
        if self._barriers or self._leaving or self.duties.errands:
            return True
        return bool(self.appender.dirty or self.appender.overflowing) and self.clock.monotonic() >= self._due_retry

    def _patience(self) -> float:
        """How long to sleep at most."""
        patience = self.duties.patience()
        if self.appender.dirty:
            patience = min(patience, self._due_retry - self.clock.monotonic())
        return max(0.001, patience)

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
        living.discard(self.duties.owner.owner_id)
        if spool is not None:
            left = spool.close(keep=failed)
            if left:
                logger.error("could not store all events of %s: its next open imports %s", self.store.url, left)
        if not failed:
            self.store.forget(self.duties.owner.owner_id)
            self.store.tidy()

    # --- draining -----------------------------------------------------------------------------------------------------

    def _drain(self) -> None:
        barriers = self._take_barriers()
        failure = self._try_to_store()
        self.duties.run_errands()
        if failure is not None:
            self.duties.watch.look()  # before anybody hears that what waits is safe from a kill
            self._note_failure(failure)
            fail(barriers, lambda: self._write_failed(failure), failure)
            return
        self.duties.watch.look_in_passing()
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
                self.store.append(self.duties.owner.owner_id, [row for _, row in batch])
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
        self.appender.complaints.refused.pop(buffer.run_id, None)
        self.appender.complaints.unusable.append(error)

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
        return found is not None and (found.last_seq > 0 or found.owner != self.duties.owner.owner_id)

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
        lost = self.appender.complaints.lost + (in_memory if closed else 0)
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
