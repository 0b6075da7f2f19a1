"""The application of `runjournal serve`: the page, the native API, and the login in front of both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route

from . import create_app
from .access import LOCAL, Access
from .login import App, TokenLogin
from .page_routes import page_routes, timeline_of
from .problems import respond, respond_http

if TYPE_CHECKING:
    from langgraph.pregel import Pregel

    from ..journal.run_journal import RunJournal


def page_app(
    graph: Pregel[Any, Any, Any, Any],
    journal: RunJournal,
    *,
    token: str | None = None,
    ideas: Sequence[str] = (),
    hint: str = "",
) -> App:
    """Return the application. Without a token, it answers this machine only; with one, whoever knows it."""
    authorize = None if token is None else _knows_the_token
    hosts = LOCAL if token is None else None
    access = Access(authorize=authorize, hosts=hosts)

    async def timeline(request: Request) -> Response:
        access.check_request(request)
        run = await journal.arun(request.path_params["run_id"])
        await access.check(request, "read", run.thread_id)
        return await timeline_of(journal, run)

    api = create_app({graph.get_name(): graph}, journal, authorize=authorize, hosts=hosts)
    routes = [*page_routes(ideas=ideas, hint=hint), Route("/runs/{run_id}/timeline", timeline), Mount("/", api)]
    handlers: Any = {Exception: respond, HTTPException: respond_http}
    app = Starlette(routes=routes, exception_handlers=handlers)
    return app if token is None else TokenLogin(app, token)


def _knows_the_token(*_: object) -> bool:
    return True
