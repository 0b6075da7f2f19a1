"""The verbs of the SQLite store: each is one transaction or one snapshot of its `Connections`."""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

from ...common.arguments import choice, positive
from ...errors import EventsMissing
from ...events import Event, Run
from ...events.segments import Segment, first_events, gap_in, long_segments
from .. import Synchronous
from .database_file import fact, translated
from .erase import empty_wal, erase, prunable, remove, vacuum
from .event_rows import (
    CLAIM,
    COLUMNS,
    READ_LIVE,
    Batch,
    Known,
    begin,
    damage,
    tidy,
    with_call,
    withdraw,
)
from .facts import Facts
from .integrity import problems
from .listing import Listing
from .owners import Owners
from .records import Records

TIDY_AT: Final = 512 << 10
"""Bytes in `live` from which on it is worth moving them to `segments`."""
_REMEMBERED: Final = 10_000

logger = logging.getLogger("langchain_runjournal")

_READ_SEGMENTS: Final = f"SELECT {COLUMNS} FROM segments WHERE run = ? AND last > ? ORDER BY first"
_IS_LIVE: Final = "SELECT 1 FROM live WHERE id = ? AND run = ? AND last = ?"


class SqliteStore(Owners, Listing, Facts, Records):
    """Runs in one SQLite file.

    With ``synchronous="normal"`` what `append` returned from survives a killed process and a crashed program; with
    ``"full"`` it survives the loss of power as well, at the price of a disk flush for each commit. `busy_timeout`: seconds
    to wait for another process that holds the lock of the file.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, synchronous: Synchronous = "normal", busy_timeout: float = 5.0
    ) -> None:
        choice("synchronous", synchronous, Synchronous)
        positive(busy_timeout=busy_timeout)
        super().__init__(Path(path), synchronous, busy_timeout)

    def _begin(self) -> None:
        super()._begin()
        self._known: dict[str, Known] = {}
        self._generation = -1
        """The fact `turns` as this store saw it last. Another number: another writer has made `_known` invalid."""
        self._ours: set[str] = set()
        """Runs that no other writer remembers: this store began them, or has made the other writers forget them."""
        self._live_bytes = 0
        self._hints: dict[int, tuple[int, int]] = {}

    def _forget(self) -> None:
        self._known.clear()

    # --- writing ------------------------------------------------------------------------------------------------------

    def append(self, owner_id: str, segments: Sequence[Segment]) -> None:
        """Keep the segments, all or none, in one transaction."""
        self._append(owner_id, segments, gaps=False)

    def restore(self, owner_id: str, segments: Sequence[Segment]) -> None:
        """Append what is left of runs whose earlier events are lost (see `Restoring`)."""
        self._append(owner_id, segments, gaps=True)

    def _append(self, owner_id: str, segments: Sequence[Segment], *, gaps: bool) -> None:
        with self._transaction() as con:
            generation = fact(con, self._path, "turns")
            if generation != self._generation or len(self._known) > _REMEMBERED:
                self._known.clear()
            batch = Batch(con, owner_id, self._known, gaps=gaps)
            for segment in segments:
                batch.add(segment)
            batch.finish()
            if not batch.adopted <= self._ours:
                # Another writer may remember another end of these runs. This makes it forget, once for each run: otherwise
                # two writers that append to the same runs would do nothing but make each other forget.
                generation += 1
                con.execute("UPDATE facts SET value = ? WHERE name = 'turns'", (generation,))
        self._generation = generation
        if owner_id in self._owner_ids:
            self._ours.update(batch.adopted, batch.begun)
        else:
            # On behalf of an owner that seems dead. It may turn out to be alive, so this store remembers nothing.
            self._known.clear()
        if len(self._ours) > 10 * _REMEMBERED:
            self._ours.clear()
        self._live_bytes += batch.bytes
        if self._live_bytes > TIDY_AT:
            self._tidy_in_passing()

    def begin(self, run: Run, besides: Collection[str]) -> list[str]:
        """Begin a run, unless another one on its thread is running."""
        with self._transaction() as con:
            in_the_way = begin(con, run, besides)
        if not in_the_way:
            self._ours.add(run.run_id)
        return in_the_way

    def withdraw(self, run_id: str, owner_id: str) -> bool:
        """Undo `begin` for a run that has no event yet."""
        with self._transaction() as con:
            gone = withdraw(con, run_id, owner_id)
            if gone:
                self._make_others_forget(con)
            return gone

    def request_stop(self, run_id: str, cause: str) -> Run | None:
        """Note the request to stop the run."""
        with self._transaction() as con:
            con.execute("UPDATE runs SET stop = ? WHERE run_id = ? AND stop IS NULL AND ended_at IS NULL", (cause, run_id))
        return self.run(run_id)

    def claim(self, run_id: str, owner_id: str, epoch: int) -> bool:
        """Make `owner_id` the owner at `epoch` + 1, if the run is still at `epoch`."""
        with self._transaction() as con:
            won = con.execute(CLAIM, (owner_id, run_id, epoch)).rowcount == 1
            if won:
                self._make_others_forget(con)
            return won

    def prune(self, *, before: int | None, keep_last: int | None, dry_run: bool = False) -> list[str]:
        """Delete whole runs that have ended and are settled."""
        with self._snapshot() as con:  # without the write lock: most often, nothing is to be deleted
            gone = prunable(con, before, keep_last)
        if gone and not dry_run:
            with self._transaction() as con:
                gone = prunable(con, before, keep_last)  # again, because a run may be open again, or deleted, by now
                self._tidy(con)  # `live` has no index on the run: one pass for all of them
                remove(con, [run for run, _ in gone])
                self._make_others_forget(con)
        return [run_id for _, run_id in gone]

    def delete(self, run_ids: Collection[str]) -> list[str]:
        """Delete these runs, and overwrite their text in the file, in its free pages and in its -wal file."""
        with self._transaction() as con:
            self._tidy(con)  # empties `live`, whose pages SQLite rearranges all the time and so fills with copies
            gone = erase(con, run_ids)
            self._make_others_forget(con)
        with self._lock, translated(self._path):
            empty_wal(self._open_writer(), self._path)
        return gone

    def vacuum(self) -> None:
        """Rewrite the file without its free pages. Meanwhile the disk needs room for a second copy."""
        with self._lock, translated(self._path):
            vacuum(self._open_writer(), self._path)

    def check(self) -> list[str]:
        """Return what SQLite finds wrong with the file, and what differs from the schema."""
        with self._snapshot() as con:
            return problems(con)

    def tidy(self) -> None:
        """Move the rows of `live` to `segments`, each run together."""
        with self._transaction() as con:
            self._tidy(con)

    def _tidy(self, con: sqlite3.Connection) -> None:
        tidy(con)
        for known in self._known.values():
            known.tidied()
        self._live_bytes = 0

    def _tidy_in_passing(self) -> None:
        # The append has succeeded, so a failure here must not make it raise.
        self._live_bytes = 0
        try:
            self.tidy()
        except Exception:
            logger.exception("could not tidy %s; retrying later", self._path)

    def _make_others_forget(self, con: sqlite3.Connection) -> None:
        con.execute("UPDATE facts SET value = value + 1 WHERE name = 'turns'")

    # --- reading ------------------------------------------------------------------------------------------------------

    def read(self, run_id: str, after: int, limit: int | None) -> list[Event]:
        """Return the events with a larger seq than `after`, in order, at most `limit`."""
        with self._snapshot(f"run {run_id}: ") as con:
            found = con.execute("SELECT run, epoch FROM runs WHERE run_id = ?", (run_id,)).fetchone()
            if found is None:
                return []
            run, epoch = found
            live_id = self._start_in_live(con, run, after)
            parts: list[Segment] = []
            missing = limit if limit is not None else 1 << 62
            # One snapshot: a concurrent tidy() cannot make events appear in both tables, or in neither.
            for sql, values in ((_READ_SEGMENTS, (run, after)), (READ_LIVE, (live_id, run, after))):
                for row in con.execute(sql, values):
                    if missing <= 0:
                        break
                    parts.append(Segment(run_id, epoch, *row[:7]))
                    missing -= row[1] - max(after, row[0] - 1)
                    if sql is READ_LIVE:
                        live_id = row[7]
            if not parts:
                return []
            if gap := gap_in(parts, after):
                # A caller must not take these for all events. It can read the others with `after` behind the gap.
                raise EventsMissing(run_id=run_id, after=gap[0], found=gap[1], url=self.url)
            with damage(self._path, run_id):
                parts[0] = with_call(con, run, parts[0])
        if len(self._hints) > _REMEMBERED:
            self._hints.clear()
        self._hints[run] = parts[-1].last, live_id
        with damage(self._path, run_id):
            return first_events(long_segments(parts), after, limit)

    def _start_in_live(self, con: sqlite3.Connection, run: int, after: int) -> int:
        """Return the id in `live` from which a follower that has seen `after` can read, instead of from the first row."""
        seq, live_id = self._hints.get(run, (0, 0))
        if 0 < seq <= after and con.execute(_IS_LIVE, (live_id, run, seq)).fetchone():
            return live_id
        return 0
