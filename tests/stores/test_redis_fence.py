"""The fence of an append stands in its script: what another process has changed since this one read the run is seen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
import redis

from langchain_runjournal.errors import RunFenced
from langchain_runjournal.events.segments import Segment
from langchain_runjournal.stores import open_store
from langchain_runjournal.stores.redis import RedisStore
from langchain_runjournal.testing.store_contract.support import deltas, end, events_of, row
from tests.support.servers import redis_url

CONTINUES = [row(deltas("r", 1, 3))]
ENDS = [row([*deltas("r", 1, 3), end("r", 4)])]
RUN = "{runjournal}:run:r"


@pytest.fixture
def url() -> str:
    return redis_url()


@pytest.fixture
def client(url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(url, decode_responses=True) as client:
        yield client


@pytest.fixture
def store(url: str) -> Iterator[RedisStore]:
    store = open_store(url)
    assert isinstance(store, RedisStore)
    yield store
    store.close()


@pytest.mark.parametrize("batch", [CONTINUES, ENDS], ids=["continues", "ends"])
@pytest.mark.parametrize("field", [("owner", "you"), ("epoch", "2")], ids=str)
def test_each_field_fences(field: tuple[str, str], batch: Sequence[Segment], store: RedisStore, client: redis.Redis) -> None:
    """A claim changes both. Each of them alone is enough."""
    store.append("me", [row(deltas("r", 1))])
    store.append("me", [row(deltas("r", 1, 2))])
    client.hset(RUN, *field)
    with pytest.raises(RunFenced):
        store.append("me", batch)
    assert client.hget(RUN, "last") == "2"
    assert events_of(store, "r") == deltas("r", 2)


def test_a_row_that_was_written_elsewhere_is_not_overwritten(store: RedisStore, url: str) -> None:
    """An attempt that was given up is executed after all, and writes the row: owner, epoch and seq still fit."""
    store.append("me", [row(deltas("r", 2))])
    other = open_store(url)
    other.append("me", [row([*deltas("r", 1, 3), end("r", 4)])])
    other.close()
    store.append("me", [row([*deltas("r", 1, 3), end("r", 4)])])
    store.append("me", [row(deltas("r", 1, 5))])
    run = store.run("r")
    assert run is not None
    assert (run.ended, run.last_seq) == (True, 5)
    assert [event.seq for event in events_of(store, "r")] == [1, 2, 3, 4, 5]
    assert store.check() == []


def test_a_row_that_has_changed_is_read_again(store: RedisStore, client: redis.Redis) -> None:
    """Its last seq is as before, and another handle of the same owner has noted something else about it."""
    store.append("me", [row(deltas("r", 2))])
    found = client.hgetall(RUN)
    client.hset(RUN, mapping={"version": str(int(found["version"]) + 1), "thread": "t"})
    store.append("me", ENDS)
    assert client.hget(RUN, "version") == str(int(found["version"]) + 2)
    run = store.run("r")
    assert run is not None
    assert (run.thread_id, run.ended) == ("t", True)
