"""The Postgres store keeps every promise of a store, on a real server."""

from __future__ import annotations

import pytest

from langchain_runjournal.stores import Store
from langchain_runjournal.stores.postgres import PostgresStore
from langchain_runjournal.testing import StoreContract
from tests.support.servers import postgres_url


class TestPostgresStore(StoreContract):
    @pytest.fixture(autouse=True)
    def _place(self):
        self._url = postgres_url()
        self._opened: list[Store] = []
        yield
        for store in self._opened:
            store.close()

    def open(self) -> Store:
        store = PostgresStore(self._url)
        self._opened.append(store)
        return store

    def open_again(self, store: Store) -> Store:
        return self.open()
