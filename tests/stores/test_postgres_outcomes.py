"""A connection that is lost at any point of a call: no event is lost, none is stored twice, and every claim is known."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from langchain_runjournal import Event, RunJournal
from langchain_runjournal.errors import StoreUnreachable
from langchain_runjournal.events import RunStatus
from langchain_runjournal.stores.postgres import PostgresStore
from langchain_runjournal.testing.store_contract.support import begun, deltas, end, events_of, row
from tests.support.proxy import READY, Proxy
from tests.support.servers import postgres_url


@pytest.fixture
def url() -> str:
    return postgres_url()


@pytest.fixture
def proxy(url: str) -> Iterator[Proxy]:
    with Proxy(int(url.rpartition(":")[2].partition("/")[0])) as proxy:
        yield proxy


@pytest.fixture
def store(url: str, proxy: Proxy) -> Iterator[PostgresStore]:
    store = PostgresStore(proxy.url(url))
    yield store
    store.close()


def test_an_append_whose_outcome_is_unknown_stores_each_event_once(store: PostgresStore, proxy: Proxy) -> None:
    """The server has committed, and the connection is lost before it says so."""
    store.append("me", [row(deltas("r", 3))])
    for first in (4, 7, 10, 13):
        proxy.lose_answer_to(b"t%d " % first, READY)
        store.append("me", [row(deltas("r", 3, first))])
    assert proxy.lost == 4
    assert [event.seq for event in events_of(store, "r")] == list(range(1, 16))
    assert store.check() == []


def test_a_first_append_whose_outcome_is_unknown_begins_its_run_once(store: PostgresStore, proxy: Proxy) -> None:
    proxy.lose_answer_to(b"t1 ", READY)
    store.append("me", [row(deltas("r", 2)), row(deltas("s", 1))])
    store.append("me", [row(deltas("r", 1, 3))])
    assert proxy.lost == 1
    assert [event.seq for event in events_of(store, "r")] == [1, 2, 3]
    assert [run.run_id for run in store.runs(thread_id=None, status=None, limit=None)] == ["s", "r"]


def test_a_run_whose_beginning_is_unknown_belongs_to_who_began_it(store: PostgresStore, proxy: Proxy) -> None:
    """Else its owner would take it for another one's, and no message could be sent to the thread again."""
    proxy.lose_answer_to(b"COMMIT\0", READY)
    assert store.begin(begun("r", "t"), ()) == []
    assert proxy.lost == 1
    assert store.begin(begun("s", "t"), ()) == ["r"]
    store.append("me", [row(deltas("r", 1))])
    assert store.owner_of("r") == "me"


def test_a_claim_whose_outcome_is_unknown_is_known_after_the_call(store: PostgresStore, proxy: Proxy) -> None:
    store.append("old", [row(deltas("r", 1))])
    proxy.lose_answer_to(b"new", READY)
    assert store.claim("r", "new", 1)
    assert proxy.lost == 1
    assert not store.claim("r", "new", 1)
    run = store.run("r")
    assert run is not None
    assert (run.owner, run.epoch) == ("new", 2)


def test_a_withdrawal_whose_outcome_is_unknown_is_done(store: PostgresStore, proxy: Proxy) -> None:
    assert store.begin(begun("r", "t"), ()) == []
    proxy.lose_answer_to(b"DELETE FROM", READY)
    assert store.withdraw("r", "me")
    assert proxy.lost == 1
    assert store.run("r") is None


def test_a_deletion_whose_outcome_is_unknown_names_its_runs(store: PostgresStore, proxy: Proxy) -> None:
    store.append("me", [row([*deltas("r", 1), end("r", 2)]), row(deltas("s", 1))])
    proxy.lose_answer_to(b"COMMIT\0", READY)
    assert store.delete(["r", "unknown"]) == ["r"]
    assert proxy.lost == 1
    assert store.run("r") is None
    assert store.check() == []


def test_a_prune_whose_outcome_is_unknown_names_its_runs(store: PostgresStore, proxy: Proxy) -> None:
    store.append("me", [row([*deltas("r", 1), end("r", 2)]), row(deltas("s", 1))])
    proxy.lose_answer_to(b"COMMIT\0", READY)
    assert store.prune(before=None, keep_last=0) == ["r"]
    assert proxy.lost == 1
    assert store.run("r") is None
    assert store.check() == []


def test_a_record_whose_outcome_is_unknown_was_written_by_who_asked(store: PostgresStore, proxy: Proxy) -> None:
    """Else the one that has won would believe that another one has, and nobody would do the work."""
    made = store.put_record("s", "k", "{}", version=0, group="g")
    assert made is not None
    proxy.lose_answer_to(b"COMMIT\0", READY)
    changed = store.put_record("s", "k", '{"a":1}', version=made.version, group=None)
    assert changed == made._replace(text='{"a":1}', version=changed.version if changed else 0)
    proxy.lose_answer_to(b"COMMIT\0", READY)
    assert store.put_record("s", "k", None, version=changed.version if changed else 0, group=None) == changed
    proxy.lose_answer_to(b"COMMIT\0", READY)
    again = store.put_record("s", "k", "{}", version=0, group=None)
    assert again is not None
    assert store.record("s", "k") == again
    assert proxy.lost == 3


def test_a_merge_whose_outcome_is_unknown_loses_nothing(store: PostgresStore, proxy: Proxy) -> None:
    for first in range(1, 40, 3):
        store.append("me", [row(deltas("r", 3, first))])
    proxy.lose_answer_to(b"COMMIT\0", READY)
    store.tidy()
    assert proxy.lost == 1
    assert events_of(store, "r") == deltas("r", 39)
    assert store.check() == []


def test_an_idle_connection_that_was_closed_is_replaced(store: PostgresStore, proxy: Proxy) -> None:
    """By the server after a while, by a firewall, or by a restart: no call fails by that."""
    store.append("me", [row(deltas("r", 1))])
    assert len(store.read("r", 0, None)) == 1
    proxy.cut()
    store.append("me", [row(deltas("r", 1, 2))])
    proxy.cut()
    assert [event.seq for event in store.read("r", 0, None)] == [1, 2]
    proxy.cut()
    assert store.begin(begun("s", "t"), ()) == []


def test_a_lost_connection_gives_up_all_that_are_at_rest(store: PostgresStore, proxy: Proxy) -> None:
    """After a restart of the server all are as dead: the repetition of a call must not find the next dead one."""
    with store._borrowed(), store._borrowed(), store._borrowed():
        pass  # so many connections are at rest
    proxy.cut()
    assert store.request_stop("r", "stop") is None
    assert store.begin(begun("r", "t"), ()) == []


def test_a_server_that_says_nothing_is_given_up(url: str, proxy: Proxy) -> None:
    """A cable that was cut after the connection was made: each call ends, and later ones succeed again."""
    store = PostgresStore(f"{proxy.url(url)}?busy_timeout=0.1")
    store.append("me", [row(deltas("r", 1))])
    proxy.stand_still()
    for call in (
        lambda: store.append("me", [row(deltas("r", 1, 2))]),
        lambda: store.read("r", 0, None),
        lambda: store.claim("r", "you", 1),
    ):
        began = time.monotonic()
        with pytest.raises(StoreUnreachable) as caught:
            call()
        assert time.monotonic() - began < 60  # not a measure: without a limit the test would never end
        assert "in time" in str(caught.value) or "timeout" in str(caught.value)
    proxy.go_on()
    store.append("me", [row(deltas("r", 1, 2))])
    assert [event.seq for event in store.read("r", 0, None)] == [1, 2]
    store.close()


def test_a_journal_writes_on_through_lost_connections(url: str, proxy: Proxy) -> None:
    """Every event comes once, whenever the connection is cut."""
    with RunJournal(proxy.url(url)) as journal:
        for number in range(300):
            if number % 30 == 10:
                proxy.lose_answer_to(b"w%d " % number, READY)  # before the event: else it may be stored by now
            journal.append(Event(run_id="r", kind="llm.ai.delta", data={"text": f"w{number} "}, call_id="c"))
            if number % 30 == 29:
                journal.flush()
        journal.append(Event(run_id="r", kind="run.end"))
        journal.flush()
        assert proxy.lost == 10
        texts = [event.data["text"] for event in journal.read("r")[:-1]]
        assert texts == [f"w{number} " for number in range(300)]
        run = journal.run("r")
        assert run is not None
        assert run.status == RunStatus.COMPLETED


def test_a_batch_is_one_round_trip(store: PostgresStore, proxy: Proxy) -> None:
    """Once the store knows its runs, whether one run continues or a hundred do, with marks or without."""
    for number in range(4):  # a statement is prepared at its third use, which is one round trip more
        store.append("me", [row(deltas(f"r{one}", 2, 1 + 3 * number)) for one in range(100)])
        store.append("me", [row(deltas(f"r{one}", 1, 3 + 3 * number)) for one in range(100)])
        store.append("me", [row(deltas("lone", 1, 1 + number))])
    before = proxy.round_trips
    store.append("me", [row(deltas("lone", 1, 5))])
    assert proxy.round_trips == before + 1
    store.append("me", [row(deltas(f"r{one}", 1, 13)) for one in range(100)])
    assert proxy.round_trips == before + 2
    store.append("me", [row([end("lone", 6)])])
    assert proxy.round_trips == before + 3
