"""The owners: journals that have the database open, or had it open when their process was killed."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from .. import Owner, StoredRun
from .batch import Span, missing
from .connections import Connections
from .names import decoded, encoded, key
from .run_rows import SOME, run_of
from .sessions import Session

_BEAT: Final = """
WITH gone AS (DELETE FROM {s}.deleted WHERE owner_id = %(owner_id)s AND beats < %(beats)s - %(remembered)s)
INSERT INTO {s}.owners (owner_id, place, pid, born, lease, beats)
SELECT %(owner_id)s, %(place)s, %(pid)s::bigint, %(born)s, %(lease)s::double precision, %(beats)s::bigint WHERE {is_ours}
ON CONFLICT (owner_id) DO UPDATE SET
    place = excluded.place, pid = excluded.pid, born = excluded.born, lease = excluded.lease, beats = excluded.beats
"""
_REMEMBERED: Final = 10
"""Heartbeats after which no spool file of a live owner holds a deleted run: the owner begins a new file at each beat."""
_FORGET: Final = """
WITH gone AS (DELETE FROM {s}.deleted WHERE owner_id = %(owner_id)s)
DELETE FROM {s}.owners WHERE owner_id = %(owner_id)s
"""
_OWNERS: Final = "SELECT owner_id, place, pid, born, lease, beats FROM {s}.owners"
_DELETED: Final = "SELECT run_id FROM {s}.deleted WHERE owner_id = %(owner_id)s"
_OWNER: Final = "SELECT owner_id FROM {s}.runs WHERE run_id = %(run_id)s"
_STOPS: Final = "SELECT run_id, stop FROM {s}.runs WHERE owner_id = %(owner_id)s AND stop IS NOT NULL AND ended_at IS NULL"
_SPANS: Final = "SELECT first, last FROM {s}.events WHERE run = %(run)s ORDER BY last"


class Owners(Connections):
    """The part of a `PostgresStore` that keeps owners."""

    def beat(self, owner: Owner) -> None:
        """Note that the owner is alive."""
        values = {
            "owner_id": encoded(owner.owner_id),
            "place": encoded(owner.place),
            "pid": owner.pid,
            "born": encoded(owner.born),
            "lease": owner.lease,
            "beats": owner.beats,
            "remembered": _REMEMBERED,
        }

        def work(session: Session) -> None:
            if not session.execute(self._sql(_BEAT), values).rowcount:
                self._check_store(session)

        self._call(work)

    def forget(self, owner_id: str) -> None:
        """Remove an owner."""
        values = {"owner_id": encoded(owner_id)}
        self._call(lambda session: session.execute(self._sql(_FORGET), values).close())

    def owners(self) -> list[Owner]:
        """Return all owners that were not forgotten."""
        rows = self._call(lambda session: session.execute(self._sql(_OWNERS)).fetchall())
        return [
            Owner(owner_id=decoded(owner_id), place=decoded(place), pid=pid, born=decoded(born), lease=lease, beats=beats)
            for owner_id, place, pid, born, lease, beats in rows
        ]

    def deleted(self, owner_id: str) -> set[str]:
        """Return the deleted runs of `owner_id` that its spool may still hold."""
        values = {"owner_id": encoded(owner_id)}
        rows = self._call(lambda session: session.execute(self._sql(_DELETED), values).fetchall())
        return {decoded(run_id) for (run_id,) in rows}

    def stored(self, run_ids: Collection[str]) -> dict[str, StoredRun]:
        """Return owner, epoch and last event of these runs."""
        return self._call(lambda session: self._stored(session, run_ids))

    def _stored(self, session: Session, run_ids: Collection[str]) -> dict[str, StoredRun]:
        found = {}
        for row in session.execute(self._sql(SOME), {"run_ids": [key(run_id) for run_id in run_ids]}).fetchall():
            run = run_of(row)
            gaps: list[Span] = []
            if run.lost:  # a run that lost no events has no gap
                spans = session.execute(self._sql(_SPANS), {"run": row[-2]}).fetchall()
                gaps = missing([(first, last) for first, last in spans], 1, run.last_seq)
            found[run.run_id] = StoredRun(run.owner, run.epoch, run.last_seq, tuple(gaps))
        return found

    def owner_of(self, run_id: str) -> str | None:
        """Return the owner that may append to a run."""
        values = {"run_id": key(run_id)}
        row = self._call(lambda session: session.execute(self._sql(_OWNER), values).fetchone())
        return None if row is None else decoded(row[0])

    def stops(self, owner_id: str) -> dict[str, str]:
        """Return the pending stop requests for the live runs of `owner_id`: `{run_id: cause}`."""
        values = {"owner_id": encoded(owner_id)}
        rows = self._call(lambda session: session.execute(self._sql(_STOPS), values).fetchall())
        return {decoded(run_id): decoded(cause) for run_id, cause in rows}
