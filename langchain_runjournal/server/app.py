"""`create_app`: an ASGI application that serves graphs and their journal. It can be mounted anywhere."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib import import_module
from importlib.util import find_spec
from inspect import signature
from typing import TYPE_CHECKING, Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ..common.arguments import options, positive
from ..errors import InvalidArgument
from ..journal.run_journal import RunJournal
from .access import LOCAL, Access, Authorize, origin_pattern
from .openapi import document
from .problems import Problem, problem_of, respond_http
from .requests import Limits
from .service import Service
from .transport import ABORT, SEND, Timing, aborter

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

    from .service import Graph

Handler = Callable[["Request"], Awaitable[Response]]

ROUTES: Final[Mapping[str, tuple[str, str, str]]] = {
    "native": ("", "native_routes", "NativeRoutes"),
    "ai-sdk": ("/ai-sdk", "ai_sdk_routes", "AiSdkRoutes"),
    "ag-ui": ("/ag-ui", "ag_ui_routes", "AgUiRoutes"),
    "langgraph": ("/langgraph", "langgraph.routes", "LangGraphRoutes"),
}
"""By dialect: the prefix of its routes, their module, and the class that has them."""
_EXPOSED: Final = (
    "Retry-After",
    "X-Runjournal-Run",
    "Location",
    "Content-Location",
    "X-Pagination-Total",
    "X-Pagination-Next",
)
"""The headers that a page of another origin may read. Without `Location`, clients of LangGraph Server do not reconnect."""
_PRIVATE: Final[Mapping[str, Any]] = (
    {"allow_private_network": True} if "allow_private_network" in signature(CORSMiddleware).parameters else {}
)
"""So that a page of an allowed origin that was loaded by https may use a server on this machine. Older versions of Starlette
lack the option."""


def known_dialects() -> tuple[str, ...]:
    """Return the dialects that have routes."""
    return tuple(name for name, (_, module, _) in ROUTES.items() if find_spec(f"{__package__}.{module}") is not None)


class ServerApplication(Starlette):
    """What `create_app` returns: an application of Starlette."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or the lifespan of a server."""
        if scope["type"] == "http":
            # Middleware hides the connection behind functions, so look at it here.
            scope.setdefault(ABORT, aborter(send, receive))
            known: object = CORSMiddleware
            if all(one.cls == known for one in self.user_middleware):
                # Other middleware may change the body, which a direct write would pass by.
                scope.setdefault(SEND, send)
        await super().__call__(scope, receive, send)


def create_app(
    graphs: Mapping[str, Graph] | Graph,
    journal: RunJournal,
    *,
    authorize: Authorize | None = None,
    dialects: Collection[str] | None = None,
    heartbeat: float = 5.0,
    write_timeout: float = 20.0,
    lease: float = 300.0,
    cors: Sequence[str] = (),
    hosts: Collection[str] | None = None,
    limits: Limits | None = None,
    configurable: Collection[str] = (),
    recover: bool = True,
    cancel_after: float | None = None,
) -> ServerApplication:
    """Return an ASGI application that starts, stops and streams runs, and serves the threads of graphs.

    `graphs`: a compiled graph with a checkpointer, or several by name. Those that are not attached to `journal` are
    attached. Mount the application under any prefix, or serve it by itself: then its lifespan settles what dead owners
    left. The journal and the checkpointers stay yours: open them before, and close them after the server has ended.

    `authorize(request, action, thread_id)`: returns whether a request may "read", "start", "stop", "update" or "delete"
    on a thread, or "list" the threads (`thread_id` is None then), of which it sees those that it may read. It may be
    asynchronous, and may raise an `HTTPException`, such as a 401. It is asked at each request, so also at each
    reconnect. Without it, the application serves only its own machine. `hosts`: the names that the `Host` header of a
    request may have; without `authorize`, by default the names of this machine. `cors`: origins whose pages may use the
    application, such as "https://chat.example", or "http://localhost:*" for any port.

    `dialects`: "native", "ai-sdk", "ag-ui" and "langgraph"; by default all. `heartbeat`, `write_timeout`, `lease`: the
    seconds between two signs of life, until a reader that does not read is disconnected, and until a connection ends to
    be opened again. `limits`: see `Limits`. `configurable`: the keys of `config["configurable"]` that a client may set.
    `recover`: settle the runs of dead owners when a reader comes upon one. `cancel_after`: seconds without a reader
    after which a run is stopped that a client of LangGraph Server streams or waits for; by default, it runs on.
    """
    if not isinstance(journal, RunJournal):
        raise InvalidArgument(name="journal", expected="a RunJournal, such as RunJournal('runs.db')", value=journal)
    positive(heartbeat=heartbeat, write_timeout=write_timeout, lease=lease)
    if cancel_after is not None:
        positive(cancel_after=cancel_after)
    known = known_dialects()
    chosen = known if dialects is None else tuple(dialects)
    options("create_app(dialects=...)", chosen, known, what="dialect")
    if isinstance(cors, str):
        raise InvalidArgument(name="cors", expected='a list of origins, such as ["https://chat.example"]', value=cors)
    names = LOCAL if hosts is None and authorize is None else hosts
    access = Access(authorize=authorize, hosts=names, origins=tuple(cors))
    timing = Timing(heartbeat=heartbeat, write=write_timeout, lease=lease)
    service = Service(
        graphs,
        journal,
        access,
        limits=limits or Limits(),
        timing=timing,
        configurable=configurable,
        recover=recover,
        cancel_after=cancel_after,
    )
    return _application(service, chosen, cors)


def _application(service: Service, dialects: Collection[str], cors: Sequence[str]) -> ServerApplication:
    table: dict[str, dict[str, Handler]] = {}
    for name in dialects:
        prefix, module, kind = ROUTES[name]
        routes = getattr(import_module(f".{module}", __package__), kind)(service)
        for method, path, handler in routes.table():
            table.setdefault(f"{prefix}{path}", {})[method] = handler

    async def openapi(request: Request) -> Response:
        """Return the description of all paths."""
        return JSONResponse(document(described, request.scope.get("root_path", "")))

    described = {path: dict(methods) for path, methods in table.items()}
    table["/openapi.json"] = {"GET": openapi}

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        await service.recover()
        async with service.serving():
            yield

    application = ServerApplication(
        routes=[_route(service, path, methods) for path, methods in table.items()],
        middleware=[_cors(cors)] if cors else [],
        exception_handlers={HTTPException: respond_http},
        lifespan=lifespan,
    )
    # The address of a redirect would be made of the `Host` header, which is not checked before.
    application.router.redirect_slashes = False
    application.state.service = service
    return application


def _cors(origins: Sequence[str]) -> Middleware:
    return Middleware(
        CORSMiddleware,
        allow_origins=["*"] if "*" in origins else [],
        allow_origin_regex=origin_pattern(origins),
        allow_credentials="*" not in origins,
        allow_methods=["GET", "POST", "PATCH", "DELETE"],
        allow_headers=["*"],
        expose_headers=_EXPOSED,
        max_age=600,
        **_PRIVATE,
    )


def _route(service: Service, path: str, methods: Mapping[str, Handler]) -> Route:
    async def endpoint(request: Request) -> Response:
        handler = methods.get("GET" if request.method == "HEAD" else request.method)
        try:
            service.access.check_request(request)
            if handler is None:
                raise Problem(405, "This path does not have that method. See /openapi.json for those that it has.")
            return await handler(request)
        except HTTPException:
            raise
        except Exception as exc:  # noqa: BLE001 - the client gets a status, and the log the error
            return problem_of(exc).response()

    return Route(path, endpoint, methods=list(methods))
