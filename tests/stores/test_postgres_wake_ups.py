"""What others write is noticed: by a notification; by a slow question where one is lost."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from langchain_runjournal.stores.postgres import PostgresStore, listening
from langchain_runjournal.testing.store_contract.support import begun, deltas, events_of, row
from tests.support.servers import PgBouncer, postgres, postgres_url

PATIENCE = 30.0
_Open = Callable[[str], PostgresStore]


@pytest.fixture
def open_() -> Iterator[_Open]:
    """Opens stores, and closes them."""
    opened: list[PostgresStore] = []

    def one(url: str) -> PostgresStore:
        opened.append(PostgresStore(url))
        return opened[-1]

    yield one
    for store in opened:
        store.close()


class Ear:
    """Listens to a store, and waits for a new number."""

    def __init__(self, store: PostgresStore) -> None:
        self._store = store
        self._news = threading.Condition()
        self._wakes = 0
        store.listen(self._wake)

    def _wake(self) -> None:
        with self._news:
            self._wakes += 1
            self._news.notify_all()

    def begins(self, wakes: int = 2) -> None:
        """Wait until the thread listens: it wakes at its connection, and at its first question."""
        with self._news:
            assert self._news.wait_for(lambda: self._wakes >= wakes, PATIENCE), "the thread does not listen"

    def hears(self, write: Callable[[], Any]) -> None:
        """Write, and wait for the wake-up."""
        seen = self._store.changed()
        write()
        with self._news:
            assert self._news.wait_for(lambda: self._store.changed() != seen, PATIENCE), "no wake-up came"


@pytest.fixture
def no_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is not notified is noticed after an hour."""
    monkeypatch.setattr(listening, "_SLOW", 3600.0)
    monkeypatch.setattr(listening, "_QUICK", 3600.0)


def test_what_was_not_notified_is_asked_for(open_: _Open, caplog: pytest.LogCaptureFixture) -> None:
    """A notification is lost: the other handle writes without one. The thread asks the server once a second."""
    url = postgres_url()
    store, other = open_(url), open_(url)
    other._can_notify = False
    ear = Ear(store)
    ear.begins()
    ear.hears(lambda: other.append("me", [row(deltas("r", 1))]))
    ear.hears(lambda: other.append("me", [row(deltas("r", 1, 2))]))
    assert "notifications" not in caplog.text


def test_own_writes_wake_nobody(open_: _Open, no_questions: None) -> None:
    """A journal that writes alone asks its server nothing."""
    url = postgres_url()
    store, other = open_(url), open_(url)
    ear, others = Ear(store), Ear(other)
    ear.begins()
    others.begins()
    before = store.changed()
    for first in range(1, 20):
        others.hears(lambda first=first: store.append("me", [row(deltas("r", 1, first))]))  # type: ignore[misc]
    ear.hears(lambda: other.append("you", [row(deltas("s", 1))]))
    assert store.changed() <= before + 3, "that write, and the trials with which both have begun to listen"


# --- a pooler -----------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["transaction", "session"])
def pooled(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of an empty database behind pgbouncer."""
    pooler = PgBouncer(postgres(), request.param)
    pooler.start()
    yield pooler.url(postgres().new_database())
    pooler.destroy()


def test_statements_behind_a_pooler(pooled: str, open_: _Open) -> None:
    """Each transaction may get another connection, on which nothing was prepared and no setting was made."""
    stores = [open_(pooled), open_(pooled)]
    for number, store in enumerate(stores):
        for first in range(1, 20, 2):
            store.append(f"o{number}", [row(deltas(f"r{number}", 2, first))])
            stores[1 - number].request_stop(f"r{number}", "stop")
            assert [event.seq for event in events_of(stores[1 - number], f"r{number}")] == list(range(1, first + 2))
        assert store.begin(begun(f"s{number}", f"t{number}"), ()) == []
        store.tidy()
        assert events_of(store, f"r{number}") == deltas(f"r{number}", 20)
        assert store.claim(f"r{number}", "you", 1)
        assert store.delete([f"r{number}"]) == [f"r{number}"]
        assert store.check() == []
