"""The server over a bad network: whatever ends a connection, a client that comes back has each event once, in order."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Iterator

import pytest

pytest.importorskip("uvicorn")

from tests.support.bad_network import BadNetwork
from tests.support.places import on
from tests.support.servers import free_port
from tests.support.serving_process import Servers, Serving, servers
from tests.support.sse_clients import Client, Curl, Got, HttpxSse, OldCurl

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.name != "posix", reason="signals")]

__all__ = ["servers"]  # a fixture

CLIENTS = pytest.mark.parametrize("client", [HttpxSse, Curl, OldCurl])
LARGEST = {"reset": 9_000, "end": 9_000, "finish": 9_000, "stall": 40_000}
"""How many bytes a connection passes on, at most. A client that waits for a stalled connection takes its time."""


def fates(seed: object, way: str) -> Iterator[tuple[str, int]]:
    """A way for all connections, each after a random number of bytes."""
    chance = random.Random(f"{seed} {way}")
    while True:
        yield way, chance.randint(20_000 if way == "stall" else 0, LARGEST[way])


def is_end(got: Got) -> bool:
    return '"kind": "run.end"' in got.data or '"kind":"run.end"' in got.data


def assert_whole(server: Serving, run_id: str, got: list[Got]) -> None:
    """A client that stayed would have had the same, byte for byte."""
    whole = server.frames(f"/runs/{run_id}/events")
    assert [tuple(one) for one in got] == whole
    assert len({one.id for one in got}) == len(got)


@CLIENTS
@pytest.mark.parametrize("way", ["reset", "end", "stall", "finish"])
def test_every_event_once_and_in_order(servers: Servers, client: type[Client], way: str) -> None:
    """S1, S6, S56: connections are reset, closed, stalled, or ended by a proxy as if complete, at random bytes."""
    if client is OldCurl and way == "finish":
        pytest.skip("HTTP/1.0 has no other end than the end of the connection")
    server = servers()
    with BadNetwork(server.port, fates=fates(client.__name__, way)) as network:
        run_id = server.begin("count 250")
        reader = client(f"{network.url}/runs/{run_id}/events")
        assert_whole(server, run_id, list(reader.follow()))
        # The run is over: a client that has nothing yet gets it the same way.
        late = client(f"{network.url}/runs/{run_id}/events")
        assert list(late.follow()) == reader.got
        assert network.cuts > 1
    assert server.texts()[-1].startswith("ai: 1 2 3 ")


@pytest.mark.parametrize("place", ["postgres"], indirect=True)
@pytest.mark.parametrize("way", ["reset", "end"])
def test_two_workers_on_postgres(servers: Servers, way: str) -> None:
    """S1 and S27: each connection may lead to another worker than the one before, and than the one of the run."""
    server = servers("--workers", "2")
    with BadNetwork(server.port, fates=fates("workers", way)) as network:
        run_id = server.begin("count 250")
        readers = [client(f"{network.url}/runs/{run_id}/events") for client in (HttpxSse, Curl)]
        threads = [threading.Thread(target=reader.follow) for reader in readers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert readers[0].got == readers[1].got
    assert_whole(server, run_id, readers[0].got)


def test_a_thread_over_a_bad_network(servers: Servers) -> None:
    """S4, S26, S28: one stream for all runs of a thread, also for one that nobody reads while it runs."""
    server = servers()
    runs: list[str] = []
    with BadNetwork(server.port, fates=fates("thread", "reset")) as network:
        ends: list[Got] = []

        def is_third(got: Got) -> bool:
            ends.extend([got] if is_end(got) else [])
            return len(ends) == 3

        reader = HttpxSse(f"{network.url}/threads/t/events", is_third)
        following = threading.Thread(target=reader.follow)
        following.start()
        for count in (120, 3, 60):
            runs.append(server.begin(f"count {count}", if_busy="wait"))
            other = server.begin(f"count {count}", "other")
            server.frames(f"/runs/{runs[-1]}/events")
            server.frames(f"/runs/{other}/events")
        following.join()
        assert network.cuts > 1
    whole = [frame for run_id in runs for frame in server.frames(f"/runs/{run_id}/events")]
    assert [tuple(one) for one in reader.got] == whole


@CLIENTS
def test_a_merged_stream_over_a_bad_network(servers: Servers, client: type[Client]) -> None:
    """S1, merged: the frames are others, and what they say is the same."""
    import json

    server = servers()
    with BadNetwork(server.port, fates=fates("merged", "reset")) as network:
        run_id = server.begin("count 400")
        reader = client(f"{network.url}/runs/{run_id}/events?merge=1")
        reader.follow()
    events = [json.loads(one.data) for one in reader.got]
    seqs = [event["seq"] for event in events]
    assert seqs == sorted(set(seqs))
    said = "".join(event["data"].get("text", "") for event in events if event["kind"] == "llm.ai.delta")
    assert said == "".join(f"{number} " for number in range(1, 401))


# --- a server that is killed --------------------------------------------------------------------------------------------


@on("sqlite", "postgres", slow=("postgres",))
@pytest.mark.parametrize("client", [HttpxSse, Curl])
def test_a_server_is_killed_and_started_again(servers: Servers, client: type[Client]) -> None:
    """S37, S38: the client comes back to the new process by its cursor, and hears how the run ended that the old one had."""
    port = free_port()
    server = servers("--port", str(port), pace=0.02)
    run_id = server.begin("count 5000")
    heard = threading.Event()

    def until(got: Got) -> bool:
        if got.id.endswith(":30"):
            heard.set()
        return is_end(got)

    reader = client(f"{server.url}/runs/{run_id}/events", until)
    following = threading.Thread(target=reader.follow)
    following.start()
    assert heard.wait(60)
    server.end(signal.SIGKILL)
    again = servers("--port", str(port))
    following.join()
    assert reader.errors != []
    events = [one for one in reader.got if one.id]
    assert [tuple(one) for one in events] == again.frames(f"/runs/{run_id}/events")
    run = again.get(f"/runs/{run_id}")
    assert (run["status"], run["cause"], run["settled"]) == ("interrupted", "crash", True)
    assert {one.event for one in reader.got if not one.id} <= {"interrupted"}
    assert again.texts()[-1].startswith("ai: 1 2 3 ")


@pytest.mark.parametrize("settled_by", ["the next message", "recover"])
def test_the_run_of_a_dead_process(servers: Servers, settled_by: str) -> None:
    """S35, S37: another process says `interrupted`, without an id, until the run is settled; then how it ended."""
    first = servers(pace=0.02)
    other = servers(recover=settled_by == "recover")
    run_id = first.begin("count 5000")
    reader = HttpxSse(f"{other.url}/runs/{run_id}/events", lambda got: got.event == "interrupted" or is_end(got))
    heard = threading.Event()
    reader.until = lambda got: heard.set() or got.event == "interrupted"  # type: ignore[func-returns-value]
    following = threading.Thread(target=reader.follow)
    following.start()
    assert heard.wait(60)
    first.end(signal.SIGKILL)
    following.join()
    *events, last = reader.got
    assert (last.id, last.event) == ("", "interrupted")
    if settled_by == "the next message":
        assert other.get(f"/runs/{run_id}")["status"] == "running"
        again = HttpxSse(reader.url, lambda got: got.event == "interrupted", cursor=reader.cursor)
        assert [one.event for one in again.follow()] == ["interrupted"]
        other.begin("hello")
    rest = HttpxSse(reader.url, is_end, cursor=reader.cursor)
    rest.follow()
    after = [one for one in rest.got if one.id]
    assert [tuple(one) for one in [*events, *after]] == other.frames(f"/runs/{run_id}/events")
    run = other.get(f"/runs/{run_id}")
    assert (run["status"], run["cause"], run["settled"]) == ("interrupted", "crash", True)
