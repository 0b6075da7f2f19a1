"""Dead owners: finds the spools that they left on this machine, and imports these; claims their runs."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from ..common.clock import Clock
from ..common.file_access import is_locked
from ..events import Run
from ..stores import Owner, Store
from .ownership import Verdict, Watch, certain, living, patience_for
from .process_liveness import is_same_place
from .spool import spool_files
from .spool_import import Progress, SpoolReport, import_spool

if TYPE_CHECKING:
    from .core import JournalCore
    from .run_journal import RunJournal

logger = logging.getLogger("langchain_runjournal")

_CLAIMED: Final = (
    "another journal has claimed run %s: journal %s (%s) took this one for dead, and settles the run with what the store"
    " has. The run ends here, and what was appended and not stored is lost"
)


_Look = Literal["certain", "unknown", "undecided"]


class DeadOwners:
    """The dead owners of one store, as one journal sees them."""

    def __init__(self, store: Store, clock: Clock, bases: Sequence[Path] = (), lease: float = math.inf) -> None:
        """Look for spools whose names begin with one of `bases`. `lease`: the lease of this journal."""
        self.store = store
        self._bases = bases
        self.reports: list[SpoolReport] = []
        self.holds: dict[str, Callable[[], None]] = {}
        """By holder, the function that releases the hold on a thread if the settlement is over or can never continue."""
        self._clock = clock
        self._watch = Watch(lease)
        self._foreign: set[str] = set()

    def has_beaten(self) -> None:
        """Note that the store has taken a heartbeat of this journal, so that the others could send theirs as well."""
        self._watch.sent(self._clock.monotonic())

    def verdict(self, owner: Owner) -> Verdict:
        """Return whether the owner is dead. If only heartbeats can tell, that is "unknown" until its lease has run out."""
        return self._watch.verdict(owner, self._clock.monotonic())

    def is_gone(self, owner: Owner) -> bool:
        """Return whether the owner is known to be dead."""
        return self.verdict(owner) == "gone"

    def elsewhere(self, run: Run) -> Owner | None:
        """Return the owner of a run if only its heartbeats can tell whether it is alive; else None."""
        owner = self.owner(run.owner)
        return owner if owner is not None and certain(owner) is None else None

    def overdue(self, run: Run) -> Owner | None:
        """Return the owner of a run if only its heartbeats can tell whether it is alive, and none has come lately."""
        owner = self.elsewhere(run)
        if owner is None or self.verdict(owner) == "alive" or self._watch.has_heard(owner, self._clock.monotonic()):
            return None
        return owner

    def owner(self, owner_id: str | None) -> Owner | None:
        """Return the owner with this id, or None if the store does not know it: its journal was closed, or it is dead."""
        return next((owner for owner in self.store.owners() if owner.owner_id == owner_id), None)

    def report_claims(self, run_ids: Collection[str], ours: Owner) -> None:
        """Log which of these runs, whose events the store has refused, another journal has claimed."""
        for run_id in run_ids:
            run = self.store.run(run_id)
            if run is None or run.owner in (None, ours.owner_id):
                continue
            owner = self.owner(run.owner)
            where = "this machine" if owner is not None and is_same_place(owner.place, ours.place) else "another machine"
            pid = "which is closed by now" if owner is None else f"process {owner.pid} of {where}"
            logger.error(_CLAIMED, run_id, run.owner, pid)

    def owner_is_gone(self, run: Run) -> bool:
        """Return whether the owner of this run is dead, so that no process can write the run. If so, import its spool."""
        owner = self.owner(run.owner)
        if owner is not None and not self.is_gone(owner):
            return False
        if run.owner is not None:
            self.import_spool_of(run.owner)
        return True

    def import_spools(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Import the spools of all dead owners into the store. First release the holds of settlements that are over.

        `meanwhile`: called between two parts of a long import.
        """
        for release_if_over in list(self.holds.values()):
            release_if_over()
        if not self._bases:
            return
        # List the spools before the owners: a journal that is being opened registers as an owner before it makes a spool.
        # So a spool that is listed here without an owner below belongs to a dead owner (but see `_are_used`).
        spools = self._spools()
        progress = Progress(self.store.url, meanwhile)
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


class WaitForOwner:
    """The wait of a new message until the heartbeats of an owner on another machine tell whether that owner is alive."""

    def __init__(self, owners: DeadOwners, run: Run, given: float | None) -> None:
        """Begin to wait for the owner of a run: `given` seconds, or those after which its heartbeats must have told."""
        self._owners = owners
        self._owner = owners.elsewhere(run)
        self.patience = 0.0 if self._owner is None else patience_for(self._owner, given)

    def look(self, run: Run, waited: float) -> _Look:
        """Return what is known after `waited` seconds: "certain" if the owner is alive, or if its process can be looked up
        on this machine; "undecided" if the patience is over and nothing is known."""
        if self._owner is None:
            return "certain"
        now = self._owners.elsewhere(run)
        if now is None:
            return "unknown"  # another process has just found out that the owner is dead: the next claim succeeds
        if now.beats != self._owner.beats:
            return "certain"
        return "unknown" if waited <= self.patience else "undecided"


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
