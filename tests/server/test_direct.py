"""Live events on real connections of uvicorn: written from one callback to readers that are ready, with the same bytes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn

from langchain_runjournal import Event, RunJournal
from langchain_runjournal.server import transport
from tests.support.served import Served

HOW = pytest.mark.parametrize("path", ["/runs/r/events", "/runs/r/events?merge=1", "/threads/t/events"])


@asynccontextmanager
async def serving(app: Any) -> AsyncIterator[int]:
    """Serve an application on a port of this machine."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, lifespan="off", log_level="critical", ws="none"))
    task = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110 - uvicorn has no event for that
        await asyncio.sleep(0)
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = server.force_exit = True
        await task


class Client:
    """A connection that reads a body in chunks."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.body = b""

    async def get(self, path: str) -> None:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        head = await self._reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head

    async def until(self, end: bytes) -> None:
        while end not in self.body:
            size = int(await self._reader.readline(), 16)
            if size == 0:
                return
            self.body += (await self._reader.readexactly(size + 2))[:-2]

    def leave(self) -> None:
        self._writer.close()


def start(run_id: str = "r") -> Event:
    return Event(run_id=run_id, kind="run.start", data={"thread_id": "t"})


def word(text: str, run_id: str = "r") -> Event:
    return Event(run_id=run_id, kind="llm.ai.delta", call_id="c", data={"text": text})


def test_live_readers_get_what_a_replay_gets(journal: RunJournal, monkeypatch: pytest.MonkeyPatch) -> None:
    """S36: some readers are written to directly, one comes late, one is slow; all get the bytes of a replay."""
    directly: list[bytes] = []
    write = transport._DirectWriter.write

    def watched(self: Any, body: bytes) -> None:
        directly.append(body)
        write(self, body)

    monkeypatch.setattr(transport._DirectWriter, "write", watched)

    async def main() -> None:
        journal.append(start())
        await journal.aflush()
        async with serving(Served(journal).app) as port:
            paths = ["/runs/r/events", "/runs/r/events", "/threads/t/events"]
            here = [Client(port) for _ in paths]
            for client, path in zip(here, paths, strict=True):
                await client.get(path)
                await client.until(b":1\n")
            slow = Client(port)
            await slow.get("/runs/r/events")
            for number in range(20):
                journal.append(word(f"word {number} "))
                for client in here:
                    await client.until(f'"word {number} "'.encode())
            for number in range(3_000):
                journal.append(word(f"{number} " * 50))
                if number % 100 == 0:
                    await asyncio.sleep(0)
            late = Client(port)
            await late.get("/runs/r/events")
            journal.append(Event(run_id="r", kind="run.pause"))
            journal.append(word("on "))
            journal.append(Event(run_id="r", kind="run.end", data={"status": "completed"}))
            everyone = [*here, late, slow]
            await asyncio.gather(*[client.until(b'"run.end"') for client in everyone])
            replay = Client(port)
            await replay.get("/runs/r/events")
            await replay.until(b'"run.end"')
            assert {client.body for client in everyone} == {replay.body}
            for client in (*everyone, replay):
                client.leave()

    asyncio.run(main())
    assert len(directly) > 20
    assert not any(b"run.end" in body or b"run.pause" in body for body in directly)


@HOW
def test_a_reader_that_is_written_to_can_leave(journal: RunJournal, path: str) -> None:
    """S34: the others go on."""

    async def main() -> None:
        journal.append(start())
        await journal.aflush()
        async with serving(Served(journal).app) as port:
            leaving, staying = Client(port), Client(port)
            for client in (leaving, staying):
                await client.get(path)
                await client.until(b":1\n")
            journal.append(word("one "))
            await asyncio.gather(leaving.until(b"one "), staying.until(b"one "))
            leaving.leave()
            for number in range(50):
                journal.append(word(f"then {number} "))
                await staying.until(f"then {number} ".encode())
            staying.leave()

    asyncio.run(main())


class Shout:
    """Middleware that changes the body of each response."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def shout(message: Any) -> None:
            await send({**message, "body": message["body"].upper()} if message.get("body") else message)

        await self._app(scope, receive, shout)


@HOW
def test_middleware_that_changes_the_body_sees_all_of_it(journal: RunJournal, path: str) -> None:
    """Inside the application and around it."""

    async def main(app: Any, run_id: str) -> None:
        journal.append(start(run_id))
        await journal.aflush()
        async with serving(app) as port:
            client = Client(port)
            await client.get(path.replace("/r/", f"/{run_id}/"))
            await client.until(b":1\n")
            for number in range(20):
                journal.append(word(f"word {number} ", run_id))
                await client.until(f"WORD {number} ".encode())
            client.leave()
            journal.append(Event(run_id=run_id, kind="run.end", data={"status": "completed"}))

    inside = Served(journal).app
    inside.add_middleware(Shout)
    asyncio.run(main(inside, "r1"))
    asyncio.run(main(Shout(Served(journal).app), "r2"))
