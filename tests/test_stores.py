"""Every store keeps every promise."""

from pathlib import Path

import pytest

from langchain_runjournal.stores import Store
from langchain_runjournal.stores.memory import MemoryStore
from langchain_runjournal.stores.sqlite import SqliteStore
from langchain_runjournal.testing import FaultyStore, StoreContract


class TestMemoryStore(StoreContract):
    def open(self) -> Store:
        return MemoryStore()


class _OnDisk(StoreContract):
    synchronous = "normal"

    @pytest.fixture(autouse=True)
    def _place(self, tmp_path: Path):
        self._path = tmp_path / "runs.db"
        self._opened: list[Store] = []
        yield
        for store in self._opened:
            store.close()

    def open(self) -> Store:
        store = SqliteStore(self._path, synchronous=self.synchronous)
        self._opened.append(store)
        return store

    def open_again(self, store: Store) -> Store:
        return self.open()


class TestSqliteStore(_OnDisk):
    pass


class TestSqliteStoreFull(_OnDisk):
    synchronous = "full"


class TestFaultyStoreAtRest(_OnDisk):
    """A FaultyStore that is not armed is the store that it wraps."""

    def open(self) -> Store:
        return FaultyStore(super().open())
