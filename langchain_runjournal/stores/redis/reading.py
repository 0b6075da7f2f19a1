"""Runs and events, as they are read."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from ...errors import EventsMissing, StoreCorrupt
from ...events import Event, Run, RunStatus
from ...events import run_state as _run_state
from ...events.segments import Damaged, Segment, first_events, gap_in, long_segments
from .. import Begun, StoredRun
from ..run_columns import run_of
from .appending import Known, gaps_in, segment_of
from .handle import Handle
from .keys import FIELDS, decoded, encoded
from .scripts import LIST, STOPS

logger = logging.getLogger("langchain_runjournal")

_FIRST_PAGE: Final = 8
_PAGE: Final = 512
_PAGE_BYTES: Final = 256 << 10
_RUNS: Final = 200
_ALL: Final = 1 << 53


class Reading(Handle):
    """The part of a `RedisStore` that reads. No method of it changes anything."""

    def _begin(self) -> None:
        super()._begin()
        self._left_out: set[str] = set()

    def read(self, run_id: str, after: int, limit: int | None) -> list[Event]:
        """Return the events with a larger seq than `after`, in order, at most `limit`."""
        self._server.check_open()
        with self._damage(run_id):
            parts = list(self._segments(run_id, after, limit))
            if gap := gap_in(parts, after):
                # A caller must not take these for all events. It can read the others with `after` behind the gap.
                raise EventsMissing(run_id=run_id, after=gap[0], found=gap[1], url=self.url)
            return first_events(long_segments(parts), after, limit)

    def _segments(self, run_id: str, after: int = 0, limit: int | None = None) -> Iterator[Segment]:
        """Yield the segments with an event behind `after`, until they have `limit` events.

        The id of an entry is the seq of its last event, so a page goes on where the one before ended, also if the entries
        were merged in between.
        """
        events, missing, count = self._keys.events(encoded(run_id)), _ALL if limit is None else limit, _FIRST_PAGE
        while missing > 0:
            page = self._server.call(b"XRANGE", events, after + 1, b"+", b"COUNT", count)
            size = 0
            for entry in page:
                segment = segment_of(run_id, entry)
                yield segment
                missing -= segment.last - max(after, segment.first - 1)
                after = segment.last
                size += len(segment.body)
                if missing <= 0:
                    return  # what comes next may lie behind a gap
            if len(page) < count:
                return
            count = min(_PAGE, 2 * count) if size < _PAGE_BYTES else count

    def run(self, run_id: str) -> Run | None:
        """Return the run, or None."""
        [row] = self._server.exchange([self._row_of(run_id)])
        if row[0] is None:
            return None
        try:
            return _run_state.shown(_run(run_id, row))
        except (TypeError, ValueError) as exc:
            raise StoreCorrupt(path=self.url, reason=_unreadable(run_id, exc)) from exc

    def runs(self, *, thread_id: str | None, status: RunStatus | None, limit: int | None) -> list[Run]:
        """Return the runs that match, newest first. A run whose row is damaged is left out, and logged once."""
        wanted = b"" if status is None else status.value.encode()
        if thread_id is not None:
            index = self._keys.about("thread", thread_id)
        else:
            index = self._keys.runs if status is None else self._keys.about("status", status.value)
        return self._listed(index, True, wanted, limit)

    def began(self, after: int | None, *, thread_id: str | None, limit: int | None) -> list[Begun]:
        """Return the runs with a larger number, oldest first; with None, the newest run."""
        index = self._keys.runs if thread_id is None else self._keys.about("thread", thread_id)
        if after is None:
            page = self._server.call(b"ZREVRANGE", index, 0, 0, b"WITHSCORES")
        else:
            most = -1 if limit is None else limit
            page = self._server.call(b"ZRANGEBYSCORE", index, b"(%d" % after, b"+inf", b"WITHSCORES", b"LIMIT", 0, most)
        pairs = list(zip(page[::2], page[1::2], strict=True))
        if thread_id is not None or not pairs:
            return [Begun(int(number), decoded(raw), thread_id) for raw, number in pairs]
        threads = self._server.exchange([(b"HGET", self._keys.run(raw), b"thread") for raw, _ in pairs])
        return [
            Begun(int(number), decoded(raw), None if thread is None else decoded(thread))
            for (raw, number), thread in zip(pairs, threads, strict=True)
        ]

    def unsettled(self, *, thread_id: str | None) -> list[Run]:
        """Return the runs that are running, or have ended and are neither settled nor given up; oldest first."""
        index = self._keys.open if thread_id is None else self._keys.about("open", thread_id)
        return self._listed(index, False, b"", None)

    def _listed(self, index: bytes, newest: bool, status: bytes, limit: int | None) -> list[Run]:
        self._server.check_open()
        found: list[Run] = []
        go_on = b"+inf" if newest else b"-inf"
        while go_on and (limit is None or len(found) < limit):
            most = _RUNS if limit is None else min(_RUNS, limit - len(found))
            go_on, *pairs = self._step(LIST, index, b"1" if newest else b"0", go_on, most, status, *FIELDS, tell=False)
            for raw, row in zip(pairs[::2], pairs[1::2], strict=True):
                if (run := self._run_or_log(decoded(raw), row)) is not None:
                    found.append(run)
            go_on = go_on and b"(" + go_on
        return found

    def _run_or_log(self, run_id: str, row: Sequence[Any]) -> Run | None:
        try:
            return _run_state.shown(_run(run_id, row))
        except (TypeError, ValueError) as exc:
            if run_id not in self._left_out:
                self._left_out.add(run_id)
                error = StoreCorrupt(path=self.url, reason=_unreadable(run_id, exc))
                logger.error("run %s is left out", run_id, exc_info=error)
            return None

    def owner_of(self, run_id: str) -> str | None:
        """Return the owner that may append to a run."""
        owner = self._server.call(b"HGET", self._keys.run(encoded(run_id)), b"owner")
        return None if owner is None else decoded(owner)

    def stops(self, owner_id: str) -> dict[str, str]:
        """Return the pending stop requests for the live runs of `owner_id`: `{run_id: cause}`."""
        found = self._step(STOPS, encoded(owner_id), tell=False)
        return {decoded(run_id): decoded(cause) for run_id, cause in zip(found[::2], found[1::2], strict=True)}

    def stored(self, run_ids: Collection[str]) -> dict[str, StoredRun]:
        """Return owner, epoch and last event of these runs, and their gaps."""
        found = {}
        for run_id, known in self._look_up(list(run_ids)).items():
            if known is not None:
                # A run that lost no events has no gap.
                parts = list(self._segments(run_id)) if known.run.lost else []
                gaps = tuple(gaps_in(parts, 1, known.last)) if known.run.lost else ()
                found[run_id] = StoredRun(known.run.owner, known.run.epoch, known.last, gaps)
        return found

    def _look_up(self, run_ids: Sequence[str]) -> dict[str, Known | None]:
        """Return what the server has of these runs; None for a run that does not exist."""
        found: dict[str, Known | None] = {}
        for at in range(0, len(run_ids), _RUNS):
            some = run_ids[at : at + _RUNS]
            for run_id, row in zip(some, self._server.exchange([self._row_of(one) for one in some]), strict=True):
                with self._damage(run_id):
                    found[run_id] = None if row[0] is None else Known(_run(run_id, row), int(row[2]), int(row[3]))
        return found

    def _row_of(self, run_id: str) -> tuple[Any, ...]:
        return (b"HMGET", self._keys.run(encoded(run_id)), *FIELDS)

    @contextmanager
    def _damage(self, run_id: str) -> Iterator[None]:
        """Raise `StoreCorrupt` for what no store has written."""
        try:
            yield
        except (LookupError, TypeError, ValueError) as exc:
            reason = str(exc) if isinstance(exc, Damaged) else f"run {run_id} is not what was written ({exc})"
            raise StoreCorrupt(path=self.url, reason=reason) from exc


def _run(run_id: str, row: Sequence[Any]) -> Run:
    """Return the run of the fields of its hash. Raise a `ValueError` or a `TypeError` for what no store has written."""
    owner, epoch, last, _, status, thread_id, settled, ended_at, stop, rest = row
    columns = (
        run_id,
        None if thread_id is None else decoded(thread_id),
        status.decode(),
        decoded(owner),
        int(epoch),
        None if stop is None else decoded(stop),
        settled == b"1",
        int(ended_at) if ended_at else None,
        rest.decode(),
        None,
    )
    return replace(run_of(columns), last_seq=int(last))


def _unreadable(run_id: str, exc: Exception) -> str:
    return f"the row of run {run_id} cannot be read ({exc})"
