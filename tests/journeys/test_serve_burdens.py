"""The server under clients that are a burden: that do not read, that send slowly, or that are too many."""

from __future__ import annotations

import json
import os
import resource
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any

import httpx
import pytest

pytest.importorskip("uvicorn")

from tests.journeys.test_server import PATIENCE
from tests.support.serving_process import Servers, Serving, says, servers

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.name != "posix", reason="sockets")]

__all__ = ["servers"]  # a fixture

LOOPS = pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
MEGABYTE = 1 << 20


def options_of(loop: str) -> tuple[str, ...]:
    if loop == "asyncio":
        return ("--loop", "asyncio", "--http", "h11")
    pytest.importorskip("uvloop")
    pytest.importorskip("httptools")
    return ("--loop", "uvloop", "--http", "httptools")


@contextmanager
def sender(server: Serving, sent: str, *, buffer: int | None = None) -> Iterator[socket.socket]:
    """A connection on which so much has been sent."""
    with closing(socket.socket()) as client:
        if buffer is not None:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        client.settimeout(PATIENCE)
        client.connect(("127.0.0.1", server.port))
        client.sendall(sent.encode())
        yield client


def asks(path: str) -> str:
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


def posts(path: str) -> str:
    """Return a request up to its body of 100 bytes."""
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    return f"{head}Content-Type: application/json\r\nContent-Length: 100\r\n\r\n"


def until(condition: Callable[[], Any], about: Callable[[], Any]) -> None:
    """Wait for something that another process does."""
    give_up = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < give_up, about()


@LOOPS
def test_readers_that_never_read(servers: Servers, loop: str) -> None:
    """S33, S34, S35: each is disconnected at the write deadline; one that reads has everything; the memory stays flat."""
    server = servers(*options_of(loop), pace=0, write_timeout=4.0)
    run_id = server.begin("lines 5200")  # twenty megabytes
    path = f"/runs/{run_id}/events"
    whole = server.frames(path)
    assert sum(len(data) for _, _, data in whole) > 20 * MEGABYTE
    debug = server.get("/debug")
    before, tasks = debug["resident"], debug["tasks"]
    with ExitStack() as stack:
        stuck = [stack.enter_context(sender(server, asks(path), buffer=4_096)) for _ in range(40)]
        assert server.frames(path) == whole
        until(lambda: server.get("/debug")["streams"] == 0, lambda: server.get("/debug"))
        for client in stuck:
            assert not is_complete(client)
        now = server.get("/debug")
    # Each holds one page of 2,000 events, 4 to 6 MB in memory, and no frames of it beyond the next ones: not its whole run.
    assert now["resident"] - before < 40 * 8 * MEGABYTE, (before, now)
    assert now["tasks"] <= tasks
    assert server.frames(path) == whole


@pytest.mark.parametrize("site", ["mounted", "all"])
def test_stuck_readers_of_a_mounted_application(servers: Servers, site: str) -> None:
    """S34: in a FastAPI too, nothing is left of them after the write deadline: no stream, and no socket."""
    server = servers(pace=0, write_timeout=4.0, site=site)
    run_id = server.client.post("/agent/threads/t/runs", json=says("lines 500")).raise_for_status().json()["run_id"]
    path = f"/agent/runs/{run_id}/events"
    whole = server.frames(path)
    idle = server.get("/debug")["sockets"]
    with ExitStack() as stack:
        for _ in range(20):
            stack.enter_context(sender(server, asks(path), buffer=4_096))
        until(lambda: server.get("/debug")["streams"] == 0, lambda: server.get("/debug"))
        until(lambda: server.get("/debug")["sockets"] <= idle, lambda: server.get("/debug"))
        assert server.frames(path) == whole


def is_complete(client: socket.socket) -> bool:
    """Read what is left, and return whether it ends as a whole answer does."""
    received = b""
    try:
        while data := client.recv(1 << 20):
            received = received[-10:] + data
    except ConnectionResetError:
        return False
    return received.endswith(b"0\r\n\r\n")


def test_a_live_run_and_readers_that_never_read(servers: Servers) -> None:
    """S34, S36: while the run goes on, readers that read get it as it comes, and a Stop works."""
    server = servers(pace=0.001, write_timeout=4.0)
    run_id = server.begin("lines 100000")
    path = f"/runs/{run_id}/events"
    with ExitStack() as stack:
        for _ in range(20):
            stack.enter_context(sender(server, asks(path), buffer=4_096))
        with server.reading(path) as answer:
            seqs = []
            for line in answer.iter_lines():
                if line.startswith("data: "):
                    seqs.append(json.loads(line[6:])["seq"])
                if len(seqs) == 300:
                    assert server.client.post(f"/runs/{run_id}/stop").status_code in (200, 202)
        assert seqs == list(range(1, len(seqs) + 1))
    assert server.get(f"/runs/{run_id}")["status"] == "interrupted"
    until(lambda: server.get("/debug")["streams"] == 0, lambda: server.get("/debug"))


def test_clients_that_send_slowly(servers: Servers) -> None:
    """Slowloris: half a request line, half a header, half a body. Others are served; a body that does not come is 408."""
    server = servers(limits={"body_seconds": 0.5})
    run_id = server.begin("hello")
    path = f"/runs/{run_id}/events"
    whole = server.frames(path)
    post = posts("/threads/slow/runs")
    with ExitStack() as stack:
        for sent in ("", "GET /thr", "GET /threads HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "):
            for _ in range(50):
                stack.enter_context(sender(server, sent))
        bodies = [stack.enter_context(sender(server, f'{post}{{"input')) for _ in range(50)]
        assert server.frames(path) == whole
        for client in bodies:
            client.sendall(b" ")
            answer = client.recv(65536)
            assert answer.startswith(b"HTTP/1.1 408 ")
            assert b"application/problem+json" in answer
        assert server.frames(path) == whole
        assert server.get("/threads/slow/runs") == {"runs": []}


def test_a_body_whose_client_leaves(servers: Servers) -> None:
    """S57: the log says nothing of it, which the fixture checks, and nothing has begun."""
    server = servers()
    post = posts("/threads/t/runs")
    idle = server.get("/debug")["tasks"]
    for sent in (post, f'{post}{{"input', "POST /threads/t/runs HTTP/1.1\r\n"):
        with sender(server, sent):
            pass
    until(lambda: server.get("/debug")["tasks"] <= idle, lambda: server.get("/debug"))
    assert server.get("/threads/t/runs") == {"runs": []}


@LOOPS
def test_more_streams_than_the_bound(servers: Servers, loop: str) -> None:
    """Those beyond it get 503 with `Retry-After`; requests that are no streams are served; who leaves makes room."""
    server = servers(*options_of(loop), limits={"streams": 20})
    run_id = server.begin("hold")
    path = f"/runs/{run_id}/events"
    for _ in range(3):
        with ExitStack() as stack:
            readers = [stack.enter_context(sender(server, asks(path))) for _ in range(20)]
            for client in readers:
                assert client.recv(65536).startswith(b"HTTP/1.1 200 ")
            for other in (path, "/threads/t/events"):
                refused = server.client.get(other)
                assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
                assert refused.headers["content-type"] == "application/problem+json"
                assert refused.json()["detail"].endswith(".")
            assert server.get(f"/runs/{run_id}")["status"] == "running"
        until(lambda: server.get("/debug")["streams"] == 0, lambda: server.get("/debug"))
    with sender(server, asks(path)) as client:
        assert client.recv(65536).startswith(b"HTTP/1.1 200 ")
    server.client.post(f"/runs/{run_id}/stop", params={"wait": 1}).raise_for_status()


def test_many_connections_at_once(servers: Servers) -> None:
    """A thousand and more up to the bound: each is answered, with a stream or with 503, and nothing is left of them."""
    limit = min(2_000, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 200)
    server = servers("--backlog", "4096", limits={"streams": limit // 2})
    idle = server.get("/debug")["tasks"]
    run_id = server.begin("hold")
    with ExitStack() as stack:
        clients = [stack.enter_context(sender(server, asks(f"/runs/{run_id}/events"))) for _ in range(limit)]
        heads = [client.recv(12) for client in clients]
        assert set(heads) == {b"HTTP/1.1 200", b"HTTP/1.1 503"}
        assert heads.count(b"HTTP/1.1 200") == limit // 2
        assert server.client.post("/threads/more/runs", json=says("hello")).status_code == 201
    until(lambda: server.get("/debug")["streams"] == 0, lambda: server.get("/debug"))
    server.client.post(f"/runs/{run_id}/stop", params={"wait": 1}).raise_for_status()
    until(lambda: server.get("/debug")["tasks"] <= idle, lambda: server.get("/debug"))
    with httpx.Client(base_url=server.url) as client:
        assert client.get(f"/runs/{run_id}/events").text.count("run.end") == 1
