"""The store in Redis keeps every promise of a store, on a real server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from langchain_runjournal.stores import Store, open_store
from langchain_runjournal.testing import StoreContract
from tests.support.servers import redis_url


class TestRedisStore(StoreContract):
    @pytest.fixture(autouse=True)
    def _opened(self) -> Iterator[None]:
        self.url = redis_url()
        self.stores: list[Store] = []
        yield
        for store in self.stores:
            store.close()

    def open(self) -> Store:
        self.stores.append(open_store(self.url))
        return self.stores[-1]

    def open_again(self, store: Store) -> Store:
        return self.open()
