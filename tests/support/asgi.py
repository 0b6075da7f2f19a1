"""A client of an ASGI application, without a socket: it reads a stream as it comes, and leaves when it likes.

`httpx.ASGITransport` returns a response only when it is complete, so it cannot read a stream that stays open.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

PATIENCE = 30.0
"""Seconds, for what takes a few milliseconds."""


class Reader:
    """One request, and what has come of its response so far."""

    def __init__(self, app: Any, method: str, path: str, headers: Mapping[str, str], body: bytes, **scope: Any) -> None:
        url = urlsplit(path)
        fields = {"host": "localhost", **headers}
        self._scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": url.path,
            "raw_path": url.path.encode(),
            "root_path": "",
            "query_string": url.query.encode(),
            "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in fields.items()],
            "client": ("127.0.0.1", 50_000),
            "server": ("localhost", 80),
            **scope,
        }
        self._app = app
        self._body: bytes | None = body
        self._news = asyncio.Event()
        self._gone = asyncio.Event()
        self.accepts = asyncio.Event()
        """Cleared: the client does not read, so a write waits."""
        self.accepts.set()
        self.status = 0
        self.headers: dict[str, str] = {}
        self.received = b""
        self.is_complete = False
        """Whether the response has ended cleanly."""
        self.error: BaseException | None = None
        """What the application raised."""
        self.task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        try:
            await self._app(self._scope, self._receive, self._send)
        except BaseException as exc:
            self.error = exc
            if isinstance(exc, asyncio.CancelledError):
                raise
        finally:
            self._news.set()

    async def _receive(self) -> Any:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        await self.accepts.wait()
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            self.received += message.get("body", b"")
            self.is_complete = not message.get("more_body", False)
        self._news.set()

    async def until(self, condition: Any) -> None:
        """Wait until something is so. Fail if the response ends before."""
        give_up = time.monotonic() + PATIENCE
        while not condition():
            assert not self.task.done(), (self.status, self.received, self.error)
            assert time.monotonic() < give_up, (self.status, self.received)
            self._news.clear()
            if not condition():
                await asyncio.wait_for(self._news.wait(), PATIENCE)

    async def until_frames(self, number: int) -> list[dict[str, str]]:
        """Wait until so many frames have come, and return them all."""
        await self.until(lambda: len(frames(self.received)) >= number)
        return frames(self.received)

    async def until_over(self) -> Reader:
        """Wait until the application has returned."""
        await asyncio.wait_for(asyncio.wait([self.task]), PATIENCE)
        return self

    def leave(self) -> None:
        """Leave, as a client does that closes its connection."""
        self._gone.set()

    @property
    def json(self) -> Any:
        return json.loads(self.received)


@asynccontextmanager
async def request(
    app: Any,
    path: str,
    method: str = "GET",
    *,
    headers: Mapping[str, str] | None = None,
    json_body: Any = None,
    **scope: Any,
) -> AsyncIterator[Reader]:
    """Send a request. At the end of the block, the client leaves, and the application must return."""
    given, body = dict(headers or {}), b""
    if json_body is not None:
        given.setdefault("content-type", "application/json")
        body = json_body if isinstance(json_body, bytes) else json.dumps(json_body).encode()
    reader = Reader(app, method, path, given, body, **scope)
    try:
        yield reader
    finally:
        reader.leave()
        reader.accepts.set()
        await asyncio.wait_for(asyncio.wait([reader.task]), PATIENCE)


async def fetch(app: Any, path: str, method: str = "GET", **about: Any) -> Reader:
    """Send a request, and return it when its response is complete."""
    async with request(app, path, method, **about) as reader:
        await reader.until_over()
    assert reader.error is None, reader.error
    return reader


def frames(received: bytes) -> list[dict[str, str]]:
    """Return the whole frames of a stream, as a client of server-sent events reads them."""
    found: list[dict[str, str]] = []
    for block in received.decode().split("\n\n")[:-1]:
        fields = [line.partition(": ") for line in block.split("\n") if line and not line.startswith(":")]
        frame = {name: value for name, _, value in fields if name != "retry"}
        if "data" in frame:
            found.append(frame)
    return found


def datas(received: bytes) -> list[Any]:
    """Return what the frames of a stream say."""
    return [json.loads(frame["data"]) for frame in frames(received)]
