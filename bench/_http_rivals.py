"""Ways to stream a run to many clients, for one interface: the journal's server, and what one would write by hand.

Each way is a handler for a GET request, and three verbs for the program that produces the run.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sqlite3
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Protocol

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from langchain_runjournal import Event, RunJournal

from ._load import end, new_id, start, token

_CREATE = """
CREATE TABLE e (run_id TEXT, seq INT, kind TEXT, at REAL, call_id TEXT, data TEXT, PRIMARY KEY (run_id, seq)) WITHOUT ROWID
"""
_SELECT = "SELECT * FROM e WHERE run_id = ? AND seq > ? ORDER BY seq LIMIT 1000"
_HEADERS = {"cache-control": "no-cache", "x-accel-buffering": "no"}
_KIND = "llm.ai.delta"
_KEPT, _READ, _BLOCK = 256, 64, 15_000
"""What DeerFlow takes: the events of a run that are kept, the entries of one XREAD, and the milliseconds of its BLOCK."""


class Way(Protocol):
    """One way to stream a run."""

    async def begin(self, run_id: str, clients: int) -> dict[str, Any]:
        """Begin a run. Return what the clients need to know."""
        ...

    async def publish(self, run_id: str, text: str) -> None:
        """Publish a token."""
        ...

    async def finish(self, run_id: str) -> None:
        """End the run."""
        ...


def event_of(run_id: str, call_id: str, seq: int, text: str) -> dict[str, Any]:
    """Return the data of a frame, as the native dialect has it."""
    data = {"text": text}
    return {"run_id": run_id, "seq": seq, "kind": _KIND, "at": round(time.time(), 3), "call_id": call_id, "data": data}


def frame_of(id: str, value: Any) -> str:
    """Return a frame of server-sent events."""
    return f"id: {id}\ndata: {json.dumps(value, separators=(',', ':'))}\n\n"


class Journal:
    """The server of this package. The program appends, and knows no clients."""

    def __init__(self, journal: RunJournal) -> None:
        self._journal = journal
        self._calls: dict[str, str] = {}

    async def begin(self, run_id: str, clients: int) -> dict[str, Any]:
        """Append the first event."""
        self._calls[run_id] = new_id()
        self._journal.append(start(run_id))
        await self._journal.aflush()
        return {"path": f"/runs/{run_id}/events"}

    async def publish(self, run_id: str, text: str) -> None:
        """Append a token."""
        self._journal.append(token(run_id, self._calls[run_id], text))

    async def finish(self, run_id: str) -> None:
        """Append the last event."""
        self._journal.append(end(run_id))


class Send:
    """One `send(2)` of the bytes of a frame to each client, on raw sockets: no less is possible."""

    def __init__(self) -> None:
        self._sockets: list[socket.socket] = []
        self._frame = b""

    async def begin(self, run_id: str, clients: int) -> dict[str, Any]:
        """Listen, and accept as many clients as come."""
        body = frame_of(f"{run_id}:1000", event_of(run_id, new_id(), 1000, " with")).encode()
        self._frame = b"%x\r\n%b\r\n" % (len(body), body)
        listening = socket.create_server(("127.0.0.1", 0), backlog=clients)
        self._accepting = asyncio.ensure_future(asyncio.to_thread(self._accept, listening, clients))
        return {"port": listening.getsockname()[1]}

    def _accept(self, listening: socket.socket, clients: int) -> None:
        with listening:
            while len(self._sockets) < clients:
                self._sockets.append(listening.accept()[0])

    async def publish(self, run_id: str, text: str) -> None:
        """Send a frame to all."""
        frame = self._frame
        for one in self._sockets:
            one.send(frame)

    async def finish(self, run_id: str) -> None:
        """Close all connections."""
        await self._accepting
        for one in self._sockets:
            one.close()
        self._sockets.clear()


class Uvicorn:
    """One call of uvicorn's `send` for each client, in a loop: no less is possible on uvicorn."""

    def __init__(self) -> None:
        self._sends: list[Any] = []
        self._over = asyncio.Event()
        self._frame = b""

    async def begin(self, run_id: str, clients: int) -> dict[str, Any]:
        """Begin without a client."""
        self._over.clear()
        self._frame = frame_of(f"{run_id}:1000", event_of(run_id, new_id(), 1000, " with")).encode()
        return {"path": f"/uvicorn/{run_id}"}

    async def publish(self, run_id: str, text: str) -> None:
        """Send a frame to all."""
        message = {"type": "http.response.body", "body": self._frame, "more_body": True}
        for send in self._sends:
            await send(message)

    async def finish(self, run_id: str) -> None:
        """End all responses."""
        self._over.set()
        self._sends.clear()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve a client."""
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        self._sends.append(send)
        await self._over.wait()
        await send({"type": "http.response.body", "body": b"", "more_body": False})


class Queues:
    """A queue for each client. sse-starlette encodes and sends."""

    def __init__(self, response: Callable[[AsyncIterator[Any]], Response], event: Callable[..., Any]) -> None:
        self._response, self._event = response, event
        self._queues: dict[str, list[asyncio.Queue[Any]]] = {}
        self._call, self._seq = new_id(), 0

    async def begin(self, run_id: str, clients: int) -> dict[str, Any]:
        """Begin without a client."""
        self._queues[run_id], self._seq = [], 0
        return {"path": f"/queues/{run_id}"}

    async def publish(self, run_id: str, text: str) -> None:
        """Encode once, and put the text into all queues."""
        self._seq += 1
        data = json.dumps(event_of(run_id, self._call, self._seq, text), separators=(",", ":"))
        for queue in self._queues[run_id]:
            queue.put_nowait((f"{run_id}:{self._seq}", data))

    async def finish(self, run_id: str) -> None:
        """Put the end into all queues."""
        for queue in self._queues.pop(run_id):
            queue.put_nowait(None)

    async def get(self, request: Request) -> Response:
        """Stream a run."""
        queue: asyncio.Queue[Any] = asyncio.Queue()
        self._queues[request.path_params["run"]].append(queue)

        async def events() -> AsyncIterator[Any]:
            while (item := await queue.get()) is not None:
                yield self._event(id=item[0], data=item[1])

        return self._response(events())


class Memory:
    """What DeerFlow does in one process: a list of the last 256 events of a run, a condition, each client encodes."""

    def __init__(self) -> None:
        self._runs: dict[str, _Buffer] = {}
        self._call = new_id()

    async def begin(self, run_id: str, clients: int) -> dict[str, Any]:
        """Begin with an empty list."""
        self._runs[run_id] = _Buffer()
        return {"path": f"/memory/{run_id}"}

    async def publish(self, run_id: str, text: str) -> None:
        """Append to the list, drop the oldest, and notify all."""
        run = self._runs[run_id]
        async with run.condition:
            run.seq += 1
            run.events.append(event_of(run_id, self._call, run.seq, text))
            if len(run.events) > _KEPT:
                over = len(run.events) - _KEPT
                del run.events[:over]
                run.offset += over
            run.condition.notify_all()

    async def finish(self, run_id: str) -> None:
        """Note the end, and notify all."""
        run = self._runs[run_id]
        async with run.condition:
            run.ended = True
            run.condition.notify_all()

    async def get(self, request: Request) -> Response:
        """Stream a run."""
        run = self._runs[request.path_params["run"]]

        async def frames() -> AsyncIterator[str]:
            at = 0
            while True:
                async with run.condition:
                    at = max(at, run.offset)  # a client that fell behind misses what was dropped
                    while at >= run.offset + len(run.events) and not run.ended:
                        await asyncio.wait_for(run.condition.wait(), _BLOCK / 1000)
                    if at >= run.offset + len(run.events):
                        return
                    event = run.events[at - run.offset]
                at += 1
                yield frame_of(f"{event['run_id']}:{event['seq']}", event)

        return StreamingResponse(frames(), headers=_HEADERS, media_type="text/event-stream")


class _Buffer:
    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.condition = asyncio.Condition()
        self.offset = self.seq = 0
        self.ended = False


class Redis:
    """What DeerFlow does in several processes: a Redis stream for each run, and an XREAD for each client."""

    def __init__(self, url: str) -> None:
        import redis.asyncio

        self._client = redis.asyncio.Redis.from_url(url, max_connections=10_000)
        self._call, self._seq = new_id(), 0

    async def begin(self, run_id: str, clients: int) -> dict[str, Any]:
        """Begin without an entry."""
        self._seq = 0
        return {"path": f"/redis/{run_id}"}

    async def publish(self, run_id: str, text: str) -> None:
        """Add an entry: MULTI, XADD with MAXLEN, EXPIRE, EXEC."""
        self._seq += 1
        await self._add(run_id, {"kind": "event", "data": json.dumps(event_of(run_id, self._call, self._seq, text))})

    async def finish(self, run_id: str) -> None:
        """Add the entry that ends the stream."""
        await self._add(run_id, {"kind": "end", "data": ""})

    async def _add(self, run_id: str, entry: dict[Any, Any]) -> None:
        async with self._client.pipeline(transaction=True) as pipe:
            pipe.xadd(run_id, entry, maxlen=100_000, approximate=True)
            pipe.expire(run_id, 3600)
            await pipe.execute()

    async def get(self, request: Request) -> Response:
        """Stream a run."""
        run_id = request.path_params["run"]

        async def frames() -> AsyncIterator[str]:
            after: Any = "0-0"
            while True:
                found = await self._client.xread({run_id: after}, count=_READ, block=_BLOCK)
                for after, entry in found[0][1] if found else ():
                    if entry[b"kind"] == b"end":
                        return
                    yield frame_of(after.decode(), json.loads(entry[b"data"]))

        return StreamingResponse(frames(), headers=_HEADERS, media_type="text/event-stream")


class Rows:
    """A row and a commit for each token in SQLite, and a query for each client, woken by a condition."""

    def __init__(self, path: Path) -> None:
        self._con = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._con.execute("PRAGMA journal_mode = WAL")
        self._con.execute("PRAGMA synchronous = NORMAL")
        self._con.execute(
            "CREATE TABLE e (run_id TEXT, seq INT, kind TEXT, at REAL, call_id TEXT, data TEXT, PRIMARY KEY (run_id, seq))"
        )
        self._call, self._seq, self._over = new_id(), 0, set[str]()
        self._condition = asyncio.Condition()

    async def begin(self, run_id: str, clients: int) -> dict[str, Any]:
        """Begin without a row."""
        self._seq = 0
        return {"path": f"/rows/{run_id}"}

    async def publish(self, run_id: str, text: str) -> None:
        """Insert and commit a row, and notify all."""
        self._seq += 1
        self._insert([self._row(token(run_id, self._call, text), self._seq)])
        async with self._condition:
            self._condition.notify_all()

    async def finish(self, run_id: str) -> None:
        """Note the end, and notify all."""
        self._over.add(run_id)
        async with self._condition:
            self._condition.notify_all()

    def store(self, run_id: str, events: list[Event]) -> None:
        """Store a whole run in one transaction."""
        self._con.execute("BEGIN")
        self._insert([self._row(event, seq) for seq, event in enumerate(events, 1)])
        self._con.execute("COMMIT")
        self._over.add(run_id)

    def _insert(self, rows: list[tuple[Any, ...]]) -> None:
        self._con.executemany("INSERT INTO e VALUES (?, ?, ?, ?, ?, ?)", rows)

    def _row(self, event: Event, seq: int) -> tuple[Any, ...]:
        return event.run_id, seq, event.kind, round(time.time(), 3), event.call_id, json.dumps(event.data)

    async def get(self, request: Request) -> Response:
        """Stream a run: a write for each row, or for as many as `?rows=` says."""
        run_id, size = request.path_params["run"], int(request.query_params.get("rows", "1"))

        async def frames() -> AsyncIterator[str]:
            after = 0
            while True:
                is_over = run_id in self._over
                rows = self._con.execute(
                    "SELECT * FROM e WHERE run_id = ? AND seq > ? ORDER BY seq LIMIT 1000", (run_id, after)
                )
                found = [_frame_of_row(row) for row in rows]
                for at in range(0, len(found), size):
                    yield "".join(found[at : at + size])
                after += len(found)
                if is_over and not found:
                    return
                if not found:
                    async with self._condition:
                        await self._condition.wait()

        return StreamingResponse(frames(), headers=_HEADERS, media_type="text/event-stream")


def _frame_of_row(row: tuple[Any, ...]) -> str:
    run_id, seq, kind, at, call_id, data = row
    value = {"run_id": run_id, "seq": seq, "kind": kind, "at": at, "call_id": call_id, "data": json.loads(data)}
    return frame_of(f"{run_id}:{seq}", value)


async def wait_for_ever(request: Request) -> Response:
    """Answer with a stream on which nothing comes: what Starlette and uvicorn need for a connection."""

    async def nothing() -> AsyncIterator[str]:
        yield "retry: 1000\n\n"
        await asyncio.Event().wait()

    return StreamingResponse(nothing(), headers=_HEADERS, media_type="text/event-stream")
