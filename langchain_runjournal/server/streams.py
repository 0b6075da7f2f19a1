"""Streams for handlers that a program has already: a response for Starlette and FastAPI, bytes for any other framework."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING

from starlette.responses import Response

from ..common.arguments import one_of
from .dialects import DIALECTS, Dialect
from .feed import View
from .opening import open_run
from .problems import problem_of
from .requests import cursor_of
from .transport import EventStream, Timing, encoded

if TYPE_CHECKING:
    from starlette.requests import Request

    from ..journal.run_journal import RunJournal


def dialect_named(name: str) -> Dialect:
    """Return a dialect. Raise `UnknownOption`."""
    one_of("dialect", name, sorted(DIALECTS))
    return DIALECTS[name]


async def event_stream(
    journal: RunJournal, run_id: str, request: Request, *, dialect: str = "native", merge: bool = False
) -> Response:
    """Return the response that streams a run, for a handler of Starlette or FastAPI.

    The cursor is taken from the request: the query parameter `cursor` or `after`, or else the header Last-Event-ID. The
    response is 204 if the run is over and the client has all of it, 404 for an unknown run, and 503 if the store does not
    answer. The handler decides who may see the run, at each request: a client that reconnects sends a new one.
    """
    chosen = dialect_named(dialect)
    timing = Timing()
    view = View(dialect=chosen, merge=merge, tick=timing.heartbeat)
    try:
        run = await journal.arun(run_id)
        source = await open_run(journal, run, cursor_of(request), view)
    except Exception as exc:  # noqa: BLE001 - the client gets a status, and the log the error
        return problem_of(exc).response()
    return EventStream(source, timing, ids=chosen.has_ids)


async def event_source(
    journal: RunJournal, run_id: str, cursor: str | None = None, *, dialect: str = "native", merge: bool = False
) -> AsyncGenerator[bytes, None]:
    """Yield the bytes of a stream of a run, for any framework: Django, Litestar, aiohttp.

    `cursor`: what the client has sent, whatever it is; None if it has sent none. Yields nothing if the run is over and the
    client has all of it: answer with 204 then. Raises `RunNotFound` at the first step, and later on what the store raises:
    let it pass, so that the connection is aborted and the client comes back. `HEADERS` has the headers of such a response.
    """
    chosen = dialect_named(dialect)
    timing = Timing()
    run = await journal.arun(run_id)
    source = await open_run(journal, run, cursor, View(dialect=chosen, merge=merge, tick=timing.heartbeat))
    if source is None:
        return
    async with aclosing(encoded(source, timing, ids=chosen.has_ids)) as chunks:
        async for chunk in chunks:
            yield chunk
