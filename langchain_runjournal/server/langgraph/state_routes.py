"""The routes of states: read, write and the history."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from langgraph.types import StateUpdate
from starlette.responses import JSONResponse, Response

from ..problems import Problem
from ..requests import read_json
from .asked import (
    MOST,
    before_in,
    checkpoint_in,
    contains,
    flag_in,
    is_uuid,
    number_in,
    object_in,
    select_in,
    selected,
    text_in,
)
from .plain import values_json
from .state_writes import write_state
from .states import NO_CHECKPOINT, STATE_FIELDS, checkpoint_json, empty_state, has_checkpoint, state_json

if TYPE_CHECKING:
    from langgraph.types import StateSnapshot
    from starlette.requests import Request

    from .thread_status import KnownThread
    from .threads import Threads

_NO_STORE: Final = {"cache-control": "no-store"}
_SEARCHED: Final = 1_000
"""How many states of a thread are searched for those with some metadata."""


class StateRoutes:
    """The handlers of the routes of states."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._limits = threads.service.limits

    def table(self) -> list[tuple[str, str, Any]]:
        """Return the routes: method, path and handler."""
        return [
            ("GET", "/threads/{thread}/state", self.state),
            ("POST", "/threads/{thread}/state", self.write),
            ("POST", "/threads/{thread}/state/checkpoint", self.state_at),
            ("GET", "/threads/{thread}/state/{checkpoint}", self.state_of),
            ("GET", "/threads/{thread}/history", self.history_by_query),
            ("POST", "/threads/{thread}/history", self.history),
        ]

    async def _body(self, request: Request) -> dict[str, Any]:
        return await read_json(request, self._limits, of_any_type=True)

    async def state(self, request: Request) -> Response:
        """Return the state of a thread as it stands."""
        known = await self._threads.named(request, "read")
        return await self._answer(known, {}, _query(request))

    async def state_of(self, request: Request) -> Response:
        """Return the state of a thread at a checkpoint."""
        known = await self._threads.named(request, "read")
        return await self._answer(known, {"checkpoint_id": request.path_params["checkpoint"]}, _query(request))

    async def state_at(self, request: Request) -> Response:
        """Return the state of a thread, or of one of its subgraphs, at a checkpoint."""
        known = await self._threads.named(request, "read")
        body = await self._body(request)
        return await self._answer(known, checkpoint_in(body), body)

    async def _answer(self, known: KnownThread, place: Mapping[str, str], asked: Mapping[str, Any]) -> Response:
        subgraphs, names = flag_in(asked, "subgraphs"), select_in(asked, STATE_FIELDS)
        found = await self._find(known, place, subgraphs=subgraphs)
        return JSONResponse(selected(empty_state() if found is None else _json(known, found), names), headers=_NO_STORE)

    async def _find(self, known: KnownThread, place: Mapping[str, str], *, subgraphs: bool = False) -> StateSnapshot | None:
        """Return the state at a place. None if the thread has none; raise a `Problem` if it lacks the checkpoint."""
        if not any(place.values()) and not subgraphs:
            return await self._threads.newest_state(known)
        if known.graph is None and not place:
            return None
        checkpoint_id, namespace = place.get("checkpoint_id"), place.get("checkpoint_ns", "")
        if checkpoint_id is not None and not is_uuid(checkpoint_id):
            raise Problem(404, NO_CHECKPOINT)
        full = {"thread_id": known.thread_id, "checkpoint_ns": namespace, **place}
        try:
            found: StateSnapshot | None = await self._threads.state(
                self._threads.graph_for(known), full, subgraphs=subgraphs
            )
        except ValueError:
            # Some releases of LangGraph raise for a namespace in which no subgraph is.
            if not namespace:
                raise
            found = None
        if found is not None and has_checkpoint(found):
            return found
        if checkpoint_id is not None:
            raise Problem(404, NO_CHECKPOINT)
        return None

    async def write(self, request: Request) -> Response:
        """Write values into the state of a thread, as if a node had written them."""
        known = await self._threads.named(request, "update")
        body = await self._body(request)
        place = checkpoint_in(body)
        if place.get("checkpoint_id") is not None:
            await self._find(known, place)
        update = StateUpdate(body.get("values"), text_in(body, "as_node"))
        config = await write_state(self._threads, known, place, [[update]])
        there = checkpoint_json(config) or {}
        answer = {"checkpoint": there, "configurable": there, "checkpoint_id": there.get("checkpoint_id")}
        return JSONResponse(answer, headers=_NO_STORE)

    async def history(self, request: Request) -> Response:
        """Return the states of a thread, the newest first."""
        return await self._history(request, await self._body(request))

    async def history_by_query(self, request: Request) -> Response:
        """Return the states of a thread, the newest first."""
        return await self._history(request, dict(request.query_params))

    async def _history(self, request: Request, body: Mapping[str, Any]) -> Response:
        known = await self._threads.named(request, "read")
        limit, wanted = number_in(body, "limit", 10, least=1, most=MOST), object_in(body, "metadata") or {}
        names, place, before = select_in(body, STATE_FIELDS), checkpoint_in(body), before_in(body)
        if known.graph is None or not self._threads.has_saver(known.graph):
            return JSONResponse([], headers=_NO_STORE)
        graph: Any = self._threads.reader(known.graph).graph
        config = {"configurable": {"thread_id": known.thread_id, "checkpoint_ns": "", **place}}
        about: dict[str, Any] = {"limit": _SEARCHED if wanted else limit}
        if before is not None:
            about["before"] = {"configurable": {**config["configurable"], **before}}
        found: list[dict[str, Any]] = []
        async for state in graph.aget_state_history(config, **about):
            if contains(values_json(state.metadata), wanted):
                found.append(selected(_json(known, state), names))
            if len(found) >= limit:
                break
        return JSONResponse(found, headers=_NO_STORE)


def _json(known: KnownThread, state: StateSnapshot) -> dict[str, Any]:
    """Return a state with the ids that LangGraph Server has in its metadata. LangGraph leaves out that of the thread."""
    found = state_json(state)
    about = {name: known.metadata[name] for name in ("graph_id", "assistant_id") if name in known.metadata}
    metadata = {**about, "thread_id": known.thread_id, **(found["metadata"] or {})}
    return {**found, "metadata": metadata if found["checkpoint"] is not None else None}


def _query(request: Request) -> dict[str, Any]:
    """Return the query parameters, with those that come several times as lists."""
    found: dict[str, Any] = dict(request.query_params)
    if names := request.query_params.getlist("select"):
        found["select"] = [one for name in names for one in name.split(",")]
    return found
