"""Each write wakes those who listen, and no verb reaches another journal that has begun on an emptied server."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from langchain_runjournal import errors
from langchain_runjournal.stores import Owner, Store, open_store
from langchain_runjournal.testing.store_contract.support import begun, deltas, end, row
from tests.support.servers import redis_url

PATIENCE = 30.0
OWNER = Owner(owner_id="me", place="here", pid=1, born="2", lease=15.0)


@pytest.fixture
def url() -> str:
    return redis_url()


@pytest.fixture
def open_(url: str) -> Iterator[Callable[[], Any]]:
    """Opens stores on one database, and closes them."""
    opened: list[Store] = []

    def one() -> Store:
        opened.append(open_store(url))
        return opened[-1]

    yield one
    for store in opened:
        store.close()


def test_each_write_wakes(open_: Callable[[], Any]) -> None:
    """Every verb that changes a run, and not only the connection of the reader."""
    store, other = open_(), open_()
    news, wakes = threading.Condition(), 0

    def wake() -> None:
        nonlocal wakes
        with news:
            wakes += 1
            news.notify_all()

    def hears(write: Callable[[], Any]) -> None:
        seen = store.changed()
        write()
        with news:
            assert news.wait_for(lambda: store.changed() != seen, PATIENCE), "no wake-up came"

    store.listen(wake)
    with news:
        assert news.wait_for(lambda: wakes == 1, PATIENCE), "the reader does not listen"
    hears(lambda: other.append("me", [row(deltas("r", 1))]))
    hears(lambda: other.append("me", [row(deltas("r", 1, 2))]))
    hears(lambda: other.append("me", [row(deltas("s", 1)), row([end("s", 2)])]))
    hears(lambda: other.begin(begun("t", "thread"), ()))
    hears(lambda: other.withdraw("t", "me"))
    hears(lambda: other.request_stop("r", "stop"))
    hears(lambda: other.claim("r", "you", 1))
    hears(lambda: other.delete(["s"]))


VERBS: dict[str, Callable[[Any], Any]] = {
    "begin": lambda store: store.begin(begun("t", "thread"), ()),
    "withdraw": lambda store: store.withdraw("s", "me"),
    "claim": lambda store: store.claim("r", "you", 1),
    "stop": lambda store: store.request_stop("r", "stop"),
    "stops": lambda store: store.stops("me"),
    "runs": lambda store: store.runs(thread_id=None, status=None, limit=None),
    "delete": lambda store: store.delete(["r"]),
    "beat": lambda store: store.beat(OWNER),
    "hold": lambda store: store.hold("thread", "me", None),
    "release": lambda store: store.release("thread", "other"),
}


@pytest.mark.parametrize("verb", VERBS)
def test_another_journal_on_an_emptied_server(verb: str, url: str, open_: Callable[[], Any]) -> None:
    """It may have runs and threads of the same names: no verb changes them, or takes them for its own."""
    store = open_()
    store.append("me", [row(deltas("r", 1))])
    with redis.Redis.from_url(url) as client:
        client.flushdb()
        other = open_()
        other.append("me", [row(deltas("r", 1))])
        assert other.begin(begun("s", "elsewhere"), ()) == []
        other.hold("thread", "other", None)
        before = {key: client.dump(key) for key in client.scan_iter()}
        with pytest.raises(errors.StoreFailed, match="another journal has begun there"):
            VERBS[verb](store)
        assert {key: client.dump(key) for key in client.scan_iter()} == before
