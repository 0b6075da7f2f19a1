"""The fence of an append stands in its statement: what another process has changed since this one read the row is seen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import psycopg
import pytest

from langchain_runjournal.errors import RunFenced
from langchain_runjournal.events.segments import Segment
from langchain_runjournal.stores.postgres import PostgresStore
from langchain_runjournal.testing.store_contract.support import deltas, end, events_of, row
from tests.support.servers import postgres_url

CONTINUES = [row(deltas("r", 1, 3))]
ENDS = [row([*deltas("r", 1, 3), end("r", 4)])]


@pytest.fixture
def url() -> str:
    return postgres_url()


@pytest.fixture
def store(url: str) -> Iterator[PostgresStore]:
    store = PostgresStore(url)
    yield store
    store.close()


@pytest.mark.parametrize("batch", [CONTINUES, ENDS], ids=["continues", "ends"])
@pytest.mark.parametrize("column", ["owner_id = 'you'", "epoch = epoch + 1"])
def test_each_column_fences(column: str, batch: Sequence[Segment], store: PostgresStore, url: str) -> None:
    """A program that takes a run over and does not count the version up, as no release does, fences all the same."""
    store.append("me", [row(deltas("r", 1))])
    store.append("me", [row(deltas("r", 1, 2))])
    with psycopg.connect(url) as con:
        con.execute(f"UPDATE runjournal.runs SET {column}")  # type: ignore[arg-type]
    with pytest.raises(RunFenced):
        store.append("me", batch)
    run = store.run("r")
    assert run is not None
    assert (run.last_seq, run.ended) == (2, False)
    assert events_of(store, "r") == deltas("r", 2)


@pytest.mark.parametrize("batch", [CONTINUES, ENDS], ids=["continues", "ends"])
def test_what_the_same_owner_has_stored_elsewhere_is_not_stored_again(
    batch: Sequence[Segment], store: PostgresStore, url: str
) -> None:
    """An attempt that was given up still works on the server, and ends first: owner and epoch fit, and the seq does not."""
    store.append("me", [row(deltas("r", 2))])
    other = PostgresStore(url)
    other.append("me", [row(deltas("r", 1, 3))])
    other.close()
    store.append("me", batch)
    assert [event.seq for event in events_of(store, "r")] == list(range(1, batch[0].last + 1))
    assert store.check() == []
