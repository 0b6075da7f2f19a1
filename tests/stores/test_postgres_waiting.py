"""Who waits for whom: readers for no append, no append for a prune, and a deletion for a merge of the same run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from langchain_runjournal.events import Event
from langchain_runjournal.stores.postgres import PostgresStore
from langchain_runjournal.testing.store_contract.support import begun, deltas, end, events_of, row
from tests.support.failing_postgres import wait_for
from tests.support.servers import postgres_url

PATIENCE = 60.0
_WAITING = (
    "SELECT count(*) FROM pg_stat_activity"
    " WHERE datname = current_database() AND wait_event_type = 'Lock' AND pid <> pg_backend_pid()"
)


@pytest.fixture
def url() -> str:
    return postgres_url()


@pytest.fixture
def stores(url: str) -> Iterator[tuple[PostgresStore, PostgresStore]]:
    """Two handles on the same data, that wait for a lock for long."""
    found = PostgresStore(f"{url}?busy_timeout=20"), PostgresStore(f"{url}?busy_timeout=20")
    yield found
    for store in found:
        store.close()


@contextmanager
def beside(work: Callable[[], Any]) -> Iterator[Callable[[], Any]]:
    """Do something in a thread. Yield a function that waits for its end, and returns what it has returned."""
    done: list[Any] = []
    raised: list[BaseException] = []

    def run() -> None:
        try:
            done.append(work())
        except BaseException as exc:
            raised.append(exc)

    thread = threading.Thread(target=run, daemon=True)

    def result() -> Any:
        thread.join(PATIENCE)
        assert not thread.is_alive()
        if raised:
            raise raised[0]
        return done[0]

    thread.start()
    yield result
    result()


def waiting(con: psycopg.Connection[Any]) -> int:
    row = con.execute(_WAITING).fetchone()
    assert row is not None
    con.commit()
    return int(row[0])


def test_nobody_waits_for_an_append_that_waits(stores: tuple[PostgresStore, PostgresStore], url: str) -> None:
    """Another program holds the lock of a row. Every other verb of the same handle works meanwhile."""
    store, _ = stores
    store.append("me", [row(deltas("r", 2)), row(deltas("s", 1))])
    with psycopg.connect(url) as holder, psycopg.connect(url) as con:
        holder.execute("SELECT FROM runjournal.runs WHERE run_id = 'r' FOR UPDATE")
        with beside(lambda: store.append("me", [row(deltas("r", 1, 3))])):
            wait_for(lambda: waiting(con) == 1, "the append")
            assert events_of(store, "r") == deltas("r", 2)
            assert {run.run_id for run in store.runs(thread_id=None, status=None, limit=None)} == {"r", "s"}
            assert store.owner_of("r") == "me"
            assert store.begin(begun("t", "thread"), ()) == []
            store.request_stop("s", "stop")
            assert store.stops("me") == {"s": "stop"}
            assert store.claim("s", "you", 1)
            assert waiting(con) == 1
            holder.rollback()
    assert events_of(store, "r") == deltas("r", 3)


def test_pruning_goes_in_portions(stores: tuple[PostgresStore, PostgresStore], url: str) -> None:
    """A hundred runs a transaction. A run that is not done any more when its turn comes stays, and is not named."""
    store, other = stores
    names = [f"{number:03}" for number in range(250)]
    for name in names:
        store.append("me", [row([*deltas(name, 1), end(name, 2)])])
    with psycopg.connect(url) as holder, psycopg.connect(url) as con:
        holder.execute("SELECT FROM runjournal.runs WHERE run_id = '150' FOR UPDATE")
        with beside(lambda: store.prune(before=None, keep_last=10)) as pruned:
            wait_for(lambda: waiting(con) == 1, "the prune")
            left = [run.run_id for run in other.runs(thread_id=None, status=None, limit=None)]
            assert sorted(left) == names[100:]
            other.append("me", [row(deltas("live", 1))])
            holder.execute("UPDATE runjournal.runs SET settled = false WHERE run_id = '150'")
            holder.commit()
            gone = pruned()
    assert gone == [name for name in names[:240] if name != "150"]
    left = [run.run_id for run in other.runs(thread_id=None, status=None, limit=None)]
    assert sorted(left) == ["150", *names[240:], "live"]
    assert events_of(other, "150") != []
    assert store.check() == []


def test_a_deletion_during_a_merge_leaves_nothing(stores: tuple[PostgresStore, PostgresStore], url: str) -> None:
    """It waits for the merge: else it would not see the long row, and the text of a deleted run would stay for ever."""
    store, other = stores
    for first in range(1, 21):
        store.append("me", [row(deltas("r", 1, first))])
    with psycopg.connect(url) as holder, psycopg.connect(url) as con:
        con.execute(
            "CREATE FUNCTION runjournal.wait() RETURNS trigger LANGUAGE plpgsql AS"
            " 'BEGIN PERFORM pg_advisory_xact_lock_shared(42); RETURN NEW; END'"
        )
        con.execute("CREATE TRIGGER wait BEFORE INSERT ON runjournal.events EXECUTE FUNCTION runjournal.wait()")
        con.commit()
        holder.execute("SELECT pg_advisory_lock(42)")
        with beside(store.tidy):
            wait_for(lambda: waiting(con) == 1, "the merge")
            with beside(lambda: other.delete(["r"])) as deleted:
                wait_for(lambda: waiting(con) == 2, "the deletion")
                holder.execute("SELECT pg_advisory_unlock(42)")
                holder.commit()
                assert deleted() == ["r"]
        assert con.execute("SELECT count(*) FROM runjournal.events").fetchone() == (0,)
    assert store.check() == []


def test_an_append_during_a_merge_loses_nothing(stores: tuple[PostgresStore, PostgresStore]) -> None:
    """Another handle merges the rows of a run while its owner goes on."""
    store, other = stores
    store.append("me", [row(deltas("r", 1))])
    other.append("me", [row(deltas("r", 1, 2))])
    done = threading.Event()

    def merge() -> None:
        while not done.is_set():
            other._append_with(lambda session: other._merge(session, other._known["r"].number))

    with beside(merge):
        try:
            for first in range(3, 300):
                store.append("me", [row(deltas("r", 1, first))])
        finally:
            done.set()
    assert events_of(store, "r") == deltas("r", 299)
    assert store.check() == []


def test_a_long_run_is_read_in_pages(stores: tuple[PostgresStore, PostgresStore], monkeypatch: pytest.MonkeyPatch) -> None:
    """No read takes the rows of a long run at once, whether it wants all events or some."""
    store, _ = stores
    events: list[Event] = deltas("r", 700)
    for event in events:
        store.append("me", [row([event])])
    page, pages = store._page, []

    def counted(run_id: str, after: int, most: int) -> list[Any]:
        found = page(run_id, after, most)
        pages.append(len(found))
        return found

    monkeypatch.setattr(store, "_page", counted)
    assert store.read("r", 0, None) == events
    assert max(pages) == 200
    pages.clear()
    assert store.read("r", 100, 5) == events[100:105]
    assert pages == [8]
