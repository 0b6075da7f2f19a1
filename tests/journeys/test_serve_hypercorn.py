"""The application on hypercorn, which speaks HTTP/2 too, and gives no application its connection: nothing is of uvicorn."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

pytest.importorskip("hypercorn", reason="the dependency group `serving` is not installed")

from tests.journeys.test_serve_network import fates
from tests.journeys.test_server import PATIENCE, ROOT
from tests.support.bad_network import BadNetwork
from tests.support.places import Place
from tests.support.processes import end_process
from tests.support.servers import free_port
from tests.support.serving_process import OPTIONS, parsed, says
from tests.support.sse_clients import Curl, HttpxSse

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.name != "posix", reason="signals")]


class Hypercorn:
    """hypercorn in a process of its own."""

    def __init__(self, place: Place, *, pace: float = 0.003, port: int | None = None, **served: Any) -> None:
        self.port = port or free_port()
        command = [sys.executable, "-m", "hypercorn", "tests.support.serving_app:app", "--graceful-timeout", "1"]
        command += ["--bind", f"127.0.0.1:{self.port}"]
        env = {**os.environ, "SERVED_HOME": place.home, "SERVED_PACE": str(pace), "SERVED_SITE": ""}
        env["SERVED_OPTIONS"] = json.dumps({**OPTIONS, **served})
        pipes: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(command, cwd=ROOT, env=env, start_new_session=True, **pipes)
        self.said: list[str] = []
        self._is_up = threading.Event()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        assert self._is_up.wait(PATIENCE)
        self.url = f"http://127.0.0.1:{self.port}"
        self.client = httpx.Client(base_url=self.url, timeout=PATIENCE)

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.append(line)
            if "Running on" in line:
                self._is_up.set()
        self._is_up.set()

    def begin(self, text: str) -> str:
        return str(self.client.post("/threads/t/runs", json=says(text)).raise_for_status().json()["run_id"])

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        try:
            end_process(self.process, how, self._reader)
        finally:
            self.client.close()


Servers = Callable[..., Hypercorn]


@pytest.fixture
def servers(place: Place) -> Iterator[Servers]:
    opened: list[Hypercorn] = []

    def open_server(**about: Any) -> Hypercorn:
        opened.append(Hypercorn(place, **about))
        return opened[-1]

    yield open_server
    for server in opened:
        server.end()


@pytest.mark.parametrize("client", [HttpxSse, Curl])
@pytest.mark.parametrize("way", ["reset", "end"])
def test_every_event_once_and_in_order(servers: Servers, client: Any, way: str) -> None:
    """S1: over a bad network, as with uvicorn."""
    server = servers()
    with BadNetwork(server.port, fates=fates("hypercorn", way)) as network:
        run_id = server.begin("count 150")
        reader = client(f"{network.url}/runs/{run_id}/events")
        got = [tuple(one) for one in reader.follow()]
        assert network.cuts > 1
    assert got == parsed(server.client.get(f"/runs/{run_id}/events").text)
    assert "Traceback" not in "".join(server.said)


def test_http_2(servers: Servers) -> None:
    """Frames arrive one by one over HTTP/2: a run that is held has said its first words."""
    server = servers()
    run_id = server.begin("hold")
    command = ["curl", "-sN", "--http2-prior-knowledge", f"{server.url}/runs/{run_id}/events"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as curl:
        assert curl.stdout is not None
        received = ""
        while "Wait" not in received:
            line = curl.stdout.readline()
            assert line
            received += line
        assert server.client.post(f"/runs/{run_id}/stop", params={"wait": 1}).status_code == 200
        received += curl.stdout.read()
        assert curl.wait(PATIENCE) == 0
    assert parsed(received) == parsed(server.client.get(f"/runs/{run_id}/events").text)


@pytest.mark.parametrize("http", ["--http1.1", "--http2-prior-knowledge"])
def test_a_shutdown_aborts_the_streams(servers: Servers, http: str) -> None:
    """P47: curl exits with an error, and a client that comes back hears how the run ended."""
    port = free_port()
    server = servers(pace=0.02, port=port)
    run_id = server.begin("count 5000")
    command = ["curl", "-sN", http, f"{server.url}/runs/{run_id}/events"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as curl:
        assert curl.stdout is not None
        received = "".join(curl.stdout.readline() for _ in range(50))
        server.end()
        received += curl.stdout.read()
        assert curl.wait(PATIENCE) != 0
    assert '"run.end"' not in received
    [*_, last] = re.findall(r"^id: (.+)\n", received, re.MULTILINE)
    again = servers(port=port)
    whole = parsed(again.client.get(f"/runs/{run_id}/events").text)
    rest = parsed(again.client.get(f"/runs/{run_id}/events", headers={"last-event-id": last}).text)
    assert rest == whole[[id for id, _, _ in whole].index(last) + 1 :]
    end = json.loads(rest[-1][2])["data"]
    assert (end["status"], end["cause"]) == ("interrupted", "shutdown")
