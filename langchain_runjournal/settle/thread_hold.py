"""The hold on a thread: one settlement at a time, among the tasks and threads of a process and among all processes on one
store.

The ownership of a run cannot ensure this. A run that has ended and is not settled may still belong to a living journal,
which keeps it for the results of tools that end late. Another journal's next message has to settle that run all the same. So
for each thread that is being settled, the store keeps its holder: the owner, and the number of one settlement.

Rules:

1. A settlement takes the hold on its thread before it reads anything, and reads everything after that. What it has read
   before may be what another settlement was about to change.
2. The store replaces a holder only in a compare-and-swap. A journal asks for that only when the holder's owner is dead or
   has closed: after `kill -9`, the next attempt of another journal succeeds; in another container, it succeeds when the
   lease has run out.
3. The store is asked for the holder before each superstep. A process that was suspended for longer than its lease finds
   another holder there, and writes nothing more (`CheckpointFenced`). What it has written stays, and the other settlement
   has read it.
4. A message waits for as long as another living process holds its thread. A recovery and the end of a run wait for half a
   minute, and leave the run to be settled later.
5. A settlement takes no second hold, and does not wait for a run while it has one, so no deadlock can arise.
6. A message may begin to work as soon as its settlement has released the hold. From then on no other journal settles an
   older run of the thread, because the run of the message is newer and is running (`Order`).
7. Threads in a checkpointer in memory belong to one process, also after a fork: no other process excludes it from them.
8. A store that cannot be written, or has no `hold`, excludes no process; a thread is settled all the same.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from langgraph.checkpoint.memory import InMemorySaver

from ..common.twins import Effect, Effects, wait_for
from ..errors import CheckpointFenced, SettlementTimeout, StoreClosed
from ..journal.core import core_of
from ..journal.ownership import living
from ..journal.waiting import off_loop
from .fence import raise_if_lease_expired
from .settlements import settlements_of

if TYPE_CHECKING:
    from ..journal.core import JournalCore
    from ..journal.run_journal import RunJournal
    from .graph_thread import GraphThreads
    from .settlements import ActiveSettlement
    from .settler import Settlement

logger = logging.getLogger("langchain_runjournal")

_PATIENCE: Final = 30.0
"""Seconds that a settlement waits for another one, if no message waits for it."""
_LOOK: Final = 0.05
_WARN_AFTER: Final = 60.0
_TRIES: Final = 3
"""How often the store is asked before one superstep, if each answer is stale when it arrives."""
_WAITS: Final = "the new message on thread %s waits for journal %s, which has been settling the thread for %.0f s"
_numbers: Final = itertools.count(1)
Waits = Callable[[], bool]
"""A function that returns whether a message still waits."""


class HeldElsewhere(SettlementTimeout):
    """{reason}. Nothing of thread {thread_id!r} was changed. The settlement is tried again before the next message of the
    thread, and by `RunJournal.recover`."""


class Hold:
    """The hold of one settlement on its thread. Its methods may block, and may be called from any thread."""

    def __init__(self, journal: RunJournal, thread_id: str, mine: ActiveSettlement, name: str | None = None) -> None:
        """Prepare a hold. `name`: the name of the thread in the store, where it differs from the id (see `name_of`)."""
        core = core_of(journal)
        self._store: Any = core.store
        self._core, self._clock, self._lease = core, core.clock, core.lease
        self._mine = mine
        self._lock = threading.Lock()
        self._is_over = self._is_taken = False
        self.thread_id = thread_id
        self._name = name or thread_id
        self.holder = f"{journal.owner_id} {next(_numbers)}"

    def take(self) -> str | None:
        """Take the hold. Return the owner of another settlement that has it; None if this one has it now, or if the store
        cannot say."""
        with self._lock:
            if self._is_over:
                return None  # the settlement was cancelled in the meantime
            try:
                return self._take()
            except StoreClosed:
                raise
            except Exception as exc:  # noqa: BLE001 - the barriers of the journal report why the store cannot be written
                logger.debug("thread %s is settled without a hold: %s", self.thread_id, exc)
                return self._other_owner()

    def _take(self) -> str | None:
        instead_of: str | None = None
        while True:
            found: str = self._store.hold(self._name, self.holder, instead_of)
            self._is_taken = found == self.holder
            if self._is_taken:
                self._core.dead_owners.holds[self.holder] = self.release_if_over
                return None
            if (owner := _other_owner(self._core, found)) is not None:
                return owner
            instead_of = found

    def _other_owner(self) -> str | None:
        """Return the other journal that holds the thread, by a read: a locked store can still be read."""
        try:
            return _other_owner(self._core, self._store.holder(self._name))
        except Exception:  # noqa: BLE001 - the barriers report this as well
            return None

    def check(self) -> None:
        """Raise `CheckpointFenced` if another journal holds the thread by now."""
        for _ in range(_TRIES if self._is_taken else 0):
            asked = self._clock.monotonic()
            try:
                found = self._store.holder(self._name)
            except StoreClosed:
                raise
            except Exception:  # noqa: BLE001 - an unanswered question fences only after the lease, as in `FenceCheck`
                raise_if_lease_expired(self._core, True, self.thread_id, self._mine.run_ids)
                return
            if found != self.holder:
                raise CheckpointFenced(thread_id=self.thread_id, run_ids=self._mine.run_ids)
            if self._clock.monotonic() - asked < self._lease / 3:
                return

    def release_soon(self) -> None:
        """Let the writer thread release the hold. Safe in a finalizer, which must not write a store itself."""
        self._core.duties.give(self.release)

    def release(self) -> None:
        """Release the hold now. If the store cannot be written, the next heartbeat tries again."""
        with self._lock:
            self._is_over = True
            if self._is_taken:
                try:
                    self._store.release(self._name, self.holder)
                except Exception as exc:  # noqa: BLE001 - the next heartbeat tries again
                    logger.debug("thread %s is still held: %s", self.thread_id, exc)
                    return
            self._is_taken = False
            self._core.dead_owners.holds.pop(self.holder, None)

    def release_if_over(self) -> None:
        """Release the hold if its settlement is over, or can never continue because its event loop is closed."""
        if self._mine.done.done() or self._mine.is_lost():
            self.release()


def _other_owner(core: JournalCore, holder: str | None) -> str | None:
    """Return the owner of a holder, if it is another journal that lives or may live."""
    owner_id = (holder or "").partition(" ")[0]
    if owner_id in ("", core.owner.owner_id):
        return None
    owner = core.dead_owners.owner(owner_id)
    return None if owner is None or core.dead_owners.is_gone(owner) else owner_id


def name_of(threads: GraphThreads, thread_id: str) -> str:
    """Return the name under which the store keeps the holder of a thread."""
    return f"{os.getpid()} {thread_id}" if isinstance(threads.graph.checkpointer, InMemorySaver) else thread_id


def is_held(journal: RunJournal, name: str) -> bool:
    """Return whether another living journal settles the thread of this name now."""
    holder = getattr(core_of(journal).store, "holder", None)
    return holder is not None and _other_owner(core_of(journal), holder(name)) is not None


class ThreadHolds:
    """The exclusion of settlements from each other, for the threads of one graph."""

    def __init__(self, journal: RunJournal, threads: GraphThreads) -> None:
        self._journal = journal
        self._threads = threads
        self._settlements = settlements_of(journal)

    def enter(self, thread_id: str, mine: ActiveSettlement, waits: Waits | None = None) -> Effects[Settlement | None]:
        """Wait until no other settlement works on the thread. Return the result of one of this process, if it was asked for
        the same.

        `waits`: a function that returns whether the new message, for which this is done, still waits.
        """
        while (other := self._settlements.active.setdefault(thread_id, mine)) is not mine:
            if not (yield wait_for(other, _PATIENCE)):
                raise SettlementTimeout(thread_id=thread_id, what="another settlement of it", seconds=_PATIENCE)
            if (result := other.result_for(mine)) is not None:
                return result
        if hasattr(core_of(self._journal).store, "hold"):
            mine.hold = Hold(self._journal, thread_id, mine, name_of(self._threads, thread_id))
            yield from self._take(mine.hold, waits)
            self._threads.guards[thread_id] = partial(off_loop, self._journal, mine.hold.check)
        return None

    def _take(self, hold: Hold, waits: Waits | None) -> Effects[None]:
        began, warn_after = time.monotonic(), _WARN_AFTER
        while (owner := (yield off_loop(self._journal, hold.take))) is not None:
            seconds = time.monotonic() - began
            # Another journal of this process may need the thread of the process that blocks here.
            is_patient = waits is not None and waits() and (seconds < _PATIENCE or owner not in living)
            if not is_patient and (waits is not None or seconds > _PATIENCE):
                raise HeldElsewhere(thread_id=hold.thread_id, reason=f"journal {owner} is settling the thread")
            if seconds > warn_after:
                logger.warning(_WAITS, hold.thread_id, owner, seconds)
                warn_after = float("inf")
            yield Effect(partial(time.sleep, _LOOK), partial(asyncio.sleep, _LOOK))

    def exit(self, thread_id: str | None, mine: ActiveSettlement) -> None:
        """End a settlement and let the writer thread release its hold, without waiting."""
        if mine.hold is not None:
            self._threads.guards.pop(mine.hold.thread_id, None)
        self._settlements.done(thread_id, mine)
        if mine.hold is not None:
            mine.hold.release_soon()
