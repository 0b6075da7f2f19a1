"""The duties of the writer thread besides storing events: heartbeats, stop requests, dead owners, followers, and errands.

An errand is a function that another thread hands to the writer thread.

Rule: only the writer thread calls `do` and `run_errands`. Other threads add listeners and errands.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from ..common.clock import Clock
from ..errors import RunFenced, RunIdTaken, RunJournalError
from ..stores import Owner, Store
from .append import Appender
from .dead_owners import DeadOwners
from .run_buffer import RunBuffer
from .spool_watch import SpoolWatch
from .stop_requests import StopRequests
from .store_watch import Listener, StoreWatch
from .wake_signal import WakeSignal

logger = logging.getLogger("langchain_runjournal")


class Duties:
    """The duties of one journal."""

    def __init__(
        self,
        store: Store,
        owner: Owner,
        clock: Clock,
        appender: Appender,
        dead_owners: DeadOwners,
        stops: StopRequests,
        bell: WakeSignal,
    ) -> None:
        self.owner = owner
        """This journal as an owner, with its last heartbeat."""
        self.watch = SpoolWatch(appender, self.beat, store.url)
        self.stops = stops
        self.others = StoreWatch(store, owner.owner_id, appender, stops)
        self.errands: deque[Callable[[], None]] = deque()
        """Functions that other threads want the writer thread to call, because they may block."""
        self._store = store
        self._clock = clock
        self._appender = appender
        self._dead_owners = dead_owners
        self._bell = bell
        self._has_warned = False
        self.beaten_at = clock.monotonic()
        """When the last heartbeat that the store has taken was sent, at the latest: the caller sends the first one next."""
        self._due_beat = self.beaten_at + owner.lease / 3

    @property
    def listeners(self) -> dict[Listener, str]:
        """The followers of runs that other processes write. The writer thread wakes them when the store has changed."""
        return self.others.listeners

    def give(self, errand: Callable[[], None]) -> None:
        """Have the writer thread call a function soon. This method does no I/O and does not wait."""
        self.errands.append(errand)
        self._bell.ring()

    def expect_return(self) -> None:
        """Have the writer thread send the next heartbeat soon, because a store on another machine does not answer."""
        self._due_beat = min(self._due_beat, self._clock.monotonic() + self._soon())
        self._bell.ring()

    def _soon(self) -> float:
        """Return the seconds until the next heartbeat after one that failed. Others need a sign of life after an outage."""
        return min(1.0, self.owner.lease / 15)

    def patience(self) -> float:
        """Return how many seconds there are until the next duty; less than 0 if one is due."""
        return min(self._due_beat - self._clock.monotonic(), self.others.patience())

    def do(self) -> None:
        """Do what is due. If the store fails, log the error."""
        self.run_errands()
        with self._postponing():
            self._do_what_is_due()
        self.look_at_others()

    def look_at_others(self) -> None:
        """Look for stop requests, and for news of followed runs. If the store fails, log the error."""
        with self._postponing():
            self.others.look()

    @contextmanager
    def _postponing(self) -> Iterator[None]:
        try:
            yield
        except RunJournalError as exc:
            # The store is locked, full or away. The next attempt to store events fails as well, and the barriers raise its
            # error.
            level, self._has_warned = logging.DEBUG if self._has_warned else logging.WARNING, True
            logger.log(level, "postponing the background duties of the journal writer of %s: %s", self._store.url, exc)

    def _do_what_is_due(self) -> None:
        now = self._clock.monotonic()
        if now >= self._due_beat:
            self._due_beat = now + self._soon()  # if it fails
            self.watch.look(again=True)
            self.beat()
            self._due_beat = now + self.owner.lease / 3
            self._dead_owners.import_spools(self.beat_if_due)
            self.others.threads.has_news = True  # the import may have begun runs
            # Text that the store has must not stay in a spool file for long: another process may delete its run.
            self._appender.rotate_spool(only_if_ready=True)
            if self._appender.spool is not None:
                self._appender.spool.release()

    def why_refused(self, buffer: RunBuffer, error: RunJournalError) -> RunJournalError:
        """Return the error of a run whose events the store refuses with `error`.

        That is `RunIdTaken` if the store has stored nothing of it for this journal, and no journal has claimed it since: so
        another one began it.
        """
        if buffer.base or not isinstance(error, RunFenced):
            return error
        try:
            run = self._store.run(buffer.run_id)
        except Exception:  # noqa: BLE001 - the store cannot be read any more
            return error
        if run is None or run.owner == self.owner.owner_id:
            return error
        return RunIdTaken(run_ids=[buffer.run_id], refused=0) if run.epoch == buffer.epoch else error

    def note_fenced(self, buffers: Collection[RunBuffer]) -> None:
        """Stop the work on runs that belong to others, and log who has claimed those that were runs of this journal."""
        for buffer in buffers:
            self.stops.taken_over(buffer.run_id)
        run_ids = [buffer.run_id for buffer in buffers if not isinstance(buffer.shut, RunIdTaken)]
        try:
            self._dead_owners.report_claims(run_ids, self.owner)
        except Exception as exc:  # noqa: BLE001 - the store cannot be read any more
            logger.error("another journal may have claimed these runs: %s. They end here (%s)", ", ".join(run_ids), exc)

    def run_errands(self) -> None:
        """Call the functions that other threads have handed over."""
        while self.errands:
            try:
                self.errands.popleft()()
            except Exception:
                logger.exception("a task of the journal writer of %s failed; a follower polls instead", self._store.url)

    def note_stored(self, first: Iterable[int]) -> None:
        """Note that events are stored: the `first` seq of each row. The followers of threads look for new runs."""
        threads = self.others.threads
        threads.has_news = threads.has_news or any(seq == 1 for seq in first)

    def end(self) -> None:
        """Wake the followers of threads, which sleep without a limit: the journal is closed."""
        self.others.threads.wake_all()
        self.run_errands()

    def beat_if_due(self) -> None:
        """Store a heartbeat between two parts of work that takes long: a backlog, or an import. If that fails, so will the
        work."""
        if self._clock.monotonic() - self.beaten_at >= self.owner.lease / 3:
            with self._postponing():
                self.beat()

    def beat(self) -> None:
        """Store one heartbeat."""
        began = self._clock.monotonic()
        self.owner = replace(self.owner, beats=self.owner.beats + 1)
        self._store.beat(self.owner)
        self.beaten_at = began
        self._has_warned = False
        self._dead_owners.has_beaten()
