"""Dead owners: finds the spools that they left beside a store, and imports these; claims their runs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..common.clock import Clock
from ..common.file_access import is_locked
from ..events import Run
from ..stores import Owner, Store
from .ownership import Verdict, Watch, certain, living
from .spool import spool_files
from .spool_import import Progress, SpoolReport, import_spool

if TYPE_CHECKING:
    from .core import JournalCore
    from .run_journal import RunJournal

logger = logging.getLogger("langchain_runjournal")


class DeadOwners:
    """The dead owners of one store, as one journal sees them."""

    def __init__(self, store: Store, clock: Clock, bases: Sequence[Path] = ()) -> None:
        """Look for spools whose names begin with one of `bases`."""
        self.store = store
        self._bases = bases
        self.reports: list[SpoolReport] = []
        self.holds: dict[str, Callable[[], None]] = {}
        """By holder, the function that releases the hold on a thread if the settlement is over or can never continue."""
        self._clock = clock
        self._watch = Watch()
        self._foreign: set[str] = set()

    def verdict(self, owner: Owner) -> Verdict:
        """Return whether the owner is dead. If only heartbeats can tell, that is "unknown" until its lease has run out."""
        return self._watch.verdict(owner, self._clock.monotonic())

    def is_gone(self, owner: Owner) -> bool:
        """Return whether the owner is known to be dead."""
        return self.verdict(owner) == "gone"

    def beats_in_doubt(self, run: Run) -> int | None:
        """Return the heartbeat count of a run's owner, if only heartbeats can tell whether the owner is alive; else None."""
        owner = self._owner(run)
        return owner.beats if owner is not None and certain(owner) is None else None

    def _owner(self, run: Run) -> Owner | None:
        return next((owner for owner in self.store.owners() if owner.owner_id == run.owner), None)

    def owner_is_gone(self, run: Run) -> bool:
        """Return whether the owner of this run is dead, so that no process can write the run. If so, import its spool."""
        owner = self._owner(run)
        if owner is not None and not self.is_gone(owner):
            return False
        if run.owner is not None:
            self.import_spool_of(run.owner)
        return True

    def import_spools(self) -> None:
        """Import the spools of all dead owners into the store. First release the holds of settlements that are over."""
        for release_if_over in list(self.holds.values()):
            release_if_over()
        if not self._bases:
            return
        # List the spools before the owners: a journal that is being opened registers as an owner before it makes a spool.
        # So a spool that is listed here without an owner below belongs to a dead owner (but see `_are_used`).
        spools = self._spools()
        progress = Progress(self.store.url)
        owners = {owner.owner_id: owner for owner in self.store.owners()}
        for owner_id in {*owners, *spools} - living - self._foreign:
            owner = owners.get(owner_id)
            if self.is_gone(owner) if owner is not None else not self._are_used(spools[owner_id]):
                try:
                    self.import_spool_of(owner_id, progress)
                except Exception:
                    # If one spool cannot be imported, the others must be imported all the same.
                    logger.exception("could not import the spool of the dead owner %s; retrying later", owner_id)

    def _are_used(self, paths: Sequence[Path]) -> bool:
        """Return whether a journal that this store does not know uses a spool: one on a copy of the database, which has the
        same `store_id` and so the same names in a `spool_dir`."""
        base = self._bases[-1]
        return base != self.store.path and any(is_locked(path) for path in paths if path.parent == base.parent)

    def _spools(self) -> dict[str, list[Path]]:
        """Return the spool files of all places, in order, by the id of their owner."""
        found: dict[str, list[Path]] = {}
        for base in self._bases:
            for owner_id, paths in spool_files(base).items():
                found.setdefault(owner_id, []).extend(paths)
        return found

    def import_spool_of(self, owner_id: str, progress: Progress | None = None) -> None:
        """Import the spool of one owner, which is known to be dead."""
        paths = self._spools().get(owner_id)
        if paths:
            report = import_spool(self.store, owner_id, paths, progress)
            if report.events or report.problem:
                self.reports.append(report)
            if report.foreign:
                self._foreign.add(owner_id)
        self.store.forget(owner_id)
        self._watch.forget(owner_id)


def claim(journal: RunJournal, core: JournalCore, run_id: str) -> bool:
    """Implement `RunJournal.claim`."""
    run = journal.run(run_id)
    if run.owner == journal.owner_id or run.done:
        return not run.done
    if not core.dead_owners.owner_is_gone(run) or not core.store.claim(run_id, journal.owner_id, run.epoch):
        return False
    run = journal.run(run_id)
    core.writer.appender.adopt(run_id, run.epoch, run.last_seq)
    return True
