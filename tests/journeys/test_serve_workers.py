"""Several workers: a run is followed and stopped where it does not run, and a worker that shuts down aborts its streams."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from itertools import repeat

import httpx
import pytest

pytest.importorskip("uvicorn")

from tests.journeys.test_server import PATIENCE
from tests.support.bad_network import BadNetwork
from tests.support.places import on
from tests.support.serving_process import Servers, Serving, says, servers
from tests.support.sse_clients import Curl, Got, HttpxSse

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.name != "posix", reason="signals")]

__all__ = ["servers"]  # a fixture

STORES = on("sqlite", "postgres")


def is_end(got: Got) -> bool:
    return '"kind":"run.end"' in got.data


def calm() -> Iterator[tuple[str, int]]:
    """A network that does nothing to a connection."""
    return repeat(("pass", 0))


class Heard:
    """A reader in a thread of its own, and a mark when it has heard something of the run."""

    def __init__(self, client: type[HttpxSse | Curl], url: str) -> None:
        self.heard = threading.Event()
        self.reader = client(url, self._take)
        self._thread = threading.Thread(target=self.reader.follow)
        self._thread.start()

    def _take(self, got: Got) -> bool:
        if got.id.endswith(":20"):
            self.heard.set()
        return is_end(got)

    def until_heard(self) -> None:
        assert self.heard.wait(PATIENCE)

    def until_end(self) -> list[Got]:
        self._thread.join()
        return self.reader.got


@STORES
def test_started_in_one_worker_followed_and_stopped_in_another(servers: Servers) -> None:
    """S23, S43, S44, S46, S48: readers of both workers hear the same; a Stop in the other one settles the thread."""
    one, other = servers(pace=0.02), servers(pace=0.02)
    run_id = one.begin("count 5000")
    path = f"/runs/{run_id}/events"
    here, there = Heard(HttpxSse, one.url + path), Heard(Curl, other.url + path)
    here.until_heard()
    there.until_heard()
    busy = other.client.post("/threads/t/runs", json=says("hello"))
    assert (busy.status_code, busy.json()["run_id"]) == (409, run_id)
    stopped = other.client.post(f"/runs/{run_id}/stop", params={"wait": 1})
    assert stopped.status_code == 200, stopped.text
    assert (stopped.json()["status"], stopped.json()["cause"], stopped.json()["settled"]) == ("interrupted", "stop", True)
    assert here.until_end() == there.until_end()
    assert [tuple(one) for one in here.reader.got] == other.frames(path)
    again = other.client.post(f"/runs/{run_id}/stop")
    assert (again.status_code, again.headers["content-type"]) == (409, "application/problem+json")
    # A reader that refreshes has nothing left, and does not attach again.
    tip = here.reader.cursor
    assert other.client.get(path, headers={"last-event-id": str(tip)}).status_code == 204
    said = other.texts()
    assert said[0] == "human: count 5000"
    assert said[1].startswith("ai: 1 2 3 ")
    # A late Stop of the old run leaves the new one alone.
    fresh = one.begin("hold")
    assert other.client.post(f"/runs/{run_id}/stop").status_code == 409
    assert one.get(f"/runs/{fresh}")["status"] == "running"
    assert other.client.post(f"/runs/{fresh}/stop", params={"wait": 1}).status_code == 200


def test_the_same_start_twice_at_two_workers(servers: Servers) -> None:
    """S50: a client that got no answer sends its message again, to another worker: it is one run, and one message."""
    one, other = servers(), servers()
    run_id = "6f3a1b9e-0c43-4d0e-9f57-0a9d4f0f7b11"
    with httpx.Client(timeout=PATIENCE) as client:
        answers = [
            client.post(f"{server.url}/threads/t/runs", json={**says("hello"), "run_id": run_id})
            for server in (one, other, one, other)
        ]
    assert [answer.status_code for answer in answers] == [201, 200, 200, 200]
    one.frames(f"/runs/{run_id}/events")
    assert [text.partition(":")[0] for text in other.texts()] == ["human", "ai"]


@STORES
@pytest.mark.parametrize("client", [HttpxSse, Curl])
def test_a_worker_that_shuts_down_aborts_its_streams(servers: Servers, client: type[HttpxSse | Curl]) -> None:
    """S38, P47: the stream is no complete answer, and the client comes back to the other worker by itself."""
    one, other = servers(pace=0.02), servers(pace=0.02)
    run_id, foreign = one.begin("count 5000"), other.begin("count 200", "other")
    with BadNetwork(other.port, one.port, fates=calm()) as network:
        network.ports = [one.port]
        readers = [Heard(client, f"{network.url}/runs/{run}/events") for run in (run_id, foreign)]
        for reader in readers:
            reader.until_heard()
        network.ports = [one.port, other.port]
        assert one.end(signal.SIGTERM) in (0, -signal.SIGTERM)
        for run, reader in zip((run_id, foreign), readers, strict=True):
            got = reader.until_end()
            assert [tuple(one) for one in got] == other.frames(f"/runs/{run}/events")
            assert reader.reader.errors != []
            assert not set(reader.reader.errors) & {"500"}
    run = other.get(f"/runs/{run_id}")
    assert (run["status"], run["cause"], run["settled"]) == ("interrupted", "shutdown", True)
    assert other.get(f"/runs/{foreign}")["status"] == "completed"


def test_curl_exits_with_an_error_at_a_shutdown(servers: Servers) -> None:
    """P47: a clean end would mean "finished" to most clients."""
    server = servers(pace=0.02)
    run_id = server.begin("count 5000")
    command = ["curl", "-sN", f"{server.url}/runs/{run_id}/events"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as curl:
        assert curl.stdout is not None
        assert curl.stdout.readline() == b"retry: 1000\n"
        assert curl.stdout.readline().startswith(b"id: ")
        server.end(signal.SIGTERM)
        received = curl.stdout.read()
        code = curl.wait(PATIENCE)
    assert code in (18, 56), code  # a partial file, or a failure in receiving: never 0
    assert b'"run.end"' not in received


def test_one_of_two_workers_of_a_server_is_shut_down(servers: Servers) -> None:
    """S38: with `--workers 2`, the connection goes to the worker that is left, at the same address."""
    server = servers("--workers", "2", pace=0.02)
    pids: dict[int, None] = {}
    while len(pids) < 2:
        pids[httpx.get(f"{server.url}/debug").json()["pid"]] = None
    run_id = server.begin("count 600")
    readers = [Heard(client, f"{server.url}/runs/{run_id}/events") for client in (HttpxSse, Curl, HttpxSse, Curl)]
    for reader in readers:
        reader.until_heard()
    os.kill(next(iter(pids)), signal.SIGTERM)
    got = [reader.until_end() for reader in readers]
    whole = server.frames(f"/runs/{run_id}/events")
    assert [[tuple(one) for one in each] for each in got] == [whole] * 4
    assert server.get(f"/runs/{run_id}")["status"] in ("completed", "interrupted")


@pytest.mark.parametrize("way", ["asyncio", "uvloop"])
def test_clients_that_leave_at_any_moment(servers: Servers, way: str) -> None:
    """S23, S57: clients leave during the headers, during the replay, and live: no stream and no task is left."""
    if way == "uvloop":
        pytest.importorskip("uvloop")
        pytest.importorskip("httptools")
    server: Serving = servers(*(("--loop", "uvloop", "--http", "httptools") if way == "uvloop" else ()))
    replayed, live = server.begin("count 3000"), server.begin("hold", "live")
    server.frames(f"/runs/{replayed}/events")
    idle = server.get("/debug")["tasks"]
    for read in (0, 0, 1, 100, 20_000):
        for path in (f"/runs/{replayed}/events", f"/runs/{live}/events", "/threads/t/events", "/threads/none/events"):
            for headers in ("", "\r\n"):
                with socket.create_connection(("127.0.0.1", server.port)) as client:
                    client.settimeout(PATIENCE)
                    client.sendall(f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n{headers}".encode())
                    left = read if headers and path == f"/runs/{replayed}/events" else min(read, 1) if headers else 0
                    while left > 0:
                        left -= len(client.recv(left))
    give_up = time.monotonic() + PATIENCE
    while (now := server.get("/debug"))["streams"] != 0 or now["tasks"] > idle:
        assert time.monotonic() < give_up, (now, idle)
    server.client.post(f"/runs/{live}/stop", params={"wait": 1}).raise_for_status()


def test_deleted_while_the_reader_was_away(servers: Servers) -> None:
    """S14: the reader that comes back to any worker is told so, and an `EventSource` stops."""
    one, other = servers(), servers()
    run_id = one.begin("count 30")
    one.frames(f"/runs/{run_id}/events")
    assert other.client.delete("/threads/t").status_code == 204
    for server in (other, one):
        answer = server.client.get(f"/runs/{run_id}/events", headers={"last-event-id": f"{run_id}:7"})
        assert answer.status_code in (404, 410), answer.text
        assert answer.headers["content-type"] == "application/problem+json"
        assert server.texts() == []
    # A cursor of the thread that names the run is of no use any more.
    with one.reading("/threads/t/events", headers={"last-event-id": f"{run_id}:7"}) as stream:
        lines = stream.iter_lines()
        assert "event: reset" in (next(lines), next(lines))
    assert one.begin("hello") != run_id
