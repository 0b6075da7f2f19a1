"""The rows of events: how they are appended, merged and read."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import psycopg

from ...errors import EventsMissing, RunFenced, SeqGap, StoreFailed
from ...events import Event
from ...events.segments import Segment, first_events, gap_in, long_segments
from .batch import Batch, Known, Span, rows_of
from .connections import Connections
from .names import key, lock_number
from .run_rows import LOCKED, SOME, run_of
from .sessions import Session

logger = logging.getLogger("langchain_runjournal")

_REMEMBERED: Final = 10_000
_ATTEMPTS: Final = 10
_MERGE_AT: Final = 100
"""The short rows of a run that are worth merging. Each event is written twice by that, and read many times faster."""
_PAGE: Final = 200
_FIRST_PAGE: Final = 8
"""The rows that a read with a limit asks for at first: so many long rows have more events than most callers ask for."""
_SHORT: Final = "last - first < 1000 AND octet_length(body) < 65536"
_APPEND: Final = """
WITH head AS MATERIALIZED (
    SELECT * FROM unnest(
        %(run)s::bigint[], %(run_id)b::text[], %(version)s::bigint[], %(epoch)s::bigint[], %(last_seq)s::bigint[],
        %(ended_at)s::bigint[], %(settled)s::boolean[], %(thread_id)b::text[], %(status)b::text[], %(stop)b::text[],
        %(rest)b::text[]
    ) AS h (run, run_id, version, epoch, last_seq, ended_at, settled, thread_id, status, stop, rest)
), held AS MATERIALIZED (
    SELECT runs.run FROM {s}.runs JOIN head ON head.run = runs.run
    WHERE runs.run_id = head.run_id AND runs.version = head.version
        AND runs.epoch = head.epoch AND runs.owner_id = %(owner)s
    ORDER BY runs.run FOR NO KEY UPDATE OF runs
), fits AS MATERIALIZED (
    SELECT WHERE (SELECT count(*) FROM held) = %(count)s
), written AS (
    UPDATE {s}.runs SET
        version = runs.version + 1,
        last_seq = head.last_seq,
        ended_at = coalesce(head.ended_at, runs.ended_at),
        settled = coalesce(head.settled, runs.settled),
        thread_id = coalesce(head.thread_id, runs.thread_id),
        status = coalesce(head.status, runs.status),
        stop = coalesce(runs.stop, head.stop),
        rest = coalesce(head.rest, runs.rest)
    FROM head, fits WHERE runs.run = head.run
), in_order AS MATERIALIZED (
    -- A run gets its number below this: of one thread, none becomes visible before an older one.
    SELECT count(pg_advisory_xact_lock(lock)) FROM unnest(%(new_locks)s::bigint[]) AS lock
), begun AS (
    INSERT INTO {s}.runs (run_id, thread_id, status, owner_id, stop, rest, epoch, settled, ended_at, last_seq)
    SELECT n.* FROM fits, in_order, unnest(
        %(new_run_id)b::text[], %(new_thread_id)b::text[], %(new_status)b::text[], %(new_owner_id)b::text[],
        %(new_stop)b::text[], %(new_rest)b::text[], %(new_epoch)s::bigint[], %(new_settled)s::boolean[],
        %(new_ended_at)s::bigint[], %(new_last_seq)s::bigint[]
    ) AS n
    RETURNING run, run_id
), stored AS (
    INSERT INTO {s}.events (run, first, last, t0, t1, ats, calls, body)
    SELECT coalesce(begun.run, e.run), e.first, e.last, e.t0, e.t1, e.ats, e.calls, e.body
    FROM fits, unnest(
        %(of)s::bigint[], %(of_new)b::text[], %(first)s::bigint[], %(last)s::bigint[], %(t0)s::bigint[], %(t1)s::bigint[],
        %(ats)b::text[], %(calls)b::text[], %(body)b::text[]
    ) AS e (run, run_id, first, last, t0, t1, ats, calls, body) LEFT JOIN begun ON begun.run_id = e.run_id
)
SELECT ARRAY(SELECT run FROM begun), ARRAY(SELECT run_id FROM begun), {notify} FROM fits
"""
_CONTINUE: Final = """
WITH written AS (
    UPDATE {s}.runs SET version = version + 1, last_seq = %(last_seq)s
    WHERE run = %(run)s AND run_id = %(run_id)s AND version = %(version)s
        AND epoch = %(epoch)s AND owner_id = %(owner)s
    RETURNING run
), stored AS (
    INSERT INTO {s}.events (run, first, last, t0, t1, ats, calls, body)
    SELECT written.run, e.* FROM written, unnest(
        %(first)s::bigint[], %(last)s::bigint[], %(t0)s::bigint[], %(t1)s::bigint[], %(ats)b::text[], %(calls)b::text[],
        %(body)b::text[]
    ) AS e
)
SELECT ARRAY[]::bigint[], ARRAY[]::text[], {notify} FROM written
"""
"""The same as `_APPEND` for a batch of one run without a mark, which most batches are, in a third of the time."""
_SPANS: Final = "SELECT run, first, last FROM {s}.events WHERE run = ANY(%(runs)s) ORDER BY run, last"
_READ: Final = """
SELECT runs.run, runs.epoch, events.first, events.last, t0, t1, ats, calls, body
FROM {s}.runs JOIN {s}.events ON events.run = runs.run
WHERE runs.run_id = %(run_id)s AND events.last > %(after)s ORDER BY events.last LIMIT %(most)s
"""
_HOLD: Final = "SELECT run FROM {s}.runs WHERE run = ANY(%(runs)s) ORDER BY run FOR KEY SHARE"
_TAKE: Final = f"""
WITH short AS (DELETE FROM {{s}}.events WHERE run = %(run)s AND {_SHORT} RETURNING *)
SELECT first, last, t0, t1, ats, calls, body FROM short ORDER BY last
"""
_PUT: Final = """
INSERT INTO {s}.events (run, first, last, t0, t1, ats, calls, body)
SELECT %(run)s, e.* FROM unnest(
    %(first)s::bigint[], %(last)s::bigint[], %(t0)s::bigint[], %(t1)s::bigint[], %(ats)b::text[], %(calls)b::text[],
    %(body)b::text[]
) AS e
"""


class EventRows(Connections):
    """The part of a `PostgresStore` that appends and reads events."""

    def _begin(self) -> None:
        super()._begin()
        self._known: dict[str, Known] = {}
        """The runs that this store writes. An append that finds them changed, also by an append whose outcome is unknown,
        reads them again."""
        self._unmerged: dict[int, str] = {}
        """Runs with many short rows, by number."""

    # --- appending ----------------------------------------------------------------------------------------------------

    def append(self, owner_id: str, segments: Sequence[Segment]) -> None:
        """Store the segments, all or none, by one statement."""
        if not segments:
            return self._check_open()
        self._used_at = time.monotonic()
        self._append_with(lambda session: self._append(session, owner_id, segments))
        return None

    def _append(self, session: Session, owner_id: str, segments: Sequence[Segment]) -> None:
        if len(self._known) > _REMEMBERED:
            self._known.clear()
        wanted = {segment.run_id for segment in segments}
        fresh = False
        for _ in range(_ATTEMPTS):
            unknown = wanted - self._known.keys()
            if unknown:
                self._known.update(self._look_up(session, SOME, unknown))
                fresh = unknown == wanted
            batch = Batch(owner_id, {run_id: self._known[run_id] for run_id in wanted & self._known.keys()})
            try:
                batch.plan(segments)
                if self._write(session, batch):
                    return
            except (RunFenced, SeqGap):
                if fresh:
                    raise
            except psycopg.errors.UniqueViolation:
                logger.debug("a run in %s was begun at the same time", self.url)
            # Something has changed since this store read the rows: read them again, and decide again.
            for run_id in wanted:
                self._known.pop(run_id, None)
            fresh = False
        reason = "another process changes the same runs all the time"
        raise StoreFailed(path=self.url, reason=reason, hint="Look for two processes with the same owner")

    def restore(self, owner_id: str, segments: Sequence[Segment]) -> None:
        """Append what is left of runs whose earlier events are lost (see `Restoring`)."""
        wanted = {segment.run_id for segment in segments}

        def work(session: Session) -> None:
            with session.transaction():
                # The rows stay locked until the end, so the spans stay as they are.
                known = self._look_up(session, LOCKED, wanted)
                spans: dict[str, list[Span]] = {run_id: [] for run_id in known}
                names = {one.number: run_id for run_id, one in known.items()}
                for run, first, last in session.execute(self._sql(_SPANS), {"runs": list(names)}):
                    spans[names[run]].append((first, last))
                batch = Batch(owner_id, known, gaps=True, spans=spans)
                batch.plan(segments)
                self._write(session, batch)

        try:
            self._append_with(work)
        finally:
            for run_id in wanted:
                self._known.pop(run_id, None)

    def _look_up(self, session: Session, statement: str, run_ids: Iterable[str]) -> dict[str, Known]:
        rows = session.execute(self._sql(statement), {"run_ids": [key(run_id) for run_id in run_ids]})
        return {run.run_id: Known(row[-2], row[-1], run) for row in rows for run in (run_of(row),)}

    def _write(self, session: Session, batch: Batch) -> bool:
        """Write a batch. Return False if the row of a run has changed; then nothing was written."""
        if not batch.after:
            return True
        few = batch.continuation()
        statement, values = (_CONTINUE, few) if few is not None else (_APPEND, self._values(batch))
        row = session.execute(self._sql(statement), values).fetchone()
        if row is None:
            return False
        numbers = dict(zip(row[1], row[0], strict=True))
        for run_id, known in batch.after.items():
            number = known.number or numbers[key(run_id)]
            version = known.version + 1 if known.number else 0
            self._known[run_id] = Known(number, version, known.run, known.pieces)
            if known.pieces >= _MERGE_AT or (known.run.ended and known.pieces > 1):
                self._unmerged[number] = run_id
        return True

    def _values(self, batch: Batch) -> dict[str, Any]:
        threads = {known.run.thread_id for known in batch.after.values() if not known.number} - {None}
        # In one order for all processes: two that wait for each other would wait for ever.
        locks = sorted(lock_number("thread", self._address.schema, str(thread_id)) for thread_id in threads)
        return {**batch.values(), "new_locks": f"{{{','.join(map(str, locks))}}}"}

    # --- merging ------------------------------------------------------------------------------------------------------

    def tidy(self) -> None:
        """Merge the short rows of the runs that this store has written."""
        with self._lock:
            self._check_open()
            self._unmerged.update((one.number, run_id) for run_id, one in self._known.items() if one.pieces > 1)
            self._merge_some(len(self._unmerged))

    def _merge_in_passing(self) -> None:
        """Merge the rows of one run. The append before it has succeeded, so a failure here must not make it raise."""
        try:
            self._merge_some(1)
        except Exception:
            logger.exception("could not merge rows of %s; retrying later", self.url)

    def _merge_some(self, most: int) -> None:
        for number, run_id in list(self._unmerged.items())[:most]:
            self._append_with(partial(self._merge, number=number))
            self._unmerged.pop(number, None)
            known = self._known.get(run_id)
            if known is not None and known.run.ended:
                self._known.pop(run_id, None)
            elif known is not None and known.number == number:
                self._known[run_id] = replace(known, pieces=0)

    def _merge(self, session: Session, number: int) -> None:
        with session.transaction():
            # `delete` waits for this lock: else it would not see the long row, and leave it behind.
            if not session.execute(self._sql(_HOLD), {"runs": [number]}).fetchall():
                return
            rows = session.execute(self._sql(_TAKE), {"run": number}).fetchall()
            long = list(long_segments([Segment(f"number {number}", 0, *row) for row in rows]))
            if long:
                session.execute(self._sql(_PUT), {"run": number, **rows_of(long)})

    # --- reading ------------------------------------------------------------------------------------------------------

    def read(self, run_id: str, after: int, limit: int | None) -> list[Event]:
        """Return the events with a larger seq than `after`, in order, at most `limit`."""
        found: list[Event] = []
        number = None
        most = _PAGE if limit is None else _FIRST_PAGE
        while limit is None or len(found) < limit:
            position = found[-1].seq if found else after
            rows = self._page(run_id, position, most)
            if number is not None and rows and rows[0][0] != number:
                return self.read(run_id, after, limit)  # it was deleted meanwhile, and begun again
            if not rows:
                break
            number = rows[0][0]
            parts = [Segment(run_id, row[1], *row[2:]) for row in rows]
            if gap := gap_in(parts, position):
                # A caller must not take these for all events. It can read the others with `after` behind the gap.
                raise EventsMissing(run_id=run_id, after=gap[0], found=gap[1], url=self.url)
            with self._translated():
                found += first_events(long_segments(parts), position, None if limit is None else limit - len(found))
            if len(rows) < most:
                break
            most = min(2 * most, _PAGE)
        return found

    def _page(self, run_id: str, after: int, most: int) -> list[tuple[Any, ...]]:
        self._used_at = time.monotonic()
        values = {"run_id": key(run_id), "after": after, "most": most}
        return self._call(lambda session: session.execute(self._sql(_READ), values).fetchall())

    def _is_in_use(self) -> bool:
        """Return whether anybody waits for what others write; a run that is at work does, for a request to stop."""
        return super()._is_in_use() or any(not one.run.ended for one in list(self._known.values()))

    def _forget_runs(self, run_ids: Collection[str]) -> None:
        for run_id in run_ids:
            self._known.pop(run_id, None)
