"""What stays of a deleted run: its id, as long as the spool of its owner may hold it."""

from __future__ import annotations

from contextlib import closing

from langchain_runjournal.stores import Owner
from langchain_runjournal.stores.postgres import PostgresStore
from langchain_runjournal.testing.store_contract.support import deltas, end, row
from tests.support.servers import postgres_url


def test_the_id_of_a_deleted_run_stays_for_some_heartbeats() -> None:
    """For an owner that lives; of another one's run, nothing stays."""
    with closing(PostgresStore(postgres_url())) as store:
        store.beat(Owner(owner_id="me", place="here", pid=1, born="2", lease=15.0, beats=3))
        store.append("me", [row([*deltas("r", 1), end("r", 2)]), row([*deltas("p", 1), end("p", 2)])])
        store.append("you", [row(deltas("s", 1))])
        assert store.delete(["r", "s"]) == ["r", "s"]
        assert store.prune(before=None, keep_last=0) == ["p"]
        assert (store.deleted("me"), store.deleted("you")) == ({"r", "p"}, set())
        for beats, left in ((13, {"r", "p"}), (14, set())):
            store.beat(Owner(owner_id="me", place="here", pid=1, born="2", lease=15.0, beats=beats))
            assert store.deleted("me") == left
