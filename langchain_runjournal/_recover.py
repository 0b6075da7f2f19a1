"""What a dead process left in its spool, brought into the store.

Safe to do twice, at once from several processes, and to be killed in: the store skips by seq what it has, and a file is
deleted only when the store has all of it.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

from ._lane import Lane
from ._segments import unpack
from ._spool import CALL, OPEN, Record, SpoolScan
from .errors import EventsMissing, RunFenced, SeqGap
from .events import DELTA, Kind
from .stores import Store

logger = logging.getLogger("langchain_runjournal")
_BATCH: Final = 50_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolReport:
    """What was found in the spool of one owner that is gone."""

    owner_id: str
    files: tuple[str, ...]
    events: int = 0
    """Events that were brought into the store."""
    runs: tuple[str, ...] = ()
    """The runs they belong to."""
    problem: str | None = None
    """What was wrong, or None. The files are then kept, renamed to end in "-damaged" unless they are foreign."""
    foreign: tuple[str, ...] = ()
    """The files that are not ours, and were left alone."""


def drain(store: Store, owner_id: str, paths: Sequence[Path]) -> SpoolReport:
    """Bring the spool of an owner that is gone into the store, and delete its files."""
    found = _Found(store, owner_id)
    scans = []
    for path in paths:
        with contextlib.suppress(FileNotFoundError):  # another process has drained it in the meantime
            scans.append(SpoolScan(path))
    # In the order in which they were used.
    for scan in sorted(scans, key=lambda scan: scan.header.turn if scan.header else 0):
        if scan.header is not None and scan.header.store_id != store.store_id:
            scan.foreign, scan.problem = True, "it belongs to another database that had this name"
        if not scan.foreign:
            for record, drained in scan.records():
                found.take(record, drained)
        if scan.problem:
            found.problems.append(f"{scan.path.name}: {scan.problem}")
    found.write()
    # Not before all of it is in the store.
    spoiled = any(not scan.foreign for scan in scans) and len(found.problems) > sum(scan.foreign for scan in scans)
    for scan in scans:
        if scan.foreign:
            continue
        if spoiled and scan.path.exists():
            scan.path.replace(scan.path.with_name(f"{scan.path.name}-damaged"))
        else:
            scan.path.unlink(missing_ok=True)
    report = SpoolReport(
        owner_id=owner_id,
        files=tuple(str(path) for path in paths),
        events=found.events,
        runs=tuple(found.runs),
        problem="; ".join(found.problems) or None,
        foreign=tuple(str(scan.path) for scan in scans if scan.foreign),
    )
    if report.problem:
        logger.error("the spool of %s: %s", owner_id, report.problem)
    elif report.events:
        logger.info("brought %d events of %s into %s", report.events, owner_id, store.url)
    return report


class _Found:
    """The runs of a spool, on their way into the store."""

    def __init__(self, store: Store, owner_id: str) -> None:
        self._store = store
        self._owner_id = owner_id
        self._lanes: dict[int, Lane] = {}
        self._waiting = 0
        self.events = 0
        self.runs: dict[str, None] = {}
        self.problems: list[str] = []

    def take(self, record: Record, drained: bool) -> None:
        try:
            self._take(record, drained)
        except (LookupError, TypeError, ValueError) as exc:
            # Whole by its checksum, and still nothing that can be understood: the others must not suffer for it.
            self._give_up(self._lanes.get(record.slot), f"a record cannot be understood ({exc})")

    def _give_up(self, lane: Lane | None, why: str) -> None:
        """Keep what there is of the run, and no more of it."""
        self.problems.append(f"{f'run {lane.run_id}' if lane else 'a run without a name'}: {why}")
        if lane is not None:
            self.write()
            lane.shut = RunFenced(run_ids=[lane.run_id], refused=0)

    def _take(self, record: Record, drained: bool) -> None:
        lane = self._lanes.get(record.slot)
        if lane is not None and lane.shut:
            return
        if record.type == OPEN:
            if lane is None:
                about = json.loads(record.payload)
                lane = Lane(about["run_id"], record.slot, epoch=about["epoch"], seq=record.seq)
                self._lanes[record.slot] = lane
            self._continue_after(lane, record.seq)
            lane.spool_call = None
        elif lane is None:
            raise ValueError(f"slot {record.slot} has not been introduced")
        elif record.type == CALL:
            lane.spool_call = json.loads(record.payload)
        elif drained:
            self._continue_after(lane, record.seq)
        else:
            self._continue_after(lane, record.seq - 1)
            text = record.payload.decode()
            kind = text[2 : text.index('"', 2)] if text[0] == "[" else DELTA
            lane.add(record.at, lane.spool_call, cast(Kind, kind), text)
            self._waiting += 1
            if self._waiting >= _BATCH:
                self.write()

    def _continue_after(self, lane: Lane, seq: int) -> None:
        """Make `seq` the last one of the lane."""
        if seq == lane.seq - 1:
            # An append was interrupted (see `Lane.heal`): the event was taken back, and its number given to the next.
            lane.cut(seq)
        elif seq < lane.seq:
            raise ValueError(f"it goes back from seq {lane.seq} to {seq}")
        elif seq > lane.seq:
            # What lies between is in the store, and its file deleted; or it was torn, and the store will say so.
            self.write()
            lane.restart(seq)

    def write(self) -> None:
        """Store what was found so far."""
        self._waiting = 0
        refused: set[str] = set()
        while True:
            lanes = [lane for lane in self._lanes.values() if lane.pend and lane.run_id not in refused]
            try:
                self._store.append(self._owner_id, [row for lane in lanes for row in lane.take()])
                break
            except RunFenced as exc:
                gone, why = exc.run_ids, "another process had claimed the run"
            except SeqGap as exc:
                gone, why = [exc.run_id], f"the events after seq {exc.last} are missing"
            for lane in lanes:
                if lane.run_id in gone:
                    refused.add(lane.run_id)
                    if self._is_there(lane):
                        continue
                    self.problems.append(f"{len(lane.pend) // 2} events of run {lane.run_id} were not kept: {why}")
        for lane in self._lanes.values():
            if lane.run_id not in refused and lane.pend:
                self.events += len(lane.pend) // 2
                self.runs[lane.run_id] = None
            lane.restart(lane.seq)

    def _is_there(self, lane: Lane) -> bool:
        """Whether somebody who has claimed the run meanwhile had brought in the same before."""
        ours = [event for row in lane.take() for event in unpack(row)]
        try:
            return self._store.read(lane.run_id, ours[0].seq - 1, len(ours)) == ours
        except EventsMissing:
            return False
