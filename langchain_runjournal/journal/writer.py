"""The writer thread: the only thread of a journal that does I/O without being asked.

Rule: all waiting happens here. The thread moves events from the appender to the store by natural batching, resolves
barriers, and does its `Duties` in between.

The first batch that *begins* after a barrier was set resolves the barrier. A batch that was under way at that time never
does.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from ..common.clock import Clock
from ..errors import EventUnusable, JournalClosed, RunFenced, SeqGap, StoreFailed, WouldDeadlock, WriteFailed
from ..events.segments import Segment
from ..stores import Store
from .append import Appender
from .barrier import Barrier, fail
from .ownership import living
from .run_buffer import RunBuffer
from .store_watch import LOOK_FOR_OTHERS
from .wake_signal import WakeSignal
from .writer_duties import Duties

logger = logging.getLogger("langchain_runjournal")

_LINGER: Final = 0.02
_LINGER_PER_RUN: Final = 0.0005
_LINGER_MOST: Final = 0.07
"""The seconds that events wait for other events of their batch: 20 ms, and up to 70 ms if a hundred runs would make short
rows."""
_RETRY: Final = 0.1
_RETRY_MOST: Final = 2.0
_STEP: Final = 64
_LEFT: Final = "could not store all events of %s: its next open imports %s, unless a new store has replaced it"
_WENT_BACK: Final = (
    "the store %s has lost events of run %s that it had confirmed (seq %d to %d): storing what follows, with a gap; look for"
    " a crash or a failover of the server"
)
_PORTION: Final = 1 << 20


class Writer:
    """The writer thread of one journal. `start` starts it, `close` waits for its end, `leave` lets it end by itself."""

    def __init__(self, store: Store, clock: Clock, appender: Appender, duties: Duties, bell: WakeSignal) -> None:
        self.store = store
        self.clock = clock
        self.appender = appender
        self.duties = duties
        self._bell, self._leaving = bell, False
        self._barriers: deque[Barrier] = deque()
        self._done = threading.Event()
        self._close_lock = threading.Lock()
        self._failure: BaseException | None = None
        self._retry = _RETRY
        self._rows = 0
        self._due_retry = clock.monotonic()
        self._thread = threading.Thread(target=self._run, name="runjournal-writer", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def is_current(self) -> bool:
        """Return whether the caller is on the writer thread, where waiting for the writer would be a deadlock."""
        return threading.current_thread() is self._thread

    def barrier(self, *, quiet: bool = False, then: Callable[[], object] | None = None) -> Barrier:
        """Return a barrier that is done when all appended events are durable. `then`: called by the writer before that."""
        if self.is_current():
            raise WouldDeadlock(url=self.store.url, where="in a callback of on_stop, which its writer thread runs")
        if self.appender.is_inside():
            raise WouldDeadlock(url=self.store.url, where="in a signal handler or a finalizer that interrupts an append")
        barrier = Barrier(quiet=quiet, then=then)
        outage = self.outage
        if quiet and outage is not None:
            self._fail([barrier], self._failure or outage)
            return barrier
        self._barriers.append(barrier)
        if self._done.is_set():
            fail(self._take_barriers(), lambda: JournalClosed(url=self.store.url, refused=self.appender.take_late()))
        self._bell.ring()
        return barrier

    @property
    def outage(self) -> BaseException | None:
        """The error of a store that does not answer (see `prompt_store`). A quiet barrier fails at once then, a flush
        tries."""
        found: BaseException | None = getattr(self.store, "outage", None)
        return found

    def leave(self) -> None:
        """Let the thread end when it has stored all events. `close` calls this, and the finalizer of a dropped journal."""
        self.appender.close()
        self._leaving = True
        self._bell.ring()

    def close(self) -> None:
        """Store all events, and end the thread. This is the last barrier: raise its error."""
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

    def _run(self) -> None:
        while not self._leaving:
            try:
                self._cycle()
            except BaseException:
                # No error may end the thread: a caller that waits at a barrier would wait for ever.
                logger.exception("unexpected error in the journal writer of %s; retrying", self.store.url)
                self._bell.wait(_RETRY)
        self._finish()

    def _cycle(self) -> None:
        appender = self.appender
        self.duties.do()
        self._fail_quiet_barriers()
        if appender.spool is not None and self._failure is None:
            appender.spool.prepare()
        if not self._has_work():
            appender.asleep = True
            # Check again: an append in between has not seen `asleep`, and does not wake the thread.
            if not self._has_work():
                self._bell.wait(self._patience())
            appender.asleep = False
        self.duties.run_errands()
        if self._has_work():
            self._linger()
            self._store_waiting()

    def _linger(self) -> None:
        """Wait for more events, unless a barrier waits. This uses the real clock: a test has no reason to control it."""
        most = min(_LINGER_MOST, _LINGER + _LINGER_PER_RUN * self._rows)
        others = self.duties.others
        deadline = time.monotonic() + (LOOK_FOR_OTHERS if others.listeners and not others.is_woken else most)
        while not self._barriers and not self._leaving and (left := deadline - time.monotonic()) > 0:
            # A wake-up of the store makes the thread look, and does not make the batch shorter.
            self._bell.wait(max(0.001, min(left, others.patience())) if others.is_woken else left)
            self.duties.run_errands()
            if others.is_woken:
                self.duties.look_at_others()

    def _has_work(self) -> bool:
        if self._barriers or self._leaving or self.duties.errands:
            return True
        return bool(self.appender.dirty or self.appender.overflowing) and self.clock.monotonic() >= self._due_retry

    def _patience(self) -> float:
        """Return the most seconds to sleep."""
        patience = self.duties.patience()
        if self.appender.dirty:
            patience = min(patience, self._due_retry - self.clock.monotonic())
        return max(0.001, patience)

    def _finish(self) -> None:
        """Store the last batch, and close the store."""
        try:
            self._store_the_rest()
        except StoreFailed as exc:
            logger.warning("could not tell the store %s that this journal is closed: %s", self.store.url, exc)
        except Exception:
            logger.exception("could not shut down the journal writer of %s cleanly", self.store.url)
        finally:
            self._done.set()
            self.store.close()
            self.duties.end()
            fail(self._take_barriers(), lambda: JournalClosed(url=self.store.url, refused=0))

    def _store_the_rest(self) -> None:
        self._store_waiting()
        failed = self._failure is not None
        spool = self.appender.spool
        # From here on the owner counts as dead: the next journal on the file imports its spool, also one of this process.
        living.discard(self.duties.owner.owner_id)
        if spool is not None:
            left = spool.close(keep=failed)
            if left:
                logger.error(_LEFT, self.store.url, ", ".join(map(str, left)))
        if not failed:
            self.store.forget(self.duties.owner.owner_id)
            self.store.tidy()

    # --- storing ------------------------------------------------------------------------------------------------------

    def _store_waiting(self) -> None:
        barriers = self._take_barriers()
        failure = self._try_to_store()
        if failure is not None:
            self.duties.watch.look()  # before the barriers raise an error that says that events are safe from a kill
            self._note_failure(failure)
            self._fail(barriers, failure)
            self._fail_quiet_barriers()
            return
        self.duties.watch.look_if_due()
        if self._failure is not None:
            logger.warning("the journal %s can be written again", self.store.url)
        self._failure, self._retry, self._due_retry = None, _RETRY, self.clock.monotonic()
        self.duties.run_errands()
        self._resolve(barriers)

    def _try_to_store(self) -> Exception | None:
        try:
            while not self._store_all(self.appender.refill(_STEP)):
                pass
            if self.outage is not None:  # and no batch has asked the store
                self.duties.beat()
            if self.appender.spool is not None:
                self.appender.spool.release()
        except Exception as exc:  # noqa: BLE001 - the barriers raise any error of the store
            return exc
        return None

    def _store_all(self, settled: bool) -> bool:
        """Store all events of the run buffers. Return `settled`, which says that no events wait in the overflow."""
        appender = self.appender
        moment = appender.moment()
        buffers = []
        while appender.dirty:
            buffer = appender.dirty.popleft()
            if buffer.dirty:  # after a failure, a buffer may be in the queue twice
                buffer.dirty = False  # before the buffer is read, so that a later append makes it dirty again
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
            # No stored event makes room for the overflow: its first event exceeds the spool's limit, or the disk is full.
            appender.refill(1, force=True)
        return settled

    def _store(self, buffers: list[RunBuffer]) -> int:
        rows = deque((buffer, row) for buffer in buffers for row in buffer.take() if self._may_begin(buffer))
        self._rows = len({row.run_id for _, row in rows})
        count = len(rows)
        while rows:
            batch: list[tuple[RunBuffer, Segment]] = []
            size = 0
            # In portions, so that spool files are deleted on a full disk while a long queue is being stored.
            while rows and size < _PORTION:
                batch.append(rows.popleft())
                size += len(batch[-1][1].body)
            self._append([(buffer, row) for buffer, row in batch if buffer.shut is None])
            if rows:
                self.duties.beat_if_due()
            if self.appender.spool is not None:
                self.appender.spool.release()
        return count

    def _append(self, batch: list[tuple[RunBuffer, Segment]]) -> None:
        while batch:
            try:
                self.store.append(self.duties.owner.owner_id, [row for _, row in batch])
                break
            except (RunFenced, SeqGap) as exc:
                if isinstance(exc, SeqGap) and self._stored_behind_gap(batch, exc):
                    batch = [(buffer, row) for buffer, row in batch if buffer.run_id != exc.run_id]
                    continue
                run_ids = exc.run_ids if isinstance(exc, RunFenced) else [exc.run_id]
                refused = {buffer.run_id: buffer for buffer, _ in batch if buffer.run_id in run_ids}.values()
                if not refused:
                    raise  # the error names none of these runs, so trying again would never end
                for buffer in refused:
                    self.appender.fence(buffer, self.duties.why_refused(buffer, exc))
                if isinstance(exc, RunFenced):
                    self.duties.note_fenced(refused)
                batch = [(buffer, row) for buffer, row in batch if buffer.shut is None]
            except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as exc:
                # The cause is neither the disk nor a lock, but an event of the batch. Storing each row alone shows of which
                # run.
                if len({row.run_id for _, row in batch}) == 1:
                    self._set_aside(batch[0][0], exc)
                else:
                    for one in batch:
                        self._append([one] if one[0].shut is None else [])
                return
        for buffer, row in batch:
            buffer.stored(row.last, row.t1)
        self.duties.note_stored(row.first for _, row in batch)

    def _stored_behind_gap(self, batch: list[tuple[RunBuffer, Segment]], gap: SeqGap) -> bool:
        """Store the rows of a run that is shorter in the store than it was. Return False if they must be refused.

        A database server that crashes, or fails over to one that lags behind, can lose events that it had confirmed. A run
        of which nothing is left looks like one that was deleted, and stays refused.
        """
        restore = getattr(self.store, "restore", None)
        if restore is None or not gap.last:
            return False
        mine = [(buffer, row) for buffer, row in batch if buffer.run_id == gap.run_id]
        try:
            restore(self.duties.owner.owner_id, [row for _, row in mine])
        except (RunFenced, SeqGap):
            return False
        logger.error(_WENT_BACK, self.store.url, gap.run_id, gap.last + 1, gap.first - 1)
        for buffer, row in mine:
            buffer.stored(row.last, row.t1)
        return True

    def _set_aside(self, buffer: RunBuffer, exc: Exception) -> None:
        reason = f"{type(exc).__name__}: {exc}"
        error = EventUnusable(run_id=buffer.run_id, reason=reason, refused=len(buffer.pend) // 2)
        error.__cause__ = exc
        self.appender.fence(buffer, error)
        self.appender.complaints.refused.pop(buffer.run_id, None)
        self.appender.complaints.unusable.append(error)

    def _may_begin(self, buffer: RunBuffer) -> bool:
        """Return whether the events of a buffer may be stored: it belongs to a new run, or it has been stored before.

        The appender forgets old run buffers, so a new buffer may belong to an old run that got a late event. Its seqs would
        begin at 1 again, and the store would take them for a retry of the events that it has.
        """
        if self.appender.forgotten and not buffer.base and not buffer.tried and self._has_events(buffer.run_id):
            self.appender.fence(buffer, self.duties.why_refused(buffer, RunFenced(run_ids=[buffer.run_id], refused=0)))
            return False
        buffer.tried = True
        return True

    def _has_events(self, run_id: str) -> bool:
        found = self.store.run(run_id)
        # A run that `start_run` has begun is in the store before its first event, and this journal owns it.
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
        safe = f"in the spool {self._spool_place()}, safe from a kill"
        where = f"{in_memory} of them only in memory" if in_memory else safe
        return WriteFailed(url=self.store.url, reason=str(exc).rstrip("."), waiting=waiting, where=where, lost=lost)

    def _spool_place(self) -> str:
        spool = self.appender.spool
        return "beside it" if spool is None or spool.base == self.store.path else f"in {spool.base.parent}"

    # --- barriers -----------------------------------------------------------------------------------------------------

    def _fail(self, barriers: list[Barrier], failure: BaseException) -> None:
        fail(barriers, lambda: self._write_failed(failure), failure)

    def _fail_quiet_barriers(self) -> None:
        """In an outage, fail the barriers that do not wait for its end: a checkpoint must not wait for one more attempt."""
        outage = self.outage
        if outage is not None and self._barriers:
            self._fail(self._take_barriers(quiet=True), self._failure or outage)

    def _take_barriers(self, *, quiet: bool = False) -> list[Barrier]:
        """Take the barriers that were set so far; with `quiet`, only those that are quiet."""
        taken = []
        for barrier in [barrier for barrier in list(self._barriers) if barrier.quiet or not quiet]:
            with contextlib.suppress(ValueError):  # after the end of the thread, a caller may have taken it
                self._barriers.remove(barrier)
                # False for a barrier whose waiter was cancelled: setting its result would raise.
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
