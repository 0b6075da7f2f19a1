"""Records: small JSON objects beside the runs."""

from __future__ import annotations

from .. import StoredRecord
from .connections import Connections
from .record_rows import find, listed, put


class Records(Connections):
    """The part of a `SqliteStore` that keeps records."""

    def record(self, space: str, key: str) -> StoredRecord | None:
        """Return the record, or None."""
        with self._snapshot(f"record {key} of {space}: ") as con:
            return find(con, space, key)

    def put_record(
        self, space: str, key: str, text: str | None, *, version: int | None, group: str | None
    ) -> StoredRecord | None:
        """Write or delete a record, if it has this version. A deleted one leaves the -wal file later: see `delete`."""
        with self._transaction() as con:
            return put(con, space, key, text, version, group)

    def records(self, space: str, *, group: str | None, after: int, limit: int | None) -> list[StoredRecord]:
        """Return the records of a space, or of one group in it, with a larger number, by number."""
        with self._snapshot(f"records of {space}: ") as con:
            return listed(con, space, group, after, limit)
