"""Records: small JSON objects beside the runs, each in a hash; a sorted set for each space and each group."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any, Final

from .. import StoredRecord
from .handle import Handle
from .keys import decoded, encoded
from .scripts import RECORD

_FIELDS: Final = (b"space", b"key", b"group", b"text", b"version", b"number")
_PAGE: Final = 100


class Records(Handle):
    """The part of a `RedisStore` that keeps records. They never expire."""

    def record(self, space: str, key: str) -> StoredRecord | None:
        """Return the record, or None."""
        return _record(self._server.call(*self._fields(space, key)))

    def put_record(
        self, space: str, key: str, text: str | None, *, version: int | None, group: str | None
    ) -> StoredRecord | None:
        """Write or delete a record, if it has this version, in one script."""
        if text is None:
            return self._delete(space, key, version)
        done = self._put(space, key, b"t" + text.encode(), version, b"" if group is None else b"g" + encoded(group))
        if len(done) == 1:
            return None
        return StoredRecord(space, key, _group(done[2]), text, int(done[0]), int(done[1]))

    def _delete(self, space: str, key: str, version: int | None) -> StoredRecord | None:
        # The script keeps its answer for a while, in case it gets lost. So the text is read before, and not in that answer.
        while True:
            old = self.record(space, key)
            if old is None or version not in (None, old.version):
                return None
            if len(self._put(space, key, b"", old.version, b"")) > 1:
                return old

    def _put(self, space: str, key: str, text: bytes, version: int | None, group: bytes) -> list[Any]:
        names = encoded(space), encoded(key), encoded(_head(space))
        wanted = b"" if version is None else version
        return self._step(RECORD, uuid.uuid4().hex, *names, wanted, group, text, tell=False)

    def records(self, space: str, *, group: str | None, after: int, limit: int | None) -> list[StoredRecord]:
        """Return the records of a space, or of one group in it, with a larger number, by number."""
        name = ("records", space) if group is None else ("records-of", _head(space) + group)
        index = self._keys.about(*name)
        found: list[StoredRecord] = []
        while limit is None or len(found) < limit:
            page = self._server.call(b"ZRANGEBYSCORE", index, b"(%d" % after, b"+inf", b"WITHSCORES", b"LIMIT", 0, _PAGE)
            if not page:
                break
            after = int(page[-1])
            rows = self._server.exchange([self._fields(space, decoded(key)) for key in page[::2]])
            # One that was deleted in between, or got into another group, is left out.
            there = [one for row in rows if (one := _record(row)) is not None]
            found += [one for one in there if group in (None, one.group)]
        return found[:limit]

    def _fields(self, space: str, key: str) -> tuple[Any, ...]:
        return (b"HMGET", self._keys.about("record", _head(space) + key), *_FIELDS)


def _head(space: str) -> str:
    """Return what begins the name of a record and of a group of the space, so that no two names become one."""
    return f"{len(space)}:{space}"


def _group(field: bytes) -> str | None:
    return decoded(field[1:]) if field else None


def _record(row: Sequence[Any]) -> StoredRecord | None:
    if row[0] is None:
        return None
    space, key, group, text, version, number = row
    return StoredRecord(
        decoded(space), decoded(key), _group(group), text.decode("utf-8", "replace"), int(version), int(number)
    )
