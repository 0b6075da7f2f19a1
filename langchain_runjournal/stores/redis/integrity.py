"""The check of a store by itself: its rows, the indexes that must agree with them, and the ends of its streams."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ...errors import StoreCorrupt
from .keys import decoded
from .retention import Retention
from .scripts import CHECK, CHECK_RECORDS

_PAGE: Final = 200


class Integrity(Retention):
    """The part of a `RedisStore` that checks it."""

    def check(self) -> list[str]:
        """Return what is wrong, one sentence for each problem. The store stays usable meanwhile."""
        self._server.check_open()
        if self._server.call(b"HGET", self._keys.store, b"id") != self.store_id:
            return ["the server was emptied, or another journal has begun there"]
        self._sweep()
        found = [problem for page in self._pages() for problem in self._problems(page)]
        return [*found, *self._problems_of_records()]

    def _problems(self, run_ids: list[bytes]) -> Iterator[str]:
        found = self._step(CHECK, *run_ids, tell=False)
        for run_id, problem in zip(found[::2], found[1::2], strict=True):
            yield f"run {decoded(run_id)} {problem.decode()}"
        for run_id in map(decoded, run_ids):
            try:
                self.run(run_id)
            except StoreCorrupt as exc:
                yield str(exc.reason)

    def _pages(self) -> Iterator[list[bytes]]:
        """Yield the ids of all runs: first of those in the index of all runs, then of those that exist and are not in it."""
        listed: set[bytes] = set()
        start = b"-inf"
        while page := self._server.call(
            b"ZRANGEBYSCORE", self._keys.runs, start, b"+inf", b"WITHSCORES", b"LIMIT", 0, _PAGE
        ):
            start = b"(" + page[-1]
            listed.update(page[::2])
            yield page[::2]
        for found in self._scan(self._keys.run(b"")):
            if stray := [run_id for run_id in found if run_id not in listed]:
                yield stray

    def _problems_of_records(self) -> Iterator[str]:
        for names in self._scan(self._keys.about("record", "")):
            found = self._step(CHECK_RECORDS, *names, tell=False) if names else []
            for name, problem in zip(found[::2], found[1::2], strict=True):
                yield f"record {decoded(name)} {problem.decode()}"

    def _scan(self, head: bytes) -> Iterator[list[bytes]]:
        """Yield what follows in all keys that begin with `head`, in pages that may be empty."""
        cursor = b"0"
        while True:
            cursor, keys = self._server.call(b"SCAN", cursor, b"MATCH", _plain(head) + b"*", b"COUNT", 1_000)
            yield [key[len(head) :] for key in keys]
            if cursor == b"0":
                return


def _plain(text: bytes) -> bytes:
    """Return a pattern that matches just this text."""
    return b"".join(b"\\" + text[at : at + 1] if text[at] in b"*?[]\\" else text[at : at + 1] for at in range(len(text)))
