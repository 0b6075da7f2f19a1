"""Every store keeps every promise."""

import gc
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from types import FrameType

import pytest

from langchain_runjournal.stores import Store
from langchain_runjournal.stores.memory import MemoryStore
from langchain_runjournal.stores.sqlite import SqliteStore
from langchain_runjournal.testing import FaultyStore, StoreContract
from tests.journal.test_spool import Interrupt, uninterrupted
from tests.support.imports import imports


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


READS = ("stores/sqlite/store.py", "stores/sqlite/connections.py")
"""Where the lines of a read stand."""


def at_moment(number: int, seen: set[str]) -> Callable[..., object]:
    """A trace function that interrupts at the nth line, or return, in the store or in the locks of Python's library."""
    count = 0

    def trace(frame: FrameType, event: str, arg: object) -> object:
        nonlocal count
        path = frame.f_code.co_filename
        if not path.endswith((*READS, "threading.py")):
            return trace
        seen.update(file for file in READS if path.endswith(file))
        # Python itself lets nothing come between a lock of its own and the body of its `with`, at either end.
        if event == "return" or (event == "line" and frame.f_lineno not in uninterrupted(path)):
            count += 1
            if count == number:
                raise Interrupt
        return trace

    return trace


# A connection that was just being opened is closed when it is collected.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("verb", ["read", "changed"])
def test_a_ctrl_c_at_any_moment_of_a_read_leaves_nothing_locked(db: Path, verb: str) -> None:
    """Else the writer would wait for ever, and with it the close of the journal."""
    store = SqliteStore(db)
    numbers, interrupted = 0, True
    seen: set[str] = set()
    with ThreadPoolExecutor(1) as other:
        while interrupted:
            numbers += 1
            sys.settrace(at_moment(numbers, seen))
            try:
                store.read("r", 0, None) if verb == "read" else store.changed()
                interrupted = False
            except Interrupt:
                interrupted = True
            finally:
                sys.settrace(None)
            assert other.submit(store.changed).result(timeout=30) > 0
    assert seen == set(READS if verb == "read" else READS[1:]), "the trace did not see the lines of a read"
    assert numbers > 3
    store.close()
    gc.collect()


def test_a_store_can_be_written_with_public_names() -> None:
    """The store in memory, which authors of stores copy, imports nothing else from the package."""
    used = [one for one in imports() if one.importer == "stores.memory"]
    assert {one.imported for one in used} == {"errors", "events", "stores"}
    for one in used:
        module = import_module(f"langchain_runjournal.{one.imported}")
        assert one.name in getattr(module, "__all__", [name for name in vars(module) if not name.startswith("_")]), one
