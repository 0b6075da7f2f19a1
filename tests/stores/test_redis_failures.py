"""What happens to a journal when its Redis server fails, on real servers that fail."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from langchain_runjournal import Event, RunJournal, errors
from langchain_runjournal.events.segments import Segment, pack
from langchain_runjournal.stores import Owner, Store, open_store
from langchain_runjournal.testing.store_contract.support import begun, deltas, end, row
from tests.support.imports import ROOT
from tests.support.proxy import Proxy
from tests.support.servers import RedisServer, redis_url


@pytest.fixture
def server() -> Iterator[RedisServer]:
    server = RedisServer()
    server.start()
    yield server
    server.destroy()


@pytest.fixture
def proxy(server: RedisServer) -> Iterator[Proxy]:
    with Proxy(server.port) as found:
        yield found


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def delta(number: int, run_id: str = "r") -> Event:
    return Event(run_id=run_id, kind="llm.ai.delta", data={"text": str(number)})


def texts(journal: RunJournal, run_id: str = "r") -> list[str]:
    return [event.text for event in journal.read(run_id)]


# --- the server goes away -----------------------------------------------------------------------------------------------


def test_the_journal_goes_on_while_the_server_is_away(
    server: RedisServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Appends do not wait, `flush` says what is the matter, and everything is stored when the server is back."""
    with RunJournal(server.url(), spool_dir=tmp_path) as journal:
        journal.append(delta(0))
        journal.flush()
        for round_ in range(2):
            server.kill()
            for number in range(100):
                journal.append(delta(100 * round_ + number + 1))
            with pytest.raises(errors.WriteFailed, match=r"cannot be reached.*Check that the server runs"):
                journal.flush()
            server.start()
            until(lambda: _flushed(journal))
        assert texts(journal) == [str(number) for number in range(201)]
    reasons = [record.getMessage() for record in caplog.records if "could not write the journal" in record.getMessage()]
    assert len(reasons) == 2, "one line for each time"


def _flushed(journal: RunJournal) -> bool:
    try:
        journal.flush()
    except errors.WriteFailed:
        return False
    return True


WRITER = """
import sys
from langchain_runjournal import Event, RunJournal
from langchain_runjournal.errors import WriteFailed
journal, number = RunJournal(sys.argv[1]), 0
while True:
    for _ in range(20):
        number += 1
        for run_id in ("a", "b"):
            journal.append(Event(run_id=run_id, kind="llm.ai.delta", data={"text": str(number)}))
    try:
        journal.flush()
    except WriteFailed:
        break
    print(number, flush=True)
print("failed", flush=True)
sys.stdin.read()
"""


@pytest.mark.slow
def test_what_flush_returned_from_survives_a_killed_server(server: RedisServer, tmp_path: Path) -> None:
    """With `appendfsync always`, in twenty kills of the server with SIGKILL at any moment."""
    for kill in range(20):
        with redis.Redis(port=server.port) as client:
            client.flushall()
        command = [sys.executable, "-c", WRITER, server.url()]
        environment = {**os.environ, "PYTHONPATH": str(ROOT.parent), "XDG_STATE_HOME": str(tmp_path / str(kill))}
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as writer:
            assert writer.stdout is not None
            flushed = [writer.stdout.readline() for _ in range(3)]
            killer = threading.Timer(0.013 * kill, server.kill)
            killer.start()
            flushed += iter(writer.stdout.readline, "failed\n")
            killer.join()
            writer.kill()
        server.start()
        store = open_store(server.url())
        for run_id in ("a", "b"):
            events = store.read(run_id, 0, None)
            assert [event.text for event in events] == [str(number + 1) for number in range(len(events))]
            assert len(events) >= int(flushed[-1])
        assert store.check() == []
        store.close()


# --- the answer is lost -------------------------------------------------------------------------------------------------


def verbs(store: Store) -> dict[str, Callable[[], object]]:
    """What each verb that changes something answers, if it is called once."""
    records: Any = store
    return {
        "append": lambda: store.append("me", [row(deltas("r", 3)), row(deltas("s", 2))]),
        "begin": lambda: store.begin(begun("n", "t"), ()),
        "withdraw": lambda: store.withdraw("n", "me"),
        "claim": lambda: store.claim("r", "you", 1),
        "stop": lambda: store.request_stop("r", "stop"),
        "delete": lambda: store.delete(["r", "s"]),
        "hold": lambda: store.hold("t", "me 1", None),
        "release": lambda: store.release("t", "me 1"),
        "beat": lambda: store.beat(Owner(owner_id="me", place="here", pid=1, born="2", lease=15.0)),
        "learn": lambda: store.learn("g", ["a"]),
        "put_record": lambda: records.put_record("s", "k", "{}", version=0, group="g"),
        "put_record at a version": lambda: records.put_record("s", "k", '{"a":1}', version=1, group=None),
        "put_record that deletes": lambda: records.put_record("s", "k", None, version=2, group=None),
    }


def test_a_lost_answer_changes_no_answer(server: RedisServer, proxy: Proxy) -> None:
    """The server has done what it was asked, and the connection breaks: the store asks again, and gets the same answer."""
    expected = open_store(f"{server.url()}?prefix=expected")
    tried = open_store(f"redis://127.0.0.1:{proxy.port}/0?prefix=tried")
    for (verb, got), wanted in zip(verbs(tried).items(), verbs(expected).values(), strict=True):
        assert tried.holder("t") == expected.holder("t")  # and the connection is known to be good
        answer = wanted()  # first, so that the server knows the script
        proxy.lose_answer_to(b"SADD" if verb == "learn" else b"EVALSHA")
        lost = proxy.lost
        assert got() == answer, verb
        assert proxy.lost == lost + 1, verb
        assert tried.runs(thread_id=None, status=None, limit=None) == expected.runs(thread_id=None, status=None, limit=None)
        for run_id in ("r", "s"):
            assert tried.read(run_id, 0, None) == expected.read(run_id, 0, None)
    assert tried.check() == []
    tried.close()
    expected.close()


def test_a_batch_whose_outcome_is_unknown_is_stored_once(server: RedisServer, proxy: Proxy) -> None:
    """The writer appends it again, longer, and in other pieces."""
    store = open_store(f"redis://127.0.0.1:{proxy.port}/0?busy_timeout=0.5")
    store.append("me", [row(deltas("r", 2)), row(deltas("s", 1))])
    proxy.stand_still()
    with pytest.raises(errors.StoreUnreachable):
        store.append("me", [row(deltas("r", 3, 3)), row(deltas("s", 1, 2))])
    proxy.go_on()
    until(lambda: len(store.read("s", 0, None)) == 2)  # the network has delivered it late
    store.append("me", [row(deltas("r", 2, 2)), row(deltas("s", 4)), row(deltas("r", 4, 4))])
    assert [event.seq for event in store.read("r", 0, None)] == [1, 2, 3, 4, 5, 6, 7]
    assert [event.seq for event in store.read("s", 0, None)] == [1, 2, 3, 4]
    store.close()


def test_a_journal_behind_a_bad_network_doubles_nothing(server: RedisServer, proxy: Proxy) -> None:
    """Connections are cut, by the network and by an administrator, while four threads append to four runs."""
    done = threading.Event()

    def disturb() -> None:
        with redis.Redis(port=server.port) as client:
            while not done.wait(0.01):
                proxy.lose_answer_to(b"EVALSHA")
                client.client_kill_filter(_type="normal", skipme=True)
                proxy.cut()

    disturber = threading.Thread(target=disturb)
    with RunJournal(f"redis://127.0.0.1:{proxy.port}/0") as journal:
        disturber.start()

        def write(run_id: str) -> None:
            for number in range(300):
                journal.append(delta(number, run_id))
                time.sleep(0.002)

        writers = [threading.Thread(target=write, args=(run_id,)) for run_id in "abcd"]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        done.set()
        disturber.join()
        until(lambda: _flushed(journal))
        for run_id in "abcd":
            assert texts(journal, run_id) == [str(number) for number in range(300)]


def test_a_cable_that_is_cut_blocks_no_caller_for_long(server: RedisServer, proxy: Proxy) -> None:
    """Each call ends after `busy_timeout`, for the second attempt on a new connection as well."""
    store = open_store(f"redis://127.0.0.1:{proxy.port}/0?busy_timeout=0.3")
    proxy.stand_still()
    began = time.monotonic()
    with pytest.raises(errors.StoreUnreachable, match="Timeout"):
        store.run("r")
    assert time.monotonic() - began < 10  # and not minutes, as TCP has it
    proxy.go_on()
    until(lambda: _answers(store))
    store.close()


def _answers(store: Store) -> bool:
    try:
        return store.run("r") is None
    except errors.StoreFailed:
        return False


# --- the server is there, and refuses -----------------------------------------------------------------------------------


def test_a_server_without_memory_refuses_whole_batches(server: RedisServer, tmp_path: Path) -> None:
    """Nothing of a batch is stored then. Heartbeats, stop requests, claims, holds and deletions still work, and with room
    again everything is stored."""
    store = open_store(server.url())
    store.append("me", [row([*deltas("old", 1), end("old", 2)]), row(deltas("r", 1)), row(deltas("s", 1))])
    records: Any = store
    kept = records.put_record("s", "k", "{}", version=0, group="g")
    with redis.Redis(port=server.port) as client, RunJournal(server.url(), spool_dir=tmp_path) as journal:
        journal.append(delta(0, "j"))
        journal.flush()
        client.config_set("maxmemory", "1mb")
        with pytest.raises(errors.StoreFailed, match="Raise maxmemory of the server, or delete runs"):
            store.append("me", [row(deltas("r", 1, 2)), row([end("s", 2)]), row(deltas("new", 1))])
        with pytest.raises(errors.StoreFailed, match="Raise maxmemory of the server"):
            records.put_record("s", "k", "{}", version=None, group=None)
        assert records.put_record("s", "k", None, version=None, group=None) == kept
        assert [len(store.read(run_id, 0, None)) for run_id in ("r", "s", "new")] == [1, 1, 0]
        run = store.run("s")
        assert run is not None
        assert run.status == "running"
        journal.append(delta(1, "j"))
        with pytest.raises(errors.WriteFailed, match="Raise maxmemory"):
            journal.flush()
        store.beat(Owner(owner_id="me", place="here", pid=1, born="2", lease=15.0))
        assert store.hold("t", "h", None) == "h"
        assert store.request_stop("r", "stop") is not None
        assert store.stops("me") == {"r": "stop"}
        assert store.claim("s", "you", 1)
        assert store.prune(before=None, keep_last=0) == ["old"]
        assert store.delete(["s"]) == ["s"]
        assert store.check() == []
        client.config_set("maxmemory", "0")
        until(lambda: _flushed(journal))
        assert texts(journal, "j") == ["0", "1"]
    store.close()


def test_a_server_that_becomes_a_replica_and_a_primary_again(server: RedisServer) -> None:
    """During a failover nothing is written, and the error says so; connections are made anew, and then it works again."""
    store = open_store(server.url())
    store.append("me", [row(deltas("r", 1))])
    with redis.Redis(port=server.port) as client:
        before = {one["id"] for one in client.client_list(_type="normal")}
        client.replicaof("127.0.0.1", "1")
        with pytest.raises(errors.StoreFailed, match=r"has become a replica\. Wait for the new primary"):
            store.append("me", [row(deltas("r", 1, 2))])
        client.replicaof("NO", "ONE")
        store.append("me", [row(deltas("r", 1, 2))])
        mine = {str(client.client_id())}
        after = {one["id"] for one in client.client_list(_type="normal")}
        assert before & after == mine, "a connection that knows only the replica was used again"
    assert len(store.read("r", 0, None)) == 2
    store.close()


def test_scripts_that_the_server_forgot_are_sent_again(server: RedisServer) -> None:
    """`SCRIPT FLUSH`, or a restart of the server, in the middle of a run."""
    store = open_store(server.url())
    store.append("me", [row(deltas("r", 1))])
    with redis.Redis(port=server.port) as client:
        client.script_flush()
    store.append("me", [row(deltas("r", 1, 2))])
    server.kill()
    server.start()
    store.append("me", [row(deltas("r", 1, 3))])
    assert len(store.read("r", 0, None)) == 3
    store.close()


@pytest.mark.parametrize("how", ["flushed", "restarted"])
def test_a_server_that_was_emptied_is_noticed(tmp_path: Path, caplog: pytest.LogCaptureFixture, how: str) -> None:
    """The journal says so. Later events of the lost run are refused with an error, and never stored as if they were all;
    new runs are stored, and the owner is found again."""
    server = RedisServer(appendonly="no" if how == "restarted" else "yes")
    server.start()
    with RunJournal(server.url(), spool_dir=tmp_path) as journal:
        store = journal._core.store
        store_id = store.store_id
        journal.append(delta(0))
        journal.flush()
        if how == "flushed":
            with redis.Redis(port=server.port) as client:
                client.flushall()
        else:
            server.kill()
            server.start()
        journal.append(delta(1))
        journal.append(delta(0, "new"))
        with pytest.raises(errors.RunFenced, match="'r'"):
            journal.flush()
        assert "has lost the journal" in caplog.text
        assert "would leave a gap" in caplog.text
        assert texts(journal, "new") == ["0"]
        with pytest.raises(errors.RunNotFound):
            journal.read("r")
        assert store.owner_of("unknown") is None
        with pytest.raises(errors.StoreFailed, match="has lost run r"):
            store.owner_of("r")
        assert [owner.owner_id for owner in store.owners()] == [journal.owner_id]
        assert (store.check(), store.store_id) == ([], store_id)
        other = open_store(server.url())
        assert other.store_id == store_id
        other.close()
    server.destroy()


def test_another_journal_on_an_emptied_server_is_not_written(server: RedisServer) -> None:
    """Its spools and its owners are others: this one has to be opened again, and writes nothing until then."""
    store = open_store(server.url())
    store.append("me", [row(deltas("r", 1))])
    with redis.Redis(port=server.port) as client:
        client.flushall()
    other = open_store(server.url())
    for events in (deltas("r", 1, 2), deltas("new", 1)):
        with pytest.raises(errors.StoreFailed, match=r"another journal has begun there\. Open the journal again"):
            store.append("me", [row(events)])
    assert store.check() == ["the server was emptied, or another journal has begun there"]
    assert other.runs(thread_id=None, status=None, limit=None) == []
    store.close()
    other.close()


# --- names, damage, forks -----------------------------------------------------------------------------------------------


def test_names_may_be_any_text() -> None:
    """NUL, half of a surrogate pair, what separates the parts of keys: two names never become one."""
    store = open_store(redis_url())
    names = ["a", "a\0", "a:b", "é", "\ud83d", "\\ud83d", "?", "😀", "{x}", " ", "\n"]
    for name in names:
        store.append("me", [Segment(name, 1, *pack("r", 1, [Event(run_id="r", kind="run.start", seq=1)])[2:])])
        store.learn(name, [name])
        assert store.hold(name, name, None) == name
        store.request_stop(name, name)
    assert [run.run_id for run in store.runs(thread_id=None, status=None, limit=None)] == names[::-1]
    assert store.stops("me") == {name: name for name in names}
    for name in names:
        assert store.learned(name) == {name}
        assert len(store.read(name, 0, None)) == 1
    assert store.check() == []
    assert store.delete(names) == names
    store.close()


def test_damage_is_found(caplog: pytest.LogCaptureFixture) -> None:
    """A damaged run hides no other run, and `check` names it."""
    url = redis_url()
    store = open_store(url)
    for name in "abcdefg":
        store.append("me", [row([Event(run_id=name, kind="run.start", data={"thread_id": "t"}, seq=1, at=1.0)])])
    for name in "abc":
        store.put_record("s", name, "{}", version=0, group="g")  # type: ignore[attr-defined]
    with redis.Redis.from_url(url) as client:
        client.zrem("{runjournal}:records:s", "a")
        client.zrem("{runjournal}:records-of:1:sg", "b")
        client.hdel("{runjournal}:record:1:sc", "number")
        client.hset("{runjournal}:run:a", "rest", "no JSON")
        client.delete("{runjournal}:run:b")
        client.zrem("{runjournal}:status:running", "c")
        client.delete("{runjournal}:events:d")
        client.xadd("{runjournal}:events:e", {"s": "nonsense"}, id="2-0")
        client.zrem("{runjournal}:runs", "f")
        client.zrem("{runjournal}:open:t", "g")
    runs = {run.run_id for run in store.runs(thread_id="t", status=None, limit=None)}
    assert runs == set("cdefg")
    assert "run a is left out" in caplog.text
    for verb in (lambda: store.run("a"), lambda: store.read("e", 0, None)):
        with pytest.raises(errors.StoreCorrupt):
            verb()
    found = " / ".join(store.check())
    for problem in (
        "the row of run a cannot be read",
        "run b is listed, and does not exist",
        "run c is not listed by its status",
        "run d ends at seq 1, and its events at seq 0",
        "run e ends at seq 1, and its events at seq 2",
        "run f is not listed",
        "run g is listed wrongly among the runs of its thread that are not settled",
        "record 1:sa is not listed by its space",
        "record 1:sb is not listed by its group",
        "record 1:sc lacks a field",
    ):
        assert problem in found
    store.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_has_connections_of_its_own(server: RedisServer) -> None:
    """Parent and child write and listen at the same time, and neither reads the answers of the other."""
    with RunJournal(server.url()) as journal:
        journal.append(delta(0))
        journal.flush()
        store = journal._core.store
        store.changed()
        connection = store._server.call("CLIENT", "ID")  # type: ignore[attr-defined]
        child = os.fork()
        if child == 0:
            code = 1
            try:
                if store._server.call("CLIENT", "ID") == connection:  # type: ignore[attr-defined]
                    os._exit(3)
                for number in range(50):
                    journal.append(delta(number, "child"))
                    journal.flush()
                seen = len(list(_first(journal, "r", 51)))
                journal.append(Event(run_id="child", kind="run.end"))
                journal.close()
                code = 0 if seen == 51 else 2
            finally:
                os._exit(code)
        for number in range(50):
            journal.append(delta(number + 1))
            journal.flush()
        events = list(journal.follow("child")) if _appears(journal, "child") else []
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert [event.text for event in events[:-1]] == [str(number) for number in range(50)]
        assert texts(journal) == [str(number) for number in range(51)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_parent_and_child_hear_each_other(server: RedisServer) -> None:
    """The child starts a reader of its own, and counts as another writer."""
    store = open_store(server.url())
    woken = threading.Event()
    store.listen(woken.set)  # type: ignore[attr-defined]
    assert woken.wait(30)
    woken.clear()
    store.before_fork()
    child = os.fork()
    store.after_fork(child=child == 0)
    if child == 0:
        code = 1
        try:
            heard = threading.Event()
            store.listen(heard.set)  # type: ignore[attr-defined]
            if heard.wait(30):
                heard.clear()
                store.append("child", [row(deltas("c", 1))])
                code = 0 if heard.wait(30) else 2
        finally:
            os._exit(code)
    assert woken.wait(60)
    store.append("me", [row(deltas("r", 1))])
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    store.close()


def _first(journal: RunJournal, run_id: str, count: int) -> Iterator[Event]:
    for event in journal.follow(run_id):
        yield event
        if event.seq == count:
            return


def _appears(journal: RunJournal, run_id: str) -> bool:
    def is_there() -> bool:
        try:
            return journal.run(run_id).last_seq > 0
        except errors.RunNotFound:
            return False

    until(is_there)
    return True


# --- listening ----------------------------------------------------------------------------------------------------------


def blocked(server: RedisServer) -> int:
    with redis.Redis(port=server.port) as client:
        return int(client.info("clients")["blocked_clients"])


def test_a_hundred_followers_use_one_connection(server: RedisServer) -> None:
    """And they get every event of a run that another journal writes."""
    with RunJournal(server.url()) as writer, RunJournal(server.url()) as reader:
        writer.append(delta(0))
        writer.flush()
        counts: list[int] = []
        followers = [threading.Thread(target=lambda: counts.append(len(list(reader.follow("r"))))) for _ in range(100)]
        for follower in followers:
            follower.start()
        until(lambda: len(reader._core.duties.listeners) == 100)
        until(lambda: blocked(server) == 2)  # one for each journal
        for number in range(50):
            writer.append(delta(number))
        with redis.Redis(port=server.port) as client:
            commands = [one["cmd"] for one in client.client_list(_type="normal")]
        assert commands.count("xread") <= 2
        assert len(commands) < 40, "the followers share the connections that read, too"
        writer.append(Event(run_id="r", kind="run.end"))
        for follower in followers:
            follower.join(60)
        assert counts == [52] * 100
    until(lambda: blocked(server) == 0)


def test_a_reader_comes_back_after_the_server(server: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    """It says once that it cannot listen, and that it listens again; what was written meanwhile counts as a change."""
    caplog.set_level(logging.INFO, "langchain_runjournal")
    store, other = open_store(server.url()), open_store(server.url())
    woken = threading.Event()
    store.listen(woken.set)  # type: ignore[attr-defined]
    assert woken.wait(30)
    for _ in range(2):
        server.kill()
        until(lambda: "cannot listen" in caplog.text)
        server.start()
        before = store.changed()
        woken.clear()
        other.append("me", [row(deltas("r", 1))])
        assert woken.wait(30)
        assert store.changed() != before
        until(lambda: "listening to" in caplog.text)
        assert caplog.text.count("cannot listen") == caplog.text.count("listening to") == 1
        caplog.clear()
    store.close()
    other.close()


def test_a_reader_that_may_not_listen_polls(server: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    """A right that is withdrawn while the journal is open, or a proxy that cuts long waits, makes it slower, not deaf."""
    with redis.Redis(port=server.port) as client:
        client.acl_setuser("app", enabled=True, nopass=True, keys=["*"], categories=["+@all"])
        store = open_store(f"redis://app:x@127.0.0.1:{server.port}")
        other = open_store(server.url())
        client.acl_setuser("app", commands=["-xread"])
        store.changed()
        until(lambda: "cannot listen" in caplog.text)
        for number in range(2):
            seen = store.changed()
            other.append("me", [row(deltas("r", 1, number + 1))])
            until(lambda seen=seen: store.changed() != seen)  # type: ignore[misc]
    store.close()
    other.close()


def test_own_writes_are_no_change(server: RedisServer) -> None:
    """Otherwise the writer would look for stop requests after each of its own batches."""
    store, other = open_store(server.url()), open_store(server.url())
    woken = threading.Event()
    store.listen(woken.set)  # type: ignore[attr-defined]
    assert woken.wait(30)
    before = store.changed()
    for number in range(20):
        store.append("me", [row(deltas("r", 1, number + 1))])
    assert store.changed() == before
    woken.clear()
    other.append("me", [row(deltas("s", 1))])
    assert woken.wait(30)
    assert store.changed() == before + 1
    store.close()
    other.close()


def test_a_close_does_not_wait_for_the_reader(server: RedisServer) -> None:
    """The connection that waits is closed, and no thread stays."""
    store = open_store(server.url())
    store.changed()
    until(lambda: blocked(server) == 1)
    store.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "runjournal-redis-reader"]
    until(lambda: blocked(server) == 0)


def test_a_stopped_server_is_noticed(server: RedisServer) -> None:
    """One that does not answer, though its connections stand: SIGSTOP, as a machine that stands still."""
    store = open_store(f"{server.url()}?busy_timeout=0.5")
    server.signal(signal.SIGSTOP)
    with pytest.raises(errors.StoreUnreachable):
        store.append("me", [row(deltas("r", 1))])
    server.signal(signal.SIGCONT)
    until(lambda: _appended(store))
    assert len(store.read("r", 0, None)) == 1
    store.close()


def _appended(store: Store) -> bool:
    try:
        store.append("me", [row(deltas("r", 1))])
    except errors.StoreFailed:
        return False
    return True
