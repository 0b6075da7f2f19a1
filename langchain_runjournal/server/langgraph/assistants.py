"""Assistants: one for each graph. And what clients ask about a server before anything else."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, Final

from pydantic import TypeAdapter
from starlette.responses import JSONResponse, Response

from ...common import strict_json
from ...journal.core import core_of
from ..problems import Problem, not_found
from ..requests import read_json
from .asked import MOST, contains, is_uuid, number_in, object_in, one_in, refuse, select_in, selected, text_in
from .assistant_ids import assistant_id_of, graph_of_assistant
from .thread_status import timestamp

if TYPE_CHECKING:
    from starlette.requests import Request

    from ..service import Graph, Service

logger = logging.getLogger("langchain_runjournal")

VERSION: Final = "0.16.7"
"""The version of LangGraph Server whose answers the clients of this API were observed to need. Some refuse an older one."""
_FIELDS: Final = (
    "assistant_id",
    "graph_id",
    "name",
    "description",
    "config",
    "context",
    "created_at",
    "updated_at",
    "metadata",
    "version",
)
_SORTED: Final = ("assistant_id", "graph_id", "name", "created_at", "updated_at")
_NO_STORE: Final = {"cache-control": "no-store"}
_DEEPEST: Final = 10
"""How deeply subgraphs are drawn, at most."""


class AssistantRoutes:
    """The handlers of the routes of assistants."""

    def __init__(self, service: Service) -> None:
        self._service = service
        # The graphs of this process: they have no other date.
        self._since = timestamp(core_of(service.journal).clock.wall() / 1000)

    def table(self) -> list[tuple[str, str, Any]]:
        """Return the routes: method, path and handler."""
        return [
            ("GET", "/ok", self.ok),
            ("GET", "/info", self.info),
            ("POST", "/assistants/search", self.search),
            ("POST", "/assistants/count", self.count),
            ("GET", "/assistants/{assistant}", self.get),
            ("GET", "/assistants/{assistant}/schemas", self.schemas),
            ("GET", "/assistants/{assistant}/graph", self.graph),
            ("GET", "/assistants/{assistant}/subgraphs", self.subgraphs),
            ("GET", "/assistants/{assistant}/subgraphs/{namespace}", self.subgraphs),
        ]

    async def ok(self, request: Request) -> Response:
        """Say that the server is there."""
        return JSONResponse({"ok": True}, headers=_NO_STORE)

    async def info(self, request: Request) -> Response:
        """Return which API this is, and what it has."""
        await self._service.access.check(request, "list", None)
        flags = {"assistants": True, "crons": False, "langsmith": False, "langsmith_tracing_replicas": False}
        about = {"version": VERSION, "langgraph_py_version": _version("langgraph"), "flags": flags}
        return JSONResponse(
            {
                **about,
                "server": {"name": "langchain-runjournal", "version": _version("langchain-runjournal")},
                "host": {
                    "kind": "self-hosted",
                    "project_id": None,
                    "host_revision_id": None,
                    "revision_id": None,
                    "tenant_id": None,
                },
            },
            headers=_NO_STORE,
        )

    async def _body(self, request: Request) -> dict[str, Any]:
        await self._service.access.check(request, "list", None)
        return await read_json(request, self._service.limits, of_any_type=True)

    async def search(self, request: Request) -> Response:
        """Return the assistants that match, page by page."""
        body = await self._body(request)
        refuse(body, extract="read the assistants.")
        found, names = self._matching(body), select_in(body, _FIELDS)
        key = one_in(body, "sort_by", _SORTED, "name")
        falling = one_in(body, "sort_order", ("asc", "desc"), "asc") == "desc"
        found.sort(key=lambda one: str(one[key]), reverse=falling)
        limit, offset = number_in(body, "limit", 10, least=1, most=MOST), number_in(body, "offset", 0)
        headers = {**_NO_STORE, "x-pagination-total": str(len(found))}
        if len(found) > offset + limit:
            headers["x-pagination-next"] = str(offset + limit)
        return JSONResponse([selected(one, names) for one in found[offset : offset + limit]], headers=headers)

    async def count(self, request: Request) -> Response:
        """Return how many assistants match."""
        return JSONResponse(len(self._matching(await self._body(request))), headers=_NO_STORE)

    def _matching(self, body: Mapping[str, Any]) -> list[dict[str, Any]]:
        graph, name, metadata = text_in(body, "graph_id"), text_in(body, "name"), object_in(body, "metadata") or {}
        found = [self._json(one) for one in self._service.graphs]
        return [
            one
            for one in found
            if graph in (None, one["graph_id"])
            and (name is None or name.casefold() in one["name"].casefold())
            and contains(one["metadata"], metadata)
        ]

    def _json(self, graph: str) -> dict[str, Any]:
        return {
            "assistant_id": assistant_id_of(graph),
            "graph_id": graph,
            "name": graph,
            "description": None,
            "config": {},
            "context": {},
            "created_at": self._since,
            "updated_at": self._since,
            "metadata": {"created_by": "system"},
            "version": 1,
        }

    async def _named(self, request: Request) -> str:
        """Return the name of the graph whose assistant the URL names, by its id or by the name of the graph."""
        named = request.path_params["assistant"]
        await self._service.access.check(request, "list", None)
        found = graph_of_assistant(named, self._service.graphs)
        if found is not None:
            return found
        if is_uuid(named):
            raise not_found()
        raise Problem(422, f"Invalid assistant ID: must be a UUID, or one of: {', '.join(sorted(self._service.graphs))}.")

    async def get(self, request: Request) -> Response:
        """Return an assistant."""
        return JSONResponse(self._json(await self._named(request)), headers=_NO_STORE)

    async def schemas(self, request: Request) -> Response:
        """Return the schemas of a graph, as far as its types have one."""
        name = await self._named(request)
        return JSONResponse({"graph_id": name, **schemas_of(self._service.graphs[name])}, headers=_NO_STORE)

    async def graph(self, request: Request) -> Response:
        """Return the nodes and the edges of a graph."""
        name = await self._named(request)
        drawn = await self._service.graphs[name].aget_graph(xray=_xray(request))
        found = strict_json.plain(drawn.to_json())
        for node in found["nodes"]:
            node.setdefault("type", "runnable")
            node.setdefault("data", {"name": node["id"]})
        return JSONResponse(found, headers=_NO_STORE)

    async def subgraphs(self, request: Request) -> Response:
        """Return the schemas of the subgraphs of a graph."""
        name = await self._named(request)
        namespace, recurse = request.path_params.get("namespace"), request.query_params.get("recurse", "").lower()
        if recurse not in ("", "true", "false", "0", "1"):
            raise Problem(422, '"recurse" must be true or false.')
        inner = self._service.graphs[name].get_subgraphs(namespace=namespace, recurse=recurse in ("true", "1"))
        return JSONResponse({at: schemas_of(one) for at, one in inner}, headers=_NO_STORE)


def schemas_of(graph: Any) -> dict[str, Any]:
    """Return the schemas of a graph. None stands for a type that has no JSON schema."""
    builder = getattr(graph, "builder", None)
    return {
        "input_schema": _schema(lambda: graph.get_input_jsonschema()),
        "output_schema": _schema(lambda: graph.get_output_jsonschema()),
        "state_schema": _schema(lambda: TypeAdapter(builder.state_schema).json_schema()) if builder is not None else None,
        "config_schema": _schema(lambda: _config_schema(graph)) or {},
        "context_schema": _schema(lambda: graph.get_context_jsonschema()),
    }


def _config_schema(graph: Graph) -> Any:
    """Return the schema of what a client may configure, without the keys that LangGraph itself adds."""
    found: Any = graph.config_schema(include=["configurable"]).model_json_schema()
    return found.get("$defs", {}).get("Configurable", {})


def _schema(make: Callable[[], Any]) -> Any:
    try:
        return strict_json.plain(make())
    except Exception as exc:  # noqa: BLE001 - a type of the program may have no schema, for any reason
        logger.debug("a type of a graph has no JSON schema: %s", exc)
        return None


def _xray(request: Request) -> bool | int:
    text = request.query_params.get("xray", "").lower()
    if text in ("", "false", "true"):
        return text == "true"
    if text.isascii() and text.isdecimal() and len(text) < 4:
        return min(int(text), _DEEPEST)
    raise Problem(422, '"xray" must be true, false or a number.')


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
