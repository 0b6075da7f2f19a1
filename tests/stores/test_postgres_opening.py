"""The opening of a database: by many at once, by two releases, and on servers that cannot hold a journal."""

from __future__ import annotations

import threading
from typing import Any

import psycopg
import pytest

from langchain_runjournal import RunJournal, errors
from langchain_runjournal.stores import exists
from langchain_runjournal.stores.postgres import PostgresStore, opening
from langchain_runjournal.testing.store_contract.support import at_once, begun, deltas, events_of, row
from tests.support.servers import postgres, postgres_url

KNOWN = [(number, name) for number, name, _, _ in opening.migrations()]
"""The migrations of this release."""
NEXT = (len(KNOWN) + 1, "more")


def migrations_of(url: str) -> list[Any]:
    with psycopg.connect(url) as con:
        return con.execute("SELECT version, name FROM runjournal.migrations ORDER BY version").fetchall()


def test_many_open_a_new_database_at_once() -> None:
    """One of them makes the schema, the others wait for it, and all have the same id. The next one makes nothing."""
    for _ in range(5):
        url = postgres_url()
        opened: list[PostgresStore] = []
        at_once([lambda url=url, opened=opened: opened.append(PostgresStore(url))] * 8)  # type: ignore[misc]
        assert len({store.store_id for store in opened}) == 1
        assert migrations_of(url) == KNOWN
        opened[0].append("me", [row(deltas("r", 2))])
        assert events_of(opened[-1], "r") == deltas("r", 2)
        for store in opened:
            store.close()


# --- releases -----------------------------------------------------------------------------------------------------------


def next_release(monkeypatch: pytest.MonkeyPatch, script: str, *, serves: int) -> None:
    """Make this process one of the next release, which has one more migration."""
    found = [*opening.migrations(), (NEXT[0], NEXT[1], serves, script)]
    monkeypatch.setattr(opening, "migrations", lambda: found)


def release_before_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this process one of the release that knows the first migration only."""
    found = opening.migrations()[:1]
    monkeypatch.setattr(opening, "migrations", lambda: found)


def test_the_previous_release_works_on_beside_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next release migrates while the previous one writes. That one goes on, and can be started again."""
    url = postgres_url()
    old = PostgresStore(url)
    done, count = threading.Event(), 0
    old.append("me", [row(deltas("r", 1))])

    def write() -> None:
        nonlocal count
        last = 1
        while not done.is_set() or count < 50:
            old.append("me", [row(deltas("r", 1, last + 1))])
            last, count = last + 1, count + 1

    def upgrade() -> None:
        try:
            with monkeypatch.context() as patch:
                next_release(
                    patch, "ALTER TABLE runs ADD COLUMN extra text; ALTER TABLE events ADD COLUMN extra text", serves=1
                )
                new = PostgresStore(url)
            assert new.begin(begun("s", "t"), ()) == []
            assert new.claim("s", "you", 1)
            new.close()
        finally:
            done.set()

    at_once([write, upgrade])
    assert migrations_of(url) == [*KNOWN, NEXT]
    again = PostgresStore(url)
    assert again.store_id == old.store_id
    assert events_of(again, "r") == deltas("r", 1 + count)
    for store in (old, again):
        store.append("me", [row(deltas("r", 1, 1 + len(events_of(store, "r"))))])
        assert store.begin(begun(f"{id(store)}", "t"), ["s"]) in ([], [f"{id(old)}"])
        store.tidy()
        store.close()


def test_no_two_migrations_have_one_number() -> None:
    """The second one would be skipped."""
    assert [number for number, _ in KNOWN] == list(range(1, len(KNOWN) + 1))


def test_a_schema_from_before_records_gets_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """The release before goes on beside it, and can be started again."""
    url = postgres_url()
    with monkeypatch.context() as patch:
        release_before_records(patch)
        old = PostgresStore(url)
        old.append("me", [row(deltas("r", 1))])
        assert migrations_of(url) == KNOWN[:1]
    new = PostgresStore(url)
    assert migrations_of(url) == KNOWN
    made = new.put_record("s", "k", "{}", version=0, group="g")
    old.append("me", [row(deltas("r", 1, 2))])
    assert new.records("s", group="g", after=0, limit=None) == [made]
    assert events_of(new, "r") == deltas("r", 2)
    assert new.check() == []
    with monkeypatch.context() as patch:
        release_before_records(patch)
        again = PostgresStore(url)
    for store in (old, new, again):
        store.append("me", [row(deltas("r", 1, 1 + len(events_of(store, "r"))))])
        store.close()


def test_a_schema_that_this_release_cannot_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused, and left as it is."""
    url = postgres_url()
    with monkeypatch.context() as patch:
        next_release(patch, "ALTER TABLE runs DROP COLUMN settled CASCADE", serves=NEXT[0])
        PostgresStore(url).close()
    with pytest.raises(errors.StoreTooNew) as caught:
        RunJournal(url)
    assert (caught.value.values["found"], caught.value.values["known"]) == (NEXT[0], KNOWN[-1][0])
    assert migrations_of(url) == [*KNOWN, NEXT]


def test_a_migration_that_fails_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The release before goes on; the next one succeeds once the reason is gone."""
    url = postgres_url()
    old = PostgresStore(url)
    with monkeypatch.context() as patch:
        next_release(patch, "ALTER TABLE runs ADD COLUMN extra text; SELECT 1 / 0", serves=1)
        with pytest.raises(errors.StoreFailed, match="division by zero"):
            PostgresStore(url)
    assert migrations_of(url) == KNOWN
    old.append("me", [row(deltas("r", 1))])
    old.close()
    next_release(monkeypatch, "ALTER TABLE runs ADD COLUMN extra text", serves=1)
    PostgresStore(url).close()
    assert migrations_of(url) == [*KNOWN, NEXT]


# --- servers and databases ----------------------------------------------------------------------------------------------


def test_a_database_whose_encoding_cannot_hold_every_text() -> None:
    name = f"ascii_{id(object())}"
    with psycopg.connect(postgres().url(), autocommit=True) as con:
        con.execute(f"CREATE DATABASE {name} ENCODING 'SQL_ASCII' TEMPLATE template0")  # type: ignore[arg-type]
    with pytest.raises(errors.StoreUnusable, match="its encoding is SQL_ASCII"):
        PostgresStore(postgres().url(name))
    with psycopg.connect(postgres().url(name)) as con:
        assert con.execute("SELECT to_regnamespace('runjournal')").fetchone() == (None,), "nothing was made there"


@pytest.mark.parametrize("table", ["runs (id integer)", "migrations (id integer)", "migrations (version text)"])
def test_a_schema_with_tables_of_another_program(table: str) -> None:
    """It is refused and stays as it is, also by a command that only asks whether there is a journal."""
    url = f"{postgres_url()}?schema=public"
    with psycopg.connect(url.partition("?")[0]) as con:
        con.execute(f"CREATE TABLE {table}")  # type: ignore[arg-type]
    for use in (PostgresStore, exists) if table.startswith("migrations") else (PostgresStore,):
        with pytest.raises(errors.StoreUnusable, match=r"holds tables of another program.*with \?schema="):
            use(url)
    with psycopg.connect(url.partition("?")[0]) as con:
        tables = con.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
    assert tables == [(table.partition(" ")[0],)]


def test_a_schema_without_its_id() -> None:
    url = postgres_url()
    PostgresStore(url).close()
    with psycopg.connect(url) as con:
        con.execute("DELETE FROM runjournal.facts")
    with pytest.raises(errors.StoreUnusable, match="lacks its store_id"):
        PostgresStore(url)


def test_two_schemas_of_one_database_are_two_journals() -> None:
    """Neither sees a run of the other, and a thread of the same name is another one."""
    url = postgres_url()
    one, two = PostgresStore(f"{url}?schema=one"), PostgresStore(f"{url}?schema=two")
    assert one.store_id != two.store_id
    assert one.begin(begun("r", "t"), ()) == []
    assert two.begin(begun("s", "t"), ()) == []
    assert (one.run("s"), two.run("r")) == (None, None)
    for store in (one, two):
        store.close()


@pytest.mark.parametrize("level", ["on", "off", "local", "remote_write", "remote_apply"])
def test_synchronous_commit_of_the_url(level: str) -> None:
    """It holds for each connection of the journal, whatever the role has, and for no other one of the role."""
    url = postgres_url()
    store = PostgresStore(f"{url}?synchronous_commit={level}")
    show = b"SHOW synchronous_commit"
    found = [store._append_with(lambda session: session.execute(show).fetchone())]
    found.append(store._call(lambda session: session.execute(show).fetchone()))
    assert found == [(level,), (level,)]
    store.close()
    plain = PostgresStore(url)
    assert plain._append_with(lambda session: session.execute(show).fetchone()) == ("on",)
    plain.close()
