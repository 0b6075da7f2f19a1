"""What processes that are gone have left beside a store, found and brought in."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..common.clock import Clock
from ..events import Run
from ..stores import Owner, Store
from .ownership import Verdict, Watch, certain, living
from .spool import spool_files
from .spool_recovery import Progress, SpoolReport, drain

if TYPE_CHECKING:
    from .core import JournalCore
    from .run_journal import RunJournal

logger = logging.getLogger("langchain_runjournal")


class DeadOwners:
    """Looks after one store, for one journal."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self.store = store
        self.reports: list[SpoolReport] = []
        self.holds: dict[str, Callable[[], None]] = {}
        """By holder, what gives a thread back that is not settled any more."""
        self._clock = clock
        self._watch = Watch()
        self._foreign: set[str] = set()

    def verdict(self, owner: Owner) -> Verdict:
        """Whether the owner is gone; "unknown" until its lease has run out, where only heartbeats tell."""
        return self._watch.verdict(owner, self._clock.monotonic())

    def is_gone(self, owner: Owner) -> bool:
        """Whether the owner is known to be gone."""
        return self.verdict(owner) == "gone"

    def beats_in_doubt(self, run: Run) -> int | None:
        """The heartbeats of a run's owner, where only they tell whether it lives; else None."""
        owner = self._owner(run)
        return owner.beats if owner is not None and certain(owner) is None else None

    def _owner(self, run: Run) -> Owner | None:
        return next((owner for owner in self.store.owners() if owner.owner_id == run.owner), None)

    def owner_is_gone(self, run: Run) -> bool:
        """Whether nobody can write this run any more. What its owner left in its spool is then brought in."""
        owner = self._owner(run)
        if owner is not None and not self.is_gone(owner):
            return False
        if run.owner is not None:
            self.collect_from(run.owner)
        return True

    def collect(self) -> None:
        """Bring into the store what processes that are gone have left in their spools."""
        for release_if_over in list(self.holds.values()):
            release_if_over()
        if self.store.path is None:
            return
        # The spools first: a journal that is just being opened is an owner before it has a spool, so that one that has a
        # spool here and is no owner there has left.
        spools = spool_files(self.store.path)
        progress = Progress(self.store.url)
        owners = {owner.owner_id: owner for owner in self.store.owners()}
        for owner_id in {*owners, *spools} - living - self._foreign:
            owner = owners.get(owner_id)
            if owner is None or self.is_gone(owner):
                try:
                    self.collect_from(owner_id, progress)
                except Exception:
                    # One that cannot be brought in must not keep the others out.
                    logger.exception("could not import the spool of the dead owner %s; retrying later", owner_id)

    def collect_from(self, owner_id: str, progress: Progress | None = None) -> None:
        """The same for one owner, which is known to be gone."""
        paths = spool_files(self.store.path).get(owner_id) if self.store.path else None
        if paths:
            report = drain(self.store, owner_id, paths, progress)
            if report.events or report.problem:
                self.reports.append(report)
            if report.foreign:
                self._foreign.add(owner_id)
        self.store.forget(owner_id)
        self._watch.forget(owner_id)


def claim(journal: RunJournal, core: JournalCore, run_id: str) -> bool:
    """See `RunJournal.claim`."""
    run = journal.run(run_id)
    if run.owner == journal.owner_id or run.done:
        return not run.done
    if not core.dead_owners.owner_is_gone(run) or not core.store.claim(run_id, journal.owner_id, run.epoch):
        return False
    run = journal.run(run_id)
    core.writer.appender.adopt(run_id, run.epoch, run.last_seq)
    return True
