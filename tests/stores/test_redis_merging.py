"""Entries of a run are merged by one process while another one reads them in pages, or merges them as well."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from langchain_runjournal.stores import open_store
from langchain_runjournal.stores.redis import RedisStore
from langchain_runjournal.testing.store_contract.support import deltas, end, events_of, row
from tests.support.servers import redis_url


@pytest.fixture
def url() -> str:
    return redis_url()


@pytest.fixture
def store(url: str) -> Iterator[RedisStore]:
    yield from opened(url)


@pytest.fixture
def other(url: str) -> Iterator[RedisStore]:
    yield from opened(url)


def opened(url: str) -> Iterator[RedisStore]:
    store = open_store(url)
    assert isinstance(store, RedisStore)
    yield store
    store.close()


def write(store: RedisStore, run_id: str, entries: int = 20) -> None:
    for first in range(1, entries + 1):
        store.append("me", [row(deltas(run_id, 1, first))])
    store.append("me", [row([end(run_id, entries + 1)])])


def merge_after_first_page(store: RedisStore, other: RedisStore, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Have `other` merge all entries when `store` has read its first page of a run. Return the commands that were sent."""
    call, sent = store._server.call, []

    def calling(*command: Any) -> Any:
        found = call(*command)
        sent.append(command[0])
        if sent.count(b"XRANGE") == 1 and command[0] == b"XRANGE":
            other.tidy()
        return found

    monkeypatch.setattr(store._server, "call", calling)
    return sent


def test_a_reader_between_two_pages(store: RedisStore, other: RedisStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page after the merge begins with an entry that holds events of the page before: each event comes once."""
    write(store, "r")
    sent = merge_after_first_page(store, other, monkeypatch)
    assert store.read("r", 0, 20) == deltas("r", 20)
    assert sent.count(b"XRANGE") == 2
    assert [event.seq for event in store.read("r", 3, 5)] == [4, 5, 6, 7, 8]


def test_two_that_merge(
    store: RedisStore, other: RedisStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The one that is too late finds the same events, and has nothing to complain of."""
    write(store, "r")
    merge_after_first_page(store, other, monkeypatch)
    store.tidy()
    assert [one for one in caplog.records if one.levelno >= logging.WARNING] == []
    assert events_of(store, "r")[:20] == deltas("r", 20)
    assert store.check() == []


def test_a_damaged_run_keeps_no_other_from_being_merged(
    store: RedisStore, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It is named in the log, and a journal that closes does not fail."""
    for run_id in ("bad", "good"):
        write(store, run_id)
    with redis.Redis.from_url(url) as client:
        client.delete("{runjournal}:events:bad")
        for last in (5, 9, 21):
            client.xadd("{runjournal}:events:bad", {"s": "nothing that was written"}, id=f"{last}-0")
        store.tidy()
        assert client.xlen("{runjournal}:events:good") == 1
    [line] = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
    assert "of run bad" in line
