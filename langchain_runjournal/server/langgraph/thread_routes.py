"""The routes of threads: create, read, change, delete, copy, search and count."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from langgraph.types import Command, StateUpdate
from starlette.responses import JSONResponse, Response

from ..problems import Problem, not_found
from ..requests import read_json
from .asked import list_in, object_in, one_in, refuse, uuid_of
from .copying import copy_checkpoints
from .search import ThreadSearch
from .state_writes import write_state
from .thread_status import thread_json

if TYPE_CHECKING:
    from starlette.requests import Request

    from .threads import Threads

NO_STORE: Final = {"cache-control": "no-store"}
_NO_TTL: Final = "threads do not expire by themselves here. Delete them, or let the program prune the journal."


class ThreadRoutes:
    """The handlers of the routes of threads."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._service = threads.service
        self._search = ThreadSearch(threads)

    def table(self) -> list[tuple[str, str, Any]]:
        """Return the routes: method, path and handler."""
        return [
            ("POST", "/threads", self.create),
            ("POST", "/threads/search", self.search),
            ("POST", "/threads/count", self.count),
            ("GET", "/threads/{thread}", self.get),
            ("PATCH", "/threads/{thread}", self.change),
            ("DELETE", "/threads/{thread}", self.delete),
            ("POST", "/threads/{thread}/copy", self.copy),
        ]

    async def _body(self, request: Request) -> dict[str, Any]:
        return await read_json(request, self._service.limits, of_any_type=True)

    async def create(self, request: Request) -> Response:
        """Create a thread."""
        body = await self._body(request)
        thread_id = str(uuid4()) if body.get("thread_id") is None else uuid_of(body["thread_id"], "thread")
        metadata = object_in(body, "metadata") or {}
        if_exists = one_in(body, "if_exists", ("raise", "do_nothing"), "raise")
        refuse(body, ttl=_NO_TTL)
        steps = supersteps_in(body)
        await self._service.access.check(request, "start", thread_id)
        if steps:
            await self._service.access.check(request, "update", thread_id)
        found = await self._threads.find(thread_id)
        if found is None and (row := await self._threads.write(lambda rows: rows.create(thread_id, metadata))) is not None:
            known = self._threads.known(thread_id, row, None, False)
            if steps:
                await self._write_first(thread_id, steps)
                return await self._answer(thread_id)
            return JSONResponse(thread_json(known, None, {}), headers=NO_STORE)
        if not await self._service.access.may(request, "read", thread_id):
            raise not_found()
        if if_exists == "raise":
            raise Problem(409, f'The thread {thread_id} exists. Send "if_exists": "do_nothing" to use it.')
        return await self._answer(thread_id)

    async def _write_first(self, thread_id: str, steps: list[list[StateUpdate]]) -> None:
        known = await self._threads.find(thread_id)
        if known is None:
            raise not_found()  # it was deleted meanwhile
        try:
            await write_state(self._threads, known, {}, steps)
        except BaseException:
            await self._threads.write(lambda rows: rows.delete(thread_id))
            raise

    async def _answer(self, thread_id: str) -> Response:
        known = await self._threads.find(thread_id)
        if known is None:
            raise not_found()  # it was deleted meanwhile
        return JSONResponse(await self._threads.json(known), headers=NO_STORE)

    async def get(self, request: Request) -> Response:
        """Return a thread, with its values and its open questions."""
        known = await self._threads.named(request, "read")
        return JSONResponse(await self._threads.json(known), headers=NO_STORE)

    async def change(self, request: Request) -> Response:
        """Merge metadata into that of a thread."""
        known = await self._threads.named(request, "update")
        body = await self._body(request)
        refuse(body, ttl=_NO_TTL)
        metadata = object_in(body, "metadata") or {}

        await self._threads.write(
            lambda rows: rows.change(
                known.thread_id,
                lambda row: replace(row, metadata={**row.metadata, **metadata}),
                created_at=known.created_at or None,
            )
        )
        if "return=minimal" in request.headers.get("prefer", ""):
            return Response(status_code=204)
        return await self._answer(known.thread_id)

    async def delete(self, request: Request) -> Response:
        """Delete a thread: its checkpoints, its runs and its metadata. A run that is running is stopped first."""
        known = await self._threads.named(request, "delete")
        await self._service.delete_thread(known.thread_id, force=True)
        return Response(status_code=204)

    async def copy(self, request: Request) -> Response:
        """Copy a thread: its checkpoints and its metadata, under a new id. Its runs stay where they are."""
        source = await self._threads.named(request, "read")
        target = str(uuid4())
        await self._service.access.check(request, "start", target)
        await copy_checkpoints(self._threads, source.thread_id, target)
        state = await self._threads.newest_state(source)
        written = {"run_id": None, "next": bool(state is not None and state.next), "at": self._threads.now()}
        about = dict(source.metadata)
        config: Mapping[str, Any] = source.row.config if source.row is not None else {}
        await self._threads.write(
            lambda rows: rows.change(target, lambda row: replace(row, metadata=about, config=config, written=written))
        )
        return await self._answer(target)

    async def search(self, request: Request) -> Response:
        """Return the threads that a request may read and that match, page by page."""
        await self._service.access.check(request, "list", None)
        page = await self._search.page(request, await self._body(request))
        headers = {**NO_STORE, "x-pagination-total": str(page.total)}
        if page.following is not None:
            headers["x-pagination-next"] = str(page.following)
        return JSONResponse(page.threads, headers=headers)

    async def count(self, request: Request) -> Response:
        """Return how many threads a request may read that match."""
        await self._service.access.check(request, "list", None)
        return JSONResponse(await self._search.count(request, await self._body(request)), headers=NO_STORE)


def supersteps_in(body: Mapping[str, Any]) -> list[list[StateUpdate]]:
    """Return the states with which a thread is created, step by step."""
    found = []
    for step in list_in(body, "supersteps") or []:
        updates = list_in(step, "updates") if isinstance(step, dict) else None
        if not updates or not all(isinstance(one, dict) for one in updates):
            raise Problem(422, '"supersteps" must be a list of objects with "updates", a list of objects.')
        found.append([_update(one) for one in updates])
    return found


def _update(update: Mapping[str, Any]) -> StateUpdate:
    as_node, command = update.get("as_node"), object_in(update, "command")
    if as_node is not None and not isinstance(as_node, str):
        raise Problem(422, '"as_node" must be the name of a node.')
    if command is None:
        return StateUpdate(update.get("values"), as_node)
    if set(command) - {"update", "goto", "resume"}:
        raise Problem(422, '"command" may have "update", "goto" and "resume".')
    about: Any = {name: one for name, one in command.items() if one is not None}
    values: Any = Command(**about)
    return StateUpdate(values, as_node)
