"""A role with timeouts and an isolation level of its own: a store sets what it needs on each of its connections.

`test_settings_of_the_role` says the same of a whole journal, which would repeat what one statement fails to do.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from uuid import uuid4

import psycopg
import pytest

from langchain_runjournal.events import Event
from langchain_runjournal.stores.postgres import PostgresStore
from langchain_runjournal.stores.postgres.names import lock_number
from langchain_runjournal.testing.store_contract.support import begun, deltas, row
from tests.stores.test_postgres_waiting import beside
from tests.support.failing_postgres import wait_for
from tests.support.servers import postgres_url

Open = Callable[..., PostgresStore]


@pytest.fixture
def url() -> str:
    return postgres_url()


@pytest.fixture
def open_as(url: str) -> Iterator[Open]:
    """Opens stores of one database, each with a role that has such settings. All can do what the administrator can."""
    with ExitStack() as opened:

        def one(*settings: str) -> PostgresStore:
            name = f"role_{uuid4().hex}"
            with psycopg.connect(url, autocommit=True) as con:
                con.execute(f"CREATE ROLE {name} LOGIN SUPERUSER")  # type: ignore[arg-type]
                for setting in settings:
                    con.execute(f"ALTER ROLE {name} SET {setting}")  # type: ignore[arg-type]
            store = PostgresStore(f"{url.replace('postgres@', f'{name}@')}?busy_timeout=20")
            opened.callback(store.close)
            return store

        yield one


@pytest.mark.parametrize("setting", ["lock_timeout = '1ms'", "statement_timeout = '50ms'"])
def test_an_append_waits_longer_than_the_role_allows(setting: str, open_as: Open, url: str) -> None:
    """It waits for the lock of another transaction as long as `busy_timeout` says."""
    store = open_as(setting)
    store.append("me", [row(deltas("r", 1))])
    waits = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        " AND clock_timestamp() - query_start > '150ms'"
    )
    over = threading.Event()

    def append() -> None:
        try:
            store.append("me", [row(deltas("r", 1, 2))])
        finally:
            over.set()

    with psycopg.connect(url) as holder, psycopg.connect(url, autocommit=True) as con:
        holder.execute("SELECT FROM runjournal.runs WHERE run_id = 'r' FOR UPDATE")
        with beside(append):
            wait_for(lambda: over.is_set() or con.execute(waits).fetchone() == (1,), "the append")
            holder.rollback()
    assert [event.seq for event in store.read("r", 0, None)] == [1, 2]


@pytest.mark.parametrize(
    ("setting", "state"),
    [("idle_in_transaction_session_timeout = '50ms'", "idle in transaction"), ("idle_session_timeout = '50ms'", "idle")],
)
def test_a_connection_rests_longer_than_the_role_allows(setting: str, state: str, open_as: Open, url: str) -> None:
    """Between two statements of one call, the server does not end it."""
    store = open_as(setting)
    rests = (
        "SELECT state = %s AND clock_timestamp() - state_change > '150ms' FROM pg_stat_activity"
        " WHERE pid = %s AND datname = current_database()"
    )
    with psycopg.connect(url, autocommit=True) as con, store._borrowed() as session, ExitStack() as opened:
        if state == "idle in transaction":
            opened.enter_context(session.transaction())
        session.execute("SELECT 1")
        values = [state, session.server_pid]
        wait_for(lambda: con.execute(rests, values).fetchone() in ((True,), None), "the rest")
        assert session.execute("SELECT 2").fetchone() == (2,)


def test_a_beginning_that_waits_sees_what_was_committed_meanwhile(open_as: Open, url: str) -> None:
    """Where transactions of the role are serializable, the first statement of one would decide what all of them see."""
    waiting, other = open_as("default_transaction_isolation = 'serializable'"), open_as()
    lock = lock_number("thread", "runjournal", "t")
    start = Event(run_id="r", kind="run.start", data={"thread_id": "t"}, seq=2, at=1.0)
    other.append("you", [row(deltas("r", 1))])  # not on the thread yet: a run that begins there waits for the lock as well
    with psycopg.connect(url) as holder, psycopg.connect(url, autocommit=True) as con:
        holder.execute("SELECT pg_advisory_xact_lock(%s)", [lock])
        with beside(lambda: waiting.begin(begun("s", "t"), ())) as there:
            wait_for(lambda: con.execute("SELECT count(*) FROM pg_locks WHERE NOT granted").fetchone() == (1,), "the begin")
            other.append("you", [row([start])])
            holder.rollback()
            assert there() == ["r"]


def test_an_append_that_conflicts_is_repeated(open_as: Open, url: str) -> None:
    """Where even single statements of the role are serializable, a row that another one has changed is a conflict."""
    store, other = open_as("default_transaction_isolation = 'repeatable read'"), open_as()
    store.append("me", [row(deltas("r", 1))])
    waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    with psycopg.connect(url) as holder, psycopg.connect(url, autocommit=True) as con:
        holder.execute("UPDATE runjournal.runs SET rest = rest WHERE run_id = 'r'")
        with beside(lambda: store.append("me", [row(deltas("r", 1, 2))])):
            wait_for(lambda: con.execute(waits).fetchone() == (1,), "the append")
            holder.commit()
    assert [event.seq for event in other.read("r", 0, None)] == [1, 2]
