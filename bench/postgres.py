"""The journal on Postgres, beside what one would write by hand: time and bytes per token, replay, capture."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import psycopg

from langchain_runjournal import Event
from tests.support.servers import PostgresServer, ServerMissing

from . import _server_stores as stores
from ._server_rivals import PostgresRows
from ._stats import times
from ._tools import Bench, heading, note

_SCHEMA_SIZE = """
SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'runjournal' AND c.relkind IN ('r', 'p')
"""
_WAL = "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')"
_CONNECTIONS = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND datname = %s"
_EACH = "INSERT and commit each"
_TARGET, _SMALLER = 40, 9


def run(bench: Bench) -> None:
    """Run the section."""
    bench.begin("postgres")
    heading("18. The journal on Postgres")
    try:
        server = PostgresServer()
    except ServerMissing as missing:
        note(f"left out: {missing}")
        return
    with closing(_Closing(server)), bench.directory() as directory:
        url, plain = server.new_database(), server.new_database()
        with psycopg.connect(url, autocommit=True) as con:
            (version,) = con.execute("SELECT current_setting('server_version')").fetchone() or ("",)
            note(f"Postgres {version} on this machine, over TCP; fsync is on.")
            database = url.rpartition("/")[2]

            def connected() -> int:
                return _number(con, _CONNECTIONS, database)

            stores.connections(bench, connected, url, directory)
        rivals = PostgresRows(plain)
        with closing(rivals), psycopg.connect(url, autocommit=True) as con:
            for commit in ("on", "off"):
                _per_token(bench, rivals, url, directory, commit)
            _sizes(bench, rivals, server.new_database(), directory)
            _replay(bench, rivals, url, directory)
        stores.capture(bench, directory, server.new_database(), "Postgres")


class _Closing:
    """A server that `close` ends."""

    def __init__(self, server: PostgresServer) -> None:
        server.start()
        self.close = server.destroy


def _number(con: psycopg.Connection, query: str, *values: object) -> int:
    (found,) = con.execute(query, values or None).fetchone() or (0,)
    return int(found)


def _per_token(bench: Bench, rivals: PostgresRows, url: str, directory: Path, commit: str) -> None:
    few = bench.pick(1_000, 100)
    rivals.con.execute(f"SET synchronous_commit = {commit}")
    note(f"synchronous_commit = {commit}: a commit {'waits' if commit == 'on' else 'does not wait'} for the disk.")
    ways: dict[str, Callable[[list[Event]], None]] = {
        _EACH: rivals.insert_each,
        "executemany, 100 a commit": lambda events: rivals.insert_many(events, 100),
        "COPY, 100 a commit": lambda events: rivals.copy(events, 100),
        f"by hand: a row for {stores.BATCH} texts": lambda events: rivals.insert_batches(events, stores.BATCH),
    }
    with stores.watched(f"{url}?synchronous_commit={commit}", directory) as (journal, store):
        found = stores.per_token(bench, f"postgres, {commit}", stores.Loads(journal, store), ways, _EACH, few)
    if commit == "off":
        return
    anchor = found[_EACH][0].median
    for name in ("100 runs at 100 tokens/s", f"{stores.BATCH} tokens, flush"):
        ratio = anchor / found[f"journal: {name}"][0].median
        bench.at_least(f"postgres, {name}: times less than INSERT each", ratio, _TARGET, times)


def _sizes(bench: Bench, rivals: PostgresRows, url: str, directory: Path) -> None:
    runs, count = bench.pick((100, 1_000), (5, 200))
    total = runs * count
    with psycopg.connect(url, autocommit=True) as con:
        with stores.watched(url, directory) as (journal, _):
            before, wal = _number(con, _SCHEMA_SIZE), _number(con, _WAL)
            events = [stores.write_run(journal, count, bench.random)[1] for _ in range(runs)]
            live, written = _number(con, _SCHEMA_SIZE) - before, _number(con, _WAL) - wal
        closed = _number(con, _SCHEMA_SIZE) - before
        con.execute("VACUUM (FULL, ANALYZE)")
        full = _number(con, _SCHEMA_SIZE) - before
        each, wal = rivals.size("copied"), _number(con, _WAL)
        for one in events:
            rivals.copy(one, 100)
        rows, rows_wal = rivals.size("copied") - each, _number(con, _WAL) - wal
    note(f"{runs} runs of {count:,} tokens, in batches of {stores.BATCH}.")
    stores.sizes(
        sum(len(event.data["text"]) for event in events[0]) / count,
        [
            ("journal, open", live / total),
            ("journal, closed", closed / total),
            ("journal, closed, after VACUUM FULL", full / total),
            ("journal, WAL", written / total),
            ("a row for each event", rows / total),
            ("a row for each event, WAL", rows_wal / total),
        ],
    )
    bench.at_least("postgres, bytes: times less than a row for each event", rows / closed, _SMALLER, times)


def _replay(bench: Bench, rivals: PostgresRows, url: str, directory: Path) -> None:
    count = bench.pick(100_000, 5_000)
    with stores.watched(url, directory) as (journal, _):
        run_id, events = stores.write_run(journal, count)
        rivals.copy(events, 1_000)
        stores.replay(bench, journal, "SELECT a row for each event", rivals.read, run_id)
