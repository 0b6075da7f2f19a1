"""What a web server does to a run when its client goes away: rows of the table in docs/running.md."""

from __future__ import annotations

import asyncio
import gc
import http.client
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import Self

from langchain_runjournal import Run, RunJournal
from tests.capture.test_causes import CAUSE, Program
from tests.support.conversations import PATIENCE
from tests.support.started_agent import facts

fastapi = pytest.importorskip("fastapi")
uvicorn = pytest.importorskip("uvicorn")


class Server:
    """One program behind one address, with an endpoint for each way to stream."""

    def __init__(self, journal: RunJournal) -> None:
        self.journal = journal
        self.app = fastapi.FastAPI(lifespan=self.lifespan)
        self.tasks: dict[str, asyncio.Task[Any]] = {}

        @self.app.get("/streams")
        async def streams() -> Any:
            return fastapi.responses.StreamingResponse(self.words())

        @self.app.get("/looks")
        async def looks(request: fastapi.Request) -> Any:
            async def words() -> AsyncIterator[str]:
                async for text in self.words():
                    yield text
                    while not await request.is_disconnected():  # noqa: ASYNC110 - as programs do it
                        await asyncio.sleep(0.01)
                    break

            return fastapi.responses.StreamingResponse(words())

        @self.app.get("/is-stopped")
        async def is_stopped() -> Any:
            async def words() -> AsyncIterator[str]:
                self.tasks["it"] = asyncio.current_task()
                async for text in self.words():
                    yield text

            return fastapi.responses.StreamingResponse(words())

        @self.app.post("/stop")
        async def stop() -> None:
            self.tasks["it"].cancel()

    @asynccontextmanager
    async def lifespan(self, app: Any) -> AsyncIterator[None]:
        self.program = Program(self.journal)
        servers = asyncio.all_tasks()
        yield
        gc.collect()
        if others := asyncio.all_tasks() - servers:
            await asyncio.wait(others, timeout=PATIENCE)

    async def words(self) -> AsyncIterator[str]:
        async for message, _ in self.program.stream():
            if message.text:
                yield message.text

    async def asgi(self, scope: Any, receive: Any, send: Any) -> None:
        await self.app(scope, receive, send)

    def __enter__(self) -> Self:
        listening = socket.create_server(("127.0.0.1", 0))
        self.port = listening.getsockname()[1]
        config = uvicorn.Config(
            self.asgi, log_level="error", ws="none", interface="asgi3", timeout_graceful_shutdown=int(PATIENCE)
        )
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [listening]})
        self.thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.server.should_exit = True
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive()

    @contextmanager
    def asked(self, path: str, method: str = "GET") -> Iterator[http.client.HTTPResponse]:
        """The client goes away at the end of the block."""
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            client.request(method, path)
            with client.getresponse() as response:
                yield response
        finally:
            client.close()


class Newer(Server):
    """The program behind a server of ASGI 2.4, whose `send` raises `OSError` when the client has gone. Starlette cancels
    nothing."""

    async def asgi(self, scope: Any, receive: Any, send: Any) -> None:
        async def raises(message: Any) -> None:
            if message.get("body") and self.left.wait(0):
                raise OSError("the client has gone")
            await send(message)
            if message.get("body"):
                self.left.set()

        self.left = threading.Event()
        scope = {**scope, "asgi": {**scope.get("asgi", {}), "spec_version": "2.4"}} if scope["type"] == "http" else scope
        with suppress(Exception):
            await self.app(scope, receive, raises if scope["type"] == "http" else send)


class Between(Server):
    """The program behind a middleware of Starlette's, which streams through a task of its own."""

    def __init__(self, journal: RunJournal) -> None:
        super().__init__(journal)

        @self.app.middleware("http")
        async def between(request: Any, call_next: Any) -> Any:
            return await call_next(request)


def until_ended(journal: RunJournal, run: Run) -> None:
    for _ in journal.follow(run.run_id):
        pass


@pytest.mark.parametrize(
    ("how", "kind", "path"),
    [
        ("the client of a `StreamingResponse` goes away", Server, "/streams"),
        ("the same behind a middleware of Starlette or FastAPI", Between, "/streams"),
        ("the same where the server raises `OSError` from `send` (ASGI 2.4)", Newer, "/streams"),
        ("`if await request.is_disconnected(): break`", Server, "/looks"),
        ("a Stop endpoint cancels the task of a `StreamingResponse`", Server, "/is-stopped"),
    ],
)
def test_how_a_server_ends_a_run(tmp_path: Path, how: str, kind: type[Server], path: str) -> None:
    """With a real server and a real client, the journal records the cause that the table gives."""
    with RunJournal(tmp_path / "runs.db") as journal:
        with kind(journal) as server:
            with server.asked(path) as response:
                assert response.read(3) == b"one"
                run = journal.runs()[0]
                if path == "/is-stopped":
                    with server.asked("/stop", "POST"):
                        until_ended(journal, run)
            until_ended(journal, run)
        assert facts(journal.run(run.run_id)) == ("interrupted", CAUSE[how], True)
