"""The store in Redis and the readable specification, the store in memory, do the same, whatever is asked of them."""

from __future__ import annotations

import functools
from uuid import uuid4

import pytest
from hypothesis import settings

from langchain_runjournal.stores import Store, open_store
from tests.stores.test_stores_agree import Agree
from tests.support.servers import redis_url


@functools.cache
def database() -> str:
    return redis_url()


@pytest.fixture(autouse=True, scope="module")
def server() -> None:
    """Without a server the test is skipped, and shows no failing example."""
    database()


class AgreeInRedis(Agree):
    """Each example has a prefix of its own in one database."""

    def open(self) -> list[Store]:
        url = f"{database()}?prefix={uuid4().hex}"
        return [open_store(url), open_store(url)]

    def remove(self) -> None:
        pass

    def teardown(self) -> None:
        assert self.handles[0].check() == []
        super().teardown()


AgreeInRedis.TestCase.settings = settings(max_examples=25, stateful_step_count=40, deadline=None)
TestAgreeInRedis = pytest.mark.slow(AgreeInRedis.TestCase)
