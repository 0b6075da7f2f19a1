"""A store in memory: the readable specification of a store, and the journal of tests and notebooks."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..errors import RunFenced, SeqGap, StoreClosed
from ..events import Event, Run, RunStatus
from . import Begun, Owner, Segment, StoredRecord, advance, new_run, shown, unpack

__all__ = ["MemoryStore"]


@dataclass(slots=True)
class _Kept:
    run: Run
    number: int
    events: list[Event] = field(default_factory=list)


class MemoryStore:
    """Runs in dicts, under one lock. They end with the process."""

    def __init__(self) -> None:
        self.url = ":memory:"
        self.path: Path | None = None
        self.store_id = uuid.uuid4().bytes
        self._lock = threading.Lock()
        self._kept: dict[str, _Kept] = {}  # in the order in which the runs began
        self._owners: dict[str, Owner] = {}
        self._facts: dict[str, set[str]] = {}
        self._holders: dict[str, str] = {}
        self._records: dict[tuple[str, str], StoredRecord] = {}
        self._version = 0
        self._begun = 0
        self._put = 0
        self._closed = False

    def append(self, owner_id: str, segments: Sequence[Segment]) -> None:
        """Store the segments, all or none."""
        with self._open():
            fenced = [s.run_id for s in segments if not self._may_append(owner_id, s)]
            if fenced:
                raise RunFenced(run_ids=fenced, refused=0)
            lasts: dict[str, int] = {}
            for s in segments:
                last = lasts.get(s.run_id, self._last(s.run_id))
                if s.first > last + 1:
                    raise SeqGap(run_id=s.run_id, last=last, first=s.first)
                lasts[s.run_id] = max(last, s.last)
            for s in segments:
                self._keep(owner_id, s)
            self._version += 1

    def _may_append(self, owner_id: str, segment: Segment) -> bool:
        kept = self._kept.get(segment.run_id)
        return kept is None or (kept.run.owner, kept.run.epoch) == (owner_id, segment.epoch)

    def _last(self, run_id: str) -> int:
        kept = self._kept.get(run_id)
        return kept.run.last_seq if kept else 0

    def _keep(self, owner_id: str, segment: Segment) -> None:
        kept = self._kept.get(segment.run_id)
        if kept is None:
            run = replace(new_run(segment.run_id, segment.t0 / 1000, owner_id), epoch=segment.epoch)
            kept = self._new(run)
        last = kept.run.last_seq
        for mark in segment.marks:
            if mark.seq > last:
                kept.run = advance(kept.run, mark)
        kept.events += unpack(segment, after=last)
        kept.run = replace(kept.run, last_seq=max(last, segment.last))

    def begin(self, run: Run, besides: Collection[str]) -> list[str]:
        """Begin a run, unless another one on its thread is running."""
        with self._open():
            there = [kept.run for kept in self._kept.values() if run.thread_id is not None]
            there = [one for one in there if one.thread_id == run.thread_id and one.status == RunStatus.RUNNING]
            in_the_way = [one.run_id for one in there if one.run_id not in besides and one.run_id != run.run_id]
            if run.run_id in self._kept:
                in_the_way.append(run.run_id)
            if not in_the_way:
                self._new(run)
                self._version += 1
            return in_the_way

    def _new(self, run: Run) -> _Kept:
        self._begun += 1
        kept = self._kept[run.run_id] = _Kept(run, self._begun)
        return kept

    def withdraw(self, run_id: str, owner_id: str) -> bool:
        """Undo `begin` for a run that has no event yet."""
        with self._open():
            kept = self._kept.get(run_id)
            if kept is None or kept.run.owner != owner_id or kept.events:
                return False
            del self._kept[run_id]
            self._version += 1
            return True

    def read(self, run_id: str, after: int, limit: int | None) -> list[Event]:
        """Return the events with a larger seq than `after`, in order, at most `limit`."""
        with self._open():
            kept = self._kept.get(run_id)
            return kept.events[after : None if limit is None else after + limit] if kept else []

    def run(self, run_id: str) -> Run | None:
        """Return the run, or None."""
        with self._open():
            kept = self._kept.get(run_id)
            return shown(kept.run) if kept else None

    def owner_of(self, run_id: str) -> str | None:
        """Return the owner that may append to a run."""
        with self._open():
            kept = self._kept.get(run_id)
            return kept.run.owner if kept else None

    def runs(self, *, thread_id: str | None, status: RunStatus | None, limit: int | None) -> list[Run]:
        """Return the runs that match, newest first."""
        with self._open():
            found = [
                shown(kept.run)
                for kept in reversed(self._kept.values())
                if thread_id in (None, kept.run.thread_id) and status in (None, kept.run.status)
            ]
            return found[:limit]

    def ids(self, start: str, limit: int | None) -> list[str]:
        """Return the ids of the runs that begin with `start`, sorted, at most `limit`."""
        with self._open():
            return sorted(run_id for run_id in self._kept if run_id.startswith(start))[:limit]

    def began(self, after: int | None, *, thread_id: str | None, limit: int | None) -> list[Begun]:
        """Return the runs with a larger number, oldest first; with None, the newest run."""
        with self._open():
            runs = [kept for kept in self._kept.values() if thread_id in (None, kept.run.thread_id)]
            found = runs[-1:] if after is None else [kept for kept in runs if kept.number > after][:limit]
            return [Begun(kept.number, kept.run.run_id, kept.run.thread_id) for kept in found]

    def unsettled(self, *, thread_id: str | None) -> list[Run]:
        """Return the runs that are running, or have ended and are neither settled nor given up; oldest first."""
        with self._open():
            runs = [kept.run for kept in self._kept.values() if thread_id in (None, kept.run.thread_id)]
            return [shown(run) for run in runs if not run.done and run.status != RunStatus.PAUSED]

    def request_stop(self, run_id: str, cause: str) -> Run | None:
        """Note the request to stop the run."""
        with self._open():
            kept = self._kept.get(run_id)
            if kept is None:
                return None
            if not kept.run.ended and kept.run.stop is None:
                kept.run = replace(kept.run, stop=cause)
                self._version += 1
            return shown(kept.run)

    def stops(self, owner_id: str) -> dict[str, str]:
        """Return the pending stop requests for the live runs of `owner_id`: `{run_id: cause}`."""
        with self._open():
            runs = [kept.run for kept in self._kept.values()]
            return {run.run_id: run.stop for run in runs if run.stop and run.owner == owner_id and not run.ended}

    def claim(self, run_id: str, owner_id: str, epoch: int) -> bool:
        """Make `owner_id` the owner at `epoch` + 1, if the run is still at `epoch`."""
        with self._open():
            kept = self._kept.get(run_id)
            if kept is None or kept.run.done or kept.run.epoch != epoch:
                return False
            kept.run = replace(kept.run, owner=owner_id, epoch=epoch + 1)
            self._version += 1
            return True

    def beat(self, owner: Owner) -> None:
        """Note that the owner is alive."""
        with self._open():
            self._owners[owner.owner_id] = owner

    def owners(self) -> list[Owner]:
        """Return all owners that were not forgotten."""
        with self._open():
            return list(self._owners.values())

    def forget(self, owner_id: str) -> None:
        """Remove an owner."""
        with self._open():
            self._owners.pop(owner_id, None)

    def prune(self, *, before: int | None, keep_last: int | None, dry_run: bool = False) -> list[str]:
        """Delete whole runs that have ended and are settled."""
        with self._open():
            ended = [k.run for k in self._kept.values() if k.run.done]
            ended.sort(key=lambda run: run.ended_at or 0.0)
            if keep_last is not None:
                ended = ended[: max(0, len(ended) - keep_last)]
            gone = [run.run_id for run in ended if before is None or (run.ended_at or 0.0) * 1000 < before]
            for run_id in () if dry_run else gone:
                del self._kept[run_id]
            return gone

    def delete(self, run_ids: Collection[str]) -> list[str]:
        """Delete these runs, in any state."""
        with self._open():
            gone = [run_id for run_id in dict.fromkeys(run_ids) if run_id in self._kept]
            for run_id in gone:
                del self._kept[run_id]
            self._version += bool(gone)
            return gone

    def vacuum(self) -> None:
        """Do nothing: no text of deleted runs remains."""
        with self._open():
            return

    def learn(self, graph: str, facts: Collection[str]) -> None:
        """Add facts about a graph."""
        with self._open():
            self._facts.setdefault(graph, set()).update(facts)

    def learned(self, graph: str) -> set[str]:
        """Return all facts about a graph."""
        with self._open():
            return set(self._facts.get(graph, ()))

    def hold(self, thread_id: str, holder: str, instead_of: str | None) -> str:
        """Make `holder` the holder of a thread, if it has none or `instead_of`. Return its holder."""
        with self._open():
            if self._holders.get(thread_id) in (None, instead_of):
                self._holders[thread_id] = holder
            return self._holders[thread_id]

    def holder(self, thread_id: str) -> str | None:
        """Return the holder of a thread, or None."""
        with self._open():
            return self._holders.get(thread_id)

    def release(self, thread_id: str, holder: str) -> None:
        """Remove the holder of a thread, if it is this one."""
        with self._open():
            if self._holders.get(thread_id) == holder:
                del self._holders[thread_id]

    def record(self, space: str, key: str) -> StoredRecord | None:
        """Return the record, or None."""
        with self._open():
            return self._records.get((space, key))

    def put_record(
        self, space: str, key: str, text: str | None, *, version: int | None, group: str | None
    ) -> StoredRecord | None:
        """Write or delete a record, if it has this version."""
        with self._open():
            old = self._records.get((space, key))
            if version not in (None, old.version if old else 0):
                return None
            if text is None:
                return self._records.pop((space, key), None)
            self._put += 1
            if old is None:
                new = StoredRecord(space, key, group, text, self._put, self._put)
            else:
                new = old._replace(group=group or old.group, text=text, version=self._put)
            self._records[space, key] = new
            return new

    def records(self, space: str, *, group: str | None, after: int, limit: int | None) -> list[StoredRecord]:
        """Return the records of a space, or of one group in it, with a larger number, by number."""
        with self._open():
            there = [one for one in self._records.values() if one.space == space and one.number > after]
            found = [one for one in there if group in (None, one.group)]
            return sorted(found, key=lambda one: one.number)[:limit]

    def changed(self) -> int:
        """Return a number that grows with every write, but for those of records."""
        with self._open():
            return self._version

    def check(self) -> list[str]:
        """Return nothing: memory has no files that could be damaged."""
        with self._open():
            return []

    def tidy(self) -> None:
        """Do nothing: there are no small rows to merge."""
        with self._open():
            return

    def before_fork(self) -> None:
        """Take the lock, so that no operation is running."""
        self._lock.acquire()

    def after_fork(self, *, child: bool) -> None:
        """Release the lock; a child has a copy of the data."""
        if child:
            self._holders.clear()  # the settlements of the parent do not run in the child
        self._lock.release()

    def close(self) -> None:
        """Forget all data."""
        with self._lock:
            self._closed = True
            self._kept.clear()
            self._records.clear()

    def _open(self) -> threading.Lock:
        if self._closed:
            raise StoreClosed(url=self.url)
        return self._lock
