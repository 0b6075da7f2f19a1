"""Imports the spool of a dead owner into the store.

Rule: the store decides what is stored. For each run, the import asks the store once for the last event that it has. It skips
the events up to that one, and stores all others, in large transactions. If events are neither in the store nor in the spool,
the import stores the events behind the gap all the same, and reports the gap: it drops nothing silently.

The import is idempotent. Several processes may run it at the same time, and any of them may be killed: the store skips the
seqs that it has, and a file is deleted only when the store has all of its events.
"""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any, Final, cast

from ..common.file_access import is_trusted
from ..common.wording import plural
from ..errors import EventsMissing, RunFenced, SeqGap
from ..events import DELTA, Event, Kind
from ..events.segments import unpack
from ..stores import Store, StoredRun
from .run_buffer import RunBuffer
from .spool_format import CALL, OPEN, TEXT
from .spool_reader import Record, SpoolScan

logger = logging.getLogger("langchain_runjournal")
_BATCH: Final = 200_000
_LOG_EVERY: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolReport:
    """The result of importing the spool of one dead owner."""

    owner_id: str
    files: tuple[str, ...]
    events: int = 0
    """The number of imported events."""
    runs: tuple[str, ...] = ()
    """The runs of the imported events."""
    problem: str | None = None
    """A description of the damage, or None. Damaged files are kept, renamed to end in "-damaged" unless they are foreign."""
    foreign: tuple[str, ...] = ()
    """The files that do not belong to this journal. The import has left them as they were."""
    found: int = 0
    """The number of intact events in the files: the imported ones, those that the store had, and the refused ones."""
    refused: int = 0
    """The number of intact events that could not be stored; `problem` says why."""


class Progress:
    """A line in the log every five seconds, for a user who waits while a journal is being opened."""

    def __init__(self, url: str, meanwhile: Callable[[], object] = lambda: None) -> None:
        """`meanwhile`: called between two parts of the work."""
        self._url = url
        self._meanwhile = meanwhile
        self._began = self._due = time.monotonic()
        self._bytes = self._events = 0

    def tick(self, *, bytes: int = 0, events: int = 0) -> None:
        """Add to the work done so far, and log it if five seconds have passed."""
        self._bytes += bytes
        self._events += events
        now = time.monotonic()
        if now - self._due >= _LOG_EVERY:
            self._due = now
            what = f"{self._bytes >> 20} MB read, {self._events} events stored in {now - self._began:.0f} s"
            logger.warning("importing the spools of dead owners into %s: %s", self._url, what)
        self._meanwhile()


def import_spool(
    store: Store, owner_id: str, paths: Sequence[Path], progress: Progress | None = None, *, by_hand: bool = False
) -> SpoolReport:
    """Import the spool of a dead owner into the store, and delete its files.

    `by_hand`: a user has named the files. They stay where they are, and a damaged header does not prevent the import.
    """
    progress = progress or Progress(store.url)
    scans = _scans(store, owner_id, paths, progress, by_hand)
    read = [scan for scan in scans if not scan.foreign]
    found = _Import(store, owner_id, progress)
    found.take_all(_in_order(read))
    problems = [f"{scan.path.name}: {problem}" for scan in scans for problem in scan.problems]
    problems += found.problems
    # Delete the files only now that the store has all of their events.
    is_spoiled = bool(found.problems) or any(scan.problems for scan in read)
    for scan in () if by_hand else read:
        if is_spoiled and (scan.events or scan.problems) and scan.path.exists():
            scan.path.replace(scan.path.with_name(f"{scan.path.name}-damaged"))
        else:
            scan.path.unlink(missing_ok=True)
    report = SpoolReport(
        owner_id=owner_id,
        files=tuple(str(path) for path in paths),
        events=found.events,
        runs=tuple(found.runs),
        problem="; ".join(problems) or None,
        foreign=tuple(str(scan.path) for scan in scans if scan.foreign),
        found=sum(scan.events for scan in read),
        refused=found.refused,
    )
    if report.problem:
        logger.error("problems in the spool of the dead owner %s: %s", owner_id, report.problem)
    elif report.events:
        logger.info("imported the spool of %s into %s; events: %d", owner_id, store.url, report.events)
    return report


def _scans(store: Store, owner_id: str, paths: Sequence[Path], progress: Progress, by_hand: bool) -> list[SpoolScan]:
    # Owner ids are unique among all journals: a file with the id of one of our owners is ours, whatever its header says.
    is_ours = by_hand or any(owner.owner_id == owner_id for owner in store.owners())
    scans = []
    for path in paths:
        with contextlib.suppress(FileNotFoundError):  # another process has imported it meanwhile
            scan = SpoolScan(path, is_ours=is_ours)
            if scan.header is not None and scan.header.store_id not in (store.store_id, b""):
                scan.refuse("it belongs to another database that had this name")
            elif not by_hand and not is_trusted(path, path.with_name(path.name.rpartition("-spool-")[0])):
                scan.refuse("it belongs to another user, who may have written anything into it")
            scans.append(scan)
            progress.tick(bytes=scan.bytes)
    return scans


def _in_order(scans: Sequence[SpoolScan]) -> list[SpoolScan]:
    """Return the scans in the order in which the files were used.

    The header states that order in `turn`, which has no checksum. So the seqs of the runs decide, and `turn` only where they
    leave a choice.
    """
    rest = sorted(scans, key=lambda scan: scan.header.turn if scan.header else 0)
    ordered: list[SpoolScan] = []
    while rest:
        lowest: dict[int, int] = {}
        for scan in rest:
            for slot, first in scan.firsts.items():
                lowest[slot] = min(first, lowest.get(slot, first))
        fit = (place for place, scan in enumerate(rest) if all(lowest[slot] == seq for slot, seq in scan.firsts.items()))
        ordered.append(rest.pop(next(fit, 0)))
    return ordered


class _Import:
    """One import: the runs of a spool, each with a run buffer for the events that are not stored yet."""

    def __init__(self, store: Store, owner_id: str, progress: Progress) -> None:
        self._store = store
        self._owner_id = owner_id
        self._progress = progress
        self._buffers: dict[int, RunBuffer] = {}
        self._stored: dict[int, int] = {}
        self._filled: dict[int, StoredRun] = {}
        self._gaps: set[str] = set()
        self._nameless: dict[int, int] = {}
        self._waiting = 0
        self.events = self.refused = 0
        self.runs: dict[str, None] = {}
        self.problems: list[str] = []

    def take_all(self, scans: Sequence[SpoolScan]) -> None:
        """Store all events that the files hold and the store lacks."""
        for scan in scans:
            for slot, about in scan.opens.items():
                if slot not in self._buffers:
                    self._introduce(slot, scan.firsts[slot] - 1, about)
        self._ask_the_store({slot: seq for scan in scans for slot, seq in scan.lasts.items()})
        for scan in scans:
            with contextlib.suppress(FileNotFoundError):  # another process has imported the file, and deleted it
                self._take_records(scan)
        self.write()
        for slot, events in self._nameless.items():
            self.refused += events
            self.problems.append(f"a run without a name (slot {slot}) loses {plural(events, 'event')}")

    def _introduce(self, slot: int, seq: int, about: bytes) -> None:
        try:
            said = json.loads(about)
            self._buffers[slot] = RunBuffer(str(said["run_id"]), slot, epoch=int(said["epoch"]), seq=seq)
        except (LookupError, TypeError, ValueError) as exc:
            self.problems.append(f"the name of a run cannot be understood ({exc!r})")

    def _ask_the_store(self, lasts: Mapping[int, int]) -> None:
        """Find out up to which seq the store has each run. `lasts`: the last seq in the spool, by slot."""
        runs = _stored_runs(self._store, {buffer.run_id for buffer in self._buffers.values()})
        deleted = _deleted(self._store, self._owner_id)
        for slot, buffer in self._buffers.items():
            there = runs.get(buffer.run_id)
            if there is not None:
                # Another journal has claimed the run: `Store.append` decides whether to refuse our events.
                if there.owner not in (None, self._owner_id) or there.epoch != buffer.epoch:
                    continue
                self._stored[slot] = there.last
                if any(first <= lasts.get(slot, 0) and buffer.seq < last for first, last in there.gaps):
                    # The store has gaps in this run, and the spool may hold the missing events.
                    self._stored[slot] = buffer.seq
                    self._filled[slot] = there
                    self._gaps.add(buffer.run_id)
            elif buffer.run_id in deleted:
                self._stored[slot] = 1 << 62  # skip all of its events: a deleted run never comes back
            # The events between the last one in the store and the first one in the spool are missing.
            buffer.restart(min(buffer.seq, self._stored.get(slot, 0)))

    def _take_records(self, scan: SpoolScan) -> None:
        buffers, after_damage = self._buffers, False
        for record in scan.records(self._stored):
            slot, seq, at, type, payload, damage_here = record
            after_damage = after_damage or damage_here
            buffer = buffers.get(slot)
            if slot in self._filled and type < CALL and self._pass(slot, seq):
                continue
            if buffer is None:
                self._nameless[slot] = self._nameless.get(slot, 0) + (type < CALL)
            elif type == TEXT and seq == buffer.seq + 1 and buffer.shut is None:
                # Nearly every record is of this kind. Its checksum matches, so the payload is the UTF-8 that was put.
                buffer.add(at, buffer.spool_call, DELTA, payload.decode("utf-8", "replace"))
                self._waiting += 1
            elif buffer.shut is None:
                self._take(buffer, record, after_damage)
            else:
                self.refused += type < CALL
            if self._waiting >= _BATCH:
                self.write()

    def _pass(self, slot: int, seq: int) -> bool:
        """Skip an event that the store has, of a run in which the store has gaps. Return whether the store has it."""
        there, buffer = self._filled[slot], self._buffers[slot]
        if seq > there.last or any(first <= seq <= last for first, last in there.gaps):
            return False
        if buffer.pend:
            self.write()
        buffer.restart(seq)
        return True

    def _take(self, buffer: RunBuffer, record: Record, after_damage: bool) -> None:
        try:
            self._add(buffer, record, after_damage)
        except (LookupError, TypeError, ValueError) as exc:
            # The checksum matches, but the content is not valid. That must not prevent the import of other runs.
            self.problems.append(f"run {buffer.run_id}: a record cannot be understood ({exc})")
            self.refused += record[3] < CALL
            self.write()
            buffer.shut = RunFenced(run_ids=[buffer.run_id], refused=0)

    def _add(self, buffer: RunBuffer, record: Record, after_damage: bool) -> None:
        _, seq, at, type, payload, _ = record
        if type == OPEN:
            if seq < buffer.seq:
                self._continue_after(buffer, seq, after_damage)
            buffer.spool_call = None
        elif type == CALL:
            buffer.spool_call = json.loads(payload)
        else:
            self._continue_after(buffer, seq - 1, after_damage)
            text = payload.decode()
            kind = text[2 : text.index('"', 2)] if text[0] == "[" else DELTA
            buffer.add(at, buffer.spool_call, cast(Kind, kind), text)
            self._waiting += 1

    def _continue_after(self, buffer: RunBuffer, seq: int, after_damage: bool) -> None:
        """Make `seq` the last seq of the run buffer."""
        if seq == buffer.seq:
            return
        if seq == buffer.seq - 1:
            # An append was interrupted (see `RunBuffer.heal`): the event was removed, and the next one got its seq.
            buffer.cut(seq)
        elif seq < buffer.seq:
            if seq >= self._stored.get(buffer.slot, 0) or buffer.pend:
                raise ValueError(f"it goes back from seq {buffer.seq} to {seq}")
            buffer.restart(seq)
        else:
            self.write()
            there = max(buffer.seq, self._stored.get(buffer.slot, 0))
            if seq > there:
                self._gaps.add(buffer.run_id)
                which = f"event {seq} is" if seq == there + 1 else f"events {there + 1} to {seq} are"
                self.problems.append(f"run {buffer.run_id}: {which} missing, in the store and in the spool")
                if after_damage:
                    buffer.spool_call = None  # the damaged place may have held a CALL record
            buffer.restart(seq)

    def write(self) -> None:
        """Store the events found so far."""
        self._waiting = 0
        refused: set[str] = set()
        while True:
            buffers = [buffer for buffer in self._buffers.values() if buffer.pend and buffer.run_id not in refused]
            try:
                self._append(buffers)
                break
            except RunFenced as exc:
                gone, why = exc.run_ids, "another process had claimed the run"
            except SeqGap as exc:
                gone, why = [exc.run_id], f"the events after seq {exc.last} are missing"
            for buffer in buffers:
                if buffer.run_id in gone:
                    refused.add(buffer.run_id)
                    if left := self._not_there(buffer):
                        self.refused += len(left)
                        which = f"{plural(len(left), 'event')} of run {buffer.run_id}"
                        where = f"seq {left[0].seq}" + (f" to {left[-1].seq}" if len(left) > 1 else "")
                        self.problems.append(f"the store refused {which} ({where}): {why}")
        stored = 0
        for buffer in self._buffers.values():
            if buffer.pend:
                if buffer.run_id not in refused:
                    stored += len(buffer.pend) // 2
                    self.runs[buffer.run_id] = None
                buffer.restart(buffer.seq)
        self.events += stored
        self._progress.tick(events=stored)

    def _append(self, buffers: Sequence[RunBuffer]) -> None:
        behind_gaps = [buffer for buffer in buffers if buffer.run_id in self._gaps]
        others = [row for buffer in buffers if buffer.run_id not in self._gaps for row in buffer.take()]
        if others:
            self._store.append(self._owner_id, others)
        restore = getattr(self._store, "restore", self._store.append)
        if behind_gaps:
            restore(self._owner_id, [row for buffer in behind_gaps for row in buffer.take()])

    def _not_there(self, buffer: RunBuffer) -> list[Event]:
        """Return the events that the store lacks: the process that claimed the run may have found or imported the others."""
        ours = [event for row in buffer.take() for event in unpack(row)]
        try:
            theirs = self._store.read(buffer.run_id, ours[0].seq - 1, len(ours))
        except EventsMissing:
            return ours
        same = takewhile(lambda pair: pair[0] == pair[1], zip(ours, theirs, strict=False))
        return ours[len(list(same)) :]


# A store whose runs can be restored has methods that the protocol `Store` lacks. Without them, the import uses others.


def _stored_runs(store: Store, run_ids: Collection[str]) -> Mapping[str, StoredRun]:
    verb: Any = getattr(store, "stored", None)
    if verb is not None:
        answer: Mapping[str, StoredRun] = verb(run_ids)
        return answer
    runs = [run for run_id in run_ids if (run := store.run(run_id)) is not None]
    return {run.run_id: StoredRun(owner=run.owner, epoch=run.epoch, last=run.last_seq) for run in runs}


def _deleted(store: Store, owner_id: str) -> Collection[str]:
    verb: Any = getattr(store, "deleted", None)
    answer: Collection[str] = verb(owner_id) if verb is not None else ()
    return answer
