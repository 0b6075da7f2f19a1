"""The verbs of the Postgres store that begin, claim, stop and delete runs; its base classes have the others."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import Final

from ...events import Run
from .. import Owner
from .address import address_of
from .batch import Known
from .erase import NAMED, PRUNED, erase, portions, prunable, there, vacuum
from .event_rows import EventRows
from .facts import Facts
from .integrity import problems
from .listening import Listening
from .listing import Listing
from .names import decoded, encoded, key, lock_number
from .owners import Owners
from .records import Records
from .run_rows import run_row
from .sessions import Session

_LOCK: Final = "SELECT pg_advisory_xact_lock(%(lock)s)"
_BEGIN: Final = """
WITH there AS MATERIALIZED (
    SELECT run_id, owner_id, version, last_seq FROM {s}.runs WHERE run_id = %(run_id)s
    UNION ALL
    SELECT run_id, NULL, NULL, NULL FROM {s}.runs
    WHERE thread_id = %(thread_id)s AND status = 'running' AND run_id <> %(run_id)s AND run_id <> ALL (%(besides)s::text[])
), begun AS (
    INSERT INTO {s}.runs (run_id, thread_id, status, owner_id, stop, rest, epoch, settled, ended_at, last_seq)
    SELECT %(run_id)s, %(thread_id)s, %(status)s, %(owner_id)s, %(stop)s, %(rest)s, %(epoch)s, %(settled)s, %(ended_at)s, 0
    WHERE NOT EXISTS (SELECT FROM there) AND {is_ours}
    RETURNING run
)
SELECT (SELECT run FROM begun), ARRAY(SELECT run_id FROM there),
       (SELECT count(*) FROM there WHERE owner_id = %(owner_id)s AND version = 0 AND last_seq = 0),
       CASE WHEN EXISTS (SELECT FROM begun) THEN {notify} END
"""
_WITHDRAW: Final = """
WITH gone AS (DELETE FROM {s}.runs WHERE run_id = %(run_id)s AND owner_id = %(owner_id)s AND last_seq = 0 RETURNING run)
SELECT count(*), EXISTS (SELECT FROM {s}.runs WHERE run_id = %(run_id)s), CASE WHEN count(*) > 0 THEN {notify} END FROM gone
"""
_STOP: Final = """
WITH asked AS (
    UPDATE {s}.runs SET stop = %(cause)s WHERE run_id = %(run_id)s AND stop IS NULL AND ended_at IS NULL RETURNING run
)
SELECT CASE WHEN EXISTS (SELECT FROM asked) THEN {notify} END
"""
_CLAIM: Final = """
WITH won AS (
    UPDATE {s}.runs SET owner_id = %(owner_id)s, epoch = epoch + 1, version = version + 1
    WHERE run_id = %(run_id)s AND epoch = %(epoch)s AND (ended_at IS NULL OR NOT settled) AND {is_ours} RETURNING run
)
SELECT count(*), CASE WHEN count(*) > 0 THEN {notify} END FROM won
"""
_OURS: Final = (
    "SELECT count(*) FROM {s}.runs WHERE run_id = %(run_id)s AND owner_id = %(owner_id)s AND epoch = %(epoch)s + 1"
)


class PostgresStore(EventRows, Listing, Owners, Facts, Records, Listening):
    """Runs in one schema of a Postgres database.

    `busy_timeout`: seconds to wait for a lock of another transaction; a call takes two seconds more at most. What `append`
    returned from is as durable as the server's setting `synchronous_commit` makes it.
    """

    def __init__(self, url: str, *, busy_timeout: float | None = None) -> None:
        super().__init__(address_of(url, **({} if busy_timeout is None else {"busy_timeout": busy_timeout})))

    def begin(self, run: Run, besides: Collection[str]) -> list[str]:
        """Begin a run, unless another one on its thread is running."""
        values = {**run_row(run), "besides": [key(one) for one in besides]}

        def work(session: Session, again: bool) -> list[str]:
            with session.transaction():
                if run.thread_id is not None:
                    # A statement of its own: the next one must see what was committed while this one waited.
                    lock = lock_number("thread", self._address.schema, run.thread_id)
                    session.execute(self._sql(_LOCK), {"lock": lock})
                number, there, ours, _ = self._row(session, _BEGIN, values)
            if number is not None:
                self._known[run.run_id] = Known(number, 0, run)
                return []
            if not there:
                self._check_store(session)
            # The first attempt may have begun the run, and its connection was lost before the answer came.
            return [] if again and ours else [decoded(run_id) for run_id in there]

        return self._call_knowing(work)

    def withdraw(self, run_id: str, owner_id: str) -> bool:
        """Undo `begin` for a run that has no event yet."""
        values = {"run_id": key(run_id), "owner_id": encoded(owner_id)}
        self._known.pop(run_id, None)

        def work(session: Session, again: bool) -> bool:
            gone, there, _ = self._row(session, _WITHDRAW, values)
            return bool(gone or (again and not there))

        return self._call_knowing(work)

    def request_stop(self, run_id: str, cause: str) -> Run | None:
        """Note the request to stop the run."""
        values = {"run_id": key(run_id), "cause": encoded(cause)}
        self._call(lambda session: self._row(session, _STOP, values))
        return self.run(run_id)

    def claim(self, run_id: str, owner_id: str, epoch: int) -> bool:
        """Make `owner_id` the owner at `epoch` + 1, if the run is still at `epoch`."""
        values = {"run_id": key(run_id), "owner_id": encoded(owner_id), "epoch": epoch}

        def work(session: Session, again: bool) -> bool:
            if self._row(session, _CLAIM, values)[0]:
                return True
            return again and bool(self._row(session, _OURS, values)[0])

        return self._call_knowing(work)

    def prune(self, *, before: int | None, keep_last: int | None, dry_run: bool = False) -> list[str]:
        """Delete whole runs that have ended and are settled, a hundred in each transaction."""
        chosen = self._call(lambda session: prunable(session, self._sql, before, keep_last))
        if dry_run:
            return [decoded(run_id) for run_id in chosen]
        gone: list[str] = []
        for some in portions(chosen):
            self._call(partial(erase, sql=self._sql, names=some, which=PRUNED))
            # A run that is not done by then stays. A retry cannot tell what the first attempt has deleted: ask what is left.
            left = self._call(partial(there, sql=self._sql, names=some))
            gone += [decoded(run_id) for run_id in some if run_id not in left]
        return gone

    def delete(self, run_ids: Collection[str]) -> list[str]:
        """Delete these runs, in any state. `vacuum` removes what is left of their text in the files of the server."""
        wanted = {key(run_id): run_id for run_id in run_ids}
        gone: set[str] = set()
        for some in portions(list(wanted)):
            # A retry finds nothing of what the first attempt has deleted.
            gone.update(self._call(partial(there, sql=self._sql, names=some)))
            self._call(partial(erase, sql=self._sql, names=some, which=NAMED))
        self._check_open()
        for run_id in run_ids:
            self._known.pop(run_id, None)
        return [run_id for name, run_id in wanted.items() if name in gone]

    def vacuum(self) -> None:
        """Rewrite the tables without what is left of deleted rows. Appends wait meanwhile: a spool takes their events."""
        self._call(lambda session: vacuum(session, self._sql, self.url))

    def check(self) -> list[str]:
        """Return what differs from the schema, what is damaged, and which rights are missing."""
        return self._call(lambda session: problems(session, self._sql, self._address.schema))

    def beat(self, owner: Owner) -> None:
        """Note that the owner is alive, and use the pause to merge rows."""
        super().beat(owner)
        self._merge_in_passing()
