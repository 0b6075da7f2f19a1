"""The default store: one SQLite file, in WAL mode."""

from __future__ import annotations

import json
import logging
import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from .. import _fold
from .._segments import Segment, merge, trim, unpack
from ..errors import RunFenced, RunJournalError, SeqGap, StoreClosed, StoreCorrupt
from ..events import Event, Run, RunStatus
from . import Owner, Synchronous
from ._sqlite_file import connect, prepare, translated

TIDY_AT: Final = 1 << 20
"""Bytes in `live` from which on it is worth moving them to `segments`."""
_LONG_ROW: Final = 500
_SEGMENT_EVENTS: Final = 2_000
_SEGMENT_BYTES: Final = 256 << 10
_REMEMBERED: Final = 10_000

_K = TypeVar("_K")
_V = TypeVar("_V")
logger = logging.getLogger("langchain_runjournal")

_COLUMNS: Final = "first, last, t0, t1, ats, calls, body"
_INSERT_LIVE: Final = f"INSERT INTO live (run, {_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
_INSERT_SEGMENT: Final = f"INSERT INTO segments (run, {_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
_READ_SEGMENTS: Final = f"SELECT {_COLUMNS} FROM segments WHERE run = ? AND last > ? ORDER BY first"
_READ_LIVE: Final = f"SELECT {_COLUMNS}, id FROM live WHERE id > ? AND run = ? AND last > ? ORDER BY id"
_RUN: Final = "run_id, thread_id, status, owner_id, epoch, stop, settled, ended_at, rest, run"
_INSERT_RUN: Final = (
    "INSERT INTO runs (run_id, thread_id, status, owner_id, epoch, stop, settled, ended_at, rest)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_UPDATE_RUN: Final = (
    "UPDATE runs SET run_id = ?, thread_id = ?, status = ?, owner_id = ?, epoch = ?, stop = ?, settled = ?,"
    " ended_at = ?, rest = ? WHERE run = ?"
)
_RUNS: Final = (
    f"SELECT {_RUN} FROM runs WHERE (?1 IS NULL OR thread_id = ?1) AND (?2 IS NULL OR status = ?2)"
    " ORDER BY run DESC LIMIT ?3"
)
_IS_LIVE: Final = "SELECT 1 FROM live WHERE id = ? AND run = ? AND last = ?"
_LASTS: Final = "SELECT run, max(last) FROM live GROUP BY run"
_LAST_SEGMENT: Final = "SELECT last FROM segments WHERE run = ? ORDER BY first DESC LIMIT 1"
_STOPS: Final = "SELECT run_id, stop FROM runs WHERE owner_id = ? AND stop IS NOT NULL AND ended_at IS NULL"
_CLAIM: Final = (
    "UPDATE runs SET owner_id = ?, epoch = epoch + 1 WHERE run_id = ? AND epoch = ? AND (ended_at IS NULL OR NOT settled)"
)
_PRUNABLE: Final = (
    "SELECT run, run_id, ended_at FROM runs WHERE ended_at IS NOT NULL AND settled ORDER BY ended_at DESC, run DESC"
    " LIMIT -1 OFFSET ?"
)


class _Known(NamedTuple):
    """What a writer remembers of a run, so that an append need not look."""

    run: int
    owner_id: str
    epoch: int
    last: int


class SqliteStore:
    """Runs in one SQLite file.

    With ``synchronous="normal"`` what `append` returned from survives a killed process and a crashed program; with
    ``"full"`` it survives the loss of power as well, at the price of a disk flush for each commit.
    """

    def __init__(self, path: Path, *, synchronous: Synchronous = "normal", busy_timeout: float = 5.0) -> None:
        # Resolved once: the process may change its directory, and two names of one file must mean one journal.
        self.path: Path | None = Path(os.path.realpath(path))
        self._path = self.path
        self.url = f"sqlite:///{self._path.as_posix().lstrip('/')}"
        self._synchronous = synchronous
        self._busy_timeout = busy_timeout
        self.store_id = prepare(self._path, busy_timeout)
        self._closed = False
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.RLock()
        self._at_rest = threading.Condition(self._lock)
        self._reading = 0
        self._writer: sqlite3.Connection | None = None
        self._watcher: sqlite3.Connection | None = None
        self._readers: list[sqlite3.Connection] = []
        self._known: dict[str, _Known] = {}
        self._turns = -1
        self._live_bytes = 0
        self._hints: dict[int, tuple[int, int]] = {}

    def before_fork(self) -> None:
        """Come to rest: a child that inherits a lock inside SQLite could never use SQLite again."""
        self._lock.acquire()
        self._at_rest.wait_for(lambda: not self._reading, timeout=self._busy_timeout)

    def after_fork(self, *, child: bool) -> None:
        """Go on; a child forgets the parent's connections, which SQLite forbids it to use, and even to close."""
        if child:
            _inherited.append((self._writer, self._watcher, self._readers))
            self._begin()
        else:
            self._lock.release()

    # --- writing ------------------------------------------------------------------------------------------------------

    def append(self, owner_id: str, segments: Sequence[Segment]) -> None:
        """Keep the segments, all or none, in one transaction."""
        with self._transaction() as con:
            turns = con.execute("SELECT value FROM facts WHERE name = 'turns'").fetchone()[0]
            if turns != self._turns:
                self._known.clear()
            batch = _Batch(con, owner_id, self._known)
            for segment in segments:
                batch.add(segment)
            batch.write()
            if batch.adopted:
                # Somebody else may remember another end of these runs.
                turns += 1
                con.execute("UPDATE facts SET value = ? WHERE name = 'turns'", (turns,))
        self._turns = turns
        for run_id, known in batch.touched.items():
            self._remember(self._known, run_id, known)
        self._live_bytes += batch.bytes
        if self._live_bytes > TIDY_AT:
            self._tidy_in_passing()

    def request_stop(self, run_id: str, cause: str) -> Run | None:
        """Note that somebody wants the run to stop."""
        with self._transaction() as con:
            con.execute("UPDATE runs SET stop = ? WHERE run_id = ? AND stop IS NULL AND ended_at IS NULL", (cause, run_id))
        return self.run(run_id)

    def claim(self, run_id: str, owner_id: str, epoch: int) -> bool:
        """Make `owner_id` the owner at `epoch` + 1, if the run is still at `epoch`."""
        with self._transaction() as con:
            won = con.execute(_CLAIM, (owner_id, run_id, epoch)).rowcount == 1
            if won:
                self._turn(con)
            return won

    def beat(self, owner: Owner) -> None:
        """Note that the owner lives."""
        row = (owner.owner_id, owner.place, owner.pid, owner.born, owner.lease, owner.beats)
        with self._transaction() as con:
            con.execute("INSERT OR REPLACE INTO owners VALUES (?, ?, ?, ?, ?, ?)", row)

    def forget(self, owner_id: str) -> None:
        """Drop an owner."""
        with self._transaction() as con:
            con.execute("DELETE FROM owners WHERE owner_id = ?", (owner_id,))

    def prune(self, *, before: int | None, keep_last: int | None) -> list[str]:
        """Delete whole runs that have ended and are settled."""
        with self._transaction() as con:
            found = con.execute(_PRUNABLE, (keep_last or 0,)).fetchall()
            gone = [(run, run_id) for run, run_id, ended_at in found if before is None or ended_at < before]
            for run, _ in gone:
                con.execute("DELETE FROM segments WHERE run = ?", (run,))
                con.execute("DELETE FROM runs WHERE run = ?", (run,))
            # One pass over `live`, which has no index on the run.
            con.executemany("DELETE FROM live WHERE run = ?", [(run,) for run, _ in gone])
            if gone:
                self._turn(con)
            return [run_id for _, run_id in gone]

    def tidy(self) -> None:
        """Move what has arrived in `live` to `segments`, each run together."""
        with self._transaction() as con:
            rows = con.execute(f"SELECT {_COLUMNS}, run FROM live ORDER BY run, id").fetchall()
            for run, group in groupby(rows, key=itemgetter(7)):
                _move(con, run, [Segment(f"number {run}", 0, *row[:7]) for row in group])
            con.execute("DELETE FROM live")
        self._live_bytes = 0

    def _tidy_in_passing(self) -> None:
        # The append has succeeded, whatever comes of this.
        self._live_bytes = 0
        try:
            self.tidy()
        except RunJournalError:
            logger.exception("could not tidy %s; it is tried again later", self._path)

    def _turn(self, con: sqlite3.Connection) -> None:
        con.execute("UPDATE facts SET value = value + 1 WHERE name = 'turns'")

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """One transaction that takes the write lock at once: begun as a reader, it could not wait for it later."""
        with self._lock, translated(self._path):
            con = self._open_writer()
            try:
                con.execute("BEGIN IMMEDIATE")
                yield con
                con.execute("COMMIT")
            except BaseException as exc:
                # Whether a failed COMMIT has committed is unknown, and so is what we remembered.
                self._known.clear()
                if con.in_transaction:
                    con.execute("ROLLBACK")
                if isinstance(exc, ValueError):
                    raise StoreCorrupt(path=str(self._path), reason=str(exc)) from exc
                raise

    def _open_writer(self) -> sqlite3.Connection:
        if self._writer is None:
            self._writer = self._connect()
            self._writer.execute(f"PRAGMA synchronous = {self._synchronous.upper()}")
        return self._writer

    def _connect(self) -> sqlite3.Connection:
        if self._closed:
            raise StoreClosed(url=self.url)
        return connect(self._path, self._busy_timeout)

    # --- reading ------------------------------------------------------------------------------------------------------

    def read(self, run_id: str, after: int, limit: int | None) -> list[Event]:
        """The events with a larger seq than `after`, in order, at most `limit`."""
        with self._snapshot() as con:
            found = con.execute("SELECT run, epoch FROM runs WHERE run_id = ?", (run_id,)).fetchone()
            if found is None:
                return []
            run, epoch = found
            live_id = self._start_in_live(con, run, after)
            parts: list[Segment] = []
            missing = limit if limit is not None else 1 << 62
            # One snapshot: a tidy() in between cannot make events appear in both tables, or in neither.
            for sql, values in ((_READ_SEGMENTS, (run, after)), (_READ_LIVE, (live_id, run, after))):
                for row in con.execute(sql, values):
                    if missing <= 0:
                        break
                    parts.append(Segment(run_id, epoch, *row[:7]))
                    missing -= row[1] - max(after, row[0] - 1)
                    if sql is _READ_LIVE:
                        live_id = row[7]
        if not parts:
            return []
        self._remember(self._hints, run, (parts[-1].last, live_id))
        try:
            return [event for long in _long_segments(parts) for event in unpack(long, after)][:limit]
        except ValueError as exc:
            raise StoreCorrupt(path=str(self._path), reason=f"run {run_id}: {exc}") from exc

    def _start_in_live(self, con: sqlite3.Connection, run: int, after: int) -> int:
        """Where in `live` a follower that has seen `after` may begin, so that it need not look through all of it."""
        seq, live_id = self._hints.get(run, (0, 0))
        if 0 < seq <= after and con.execute(_IS_LIVE, (live_id, run, seq)).fetchone():
            return live_id
        return 0

    @staticmethod
    def _remember(memory: dict[_K, _V], key: _K, value: _V) -> None:
        if len(memory) >= _REMEMBERED:
            memory.clear()
        memory[key] = value

    def run(self, run_id: str) -> Run | None:
        """The run, or None."""
        with self._snapshot() as con:
            row = con.execute(f"SELECT {_RUN} FROM runs WHERE run_id = ?", (run_id,)).fetchone()
            return _with_lasts(con, [row])[0] if row else None

    def runs(self, *, thread_id: str | None, status: RunStatus | None, limit: int | None) -> list[Run]:
        """The runs that fit, newest first."""
        values = (thread_id, status.value if status else None, -1 if limit is None else limit)
        with self._snapshot() as con:
            return _with_lasts(con, con.execute(_RUNS, values).fetchall())

    def stops(self, owner_id: str) -> dict[str, str]:
        """The stops asked for, of what `owner_id` owns and has not ended."""
        with self._snapshot() as con:
            return dict(con.execute(_STOPS, (owner_id,)).fetchall())

    def owners(self) -> list[Owner]:
        """All owners that have not been forgotten."""
        with self._snapshot() as con:
            rows = con.execute("SELECT owner_id, place, pid, born, lease, beats FROM owners").fetchall()
        names = ("owner_id", "place", "pid", "born", "lease", "beats")
        return [Owner(**dict(zip(names, row, strict=True))) for row in rows]

    def changed(self) -> int:
        """SQLite's own count of what other connections have committed: two microseconds."""
        with self._lock, translated(self._path):
            if self._watcher is None:
                self._watcher = self._connect()
            return int(self._watcher.execute("PRAGMA data_version").fetchone()[0])

    @contextmanager
    def _snapshot(self) -> Iterator[sqlite3.Connection]:
        with translated(self._path):
            con = self._borrow()
            try:
                con.execute("BEGIN")
                yield con
            finally:
                if con.in_transaction:
                    con.execute("COMMIT")
                self._give_back(con)

    def _borrow(self) -> sqlite3.Connection:
        with self._lock:
            if self._closed:
                raise StoreClosed(url=self.url)
            con = self._readers.pop() if self._readers else self._connect()
            self._reading += 1
            return con

    def _give_back(self, con: sqlite3.Connection) -> None:
        with self._lock:
            self._reading -= 1
            self._at_rest.notify_all()
            if not self._closed and len(self._readers) < 8:
                self._readers.append(con)
                return
        con.close()

    def close(self) -> None:
        """Release the file. The last one to close it folds SQLite's -wal file into it."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            for con in (*self._readers, self._watcher, self._writer):
                if con is not None:
                    con.close()
            self._readers, self._watcher, self._writer = [], None, None


_inherited: list[object] = []


class _Batch:
    """One append, inside its transaction."""

    def __init__(self, con: sqlite3.Connection, owner_id: str, known: dict[str, _Known]) -> None:
        self._con = con
        self._owner_id = owner_id
        self._before = known
        self._fenced: list[str] = []
        self._rows: dict[int, list[Segment]] = {}
        self.touched: dict[str, _Known] = {}
        self.adopted = False
        self.bytes = 0

    def add(self, segment: Segment) -> None:
        run_id = segment.run_id
        known = self.touched.get(run_id) or self._before.get(run_id) or self._look_up(segment)
        if known.owner_id != self._owner_id or known.epoch != segment.epoch:
            self._fenced.append(run_id)
            return
        if segment.first > known.last + 1:
            raise SeqGap(run_id=run_id, last=known.last, first=segment.first)
        if segment.last > known.last:
            if segment.first <= known.last:
                segment = trim(segment, known.last)
            if segment.marks:
                self._mark(known.run, segment)
            self._rows.setdefault(known.run, []).append(segment)
            self.bytes += len(segment.body) + len(segment.ats) + len(segment.calls)
        self.touched[run_id] = known._replace(last=max(known.last, segment.last))

    def write(self) -> None:
        if self._fenced:
            raise RunFenced(run_ids=sorted(set(self._fenced)), refused=0)
        live = []
        for run, parts in self._rows.items():
            if parts[-1].last - parts[0].first + 1 < _LONG_ROW:
                live += [(run, *part[2:9]) for part in parts]
            else:
                self._put_to_rest(run, parts)
        self._con.executemany(_INSERT_LIVE, live)

    def _put_to_rest(self, run: int, parts: list[Segment]) -> None:
        # Long enough to be written once and for all, together with the shorter ones before it: what rests must not
        # overtake what arrived.
        rows = self._con.execute(_READ_LIVE, (0, run, 0)).fetchall()
        self._con.execute("DELETE FROM live WHERE run = ?", (run,))
        _move(self._con, run, [*(Segment(parts[0].run_id, 0, *row[:7]) for row in rows), *parts])

    def _look_up(self, segment: Segment) -> _Known:
        row = self._con.execute(f"SELECT {_RUN} FROM runs WHERE run_id = ?", (segment.run_id,)).fetchone()
        if row is None:
            if segment.first != 1:
                raise SeqGap(run_id=segment.run_id, last=0, first=segment.first)
            run = replace(_fold.begin(segment.run_id, segment.t0 / 1000, self._owner_id), epoch=segment.epoch)
            number = self._con.execute(_INSERT_RUN, _run_row(run)).lastrowid
            return _Known(number or 0, self._owner_id, segment.epoch, 0)
        self.adopted = True
        found = _with_lasts(self._con, [row])[0]
        return _Known(row[9], found.owner or "", found.epoch, found.last_seq)

    def _mark(self, number: int, segment: Segment) -> None:
        row = self._con.execute(f"SELECT {_RUN} FROM runs WHERE run = ?", (number,)).fetchone()
        run = _run_of(row)
        for mark in segment.marks:
            run = _fold.advance(run, mark)
        self._con.execute(_UPDATE_RUN, (*_run_row(run), number))


def _run_row(run: Run) -> tuple[Any, ...]:
    rest = {
        "name": run.name,
        "cause": run.cause,
        "error": run.error,
        "started_at": run.started_at,
        "lost": run.lost,
        "metadata": run.metadata,
        "usage": run.usage,
    }
    ended_at = None if run.ended_at is None else round(run.ended_at * 1000)
    head = (run.run_id, run.thread_id, run.status.value, run.owner, run.epoch, run.stop, run.settled, ended_at)
    return *head, json.dumps({name: value for name, value in rest.items() if value})


def _run_of(row: Sequence[Any], last_seq: int = 0) -> Run:
    run_id, thread_id, status, owner_id, epoch, stop, settled, ended_at, rest, _ = row
    return Run(
        run_id=run_id,
        thread_id=thread_id,
        status=RunStatus(status),
        owner=owner_id,
        epoch=epoch,
        stop=stop,
        settled=bool(settled),
        ended_at=None if ended_at is None else ended_at / 1000,
        last_seq=last_seq,
        **json.loads(rest),
    )


def _with_lasts(con: sqlite3.Connection, rows: Sequence[Any]) -> list[Run]:
    """The runs of these rows with their last seq, which no row holds: it would have to be written with every batch."""
    lasts: dict[int, int] = dict(con.execute(_LASTS).fetchall()) if rows else {}
    runs = []
    for row in rows:
        last = lasts.get(row[9])
        if last is None:
            found = con.execute(_LAST_SEGMENT, (row[9],)).fetchone()
            last = found[0] if found else 0
        runs.append(_run_of(row, last))
    return runs


def _move(con: sqlite3.Connection, run: int, parts: Sequence[Segment]) -> None:
    """Put neighbouring segments of a run to rest."""
    con.executemany(_INSERT_SEGMENT, [(run, *long[2:9]) for long in _long_segments(parts)])


def _long_segments(parts: Sequence[Segment]) -> Iterator[Segment]:
    """Neighbouring segments of a run as few and long ones."""
    pending: list[Segment] = []
    events, size = 0, 0
    for part in parts:
        if pending and (events >= _SEGMENT_EVENTS or size >= _SEGMENT_BYTES):
            yield merge(pending)
            pending, events, size = [], 0, 0
        pending.append(part)
        events += part.last - part.first + 1
        size += len(part.body)
    if pending:
        yield merge(pending)
