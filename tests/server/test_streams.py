"""`event_stream` and `event_source`: a run in a handler that a program has; and `create_app` inside another application."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import pytest
from fastapi import FastAPI, Request
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.routing import Mount

from langchain_runjournal import RunJournal, errors
from langchain_runjournal.server import HEADERS, event_source, event_stream
from tests.support.asgi import datas, fetch, frames, request
from tests.support.served import Served, says


def handler(journal: RunJournal, **options: Any) -> FastAPI:
    app = FastAPI()

    @app.get("/mine/{run_id}")
    async def mine(run_id: str, request: Request) -> Any:
        return await event_stream(journal, run_id, request, **options)

    return app


def test_a_stream_in_a_handler(journal: RunJournal) -> None:
    """The same bytes as the route of `create_app`, the same cursors, and the same status where there is nothing to send."""

    async def main() -> None:
        served = Served(journal)
        run = await served.say("hello")
        whole = await served.get(f"/runs/{run}/events")
        app = handler(journal)
        found = await fetch(app, f"/mine/{run}")
        assert (found.status, found.received, found.headers) == (200, whole.received, whole.headers)
        last = frames(whole.received)[-1]["id"]
        assert (await fetch(app, f"/mine/{run}", headers={"last-event-id": last})).status == 204
        assert (await fetch(app, f"/mine/{run}?cursor={last}9")).received.count(b"event: reset") == 1
        assert (await fetch(app, "/mine/unknown")).status == 404
        merged = await fetch(handler(journal, merge=True), f"/mine/{run}")
        assert len(frames(merged.received)) < len(frames(whole.received))

    asyncio.run(main())


def test_a_stream_in_a_handler_is_live(journal: RunJournal) -> None:
    """It waits for more, and is released when the reader leaves."""

    async def main() -> None:
        served = Served(journal)
        run = await served.hold()
        async with request(handler(journal), f"/mine/{run}") as reader:
            await reader.until_frames(3)
            served.gate.set()
            await reader.until_over()
        assert datas(reader.received)[-1]["kind"] == "run.end"

    asyncio.run(main())


def test_the_bytes_for_any_framework(journal: RunJournal) -> None:
    """A plain generator of the same bytes; nothing for status 204; an error for an unknown run, at the first step."""

    async def main() -> None:
        served = Served(journal)
        run = await served.say("hello")
        whole = await served.get(f"/runs/{run}/events")
        assert b"".join([chunk async for chunk in event_source(journal, run)]) == whole.received
        assert [chunk async for chunk in event_source(journal, run, frames(whole.received)[-1]["id"])] == []
        rest = b"".join([chunk async for chunk in event_source(journal, run, frames(whole.received)[1]["id"])])
        assert whole.received.endswith(rest.removeprefix(b"retry: 1000\n"))
        with pytest.raises(errors.RunNotFound):
            await anext(event_source(journal, "unknown"))
        with pytest.raises(errors.UnknownOption, match="dialect"):
            await anext(event_source(journal, run, dialect="soap"))
        assert HEADERS["content-type"].startswith("text/event-stream")

    asyncio.run(main())


class Passing(BaseHTTPMiddleware):
    """A middleware as programs have it."""

    async def dispatch(self, request: Request, call_next: Any) -> Any:
        response = await call_next(request)
        response.headers["x-seen"] = "yes"
        return response


@pytest.mark.parametrize("outer", ["starlette", "fastapi", "middleware", "gzip"])
def test_mounted_under_a_prefix(journal: RunJournal, outer: str) -> None:
    """In another application, with its middleware: streams come as they are written, and a reader that leaves is noticed."""

    async def main() -> None:
        served = Served(journal)
        app: Any
        if outer == "fastapi":
            app = FastAPI()
            app.mount("/agent", served.app)
        else:
            kinds = {"middleware": [Middleware(Passing)], "gzip": [Middleware(GZipMiddleware)]}
            app = Starlette(routes=[Mount("/agent", served.app)], middleware=kinds.get(outer, []))
        begun = await fetch(app, "/agent/threads/t/runs", "POST", json_body=says("hold"))
        assert begun.status == 201
        run = begun.json["run_id"]
        async with request(app, f"/agent/runs/{run}/events", headers={"accept-encoding": "gzip"}) as reader:
            await reader.until_frames(3)
        assert served.app.state.service.open_streams == 0
        async with request(app, f"/agent/runs/{run}/events") as reader:
            await reader.until_frames(3)
            served.gate.set()
            await reader.until_over()
        assert datas(reader.received)[-1]["kind"] == "run.end"
        assert (await fetch(app, "/agent/threads/t/messages")).json["messages"][-1]["text"] == "Wait for it."

    asyncio.run(main())


def test_the_lifespan_settles_what_was_left(journal: RunJournal, monkeypatch: pytest.MonkeyPatch) -> None:
    """An application that is served by itself does what a program does that mounts it."""
    seen: list[Any] = []

    async def arecover(graph: Any, **about: Any) -> list[Any]:
        seen.append(graph)
        raise errors.StoreFailed(path="x", reason="away", hint="Wait")

    async def main() -> None:
        served = Served(journal)
        monkeypatch.setattr(journal, "arecover", arecover)
        sent: list[Any] = []
        messages = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])

        async def receive() -> Any:
            return next(messages)

        async def send(message: Any) -> None:
            sent.append(message["type"])

        await served.app({"type": "lifespan", "asgi": {"version": "3.0"}}, receive, send)
        assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
        assert len(seen) == 1

    asyncio.run(main())


def test_without_the_extra() -> None:
    """The error says what to install; cursors and frames need nothing."""
    program = """
import sys
sys.modules["starlette"] = None
from langchain_runjournal.server import cursor, frames
try:
    from langchain_runjournal.server import create_app
except ImportError as problem:
    print(problem)
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=60)
    assert "langchain-runjournal[server]" in done.stdout, done.stderr
