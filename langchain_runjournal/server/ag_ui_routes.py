"""The routes of the AG-UI dialect: what `HttpAgent` calls, and what a page needs beside it.

Rule: a POST names its run. So a POST that is sent again is the same run, and gets that run from where it stands.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import NAMESPACE_URL, UUID, uuid5

from langchain_core.messages import BaseMessage, HumanMessage
from langgraph.types import Command
from starlette.responses import JSONResponse, Response

from .. import errors
from ..common import strict_json
from ..events import Run, RunStatus
from ..messages.message_data import message_data
from ..messages.transcript import transcript
from .dialects.ag_ui import NAMED, AgUi, Opening, RunRequest, ThreadState, Turn, is_older, parse, turn_of, ui_messages
from .langgraph.plain import values_json
from .problems import Problem, not_found
from .requests import flag, identifier, only, read_json
from .starts import Start, begin_run
from .threads import ThreadView, read_before, read_state, read_thread

if TYPE_CHECKING:
    from starlette.requests import Request

    from .service import Graph, Service

logger = logging.getLogger("langchain_runjournal")

_NAMES: Final = uuid5(NAMESPACE_URL, "langchain-runjournal/ag-ui")
_NO_STORE: Final = {"cache-control": "no-store"}
_MESSAGES: Final = "messages"
_SHOWN: Final = ("user", "assistant", "tool")
"""The roles of messages that each client holds. Many drop thoughts."""


class AgUiRoutes:
    """The handlers of the routes below `/ag-ui`."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._journal = service.journal

    def table(self) -> list[tuple[str, str, Any]]:
        """Return the routes: method, path and handler."""
        return [
            ("POST", "/agents/{graph}", self.run),
            ("GET", "/threads/{thread}/connect", self.connect),
            ("POST", "/threads/{thread}/stop", self.stop),
        ]

    async def run(self, request: Request) -> Response:
        """Begin the run that a `RunAgentInput` asks for, and stream it; one that has begun, from where it stands."""
        graph = self._service.graphs.get(request.path_params["graph"])
        body = await read_json(request, self._service.limits)
        try:
            asked = parse(body)
        except errors.InvalidArgument as exc:
            raise _not_understood(exc) from None
        thread_id = identifier(asked.thread_id, self._service.limits)
        await self._service.access.check(request, "start", thread_id)
        if graph is None:
            raise Problem(404, "No graph has this name. GET /graphs has the names.")
        run_id = _run_id(thread_id, asked.run_id)
        begun = await self._begun(run_id, thread_id)
        if begun is not None:
            return await self._stream(begun, graph, Opening(attach=begun.last_seq, is_older=asked.is_older))
        view = await read_thread(self._service, thread_id)
        turn = await self._turn(asked, view)
        start = self._start(asked, turn, graph, run_id, view)
        found, is_new = await begin_run(self._service, thread_id, start)
        run = await self._journal.arun(found)
        opening = Opening(attach=0 if is_new else run.last_seq, is_older=asked.is_older, greeting=turn.greeting)
        others = {*start.message_ids, *(one["id"] for one in turn.greeting)}
        held = [one["id"] for one in asked.messages if one["role"] in _SHOWN and one["id"] not in others]
        return await self._stream(run, graph, opening, held)

    async def connect(self, request: Request) -> Response:
        """Stream the newest run of a thread, or the one that `run` names, from where it stands."""
        thread_id = await self._service.thread_of(request, "read")
        named = request.query_params.get("run")
        run = (
            await self._service.newest_run(thread_id)
            if named is None
            else await self._begun(_run_id(thread_id, named), thread_id)
        )
        if run is None:
            raise not_found()
        older = is_older(request.query_params.get("protocolVersion"))
        opening = Opening(attach=run.last_seq, is_older=older)
        return await self._stream(run, await self._service.graph_of(thread_id), opening)

    async def stop(self, request: Request) -> Response:
        """Ask the run that is running to stop; 204 if there is none. With `?wait=1`, answer when its thread is settled."""
        thread_id = await self._service.thread_of(request, "stop")
        newest, wait = await self._service.newest_run(thread_id), flag(request, "wait")
        if newest is None or newest.status != RunStatus.RUNNING:
            return Response(status_code=204, headers=_NO_STORE)
        run = await self._service.stop(newest.run_id, wait=wait)
        content = {"runId": run.metadata.get(NAMED) or run.run_id, "status": run.status.value}
        return JSONResponse(content, 200 if run.ended else 202, _NO_STORE)

    # --- what a request names -----------------------------------------------------------------------------------------

    async def _begun(self, run_id: UUID, thread_id: str) -> Run | None:
        try:
            run = await self._journal.arun(str(run_id))
        except errors.RunNotFound:
            return None
        return run if run.thread_id == thread_id else None

    # --- what a POST begins -------------------------------------------------------------------------------------------

    async def _turn(self, asked: RunRequest, view: ThreadView) -> Turn:
        """Return what a request adds to all that the thread has, with what the run that is going on has said."""
        there = [message_data(one) for one in view.messages]
        if view.going is not None:
            there += transcript(view.going.run_id, await self._journal.aread(view.going.run_id))
        try:
            return turn_of(asked, ui_messages(asked.thread_id, there))
        except errors.InvalidArgument as exc:
            raise _not_understood(exc) from None

    def _start(self, asked: RunRequest, turn: Turn, graph: Graph, run_id: UUID, view: ThreadView) -> Start:
        only(asked.configurable, self._service.configurable, '"configurable"')
        metadata = {} if str(run_id) == asked.run_id else {NAMED: asked.run_id}
        config = {"configurable": dict(asked.configurable), "metadata": metadata}
        start = Start(run_id=run_id, is_named=True, graph=graph, input=None, if_busy=asked.if_busy, config=config)
        if turn.kind == "answer":
            resume: Any = asked.answers if asked.command is None else asked.command["resume"]
            return replace(start, input=Command(resume=resume), if_busy="reject", questions=tuple(asked.answers or ()))
        messages: list[BaseMessage] = [HumanMessage(content=cast("Any", one.content), id=one.id) for one in turn.messages]
        if turn.kind == "again":
            messages = [_as_it_is(view, turn, messages[0])]
            start = replace(start, before=messages[0].id)
        ids = [str(one.id) for one in messages]
        return replace(start, input={**_beside(asked, graph, view), "messages": messages}, message_ids=ids)

    # --- streams ------------------------------------------------------------------------------------------------------

    async def _stream(self, run: Run, graph: Graph, opening: Opening, held: Sequence[str] | None = None) -> Response:
        """Return the stream of a run. `held`: the messages that the client has of the history, if it says so."""
        messages, values = await read_before(self._service, graph, run)
        history = [message_data(one) for one in messages]

        async def read_end() -> ThreadState | None:
            return await self._read_end(run, graph)

        shown = [one["id"] for one in ui_messages(run.thread_id, history) if one["role"] in _SHOWN]
        dialect = AgUi(
            replace(
                opening,
                history=history,
                values=_state(graph, values) if values is not None and opening.attach else None,
                is_behind=held is not None and held != shown,
                read_end=read_end,
            )
        )
        return await self._service.stream_run(run, None, dialect)

    async def _read_end(self, run: Run, graph: Graph) -> ThreadState | None:
        """Return the thread as a run has left it; None if the next run has begun."""
        try:
            newest = await self._service.newest_run(str(run.thread_id))
            if newest is None or newest.run_id != run.run_id or newest.status == RunStatus.RUNNING:
                return None
            messages, values = await read_state(graph, str(run.thread_id))
            if await self._service.newest_run(str(run.thread_id)) != newest:
                return None
        except Exception as exc:  # noqa: BLE001 - the journal has the messages as well
            logger.warning("could not read thread %s at the end of a run: %s", run.thread_id, exc)
            return None
        return ThreadState([message_data(one) for one in messages], _state(graph, values))


def _not_understood(error: errors.InvalidArgument) -> Problem:
    about: Any = error
    return Problem(422, f"In the body, {about.name} must be {about.expected}.")


def _run_id(thread_id: str, given: str) -> UUID:
    """Return the id of the run that a client names: its own, if that is a UUID."""
    try:
        found = UUID(given) if len(given) == 36 else None
    except ValueError:
        found = None
    return found if found is not None and str(found) == given else uuid5(_NAMES, strict_json.dumps([thread_id, given]))


def _as_it_is(view: ThreadView, turn: Turn, edited: BaseMessage) -> BaseMessage:
    """Return the message of the user that is answered again."""
    kept = next((one for one in view.messages if one.id == edited.id), None)
    if kept is None:
        raise Problem(409, "The run that answers this message is going on. Connect to it, or stop it first.")
    return edited if turn.is_edited else kept


def _beside(asked: RunRequest, graph: Graph, view: ThreadView) -> dict[str, Any]:
    """Return what a graph takes beside messages: of the client's state what has changed, its tools, and its context."""
    now = view.values if isinstance(view.values, Mapping) else {}
    given = dict(asked.state) if isinstance(asked.state, Mapping) else {}
    tools, context = list(asked.tools), list(asked.context)
    given |= {"tools": tools, "context": context, "ag-ui": {"tools": tools, "context": context}}
    given["copilotkit"] = {"actions": tools, "context": context}
    names = _taken(graph) - {_MESSAGES}
    return {name: value for name, value in given.items() if name in names and value != values_json(now.get(name))}


def _taken(graph: Graph) -> set[str]:
    """Return the names of what a graph takes as its input."""
    builder = getattr(graph, "builder", None)
    schema = getattr(builder, "schemas", {}).get(getattr(builder, "input_schema", None))
    return set(schema) if isinstance(schema, Mapping) else set()


def _state(graph: Graph, values: Any) -> Any:
    """Return what a client may know of a state: what the graph gives back, without the messages."""
    if not isinstance(values, Mapping):
        return {}
    names = graph.output_channels
    shown = {names} if isinstance(names, str) else set(names)
    return values_json({key: value for key, value in values.items() if key in shown and key != _MESSAGES})
