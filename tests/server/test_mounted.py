"""The application inside of others: under a prefix, behind middleware of all kinds. Streams arrive frame by frame, and the
cursor sweep holds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from starlette.applications import Starlette
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.middleware.httpsredirect import HTTPSRedirectMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.routing import Mount

from langchain_runjournal import RunJournal
from langchain_runjournal.server import create_app, event_stream
from tests.support.asgi import datas, fetch, frames, request
from tests.support.serving_app import graph_on, site_with

pytest.importorskip("fastapi")

SAYS: dict[str, Any] = {"input": {"messages": [{"role": "user", "content": "hold"}]}}


async def pass_on(request: Any, call_next: Any) -> Any:
    """Do what most middleware of sites does: look at the request, and add a header."""
    response = await call_next(request)
    response.headers["x-site"] = "yes"
    return response


def nested(app: Any) -> Any:
    return Starlette(routes=[Mount("/a", routes=[Mount("/b", app=app)])])


def in_starlette(middleware: Any, **options: Any) -> Callable[[Any], Any]:
    def make(app: Any) -> Any:
        site = Starlette(routes=[Mount("/agent", app=app)])
        site.add_middleware(middleware, **options)
        return site

    return make


SITES: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "by itself": ("", lambda app: app),
    "nested": ("/a/b", nested),
    "BaseHTTPMiddleware": ("/agent", in_starlette(BaseHTTPMiddleware, dispatch=pass_on)),
    "GZip": ("/agent", in_starlette(GZipMiddleware, minimum_size=1)),
    "CORS": ("/agent", in_starlette(CORSMiddleware, allow_origins=["*"])),
    "TrustedHost": ("/agent", in_starlette(TrustedHostMiddleware, allowed_hosts=["localhost"])),
    "HTTPSRedirect": ("/agent", in_starlette(HTTPSRedirectMiddleware)),
    "all in FastAPI": ("/agent", site_with),
}
EACH = pytest.mark.parametrize("name", SITES)


class Site:
    """A site, and the journal of the application that is mounted there."""

    def __init__(self, journal: RunJournal, name: str) -> None:
        self.prefix, make = SITES[name]
        self.served = create_app(graph_on(InMemorySaver()), journal, heartbeat=0.05)
        self.app = make(self.served)

    def open(self, path: str, cursor: str | None = None) -> Any:
        """Open a stream as a browser does, which takes compressed answers."""
        fields = {} if cursor is None else {"last-event-id": cursor}
        return request(self.app, self.prefix + path, headers={"accept-encoding": "gzip, br", **fields}, scheme="https")

    async def get(self, path: str, method: str = "GET", **about: Any) -> Any:
        return await fetch(self.app, self.prefix + path, method, scheme="https", **about)


@EACH
def test_frames_arrive_one_by_one(journal: RunJournal, name: str) -> None:
    """No middleware collects or compresses them: a run that is held has said its first words. S1: each cursor continues."""

    async def main() -> None:
        site = Site(journal, name)
        run = (await site.get("/threads/t/runs", "POST", json_body=SAYS)).json["run_id"]
        async with site.open(f"/runs/{run}/events") as reader:
            await reader.until(lambda: b"Wait " in reader.received)
            assert "content-encoding" not in reader.headers
            assert reader.headers["content-type"] == "text/event-stream; charset=utf-8"
            assert reader.headers["cache-control"] == "no-cache, no-transform"
            assert (await site.get(f"/runs/{run}/stop?wait=1", "POST")).status == 200
            await reader.until_over()
        whole = frames(reader.received)
        assert datas(reader.received)[-1]["kind"] == "run.end"
        for at, frame in enumerate(whole[:-1]):
            async with site.open(f"/runs/{run}/events", frame["id"]) as rest:
                await rest.until_over()
            assert frames(rest.received) == whole[at + 1 :]
        last = await site.get(f"/runs/{run}/events?cursor={whole[-1]['id']}")
        assert (last.status, last.received) == (204, b"")

    asyncio.run(main())


@EACH
def test_a_reader_that_leaves_is_noticed(journal: RunJournal, name: str) -> None:
    """S23: no middleware keeps a stream open whose reader has gone, and the run goes on."""

    async def main() -> None:
        site = Site(journal, name)
        run = (await site.get("/threads/t/runs", "POST", json_body=SAYS)).json["run_id"]
        for path in (f"/runs/{run}/events", "/threads/t/events"):
            async with site.open(path) as reader:
                await reader.until(lambda reader=reader: b"Wait " in reader.received)  # type: ignore[misc]
                assert site.served.state.service.open_streams == 1
            assert site.served.state.service.open_streams == 0
        assert (await site.get(f"/runs/{run}")).json["status"] == "running"
        assert (await site.get(f"/runs/{run}/stop?wait=1", "POST")).status == 200

    asyncio.run(main())


@EACH
def test_problems_and_the_document(journal: RunJournal, name: str) -> None:
    """Errors are problems in JSON under any prefix, and the document names the prefix."""

    async def main() -> None:
        site = Site(journal, name)
        for path, status in (("/runs/unknown", 404), ("/nothing", 404), ("/threads/t/runs?limit=x", 422)):
            found = await site.get(path)
            assert (found.status, found.headers["content-type"]) == (status, "application/problem+json")
        document = (await site.get("/openapi.json")).json
        assert document["servers"] == [{"url": site.prefix or "/"}]

    asyncio.run(main())


@pytest.mark.parametrize("middleware", [None, BaseHTTPMiddleware], ids=["bare", "BaseHTTPMiddleware"])
def test_a_handler_of_a_program(journal: RunJournal, middleware: Any) -> None:
    """`event_stream` in a FastAPI: the same bytes as those of the application, from each cursor on."""
    from fastapi import FastAPI, Request

    site = FastAPI()
    if middleware is not None:
        site.add_middleware(middleware, dispatch=pass_on)
    served = create_app(graph_on(InMemorySaver()), journal)

    async def events(run_id: str, request: Request) -> Any:
        return await event_stream(journal, run_id, request)

    events.__annotations__["request"] = Request  # FastAPI looks for it among the names of the module
    site.get("/mine/{run_id}")(events)

    async def main() -> None:
        body = {"input": {"messages": [{"role": "user", "content": "count 5"}]}}
        run = (await fetch(served, "/threads/t/runs", "POST", json_body=body)).json["run_id"]
        whole = (await fetch(served, f"/runs/{run}/events")).received
        assert (await fetch(site, f"/mine/{run}")).received == whole
        for frame in frames(whole):
            about = {"headers": {"last-event-id": frame["id"]}}
            theirs, ours = [await fetch(*one, **about) for one in ((site, f"/mine/{run}"), (served, f"/runs/{run}/events"))]
            assert (theirs.status, theirs.received) == (ours.status, ours.received)
        assert (await fetch(site, "/mine/unknown")).status == 404

    asyncio.run(main())
