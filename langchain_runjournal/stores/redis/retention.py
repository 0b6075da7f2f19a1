"""What makes the store smaller: deletion, expiry, and small entries that are merged.

Rule: no script takes long, because the server does nothing else meanwhile. So all of this is done in portions, and a portion
decides again whether what it deletes may be deleted.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Collection, Iterator
from typing import Final

from ...errors import RunJournalError, StoreCorrupt, StoreFailed
from ...events.segments import long_segments
from .appending import Change
from .keys import decoded, encoded
from .reading import Reading
from .scripts import APPEND, DELETE, SWEEP

logger = logging.getLogger("langchain_runjournal")

_PORTION: Final = 100
_LISTED: Final = 1_000
_SMALL: Final = 2
"""Entries from which on it is worth merging them."""
_LARGEST: Final = 8 << 20
"""Bytes of a run that are replaced in one step: that takes the server some 10 ms."""
_REWRITTEN: Final = 60.0
"""Seconds to wait for the server to rewrite its append-only file."""


class Retention(Reading):
    """The part of a `RedisStore` that deletes and merges."""

    def prune(self, *, before: int | None, keep_last: int | None, dry_run: bool = False) -> list[str]:
        """Delete whole runs that have ended and are settled, a hundred at a time."""
        self._sweep()
        gone: list[str] = []
        chosen = list(self._prunable(before, keep_last))
        if dry_run:
            return [decoded(run_id) for run_id in chosen]
        for at in range(0, len(chosen), _PORTION):
            found = self._step(DELETE, uuid.uuid4().hex, b"1", *chosen[at : at + _PORTION])
            gone += map(decoded, found)
        return gone

    def _prunable(self, before: int | None, keep_last: int | None) -> Iterator[bytes]:
        """Yield the ids of the runs that `prune` deletes, the first to end first."""
        count = int(self._server.call(b"ZCARD", self._keys.done)) - (keep_last or 0)
        if before is not None:
            count = min(count, int(self._server.call(b"ZCOUNT", self._keys.done, b"-inf", b"(%d" % before)))
        for at in range(0, count, _LISTED):
            members = self._server.call(b"ZRANGE", self._keys.done, at, min(at + _LISTED, count) - 1)
            yield from (member[16:] for member in members)  # before that, the number in which the run began

    def delete(self, run_ids: Collection[str]) -> list[str]:
        """Delete these runs, in any state. Their text stays in the append-only file until the server rewrites it."""
        self._server.check_open()
        wanted = list(dict.fromkeys(run_ids))
        gone: list[str] = []
        for at in range(0, len(wanted), _PORTION):
            found = self._step(DELETE, uuid.uuid4().hex, b"0", *map(encoded, wanted[at : at + _PORTION]))
            gone += map(decoded, found)
        return gone

    def vacuum(self) -> None:
        """Have the server rewrite its append-only file, which still has the text of deleted runs, if it has such a file.

        The file is the server's, so it is rewritten for all programs that use the server. A user that may not ask for that
        changes nothing, and the log says so.
        """
        self._server.check_open()
        if self.promise == "nothing":
            return
        deadline = time.monotonic() + _REWRITTEN
        asked = False
        try:
            while time.monotonic() < deadline:
                if self._is_rewriting():
                    time.sleep(0.02)
                elif asked:
                    return
                else:
                    self._server.call(b"BGREWRITEAOF")
                    asked = True
        except StoreFailed as exc:
            logger.warning("%s keeps the text of deleted runs until its append-only file is rewritten: %s", self.url, exc)
            return
        logger.warning("%s has not rewritten its append-only file within %d s", self.url, _REWRITTEN)

    def _is_rewriting(self) -> bool:
        found = self._server.call(b"INFO", b"persistence")
        return b"aof_rewrite_in_progress:1" in found or b"aof_rewrite_scheduled:1" in found

    def tidy(self) -> None:
        """Merge the small entries of runs that have ended, and take expired runs out of the indexes."""
        self._server.check_open()
        self._sweep()
        for run_id in self._server.call(b"SMEMBERS", self._keys.untidy):
            self._merge_or_log(decoded(run_id))

    def _tidy_in_passing(self, most: int) -> None:
        # The append has succeeded, so a failure here must not make it raise.
        try:
            self._sweep(pages=1)
            for run_id in self._server.call(b"SRANDMEMBER", self._keys.untidy, most):
                self._merge_or_log(decoded(run_id))
        except RunJournalError as exc:
            logger.warning("could not merge small entries in %s; retrying later: %s", self.url, exc)

    def _merge_or_log(self, run_id: str) -> None:
        """Merge a run. Log damage: it must not keep the other runs from being merged, nor an append from succeeding."""
        try:
            with self._damage(run_id):
                self._merge(run_id)
        except StoreCorrupt as exc:
            logger.warning("could not merge small entries of run %s: %s", run_id, exc)

    def _merge(self, run_id: str) -> None:
        """Replace the entries of a run by few and long ones, unless it changes meanwhile."""
        untidy = (b"SREM", self._keys.untidy, encoded(run_id))
        known = self._look_up([run_id])[run_id]
        parts = [] if known is None else list(self._segments(run_id))
        if known is None or len(parts) < _SMALL or sum(len(part.body) for part in parts) > _LARGEST:
            self._server.call(*untidy)
            return
        change = Change(known)
        change.entries, change.replaces = list(long_segments(parts)), True
        if change.entries[-1].last == known.last:  # or else an append came in between
            self._step(APPEND, encoded(known.run.owner or ""), self._settings.retain, 1, *change.arguments(), tell=False)

    def _sweep(self, pages: int = 1_000) -> None:
        for _ in range(pages):
            [looked_at] = self._step(SWEEP, tell=False)
            if looked_at < _PORTION:
                return
