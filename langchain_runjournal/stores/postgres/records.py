"""Records: small JSON objects beside the runs."""

from __future__ import annotations

from typing import Any, Final

from .. import StoredRecord
from .connections import Connections
from .names import decoded, encoded
from .sessions import Session

_COLUMNS: Final = "space, key, group_key, text, version, number"
_ONE: Final = f"SELECT {_COLUMNS} FROM {{s}}.records WHERE space = %(space)s AND key = %(key)s"
_LISTED: Final = {
    of_group: (
        f"SELECT {_COLUMNS} FROM {{s}}.records WHERE space = %(space)s AND number > %(after)s"
        f"{' AND group_key = %(group)s' if of_group else ''} ORDER BY number LIMIT %(limit)s"
    )
    for of_group in (False, True)
}
_COUNT: Final = (
    "UPDATE {s}.facts SET value = (value::bigint + 1)::text WHERE name = 'records' AND {is_ours} RETURNING value::bigint"
)
"""It waits for every other transaction that writes a record: what these have committed is seen by the next statement."""
_PUT: Final = f"""
INSERT INTO {{s}}.records AS r ({_COLUMNS})
VALUES (%(space)s, %(key)s, %(group)s, %(text)s, %(number)s, %(number)s)
ON CONFLICT (space, key) DO UPDATE
SET group_key = coalesce(excluded.group_key, r.group_key), text = excluded.text, version = excluded.version
RETURNING {_COLUMNS}
"""
_DELETE: Final = "DELETE FROM {s}.records WHERE number = %(number)s"


class Records(Connections):
    """The part of a `PostgresStore` that keeps records."""

    def record(self, space: str, key: str) -> StoredRecord | None:
        """Return the record, or None."""
        return self._call(lambda session: self._find(session, space, key))

    def put_record(
        self, space: str, key: str, text: str | None, *, version: int | None, group: str | None
    ) -> StoredRecord | None:
        """Write or delete a record, if it has this version, in one transaction. `vacuum` removes what is left of it."""
        ours: set[int] = set()
        deleted: list[StoredRecord] = []

        def work(session: Session) -> StoredRecord | None:
            with session.transaction():
                number = self._count(session)
                old = self._find(session, space, key)
                # An earlier attempt may have been committed, and its connection was lost before the answer came.
                if old is not None and old.version in ours:
                    return old
                if old is None and deleted:
                    return deleted[0]
                if version not in (None, old.version if old else 0):
                    return None
                if text is None:
                    if old is not None:
                        session.execute(self._sql(_DELETE), {"number": old.number})
                        deleted[:] = [old]
                    return old
                ours.add(number)
                values = {**_names(space, key), "group": None if group is None else encoded(group)}
                return _record(self._row(session, _PUT, {**values, "text": text, "number": number}))

        return self._call(work)

    def records(self, space: str, *, group: str | None, after: int, limit: int | None) -> list[StoredRecord]:
        """Return the records of a space, or of one group in it, with a larger number, by number."""
        values = {"space": encoded(space), "after": after, "limit": limit, "group": encoded(group or "")}
        statement = self._sql(_LISTED[group is not None])
        rows = self._call(lambda session: session.execute(statement, values).fetchall())
        return [_record(row) for row in rows]

    def _find(self, session: Session, space: str, key: str) -> StoredRecord | None:
        row = session.execute(self._sql(_ONE), _names(space, key)).fetchone()
        return None if row is None else _record(row)

    def _count(self, session: Session) -> int:
        """Return the number of a write, and keep other writes of records from beginning."""
        row = session.execute(self._sql(_COUNT)).fetchone()
        if row is None:
            self._check_store(session)
            raise AssertionError("the schema lacks its count of records")
        return int(row[0])


def _names(space: str, key: str) -> dict[str, str]:
    return {"space": encoded(space), "key": encoded(key)}


def _record(row: tuple[Any, ...]) -> StoredRecord:
    space, key, group, *rest = row
    return StoredRecord(decoded(space), decoded(key), None if group is None else decoded(group), *rest)
