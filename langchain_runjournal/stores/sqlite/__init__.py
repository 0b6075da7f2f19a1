"""The default store: one SQLite file, in WAL mode."""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import quote

from ...common import file_access as _access
from ...errors import EventsMissing, StoreClosed, StoreCorrupt, WouldDeadlock
from ...events import Event, Run
from ...events.segments import Damaged, Segment, unpack
from .. import Synchronous
from .database_file import connect, fact, prepare, translated
from .erase import empty_wal, erase, prunable, remove, vacuum
from .event_rows import (
    CLAIM,
    COLUMNS,
    READ_LIVE,
    Batch,
    Known,
    begin,
    damage,
    gap_in,
    long_segments,
    tidy,
    with_call,
    withdraw,
)
from .file_watch import OpenFiles
from .integrity import problems
from .owners import Owners

__all__ = ["SqliteStore"]

TIDY_AT: Final = 512 << 10
"""Bytes in `live` from which on it is worth moving them to `segments`."""
_REMEMBERED: Final = 10_000

logger = logging.getLogger("langchain_runjournal")

_READ_SEGMENTS: Final = f"SELECT {COLUMNS} FROM segments WHERE run = ? AND last > ? ORDER BY first"
_IS_LIVE: Final = "SELECT 1 FROM live WHERE id = ? AND run = ? AND last = ?"


class SqliteStore(Owners):
    """Runs in one SQLite file.

    With ``synchronous="normal"`` what `append` returned from survives a killed process and a crashed program; with
    ``"full"`` it survives the loss of power as well, at the price of a disk flush for each commit.
    """

    def __init__(self, path: Path, *, synchronous: Synchronous = "normal", busy_timeout: float = 5.0) -> None:
        with translated(path):
            _access.check_links(path)
        # Resolved once: the process may change its directory, and two names of one file must mean one journal.
        self.path: Path | None = Path(os.path.realpath(path))
        self._path = self.path
        self.url = f"sqlite:///{quote(self._path.as_posix().lstrip('/'))}"
        self._synchronous = synchronous
        self._busy_timeout = busy_timeout
        self.store_id, self.exposed = prepare(self._path, busy_timeout)
        with translated(self._path):
            self._files = OpenFiles(self._path)
        self._closed = False
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.RLock()
        # Readers have a lock of their own: in WAL mode they need not wait for whoever waits to write.
        self._rest_lock = threading.RLock()
        self._at_rest = threading.Condition(self._rest_lock)  # `with` takes the lock: between its lines, no Ctrl-C can come
        self._reading = 0
        self._writer: sqlite3.Connection | None = None
        self._watcher: sqlite3.Connection | None = None
        self._readers: list[sqlite3.Connection] = []
        self._known: dict[str, Known] = {}
        self._turns = -1
        self._in_transaction = False
        self._ours: set[str] = set()
        self._owner_ids: set[str] = set()
        self._live_bytes = 0
        self._hints: dict[int, tuple[int, int]] = {}
        self._left_out: set[str] = set()

    def before_fork(self) -> None:
        """Come to rest, and let go of the file.

        A child that inherits a lock inside SQLite could never use SQLite again. One that inherits an open database would
        believe, with its own new connections, that it holds the parent's locks on it: when the parent closes the file,
        it would then be taken for the last one, and the child's -wal file deleted under its feet.
        """
        patience = 2 * self._busy_timeout
        rested = self._lock.acquire(timeout=patience)
        if not rested:
            logger.warning("the process forks while %s waits for a lock: open a new journal in the child", self.url)
        self._at_rest.acquire()
        self._at_rest.wait_for(lambda: not self._reading, timeout=patience)
        self._close_connections(writer=rested)

    def after_fork(self, *, child: bool) -> None:
        """Go on; connections are opened again when they are needed."""
        if child:
            self._begin()
        else:
            self._at_rest.release()
            with contextlib.suppress(RuntimeError):  # it had not been had in time
                self._lock.release()

    # --- writing ------------------------------------------------------------------------------------------------------

    def append(self, owner_id: str, segments: Sequence[Segment]) -> None:
        """Keep the segments, all or none, in one transaction."""
        self._append(owner_id, segments, gaps=False)

    def restore(self, owner_id: str, segments: Sequence[Segment]) -> None:
        """The same for what is left of runs whose earlier events are gone (see `Restoring`)."""
        self._append(owner_id, segments, gaps=True)

    def _append(self, owner_id: str, segments: Sequence[Segment], *, gaps: bool) -> None:
        with self._transaction() as con:
            turns = fact(con, self._path, "turns")
            if turns != self._turns or len(self._known) > _REMEMBERED:
                self._known.clear()
            batch = Batch(con, owner_id, self._known, gaps=gaps)
            for segment in segments:
                batch.add(segment)
            batch.finish()
            if not batch.adopted <= self._ours:
                # Somebody else may remember another end of these runs. Told once: two writers that tell each other of the
                # same runs again and again would do nothing else.
                turns += 1
                con.execute("UPDATE facts SET value = ? WHERE name = 'turns'", (turns,))
        self._turns = turns
        if owner_id in self._owner_ids:
            self._ours.update(batch.adopted, batch.begun)
        else:
            # On behalf of an owner that is gone, which may turn out to live: nothing is remembered.
            self._known.clear()
        if len(self._ours) > 10 * _REMEMBERED:
            self._ours.clear()
        self._live_bytes += batch.bytes
        if self._live_bytes > TIDY_AT:
            self._tidy_in_passing()

    def begin(self, run: Run, besides: Collection[str]) -> list[str]:
        """Begin a run, unless others on its thread are running."""
        with self._transaction() as con:
            in_the_way = begin(con, run, besides)
        if not in_the_way:
            self._ours.add(run.run_id)
        return in_the_way

    def withdraw(self, run_id: str, owner_id: str) -> bool:
        """Take back a run that has begun, and has no event yet."""
        with self._transaction() as con:
            gone = withdraw(con, run_id, owner_id)
            if gone:
                self._turn(con)
            return gone

    def request_stop(self, run_id: str, cause: str) -> Run | None:
        """Note that somebody wants the run to stop."""
        with self._transaction() as con:
            con.execute("UPDATE runs SET stop = ? WHERE run_id = ? AND stop IS NULL AND ended_at IS NULL", (cause, run_id))
        return self.run(run_id)

    def claim(self, run_id: str, owner_id: str, epoch: int) -> bool:
        """Make `owner_id` the owner at `epoch` + 1, if the run is still at `epoch`."""
        with self._transaction() as con:
            won = con.execute(CLAIM, (owner_id, run_id, epoch)).rowcount == 1
            if won:
                self._turn(con)
            return won

    def prune(self, *, before: int | None, keep_last: int | None, dry_run: bool = False) -> list[str]:
        """Delete whole runs that have ended and are settled."""
        with self._transaction() as con:
            gone = prunable(con, before, keep_last)
            if gone and not dry_run:
                self._tidy(con)  # `live` has no index on the run: one pass for all of them
                remove(con, [run for run, _ in gone])
                self._turn(con)
            return [run_id for _, run_id in gone]

    def delete(self, run_ids: Collection[str]) -> list[str]:
        """Delete these runs, and overwrite what the file, its free pages and its -wal file hold of them."""
        with self._transaction() as con:
            self._tidy(con)  # empties `live`, whose pages SQLite rearranges all the time and so fills with copies
            gone = erase(con, run_ids)
            self._turn(con)
        with self._lock, translated(self._path):
            empty_wal(self._open_writer(), self._path)
        return gone

    def vacuum(self) -> None:
        """Rewrite the file without its free pages. It needs as much room again for as long as that takes."""
        with self._lock, translated(self._path):
            vacuum(self._open_writer(), self._path)

    def check(self) -> list[str]:
        """What SQLite says of the file, and what is not as the schema has it."""
        with self._snapshot() as con:
            return problems(con)

    def tidy(self) -> None:
        """Move what has arrived in `live` to `segments`, each run together."""
        with self._transaction() as con:
            self._tidy(con)

    def _tidy(self, con: sqlite3.Connection) -> None:
        tidy(con)
        for known in self._known.values():
            known.tidied()
        self._live_bytes = 0

    def _tidy_in_passing(self) -> None:
        # The append has succeeded, whatever comes of this.
        self._live_bytes = 0
        try:
            self.tidy()
        except Exception:
            logger.exception("could not tidy %s; retrying later", self._path)

    def _turn(self, con: sqlite3.Connection) -> None:
        con.execute("UPDATE facts SET value = value + 1 WHERE name = 'turns'")

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """One transaction that takes the write lock at once: begun as a reader, it could not wait for it later."""
        with self._lock, translated(self._path):
            if self._in_transaction:
                # A signal handler or a finaliser in the middle of one: to go on would be to end the other one's.
                raise WouldDeadlock(url=self.url, where="in a signal handler or a finalizer that interrupts a transaction")
            con = self._open_writer()
            try:
                self._in_transaction = True
                con.execute("BEGIN IMMEDIATE")
                yield con
                con.execute("COMMIT")
                self._files.check(con, self._close_readers)
            except BaseException as exc:
                # Whether a failed COMMIT has committed is unknown, and so is what we remembered.
                self._known.clear()
                if con.in_transaction:
                    con.execute("ROLLBACK")
                if isinstance(exc, Damaged):
                    raise StoreCorrupt(path=str(self._path), reason=str(exc)) from exc
                raise
            finally:
                self._in_transaction = False

    def _close_readers(self) -> bool:
        """Close the connections that nothing is being read from. Whether those were all."""
        with self._at_rest:
            self._close_connections(writer=False)
            return not self._reading

    def _open_writer(self) -> sqlite3.Connection:
        if self._writer is None:
            self._writer = self._connect()
            self._writer.execute(f"PRAGMA synchronous = {self._synchronous.upper()}")
            # Always, also when rows are only moved: a page that is freed with text on it keeps a part of that when it is
            # used again. The -wal file gets 8 % larger by that, and no time could be measured.
            self._writer.execute("PRAGMA secure_delete = ON")
        return self._writer

    def _connect(self) -> sqlite3.Connection:
        if self._closed:
            raise StoreClosed(url=self.url)
        return connect(self._path, self._busy_timeout)

    # --- reading ------------------------------------------------------------------------------------------------------

    def read(self, run_id: str, after: int, limit: int | None) -> list[Event]:
        """The events with a larger seq than `after`, in order, at most `limit`."""
        with self._snapshot(f"run {run_id}: ") as con:
            found = con.execute("SELECT run, epoch FROM runs WHERE run_id = ?", (run_id,)).fetchone()
            if found is None:
                return []
            run, epoch = found
            live_id = self._start_in_live(con, run, after)
            parts: list[Segment] = []
            missing = limit if limit is not None else 1 << 62
            # One snapshot: a tidy() in between cannot make events appear in both tables, or in neither.
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
                # Nobody is to take this for the whole. Whoever wants the rest of it reads on behind.
                raise EventsMissing(run_id=run_id, after=gap[0], found=gap[1], url=self.url)
            with damage(self._path, run_id):
                parts[0] = with_call(con, run, parts[0])
        if len(self._hints) > _REMEMBERED:
            self._hints.clear()
        self._hints[run] = parts[-1].last, live_id
        with damage(self._path, run_id):
            return [event for long in long_segments(parts) for event in unpack(long, after)][:limit]

    def _start_in_live(self, con: sqlite3.Connection, run: int, after: int) -> int:
        """Where in `live` a follower that has seen `after` may begin, so that it need not look through all of it."""
        seq, live_id = self._hints.get(run, (0, 0))
        if 0 < seq <= after and con.execute(_IS_LIVE, (live_id, run, seq)).fetchone():
            return live_id
        return 0

    def changed(self) -> int:
        """SQLite's own count of what other connections have committed: two microseconds."""
        with self._rest_lock, translated(self._path):
            if self._watcher is None:
                self._watcher = self._connect()
            return int(self._watcher.execute("PRAGMA data_version").fetchone()[0])

    @contextmanager
    def _snapshot(self, about: str = "") -> Iterator[sqlite3.Connection]:
        with translated(self._path, about):
            con = self._borrow()
            try:
                con.execute("BEGIN")
                yield con
            finally:
                if con.in_transaction:
                    con.execute("ROLLBACK")  # of a read, and unlike a COMMIT it does not fail where the file is damaged
                self._give_back(con)

    def _borrow(self) -> sqlite3.Connection:
        with self._rest_lock:
            if self._closed:
                raise StoreClosed(url=self.url)
            con = self._readers.pop() if self._readers else self._connect()
            self._reading += 1
            return con

    def _give_back(self, con: sqlite3.Connection) -> None:
        with self._rest_lock:
            self._reading -= 1
            self._at_rest.notify_all()
            if not self._closed and len(self._readers) < 8:
                self._readers.append(con)
                return
        con.close()

    def close(self) -> None:
        """Release the file. The last one to close it folds SQLite's -wal file into it."""
        with self._lock, self._rest_lock:
            self._closed = True
            self._close_connections()

    def _close_connections(self, *, writer: bool = True) -> None:
        for con in (*self._readers, self._watcher, self._writer if writer else None):
            if con is not None:
                con.close()
        self._readers, self._watcher = [], None
        if writer:
            self._writer = None
            self._files.closed()
