"""Clients of server-sent events that come back with the last id: httpx-sse, and curl. Neither knows anything of us."""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

import httpx
import httpx_sse

TRIES = 2_000
"""How often a client comes back."""
QUIET = 1.0
"""Seconds without any byte, after which a client gives a connection up. The servers of tests send a heartbeat more often."""


class Got(NamedTuple):
    """A frame, as a client has it."""

    id: str
    event: str
    data: str


class Client:
    """Follows a stream until it is told that nothing follows (204), or until `until` says that it has enough."""

    def __init__(self, url: str, until: Callable[[Got], bool] = lambda got: False, *, cursor: str | None = None) -> None:
        self.url = url
        self.until = until
        self.cursor = cursor
        self.got: list[Got] = []
        self.errors: list[str] = []
        """How connections ended that did not end cleanly."""
        self.statuses: set[int] = set()
        self.left = threading.Event()

    def follow(self) -> Sequence[Got]:
        """Come back until there is nothing left, and return the frames."""
        for _ in range(TRIES):
            if self.once() or self.left.is_set():
                return self.got
            self.left.wait(0.02)
        raise AssertionError(f"{TRIES} connections were not enough: {self.errors[-3:]}")

    def once(self) -> bool:
        """Open one connection, and read it to its end. Return whether that was all."""
        raise NotImplementedError

    def take(self, got: Got) -> bool:
        self.got.append(got)
        if got.id:
            self.cursor = got.id
        return self.until(got)

    def headers(self) -> dict[str, str]:
        return {} if self.cursor is None else {"Last-Event-ID": self.cursor}


class HttpxSse(Client):
    """The package httpx-sse."""

    def once(self) -> bool:
        with httpx.Client(timeout=httpx.Timeout(30, read=QUIET), headers=self.headers()) as client:
            try:
                with httpx_sse.connect_sse(client, "GET", self.url) as source:
                    self.statuses.add(source.response.status_code)
                    if source.response.status_code == 204:
                        return True
                    if source.response.status_code != 200:
                        self.errors.append(str(source.response.status_code))
                        return False
                    # httpx-sse keeps the last id of a connection: a frame without one gets it.
                    last = ""
                    for one in source.iter_sse():
                        fresh, last = ("" if one.id == last else one.id), one.id
                        if self.take(Got(fresh, one.event, one.data)):
                            return True
            except httpx.TransportError as exc:
                self.errors.append(type(exc).__name__)
        return False


class Curl(Client):
    """`curl -N`, with HTTP/1.0 too: then only the end of the connection says where an answer ends."""

    http = "--http1.1"

    def once(self) -> bool:
        headers = [part for name, value in self.headers().items() for part in ("-H", f"{name}: {value}")]
        quiet = ["--speed-time", str(int(QUIET)), "--speed-limit", "1", "--connect-timeout", "30"]
        command = ["curl", "-sN", self.http, *quiet, *headers, "-w", "%{stderr}%{http_code}", self.url]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            fields: dict[str, str] = {}
            for raw in process.stdout:
                if not raw.endswith(b"\n"):
                    break  # the connection ended in the middle of a line
                line = raw.decode().rstrip("\n")
                name, _, value = line.partition(": ")
                if line and name:
                    fields[name] = value
                elif not line and "data" in fields:
                    if self.take(Got(fields.get("id", ""), fields.get("event", "message"), fields["data"])):
                        process.send_signal(signal.SIGKILL)
                        return True
                    fields = {}
            status = process.stderr.read().decode()
            code = process.wait()
        self.statuses.add(int(status or 0))
        if code:
            self.errors.append(f"curl {code}")
        elif status not in ("200", "204"):
            self.errors.append(status)
        return status == "204"


class OldCurl(Curl):
    """curl with HTTP/1.0."""

    http = "--http1.0"
