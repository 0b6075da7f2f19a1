"""Forks and exits of the process: what happens to its journals when it forks, or exits without having closed them."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..events import Event, Kind
from .ownership import living, this_place
from .run_buffer import RunBuffer

if TYPE_CHECKING:
    from .core import JournalCore
    from .run_journal import RunJournal

logger = logging.getLogger("langchain_runjournal")
_cores: weakref.WeakSet[JournalCore] = weakref.WeakSet()
_journals: weakref.WeakSet[RunJournal] = weakref.WeakSet()


def register(journal: RunJournal, core: JournalCore) -> None:
    """Register a journal, so that it survives forks and is closed at exit."""
    _cores.add(core)
    _journals.add(journal)


class DormantAppender:
    """A stand-in for the appender in a forked child, until the child first uses its journal."""

    waiting = 0

    def __init__(self, core: JournalCore, not_ours: frozenset[str]) -> None:
        self._core = core
        self.not_ours = not_ours
        self._lock = threading.Lock()
        self.buffers: dict[str, RunBuffer] = {}

    def buffer_of(self, run_id: str) -> None:
        """Return None: the child writes no run yet."""

    def append(self, event: Event) -> None:
        """Make the child's own parts, then append the event to its own appender."""
        try:
            self.revive()
            self._core.appender.append(event)
        except Exception:
            logger.exception("lost an event: could not open the journal in the forked process %d", os.getpid())

    def record(self, run_id: str, call: str | None, kind: Kind, data: Any, written: str | None = None) -> None:
        """Make the child's own parts, then record the event with its own appender."""
        self.revive()
        self._core.appender.record(run_id, call, kind, data, written)

    def as_recorded(self, messages: Sequence[Any]) -> Sequence[Any]:
        """Revive, then ask there."""
        self.revive()
        return self._core.appender.as_recorded(messages)

    def miss(self) -> None:
        """Make the child's own parts, so that a barrier can raise the error."""
        self.revive()
        self._core.appender.miss()

    def revive(self) -> None:
        """Give this process a thread, a spool and an owner of its own."""
        with self._lock:
            if self._core.appender is self:
                self._core.start(self.not_ours)

    def is_inside(self) -> bool:
        """Return False: no append is under way here."""
        return False

    def take_late(self) -> int:
        """Return 0: this stand-in refuses no event."""
        return 0


def _before_fork() -> None:
    for core in list(_cores):
        core.before_fork()


def _after_fork(child: bool) -> None:
    for core in list(_cores):
        core.after_fork(child=child)


def _in_child() -> None:
    living.clear()  # these owners are the parent's
    this_place.cache_clear()  # after `os.unshare`, a child is in another namespace than its parent
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
