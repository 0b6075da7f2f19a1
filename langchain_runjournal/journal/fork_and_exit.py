"""What the process does to its journals: it forks, and it exits without having closed them."""

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
    """From now on the journal is told of forks, and closed at exit."""
    _cores.add(core)
    _journals.add(journal)


class Asleep:
    """Stands in for the intake in a forked child, until the child first uses its journal."""

    waiting = 0

    def __init__(self, core: JournalCore, not_ours: frozenset[str]) -> None:
        self._core = core
        self.not_ours = not_ours
        self._lock = threading.Lock()
        self.buffers: dict[str, RunBuffer] = {}

    def append(self, event: Event) -> None:
        """Revive, then append there."""
        try:
            self.revive()
            self._core.appender.append(event)
        except Exception:
            logger.exception("lost an event: could not open the journal in the forked process %d", os.getpid())

    def record(self, run_id: str, call: str | None, kind: Kind, data: Any, written: str | None = None) -> None:
        """Revive, then record there."""
        self.revive()
        self._core.appender.record(run_id, call, kind, data, written)

    def as_recorded(self, messages: Sequence[Any]) -> Sequence[Any]:
        """Revive, then ask there."""
        self.revive()
        return self._core.appender.as_recorded(messages)

    def miss(self) -> None:
        """Revive, so that a barrier can tell."""
        self.revive()
        self._core.appender.miss()

    def revive(self) -> None:
        """Give this process a thread, a spool and an owner of its own."""
        with self._lock:
            if self._core.appender is self:
                self._core.start(self.not_ours)

    def is_inside(self) -> bool:
        """Nobody appends here."""
        return False

    def take_late(self) -> int:
        """Nothing has been refused here."""
        return 0


def _before_fork() -> None:
    for core in list(_cores):
        core.before_fork()


def _after_fork(child: bool) -> None:
    for core in list(_cores):
        core.after_fork(child=child)


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
