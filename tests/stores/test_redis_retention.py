"""What leaves the store in Redis, when, and what stays; and runs that are restored from what is left of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
import redis

from langchain_runjournal import Event, errors
from langchain_runjournal.stores import Owner, Store, open_store
from langchain_runjournal.stores.redis import RedisStore
from langchain_runjournal.testing.store_contract.support import begun, deltas, end, numbered, row
from tests.stores.test_redis_fence import client, url
from tests.support.servers import RedisServer, redis_server

__all__ = ["client", "url"]


@pytest.fixture
def open_(url: str) -> Iterator[Callable[[str], RedisStore]]:
    stores: list[Store] = []

    def open_(query: str = "") -> RedisStore:
        store = open_store(url + query)
        assert isinstance(store, RedisStore)
        stores.append(store)
        return store

    yield open_
    for store in stores:
        store.close()


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def ids(store: Store) -> set[str]:
    return {run.run_id for run in store.runs(thread_id=None, status=None, limit=None)}


# --- time ---------------------------------------------------------------------------------------------------------------


def test_only_runs_that_are_done_expire(open_: Callable[[str], RedisStore], client: redis.Redis) -> None:
    """Not one that is running, waits for a human, has just begun, or is to be settled; one that is settled later, then."""
    store = open_("?retain=1")
    start = {"thread_id": "t"}
    for run_id in ("done", "given up", "unsettled", "settled later", "running", "paused"):
        store.append("me", [row([Event(run_id=run_id, kind="run.start", data=start, seq=1, at=1.0), *deltas(run_id, 1, 2)])])
    store.begin(begun("begun", "u"), ())
    store.append("me", [row([end("done", 3)]), row([end("given up", 3, settled=False, given_up=True)])])
    store.append("me", [row([end("unsettled", 3, settled=False)]), row([end("settled later", 3, settled=False)])])
    store.append("me", [row(numbered("paused", ["run.pause"], 3))])
    stay = {"unsettled", "settled later", "running", "paused", "begun"}
    until(lambda: ids(store) == stay)
    store.append("me", [row(numbered("settled later", ["run.settled"], 4))])
    stay.remove("settled later")
    until(lambda: ids(store) == stay)
    assert {run_id for run_id in stay if client.ttl(f"{{runjournal}}:run:{run_id}") == -1} == stay
    store.tidy()
    left = {key.rpartition(":")[2] for key in client.keys("{runjournal}:run:*") + client.keys("{runjournal}:events:*")}
    assert left == stay
    assert set(client.zrange("{runjournal}:thread:t", 0, -1)) == stay - {"begun"}
    assert set(client.zrange("{runjournal}:runs", 0, -1)) == stay
    assert client.zrange("{runjournal}:status:completed", 0, -1) == ["unsettled"]
    assert client.keys("{runjournal}:expiring") == []
    assert store.check() == []


def test_events_that_outlive_their_run_are_removed(open_: Callable[[str], RedisStore], client: redis.Redis) -> None:
    """A merge in the last millisecond of a run leaves its events without a time."""
    store = open_("?retain=1")
    store.append("me", [row([*deltas("r", 1), end("r", 2)])])
    assert client.persist("{runjournal}:events:r")
    until(lambda: ids(store) == set())
    until(lambda: not client.exists("{runjournal}:run:r"))
    store.tidy()
    assert client.keys("{runjournal}:events:*") == []
    assert store.check() == []


def test_a_journal_that_keeps_runs_leaves_the_time_of_others(
    open_: Callable[[str], RedisStore], client: redis.Redis
) -> None:
    """Its late event changes nothing of when the run expires, nor of what is removed then."""
    store, keeps = open_("?retain=1"), open_("")
    store.append("me", [row([*deltas("r", 1), end("r", 2)])])
    settled = Event(run_id="r", kind="run.settled", data={"settled": True}, seq=3, at=3.0)
    keeps.append("me", [row([settled])])
    until(lambda: not client.exists("{runjournal}:run:r"))

    def is_swept() -> bool:
        store.tidy()
        return not client.exists("{runjournal}:expiring")

    until(is_swept)
    assert client.zrange("{runjournal}:runs", 0, -1) == []
    assert store.check() == []


def test_a_run_that_is_to_be_settled_again_does_not_expire(open_: Callable[[str], RedisStore], client: redis.Redis) -> None:
    """A late `run.settled` can take the settlement back."""
    store = open_("?retain=100")
    store.append("me", [row([*deltas("r", 1), end("r", 2)])])
    keys = ("{runjournal}:run:r", "{runjournal}:events:r")
    assert all(90 < client.ttl(key) <= 100 for key in keys)
    undone = Event(run_id="r", kind="run.settled", data={"settled": False}, seq=3, at=3.0)
    store.append("me", [row([undone])])
    assert [client.ttl(key) for key in keys] == [-1, -1]
    assert [run.run_id for run in store.unsettled(thread_id=None)] == ["r"]
    assert store.check() == []


def test_merging_keeps_the_time_of_a_run(open_: Callable[[str], RedisStore], client: redis.Redis) -> None:
    """Its events expire with it, also after they were replaced by long entries."""
    store = open_("?retain=100")
    for seq in range(1, 301):
        store.append("me", [row(deltas("r", 1, seq))])
    store.append("me", [row([end("r", 301)])])
    assert client.xlen("{runjournal}:events:r") == 301
    before = store.read("r", 0, None)
    size = client.memory_usage("{runjournal}:events:r", 0)
    store.tidy()
    assert client.xlen("{runjournal}:events:r") == 1
    assert client.memory_usage("{runjournal}:events:r", 0) < size
    assert store.read("r", 0, None) == before
    assert 90 < client.ttl("{runjournal}:events:r") <= 100
    assert store.tidy() is None
    store.append("me", [row(deltas("r", 2, 302))])
    assert [event.seq for event in store.read("r", 300, None)] == [301, 302, 303]
    assert store.check() == []


def test_an_append_during_a_merge_wins(open_: Callable[[str], RedisStore], monkeypatch: pytest.MonkeyPatch) -> None:
    """The server compares: entries that were read before a late event are not put in its place."""
    store, other = open_(""), open_("")
    for seq in range(1, 4):
        store.append("me", [row(deltas("r", 1, seq))])
    store.append("me", [row([end("r", 4)])])
    step = other._step

    def late(*args: object, **options: bool) -> list[object]:
        if len(args) > 6:
            store.append("me", [row(numbered("r", ["llm.tool.result"], 5))])
        return step(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(other, "_step", late)
    other.tidy()
    assert [event.seq for event in store.read("r", 0, None)] == [1, 2, 3, 4, 5]
    assert store.check() == []


def test_small_entries_are_merged_in_passing(open_: Callable[[str], RedisStore], client: redis.Redis) -> None:
    """A journal that stays open for weeks does not wait for its close."""
    store = open_("")
    for number in range(40):
        events = [
            Event(run_id=f"r{number}", kind="llm.ai.delta", data={"text": "x" * 2_000}, seq=seq + 1) for seq in range(10)
        ]
        for event in events:
            store.append("me", [row([event])])
        store.append("me", [row([end(f"r{number}", 11)])])
    assert min(client.xlen(f"{{runjournal}}:events:r{number}") for number in range(40)) == 1
    assert store.check() == []


# --- deletion -----------------------------------------------------------------------------------------------------------


def test_nothing_of_a_deleted_run_stays(open_: Callable[[str], RedisStore], client: redis.Redis) -> None:
    """Neither keys nor members of indexes, but for its id, as long as the spool of its owner may hold it."""
    store = open_("")
    store.beat(Owner(owner_id="me", place="here", pid=1, born="2", lease=15.0, beats=3))
    empty = set(client.keys("*"))
    store.append("me", [row([Event(run_id="r", kind="run.start", data={"thread_id": "t"}, seq=1), end("r", 2)])])
    store.append("you", [row([Event(run_id="s", kind="run.start", data={"thread_id": "t"}, seq=1)])])
    store.request_stop("s", "stop")
    assert store.delete(["r", "s"]) == ["r", "s"]
    kept = {"{runjournal}:changes", "{runjournal}:deleted:me"}
    left = {key for key in client.keys("*") if client.ttl(key) == -1}
    assert left - empty <= kept
    assert (store.deleted("me"), store.deleted("you")) == ({"r"}, set())
    for beats, left in ((13, {"r"}), (14, set())):
        store.beat(Owner(owner_id="me", place="here", pid=1, born="2", lease=15.0, beats=beats))
        assert store.deleted("me") == left
    store.append("me", [row(deltas("u", 1))])
    store.delete(["u"])
    store.forget("me")
    assert (store.deleted("me"), store.owners()) == (set(), [])


def test_pruning_goes_in_portions(open_: Callable[[str], RedisStore], monkeypatch: pytest.MonkeyPatch) -> None:
    """At most a hundred runs a script, so that no append has to wait for long; a run that is not done any more stays."""
    store, other = open_(""), open_("")
    for number in range(250):
        store.append("me", [row([*deltas(f"{number:03}", 1), end(f"{number:03}", 2 + 0)])])
    step, portions = store._step, []

    def counted(*args: object, **options: bool) -> list[object]:
        if len(args) > 3 and args[2] == b"1":
            portions.append(len(args) - 3)
            if len(portions) == 2:
                undone = Event(run_id="205", kind="run.settled", data={"settled": False}, seq=3, at=3.0)
                other.append("me", [row([undone])])
        return step(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(store, "_step", counted)
    gone = store.prune(before=None, keep_last=10)
    assert portions == [100, 100, 40]
    assert gone == [f"{number:03}" for number in range(240) if number != 205]
    assert len(ids(store)) == 11
    assert store.check() == []


def test_deleted_text_leaves_the_file_of_the_server() -> None:
    """With `vacuum`, which has the server rewrite its append-only file."""
    server = RedisServer()
    server.start()
    store = open_store(server.url())
    secret = "the secret of the user"
    store.append("me", [row([Event(run_id="r", kind="llm.ai.delta", data={"text": secret}, seq=1)]), row(deltas("s", 3))])
    store.delete(["r"])

    def is_there() -> bool:
        files = [path for path in server.directory.rglob("*") if path.is_file() and path.name != "log"]
        return any(secret.encode() in path.read_bytes() for path in files)

    assert is_there(), "a test that finds the text nowhere proves nothing"
    store.vacuum()
    assert not is_there()
    assert len(store.read("s", 0, None)) == 3
    store.close()
    server.destroy()


# --- restoring ----------------------------------------------------------------------------------------------------------


def test_a_run_is_restored_with_its_gaps(open_: Callable[[str], RedisStore]) -> None:
    """`lost` counts what is missing, a later segment fills a gap, and `read` never skips one."""
    store, other = open_(""), open_("")
    store.restore("me", [row(deltas("r", 3, 4)), row(deltas("r", 2, 10))])
    run = store.run("r")
    assert run is not None
    assert (run.lost, run.last_seq) == (6, 11)
    assert other.stored(["r", "unknown"])["r"][2:] == (11, ((1, 3), (7, 9)))
    assert set(other.stored(["unknown"])) == set()
    for after, gap in ((0, (0, 4)), (4, (6, 10))):
        with pytest.raises(errors.EventsMissing) as raised:
            store.read("r", after, None)
        assert (raised.value.after, raised.value.found) == gap
    assert [event.seq for event in store.read("r", 3, 3)] == [4, 5, 6]
    assert [event.seq for event in store.read("r", 9, None)] == [10, 11]
    with pytest.raises(errors.SeqGap):
        store.append("me", [row(deltas("s", 1)), row(deltas("r", 1, 13))])
    start = Event(run_id="r", kind="run.start", data={"thread_id": "t"}, seq=1, at=1_700_000_001.0)
    other.restore("me", [row([start, *deltas("r", 4, 2)])])
    run = store.run("r")
    assert run is not None
    assert (run.lost, run.thread_id, run.last_seq) == (3, "t", 11)
    store.append("me", [row(deltas("r", 1, 12))])
    other.restore("me", [row(deltas("r", 10, 5))])
    assert [event.seq for event in store.read("r", 0, None)] == list(range(1, 15))
    assert store.read("r", 1, None) == deltas("r", 13, 2)
    run = store.run("r")
    assert run is not None
    assert (run.lost, run.last_seq) == (0, 14)
    assert store.stored(["r"])["r"] == ("me", 1, 14, ())
    other.restore("me", [row([start, *deltas("r", 4, 2)])])
    assert store.check() == []
    assert [one.run_id for one in store.runs(thread_id="t", status=None, limit=None)] == ["r"]


def test_a_restored_run_belongs_to_its_owner(open_: Callable[[str], RedisStore]) -> None:
    """At the epoch that it had; another owner is fenced."""
    store = open_("")
    store.restore("me", [row(deltas("r", 2, 5), epoch=3)])
    assert store.stored(["r"])["r"][:3] == ("me", 3, 6)
    for owner_id, epoch in (("you", 3), ("me", 2)):
        with pytest.raises(errors.RunFenced):
            store.restore(owner_id, [row(deltas("r", 2, 9), epoch=epoch)])


def test_the_server_of_these_tests_is_one_that_warns() -> None:
    """What they show holds for the weakest server, too."""
    assert redis_server().settings["appendfsync"] == "no"
