"""Transport: one connection on which a feed is sent, as server-sent events.

Rule: a clean end says that the reader has all there is, or that it may come back for the rest. So a connection that fails (a
store that does not answer, a server that shuts down, a reader that does not read) is aborted and never ended.
"""

from __future__ import annotations

import asyncio
import logging
import math
import socket
import struct
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from starlette.responses import Response

from ..common.alarms import alarms
from . import frames
from .feed import Batch, Direct
from .frames import HEARTBEAT, RETRY, FrameBlock

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from starlette.types import Message, Receive, Scope, Send

    from .dialects import Dialect

logger = logging.getLogger("langchain_runjournal")

HEADERS: Final = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache, no-transform",
    "x-accel-buffering": "no",
}
_WRAPPED: Final = 200
"""How many functions of middleware are searched for the connection, at most."""
_PIECE: Final = 1 << 16
"""Characters of one write, about. The write deadline is for each of them, so a slow reader of large events is given time."""
_ABORT_NOW: Final = struct.pack("ii", 1, 0)
"""SO_LINGER with 0 seconds: the system drops what was not sent, and resets the connection."""
ABORT: Final = "langchain_runjournal.abort"
"""The key in the scope of a request under which the application keeps the function that aborts its connection."""
SEND: Final = "langchain_runjournal.send"
"""The key under which it keeps the `send` of the server: middleware of Starlette that wraps it only looks at the start of a
response."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """The seconds that a connection goes by."""

    heartbeat: float = 5.0
    write: float = 20.0
    """After which a write that is not accepted ends the connection."""
    lease: float = 300.0
    """After which a connection ends between two frames, so that the reader comes back, maybe to another worker."""

    def of(self, dialect: Dialect) -> Timing:
        """Return the seconds for a dialect. Clients without cursors take a clean end for the end of the run: no lease."""
        return self if dialect.has_ids else replace(self, lease=math.inf)


class Source(Protocol):
    """What a connection sends: the feed of a run or of a thread."""

    @property
    def is_abandoned(self) -> bool:
        """Whether the owner of the run is dead, and no process has settled the run yet."""
        ...

    direct: Direct | None
    """The connection to which the source may write while it yields nothing."""

    def batches(self) -> AsyncGenerator[Batch, None]:
        """Yield the batches, and an empty one at least once in each heartbeat."""
        ...


async def encoded(source: Source, timing: Timing, *, ids: bool = True) -> AsyncGenerator[bytes, None]:
    """Yield the bytes of a stream: the frames, and comment lines as heartbeats."""
    yield RETRY
    began = sent = time.monotonic()
    async with aclosing(source.batches()) as batches:
        async for batch in batches:
            now = time.monotonic()
            if batch:
                sent = now
                for piece in _pieces(batch, ids):
                    yield piece
            elif now - sent >= timing.heartbeat * 0.9:
                sent = now
                yield HEARTBEAT
            if now - began >= timing.lease:
                return


def _pieces(batch: Batch, ids: bool) -> Iterator[bytes]:
    """Yield the bytes of frames, in pieces of a bounded size: the next one is made when the reader has taken this one."""
    if ids and isinstance(batch, FrameBlock):  # its bytes are there already, for all readers
        yield frames.encoded(batch, ids=ids)
        return
    found: list[str] = []
    size = 0
    for frame in batch:
        text = frame.text(ids=ids)
        found.append(text)
        size += len(text)
        if size >= _PIECE:
            yield "".join(found).encode()
            found, size = [], 0
    if found:
        yield "".join(found).encode()


class EventStream(Response):
    """The response that sends a stream.

    `on_end`: called once, when the connection is over. `on_abandoned`: called when the stream has said that the owner of
    a run is dead.
    """

    media_type = None

    def __init__(
        self,
        source: Source | None,
        timing: Timing,
        *,
        ids: bool = True,
        headers: Mapping[str, str] | None = None,
        on_end: Callable[[], object] = lambda: None,
        on_abandoned: Callable[[], object] = lambda: None,
    ) -> None:
        fields = {"cache-control": "no-cache"} if source is None else HEADERS
        super().__init__(status_code=204 if source is None else 200, headers={**fields, **(headers or {})})
        if source is not None:
            del self.headers["content-length"]
        self._source = source
        self._timing = timing
        self._ids = ids
        self._on_end = on_end
        self._on_abandoned = on_abandoned

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream."""
        source = self._source
        try:
            if source is None or scope["method"] == "HEAD":
                await super().__call__(scope, receive, send)
            else:
                connection = _Connection(scope, receive, send, self._timing)
                if self._ids:
                    source.direct = direct_writer(scope.get(SEND, send))
                await connection.run(partial(self._send_all, source))
        finally:
            self._on_end()

    async def _send_all(self, source: Source, put: Send) -> None:
        await put({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        async with aclosing(encoded(source, self._timing, ids=self._ids)) as chunks:
            was_abandoned = False
            async for chunk in chunks:
                await put({"type": "http.response.body", "body": chunk, "more_body": True})
                if source.is_abandoned and not was_abandoned:
                    self._on_abandoned()
                was_abandoned = source.is_abandoned
        await put({"type": "http.response.body", "body": b"", "more_body": False})


class _Connection:
    """One connection while a stream is sent on it."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, timing: Timing) -> None:
        self._receive = receive
        self._send = send
        self._timing = timing
        self._abort: Callable[[], bool] = scope.get(ABORT) or aborter(send, receive)
        self._writing_since: float | None = None
        self._is_stuck = False
        self._writer: asyncio.Task[None] | None = None

    async def run(self, send_all: Callable[[Send], Coroutine[Any, Any, None]]) -> None:
        """Send until the stream ends or the reader leaves. Abort the connection if neither is so."""
        loop = asyncio.get_running_loop()
        self._writer = loop.create_task(send_all(self._put))
        watcher = loop.create_task(self._wait_until_left())
        self._alarm = alarms().set(self._timing.write, self._check_write)
        try:
            await asyncio.wait({self._writer, watcher}, return_when=asyncio.FIRST_COMPLETED)
            if self._writer.done() and not self._writer.cancelled():
                self._writer.result()
            elif self._is_stuck and not self._abort():
                raise ConnectionAbortedError(f"the reader has not read for {self._timing.write} s")
        except Exception as exc:
            logger.error("aborting a stream, which its reader may open again: %s", exc)
            if not self._abort():
                raise
        except BaseException:  # the server shuts down
            self._abort()
            raise
        finally:
            alarms().cancel(self._alarm, self._check_write)
            for task in (self._writer, watcher):
                task.cancel()
            await asyncio.gather(self._writer, watcher, return_exceptions=True)

    async def _put(self, message: Message) -> None:
        self._writing_since = time.monotonic()
        await self._send(message)
        self._writing_since = None

    async def _wait_until_left(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass

    def _check_write(self) -> None:
        """End a connection whose write takes too long. Look again when the present one would."""
        now = time.monotonic()
        left = self._timing.write - (0.0 if self._writing_since is None else now - self._writing_since)
        if left <= 0 and self._writer is not None:
            self._is_stuck = True
            self._writer.cancel()
        else:
            # Not after each write, but as often as one may take: an alarm per delay is shared by all connections.
            self._alarm = alarms().set(self._timing.write if self._writing_since is None else left, self._check_write)


class _DirectWriter:
    """Writes to a connection of uvicorn from any callback of the event loop, without a turn of the task that serves it.

    `send` of uvicorn waits only while too many bytes are left to be sent. While none are, it returns at once.
    """

    def __init__(self, send: Send, transport: asyncio.WriteTransport) -> None:
        self._send = send
        self._transport = transport

    def is_ready(self) -> bool:
        """Return whether all bytes so far were handed to the system."""
        return self._transport.get_write_buffer_size() == 0 and not self._transport.is_closing()

    def write(self, body: bytes) -> None:
        """Write the bytes of whole frames."""
        sending: Any = self._send({"type": "http.response.body", "body": body, "more_body": True})
        try:
            sending.send(None)
        except StopIteration:
            return
        sending.close()
        raise ConnectionAbortedError("the server has not taken frames at once, although it had nothing else to send")


def direct_writer(send: Send) -> Direct | None:
    """Return what writes directly to the connection of a request; None if its server is not known to allow that."""
    cycle = getattr(send, "__self__", None)
    transport = getattr(cycle, "transport", None)
    if not type(cycle).__module__.startswith("uvicorn.") or not isinstance(transport, asyncio.WriteTransport):
        return None
    return _DirectWriter(send, transport)


def aborter(send: Send, receive: Receive | None = None) -> Callable[[], bool]:
    """Return a function that resets the connection of a request, and says whether it could.

    ASGI has no way to abort a connection. A server whose `send` is a method of an object with a `transport` (uvicorn) is
    asked directly, also where middleware stands between. Any other one gets an exception, and closes the connection in its
    own way.
    """

    def abort() -> bool:
        # Not `isinstance`: the transports of uvicorn on uvloop are of no class of asyncio.
        transport: Any = getattr(getattr(send, "__self__", None), "transport", None) or _transport_behind(send, receive)
        if not callable(getattr(transport, "abort", None)):
            return False
        with suppress(OSError, ValueError, AttributeError):  # it may be closed already
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORT_NOW)
        transport.abort()
        return True

    return abort


def _transport_behind(*functions: Any) -> Any:
    """Return the transport of uvicorn's connection behind functions in which middleware has wrapped it, or None.

    Without it, uvicorn waits for ever for a client that does not read: each such client would keep a socket.
    """
    waiting, seen = list(functions), set[int]()
    while waiting and len(seen) < _WRAPPED:
        one = waiting.pop(0)
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        owner = getattr(one, "__self__", None)
        if type(owner).__module__.startswith("uvicorn."):
            return getattr(owner, "transport", None)
        inner: list[Any] = []
        for cell in getattr(one, "__closure__", None) or ():
            with suppress(ValueError):  # the cell is empty
                inner.append(cell.cell_contents)
        inner += [getattr(one, "func", None), *getattr(one, "args", ()), *getattr(owner, "__dict__", {}).values()]
        waiting += [found for found in inner if callable(found)]
    return None
