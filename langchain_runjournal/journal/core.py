"""The parts of a journal: this module builds them, and other modules of the package reach them here.

Rule: a program uses `RunJournal`, and another room of this package calls `core_of`. No room reads a private attribute of a
journal. The parts hold no reference to their `RunJournal`; otherwise a journal that no program uses would never be
garbage-collected.
"""

from __future__ import annotations

import concurrent.futures
import logging
import os
import weakref
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from ..common.clock import Clock
from ..errors import JournalClosed
from ..redact import Redact
from ..stores import Owner, Store, patience_of
from .append import Appender
from .dead_owners import DeadOwners
from .extensions import Extensions
from .fork_and_exit import DormantAppender
from .local_runs import LocalRuns
from .ownership import new_owner
from .prompt_store import PromptStore
from .redaction import appender_with
from .spool import open_spool
from .spool_place import spool_bases
from .stop_requests import StopRequests
from .thread_pool import ThreadPool
from .wake_signal import WakeSignal
from .writer import Writer
from .writer_duties import Duties

if TYPE_CHECKING:
    from .run_journal import RunJournal

logger = logging.getLogger("langchain_runjournal")

_MEMORY_ROOM: Final = 250_000  # the number of events that a journal without a spool holds before it merges and drops events
_T = TypeVar("_T")


class JournalCore:
    """The parts of one journal. In a forked child, `start` makes new parts when the child first uses the journal."""

    appender: Appender | DormantAppender
    """The part that takes events. Read this attribute again for each event: a fork replaces it."""
    writer: Writer
    duties: Duties
    bell: WakeSignal
    """The signal that wakes the writer thread."""
    stops: StopRequests
    dead_owners: DeadOwners
    finalizer: weakref.finalize[[], JournalCore]
    spool_bases: tuple[Path, ...]
    """What the names of spool files begin with: the last one for this journal's, all of them for those of dead owners."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        lease: float,
        spool_dir: str | os.PathLike[str] | None,
        spool_limit: int,
        redact: Redact | None,
    ) -> None:
        self.is_far = store.path is None and store.url != ":memory:"
        """Whether the store may be on another machine: it may be away, and others judge this journal by its heartbeats."""
        self.store = cast("Store", PromptStore(store)) if self.is_far else store
        self.clock = clock
        self.lease = lease
        self.busy_timeout = patience_of(store)
        self.thread_pool = ThreadPool()
        self.is_closed = False
        self.extensions = Extensions()
        self.local_runs = LocalRuns()
        self._spool_limit = spool_limit
        self._redact = redact
        try:
            self.spool_bases = spool_bases(store, spool_dir)
            self.start(())
        except BaseException:
            store.close()
            raise

    def start(self, not_ours: Iterable[str]) -> None:
        """Make an owner, a spool and a writer thread. `not_ours`: the runs of the parent of a forked process."""
        owner, bell = new_owner(self.lease), WakeSignal()
        appender = appender_with(self._redact)(self.store.url, self.clock, None, bell.ring, _MEMORY_ROOM)
        stops, dead_owners = StopRequests(appender), DeadOwners(self.store, self.clock, self.spool_bases, self.lease)
        duties = Duties(self.store, owner, self.clock, appender, dead_owners, stops, bell)
        writer = Writer(self.store, self.clock, appender, duties, bell)
        # Other processes must find the owner before they find its spool: they take a spool without an owner for that of a
        # dead owner.
        self.store.beat(owner)
        dead_owners.has_beaten()
        try:
            dead_owners.import_spools()
        except Exception:
            logger.exception("could not import all spools of dead owners into %s; retrying later", self.store.url)
        if self.spool_bases:
            ids = self.store.store_id, bytes.fromhex(owner.owner_id)
            appender.spool = open_spool(self.spool_bases[-1], *ids, limit=self._spool_limit)
        for run_id in not_ours:
            appender.refuse_run(run_id)
        self.bell, self.stops, self.dead_owners, self.duties, self.writer = bell, stops, dead_owners, duties, writer
        self.appender = appender
        # If the program drops the journal without `close`, the writer thread stores all events, and then ends.
        self.finalizer = weakref.finalize(self, writer.leave)
        self.finalizer.atexit = False
        store: Any = self.store
        if self.is_far:
            store.may_wait, store.on_outage = writer.is_current, duties.expect_return
        if duties.others.is_woken:
            store.listen(bell.ring)
        writer.start()

    @property
    def owner(self) -> Owner:
        """The journal as the owner of its runs, with its last heartbeat."""
        return self.duties.owner

    def lease_has_run_out(self) -> bool:
        """Return whether other journals may take this one for dead, because its heartbeats do not reach the store.

        A sixth of the lease is left for what the caller does next. For a store with a file this is never so: its journals
        see each other's processes.
        """
        return self.is_far and self.clock.monotonic() - self.duties.beaten_at >= self.lease * 5 / 6

    def check_open(self) -> None:
        """Raise `JournalClosed` if the journal is closed. In a forked child, make the child's own parts first."""
        if isinstance(self.appender, DormantAppender):
            self.appender.revive()
        if self.is_closed:
            raise JournalClosed(url=self.store.url, refused=self.appender.take_late())

    def catch_up(self, *, needed: bool | None = None) -> None:
        """Store what this process has appended, as far as that is possible. Called before a read from the store.

        `needed`: whether events wait that the reader needs; by default, whether any events wait.
        """
        if (self.appender.waiting > 0 if needed is None else needed) and not self.must_not_wait():
            barrier = self.writer.barrier(quiet=True)
            concurrent.futures.wait([barrier], timeout=2 * self.busy_timeout)
            if not barrier.cancel() and barrier.done() and barrier.exception() is not None:
                logger.debug("reading %s without the events that could not be stored yet", self.store.url)

    async def off_loop(self, work: Callable[[], _T]) -> _T:
        """Return what `work` returns. A thread of the journal does the work."""
        self.check_open()
        try:
            return await self.thread_pool.run(work)
        except RuntimeError:
            self.check_open()  # if the journal was closed meanwhile, `JournalClosed` says more than "pool was shut down"
            raise

    def must_not_wait(self) -> bool:
        """Return whether waiting for the writer would be a deadlock.

        That is so for a caller that interrupts an append (a signal handler, a finalizer), and on the writer thread itself.
        """
        return self.appender.is_inside() or self.writer.is_current()

    def close(self) -> None:
        """Store all events, and release the file. Raise the error of the last barrier."""
        self.is_closed = True
        self.finalizer.detach()
        try:
            self.writer.close()
        except KeyboardInterrupt:
            self.is_closed = False  # the wait was interrupted, so the caller must be able to close the journal again
            raise
        finally:
            self.thread_pool.shutdown()

    # --- forks --------------------------------------------------------------------------------------------------------

    def before_fork(self) -> None:
        """Prepare the store for a fork."""
        self.store.before_fork()

    def after_fork(self, *, child: bool) -> None:
        """Make the journal usable after a fork.

        In the child, the thread, the spool and the runs are the parent's. A `DormantAppender` stands in for the appender
        there, until the child first uses its journal, if it ever does.
        """
        self.store.after_fork(child=child)
        if child and not self.is_closed:
            self.finalizer.detach()
            self.thread_pool = ThreadPool()
            if isinstance(self.appender, DormantAppender):
                not_ours = self.appender.not_ours
            else:
                not_ours = frozenset((*self.appender.buffers, *self.appender.ended_runs))
                if self.appender.spool is not None:
                    self.appender.spool.abandon()
            self.appender = DormantAppender(self, not_ours)
            self.local_runs.after_fork()
            self.extensions.after_fork()


def core_of(journal: RunJournal) -> JournalCore:
    """Return the parts of a journal."""
    return journal._core
