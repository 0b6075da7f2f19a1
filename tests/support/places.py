"""The place where a test keeps its journal and its threads: files in its directory, or a database of a real server.

`make_place` writes a note into the directory. A process that is given the directory finds the journal and the threads by the
note, so the processes that tests start need no other argument.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from psycopg import sql
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from langchain_runjournal import RunJournal
from langchain_runjournal.journal.spool_place import spool_bases
from langchain_runjournal.stores import open_store
from tests.support.servers import RedisServer, postgres_url

PLACES = ("sqlite", "postgres", "redis")
WAYS = ("connection", "pool", "pipeline")
"""The ways in which a program gives its connections to `PostgresSaver` and `AsyncPostgresSaver`."""
_NOTE = "place.json"


@dataclass(frozen=True)
class Place:
    """A journal and the threads of its graphs."""

    home: str
    journal: str
    """The path or the URL of the journal."""
    threads: str
    """The path or the URL of the checkpoints: Postgres, if the journal is there, or else SQLite."""
    spool_dir: str | None = None
    """The directory of the spools; None for the default: beside the file, or the user's state directory."""

    @property
    def is_local(self) -> bool:
        """Whether the journal is a file."""
        return "://" not in self.journal

    def open(self, *, busy_timeout: float | None = None, **options: Any) -> RunJournal:
        """Open the journal."""
        options.setdefault("spool_dir", self.spool_dir)
        if self.is_local:
            return RunJournal(self.journal, busy_timeout=busy_timeout, **options)
        query = f"?busy_timeout={busy_timeout}" if busy_timeout is not None else ""
        return RunJournal(self.journal + query, **options)

    def saver(self, way: str = "connection") -> AbstractContextManager[Any]:
        """Open the checkpointer for calls without a loop."""
        return open_threads(self.threads, way)

    def asaver(self, way: str = "connection") -> AbstractAsyncContextManager[Any]:
        """Open the checkpointer for calls on a loop."""
        return aopen_threads(self.threads, way)

    def spools(self) -> list[Path]:
        """Return the spool files of the journal."""
        store = open_store(self.journal)
        try:
            bases = spool_bases(store, self.spool_dir)
        finally:
            store.close()
        return sorted(found for base in bases for found in base.parent.glob(f"{base.name}-spool-*"))

    def is_locked(self) -> bool:
        """Return whether a process is in the middle of a transaction that others have to wait for."""
        if self.is_local:
            con = sqlite3.connect(self.journal, timeout=0.2, isolation_level=None)
            try:
                con.execute("BEGIN IMMEDIATE")
                con.execute("ROLLBACK")
            except sqlite3.OperationalError:
                return True
            finally:
                con.close()
        if self.journal.startswith("postgres"):
            with psycopg.connect(self.journal, autocommit=True) as con_:
                return bool(con_.execute(_IN_A_TRANSACTION).fetchone())
        return False  # Redis executes a script as one step

    def end_connections(self) -> int:
        """End all connections to the server of the journal, as an administrator does. Return their number."""
        if self.journal.startswith("postgres"):
            with psycopg.connect(self.journal, autocommit=True) as con:
                return len(con.execute(_END).fetchall())
        with redis.Redis.from_url(self.journal) as client:
            number = self.journal.rpartition("/")[2]
            others = [one for one in client.client_list() if one["db"] == number and one["id"] != str(client.client_id())]
            return sum(client.client_kill_filter(_id=one["id"]) for one in others)

    def drop(self) -> None:
        """Delete the databases. Directories are left to pytest."""
        for url in {self.journal, self.threads}:
            if url.startswith("postgres"):
                _drop(url)
            elif url.startswith("redis"):
                with redis.Redis.from_url(url) as client:
                    client.flushdb()


def place_of(home: Path) -> Place:
    """Return the place that is noted in a directory; without a note, files of the directory."""
    note = home / _NOTE
    if not note.exists():
        return Place(str(home), str(home / "runs.db"), str(home / "threads.db"))
    return Place(**{**json.loads(note.read_text()), "home": str(home)})


def make_place(home: Path, kind: str) -> Place:
    """Make a place of a kind in `PLACES` in a directory, with an empty journal and no threads."""
    if kind == "sqlite":
        return place_of(home)
    if kind == "postgres":
        url = threads_url()
        return _noted(home, Place(str(home), url, url))
    return _noted(home, Place(str(home), _redis_url(), str(home / "threads.db")))


def copied_place(base: Path, home: Path) -> Place:
    """Copy a place that no process has open: its files, its spools and its databases.

    A copy of a database has the same id, so the copy has a directory of its own for its spools.
    """
    shutil.copytree(base, home)
    old = place_of(base)
    if old.is_local:
        return place_of(home)
    spools = home / "spools"
    spools.mkdir()
    for spool in old.spools():
        shutil.copy2(spool, spools)
    if old.journal == old.threads:
        journal = threads = _copied(old.threads)
    else:
        journal, threads = _redis_url(), str(home / "threads.db")
        _copy_keys(old.journal, journal)
    return _noted(home, Place(str(home), journal, threads, str(spools)))


def on(*kinds: str, slow: Sequence[str] = (), storm: Sequence[str] = ()) -> Any:
    """Run a test, which takes the fixture `place`, in places of these kinds. `slow`, `storm`: those that get this mark."""
    return pytest.mark.parametrize("place", marked(kinds, slow, storm), indirect=True)


def in_places(*kinds: str, slow: Sequence[str] = (), storm: Sequence[str] = ()) -> Any:
    """Return a fixture `place` for all tests of a module, in places of these kinds, with marks as for `on`."""

    @pytest.fixture(params=marked(kinds, slow, storm))
    def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
        found = make_place(tmp_path, request.param)
        yield found
        found.drop()

    return place


def marked(kinds: Sequence[str], slow: Sequence[str] = (), storm: Sequence[str] = ()) -> list[Any]:
    """Return kinds of places as parameters. Some have a mark: CI runs what is slow, and leaves out what is a storm."""
    found = []
    for kind in kinds:
        marks = [pytest.mark.slow] if kind in (*slow, *storm) else []
        found.append(pytest.param(kind, marks=[*marks, pytest.mark.storm] if kind in storm else marks))
    return found


# --- checkpointers ----------------------------------------------------------------------------------------------------

_CONNECTED: dict[str, Any] = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
"""The options that LangGraph requires of a connection which a program gives to a checkpointer."""


@contextmanager
def open_threads(target: str, way: str = "connection") -> Iterator[Any]:
    """Open a checkpointer on a file, or on a database that has its tables."""
    if not target.startswith("postgres"):
        with SqliteSaver.from_conn_string(target) as saver:
            saver.conn.execute("PRAGMA busy_timeout = 30000")
            yield saver
    elif way == "pool":
        with ConnectionPool(target, min_size=1, max_size=4, kwargs=_CONNECTED) as pool:
            yield PostgresSaver(pool)  # type: ignore[arg-type]
    else:
        with PostgresSaver.from_conn_string(target, pipeline=way == "pipeline") as found:
            yield found


def aopen_threads(target: str, way: str = "connection") -> AbstractAsyncContextManager[Any]:
    """Do the same for calls on a loop."""
    if not target.startswith("postgres"):
        return AsyncSqliteSaver.from_conn_string(target)
    if way == "pool":
        return _aopen_pool(target)
    return AsyncPostgresSaver.from_conn_string(target, pipeline=way == "pipeline")


@asynccontextmanager
async def _aopen_pool(target: str) -> AsyncIterator[Any]:
    async with AsyncConnectionPool(target, min_size=1, max_size=4, open=False, kwargs=_CONNECTED) as pool:
        yield AsyncPostgresSaver(pool)  # type: ignore[arg-type]


def is_of_pool(task: asyncio.Task[Any]) -> bool:
    """Whether a task belongs to an open pool of connections: a worker, its scheduler, or what that waits for."""
    frame = getattr(task.get_coro(), "cr_frame", None)
    waits = type(frame.f_locals.get("self")).__module__ if frame is not None else ""
    return task.get_name().startswith("pool-") or waits.startswith("psycopg_pool")


# --- databases --------------------------------------------------------------------------------------------------------

_END = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
)
_IN_A_TRANSACTION = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in transaction%'"


def _noted(home: Path, place: Place) -> Place:
    (home / _NOTE).write_text(json.dumps(asdict(place)))
    return place


@cache
def _template() -> str:
    """Return a database that has the tables of the checkpointer, which is copied for each test."""
    url = postgres_url()
    with PostgresSaver.from_conn_string(url) as saver:
        saver.setup()
    return url


def start_server(kind: str) -> None:
    """Start the server of a kind, before a process forks others that use it."""
    if kind == "postgres":
        _template()
    elif kind == "redis":
        _redis()


def threads_url() -> str:
    """Return a new Postgres database with the tables of the checkpointer."""
    return _copied(_template())


def _copied(url: str) -> str:
    head, _, name = url.rpartition("/")
    copy = f"test_{time.time_ns()}"
    with psycopg.connect(f"{head}/postgres", autocommit=True) as con:
        # The server may not have noticed yet that a killed process has gone.
        con.execute("SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = %s", [name])
        con.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(copy), sql.Identifier(name)))
    return f"{head}/{copy}"


def _drop(url: str) -> None:
    head, _, name = url.rpartition("/")
    with psycopg.connect(f"{head}/postgres", autocommit=True) as con:
        con.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))


@cache
def _redis() -> RedisServer:
    """Return a server that keeps what it has acknowledged: a journal says nothing about it when it opens."""
    server = RedisServer()
    server.start()
    return server


def _redis_url() -> str:
    """Return a database of the server, with a number that no test process has, in turns."""
    with redis.Redis.from_url(_redis().url()) as client:
        number = 1 + client.incr("databases") % 999  # type: ignore[operator]
    url = _redis().url(number)
    with redis.Redis.from_url(url) as client:
        client.flushdb()
    return url


def _copy_keys(source: str, target: str) -> None:
    with redis.Redis.from_url(source) as client:
        number = int(target.rpartition("/")[2])
        for key in client.scan_iter(count=1000):
            client.copy(key, key, destination_db=number, replace=True)
