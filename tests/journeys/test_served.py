"""`create_app` behind a real uvicorn: clients come back after whatever ends a connection or a server, and miss nothing."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.journeys.test_server import PATIENCE, Server
from tests.support.asgi import datas, frames
from tests.support.places import Place, on

httpx = pytest.importorskip("httpx")
httpx_sse = pytest.importorskip("httpx_sse")
pytest.importorskip("uvicorn")

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.name != "posix", reason="signals")]
EVERYWHERE = on("sqlite", "postgres", "redis")


class Served(Server):
    """uvicorn with the application of `create_app`."""

    app = ("tests.support.served_app:app",)

    def __init__(self, home: Path, *options: str, write: float = 20.0) -> None:
        self._write = write
        super().__init__(home, *options)

    def environment(self, home: Path) -> dict[str, str]:
        return {"SERVED_HOME": str(home), "SERVED_WRITE": str(self._write)}

    def begin(self, text: str, thread: str = "t") -> str:
        body = {"input": {"messages": [{"role": "user", "content": text}]}}
        return str(self.client.post(f"/threads/{thread}/runs", json=body).raise_for_status().json()["run_id"])

    def texts(self, thread: str = "t") -> list[str]:
        return [one["text"] for one in self.get(f"/threads/{thread}/messages")["messages"]]


Open = Callable[..., Served]


@pytest.fixture
def served(place: Place) -> Iterator[Open]:
    """Opens servers on one place."""
    opened: list[Served] = []

    def open_server(*options: str, **about: Any) -> Served:
        opened.append(Served(Path(place.home), *options, **about))
        return opened[-1]

    yield open_server
    for server in opened:
        server.end()


class Client:
    """A client that reads a stream, and comes back with the last id that it has."""

    def __init__(self, run_id: str) -> None:
        self.path = f"/runs/{run_id}/events"
        self.events: list[Any] = []
        self.last: str | None = None
        self.is_over = False

    def read(self, url: Any, until: int | None = None) -> str:
        """Read until so many events are there, or the connection ends. Return how it ended."""
        headers = {} if self.last is None else {"last-event-id": self.last}
        with httpx.Client(base_url=url, timeout=PATIENCE) as client:
            try:
                with httpx_sse.connect_sse(client, "GET", self.path, headers=headers) as source:
                    if source.response.status_code == 204:
                        self.is_over = True
                        return "nothing"
                    for frame in source.iter_sse():
                        if frame.event != "message":
                            return str(frame.event)
                        self.events.append(json.loads(frame.data))
                        self.last = frame.id
                        self.is_over = self.events[-1]["kind"] == "run.end"
                        if until is not None and len(self.events) >= until:
                            return "enough"
                    return "end"
            except (httpx.RemoteProtocolError, httpx.ReadError):
                return "reset"
            except httpx.ConnectError:
                return "refused"

    def seqs(self) -> list[int]:
        return [event["seq"] for event in self.events]

    def text(self) -> str:
        return "".join(event["data"].get("text", "") for event in self.events if event["kind"] == "llm.ai.delta")


def counted(to: int) -> str:
    return "".join(f"{number} " for number in range(1, to + 1))


@EVERYWHERE
def test_a_reader_goes_from_server_to_server(served: Open) -> None:
    """S23: any process has the run of any other. A reader that changes at every few events has each of them once."""
    servers = [served(), served()]
    run_id = servers[0].begin("Count to 200")
    client = Client(run_id)
    number = 0
    while not client.is_over:
        number += 1
        how = client.read(servers[number % 2].client.base_url, until=len(client.events) + 20)
        assert how in ("enough", "end")
    assert client.seqs() == list(range(1, len(client.events) + 1))
    assert client.text() == counted(200)
    assert client.read(servers[0].client.base_url) == "nothing"
    whole = [server.client.get(client.path).content for server in servers]
    assert whole[0] == whole[1]
    assert datas(whole[0]) == client.events


@EVERYWHERE
def test_a_server_is_killed_in_the_middle_of_a_stream(served: Open) -> None:
    """S37, S38: the reader comes back to the new process by its cursor, and learns how the run ended; once."""
    first = served()
    run_id = first.begin("Count to 100000")
    client = Client(run_id)
    client.read(first.client.base_url, until=50)
    os.killpg(first.process.pid, signal.SIGKILL)
    first.end(signal.SIGKILL)
    second = served()
    deadline = time.monotonic() + PATIENCE
    while not client.is_over:
        assert client.read(second.client.base_url) in ("end", "interrupted", "reset")
        assert time.monotonic() < deadline
    assert client.seqs() == list(range(1, len(client.events) + 1))
    assert client.events[-1]["data"]["cause"] == "crash"
    assert counted(100_000).startswith(client.text())
    assert [event["kind"] for event in client.events].count("run.end") == 1
    assert second.texts() == ["Count to 100000", client.text()]


def test_a_server_that_shuts_down_resets_its_streams(served: Open) -> None:
    """P47: a clean end would mean that the answer is complete. The reader comes back to the other server by itself."""
    first, second = served(), served()
    run_id = first.begin("Count to 100000")
    client = Client(run_id)
    client.read(first.client.base_url, until=50)
    first.process.send_signal(signal.SIGTERM)
    assert client.read(first.client.base_url) in ("reset", "refused")
    first.end()
    deadline = time.monotonic() + PATIENCE
    while not client.is_over:
        client.read(second.client.base_url)
        assert time.monotonic() < deadline
    assert client.seqs() == list(range(1, len(client.events) + 1))
    assert client.events[-1]["data"]["cause"] == "shutdown"


def test_a_shut_down_reaches_a_reader_that_is_connected(served: Open) -> None:
    """P47: the reader whose stream was open gets an error, not an end."""
    server = served()
    run_id = server.begin("Count to 100000")
    with (
        httpx.Client(base_url=server.client.base_url, timeout=PATIENCE) as client,
        pytest.raises(httpx.TransportError),
        client.stream("GET", f"/runs/{run_id}/events") as answer,
    ):
        for number, _ in enumerate(answer.iter_raw()):
            if number == 3:
                server.process.send_signal(signal.SIGTERM)
    server.end()


def test_a_store_that_fails_behind_the_headers(served: Open) -> None:
    """The connection is reset: no reader takes what it has for everything, and no text of the error goes out."""
    server = served()
    server.client.post("/debug/fill/long").raise_for_status()
    with httpx.Client(base_url=server.client.base_url, timeout=PATIENCE) as client:
        received = b""
        with pytest.raises(httpx.TransportError), client.stream("GET", "/runs/long/events") as answer:
            for chunk in answer.iter_raw():
                if not received:
                    server.client.post("/debug/break").raise_for_status()
                received += chunk
        assert received
        assert b"secret" not in received


def test_a_reader_that_never_reads(served: Open) -> None:
    """S34, S33: it is disconnected at the write deadline, its connection is reset, and other readers are not harmed."""
    server = served(write=0.5)
    server.client.post("/debug/fill/long").raise_for_status()
    place = urlsplit(str(server.client.base_url))
    with socket.socket() as stuck:
        stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        stuck.connect((place.hostname, place.port))
        stuck.sendall(b"GET /runs/long/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        deadline = time.monotonic() + PATIENCE
        while server.get("/debug")["streams"] != 1:
            assert time.monotonic() < deadline
        run_id = server.begin("Count to 50")
        other = Client(run_id)
        assert other.read(server.client.base_url) == "end"
        assert other.text() == counted(50)
        while (now := server.get("/debug"))["streams"] or now["senders"]:
            assert time.monotonic() < deadline
        stuck.settimeout(PATIENCE)
        received = b""
        with pytest.raises(ConnectionResetError):
            while chunk := stuck.recv(1 << 16):
                received += chunk
            raise AssertionError("a clean end")
    assert b"0\r\n\r\n" not in received[-10:]


def test_curl(served: Open, tmp_path: Path) -> None:
    """The commands of a terminal: begin, stream, come back, stop."""
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("curl is not installed")
    server = served()

    def call(*words: str) -> bytes:
        given = [curl, "-sS", "-N", "--fail-with-body", *words[:-1], f"{str(server.client.base_url).rstrip('/')}{words[-1]}"]
        return subprocess.run(given, capture_output=True, timeout=PATIENCE, check=True).stdout

    body = json.dumps({"input": {"messages": [{"role": "user", "content": "Count to 20"}]}})
    begun = json.loads(call("-H", "content-type: application/json", "-d", body, "/threads/t/runs"))
    whole = call(f"/runs/{begun['run_id']}/events")
    assert datas(whole)[-1]["kind"] == "run.end"
    third = frames(whole)[2]["id"]
    assert whole.endswith(call("-H", f"last-event-id: {third}", f"/runs/{begun['run_id']}/events").partition(b"\n\n")[2])
    merged = call(f"/runs/{begun['run_id']}/events?merge=1")
    assert len(frames(merged)) < len(frames(whole))


def test_two_workers(served: Open) -> None:
    """One address, two processes: whichever answers, the stream is the same."""
    server = served("--workers", "2")
    run_id = server.begin("Count to 100")
    client = Client(run_id)
    while not client.is_over:
        client.read(server.client.base_url, until=len(client.events) + 10)
    assert client.seqs() == list(range(1, len(client.events) + 1))
    assert client.text() == counted(100)
