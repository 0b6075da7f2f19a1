"""What the process does to its journals: it forks, and it exits without having closed them."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import weakref
from typing import TYPE_CHECKING

from ..events import Event, Kind
from .ownership import living, this_place
from .run_buffer import RunBuffer
from .thread_pool import ThreadPool

if TYPE_CHECKING:
    from .append import Appender
    from .run_journal import RunJournal

logger = logging.getLogger("langchain_runjournal")
_journals: weakref.WeakSet[RunJournal] = weakref.WeakSet()


def register(journal: RunJournal) -> None:
    """From now on the journal is told of forks, and closed at exit."""
    _journals.add(journal)


class Asleep:
    """Stands in for the intake in a forked child, until the child first uses its journal."""

    waiting = 0

    def __init__(self, journal: RunJournal, not_ours: frozenset[str]) -> None:
        self._journal = journal
        self.not_ours = not_ours
        self._lock = threading.Lock()
        self.buffers: dict[str, RunBuffer] = {}

    def append(self, event: Event) -> None:
        """Revive, then append there."""
        try:
            self.revive()
            self._journal._appender.append(event)
        except Exception:
            logger.exception("lost an event: could not open the journal in the forked process %d", os.getpid())

    def add(self, run_id: str, call: str | None, kind: Kind, type: int, json: str) -> None:
        """Revive, then add there."""
        self.revive()
        self._journal._appender.add(run_id, call, kind, type, json)

    def miss(self) -> None:
        """Revive, so that a barrier can tell."""
        self.revive()
        self._journal._appender.miss()

    def revive(self) -> None:
        """Give this process a thread, a spool and an owner of its own."""
        with self._lock:
            if self._journal._appender is self:
                self._journal._start(self.not_ours)

    def is_inside(self) -> bool:
        """Nobody appends here."""
        return False

    def take_late(self) -> int:
        """Nothing has been refused here."""
        return 0


def _fall_asleep(journal: RunJournal, appender: Appender | Asleep) -> Asleep:
    """In a child: the thread, the spool and the runs are the parent's. What the child needs of its own is made when it first
    uses the journal, if it ever does."""
    if isinstance(appender, Asleep):
        return Asleep(journal, appender.not_ours)
    if appender.spool is not None:
        appender.spool.abandon()
    return Asleep(journal, frozenset(appender.buffers))


def _before_fork() -> None:
    for journal in list(_journals):
        journal._store.before_fork()


def _after_fork(child: bool) -> None:
    for journal in list(_journals):
        journal._store.after_fork(child=child)
        if child and not journal._closed:
            journal._finalizer.detach()
            journal._readers = ThreadPool()
            journal._appender = _fall_asleep(journal, journal._appender)
            journal._capture.after_fork()


def _in_child() -> None:
    living.clear()  # the owners of this process so far are the parent's
    this_place.cache_clear()  # a child of os.unshare() is in another namespace than its parent
    _after_fork(True)


def _at_exit() -> None:
    for journal in list(_journals):
        try:
            journal.close()
        except Exception:
            logger.exception("could not close %r at exit", journal)


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=lambda: _after_fork(False),
        after_in_child=_in_child,
    )
