"""The application of `runjournal serve`: the page, the timelines, the API, and the login in front of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route, Router

from .access import LOCAL_PAGES
from .app import create_app
from .login import App, TokenLogin
from .page_routes import page_routes, timeline_of
from .problems import problem_of

if TYPE_CHECKING:
    from ..journal.run_journal import RunJournal
    from .service import Graph, Service


def page_app(
    graph: Graph,
    journal: RunJournal,
    *,
    token: str | None = None,
    ideas: Sequence[str] = (),
    hint: str = "",
    cancel_after: float | None = None,
    cors: Sequence[str] = (),
) -> App:
    """Return the application. Without a token, it answers this machine only; with one, all clients that know it.

    `cancel_after`, `cors`: see `create_app`. Without a token, pages that another server of this machine has delivered may
    use it too: so a chat page in development works as it is.
    """
    origins = cors if token is not None else (*LOCAL_PAGES, *cors)
    authorize = None if token is None else _knows_the_token
    api = create_app(graph, journal, authorize=authorize, cancel_after=cancel_after, cors=origins)
    service: Service = api.state.service

    @asynccontextmanager
    async def lifespan(_: object) -> AsyncIterator[None]:
        # The lifespan of a mounted application is not run. The runs are recovered: see `serving.opened`.
        async with service.serving():
            yield

    routes = [*page_routes(ideas=ideas, hint=hint), _timeline(service), Mount("/", api)]
    # A router and not an application: the middleware of that would hide the connection, which `api` aborts.
    app = Router(routes, redirect_slashes=False, lifespan=lifespan)
    return app if token is None else TokenLogin(app, token)


def _timeline(service: Service) -> Route:
    async def timeline(request: Request) -> Response:
        try:
            service.access.check_request(request)
            return await timeline_of(service.journal, await service.run_of(request, "read"))
        except Exception as exc:  # noqa: BLE001 - the client gets a status, and the log the error
            return problem_of(exc).response()

    return Route("/runs/{run}/timeline", timeline)


def _knows_the_token(*_: object) -> bool:
    return True
