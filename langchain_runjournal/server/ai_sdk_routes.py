"""The routes of the AI SDK dialect: what `DefaultChatTransport` calls, and what a page needs beside it.

Rule: a POST names its run, whose id follows from the thread and the message. So a POST that is sent again is the same run,
and gets the same stream.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import NAMESPACE_URL, UUID, uuid5

from langchain_core.messages import HumanMessage
from langgraph.types import Command
from starlette.responses import JSONResponse, Response

from .. import errors
from ..common import strict_json
from ..events import Run, RunStatus
from ..messages.message_data import message_data
from .dialects.ai_sdk.projector import AI_SDK
from .dialects.ai_sdk.request import ChatRequest, parse
from .dialects.ai_sdk.ui_messages import ThreadMessage, ui_messages
from .problems import Problem
from .requests import flag, identifier, read_json
from .starts import Start, begin_run
from .threads import ThreadView, read_thread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request

    from .service import Graph, Service

_NAMES: Final = uuid5(NAMESPACE_URL, "langchain-runjournal/ai-sdk")
_NO_STORE: Final = {"cache-control": "no-store"}


class AiSdkRoutes:
    """The handlers of the routes below `/ai-sdk`."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._journal = service.journal

    def table(self) -> list[tuple[str, str, Any]]:
        """Return the routes: method, path and handler."""
        return [
            ("POST", "/chat", self.chat),
            ("GET", "/chat/{thread}/stream", self.stream),
            ("GET", "/chat/{thread}/messages", self.messages),
            ("POST", "/chat/{thread}/stop", self.stop),
        ]

    async def chat(self, request: Request) -> Response:
        """Begin the run that a message asks for, and stream it."""
        body = await read_json(request, self._service.limits)
        try:
            asked = parse(body)
        except errors.InvalidArgument as exc:
            about: Any = exc
            raise Problem(422, f"In the body, {about.name} must be {about.expected}.") from None
        thread_id = identifier(asked.thread_id, self._service.limits)
        await self._service.access.check(request, "start", thread_id)
        graph = await self._graph(body.get("graph"), thread_id)
        run_id, _ = await begin_run(self._service, thread_id, await self._start(asked, graph))
        return await self._service.stream_run(await self._journal.arun(run_id), None, AI_SDK)

    async def stream(self, request: Request) -> Response:
        """Stream the run that is going on, from its start; 204 if there is none that the client may see."""
        thread_id = identifier(request.path_params["thread"], self._service.limits)
        if not await self._service.access.may(request, "read", thread_id):
            return _nothing()
        named = request.query_params.get("run")
        run = await self._service.newest_run(thread_id) if named is None else await self._named(thread_id, named)
        if run is None or (named is None and run.ended):
            return _nothing()
        return await self._service.stream_run(run, None, AI_SDK)

    async def _named(self, thread_id: str, run_id: str) -> Run | None:
        with suppress(errors.RunNotFound):
            run = await self._journal.arun(identifier(run_id, self._service.limits))
            return run if run.thread_id == thread_id else None
        return None

    async def messages(self, request: Request) -> Response:
        """Return the UI messages of a thread, for `useChat({messages})`."""
        thread_id = await self._service.thread_of(request, "read")
        view = await read_thread(self._service, thread_id)
        found = [
            ThreadMessage(message_data(message), run_id) for message, run_id in zip(view.messages, view.run_ids, strict=True)
        ]
        runs = {run.run_id: run for run in await self._journal.aruns(thread_id, limit=200)}
        going = view.going
        if going is not None:
            found += await self._inputs(going)
        headers = _NO_STORE if going is None else {**_NO_STORE, "x-runjournal-run": going.run_id}
        return JSONResponse(strict_json.plain(ui_messages(thread_id, found, runs)), headers=headers)

    async def stop(self, request: Request) -> Response:
        """Ask the run that is running to stop; 204 if there is none. With `?wait=1`, answer when its thread is settled."""
        thread_id = await self._service.thread_of(request, "stop")
        newest, wait = await self._service.newest_run(thread_id), flag(request, "wait")
        if newest is None or newest.status != RunStatus.RUNNING:
            return _nothing()
        run = await self._service.stop(newest.run_id, wait=wait)
        return JSONResponse({"runId": run.run_id, "status": run.status.value}, 200 if run.ended else 202, _NO_STORE)

    # --- what a POST begins -------------------------------------------------------------------------------------------

    async def _graph(self, name: object, thread_id: str) -> Graph:
        found = self._service.graph_named(name) if name is not None else None  # an unknown name is refused in any case
        if len(self._service.graphs) > 1 and await self._service.newest_run(thread_id) is not None:
            # A thread keeps its graph: a page names one for new threads.
            return await self._service.graph_of(thread_id)
        return found if found is not None else self._service.graph_named(name)

    async def _start(self, asked: ChatRequest, graph: Graph) -> Start:
        if asked.kind == "answer":
            run_id = _run_id(asked.thread_id, "answer", asked.message_id or "")
            about: Any = {"run_id": run_id, "is_named": True, "graph": graph, "if_busy": "reject", "config": {}}
            return Start(input=Command(resume=asked.resume), questions=asked.questions, **about)
        if asked.kind == "submit":
            return _submit(asked, graph, asked.message_id or "")
        name = (asked.kind, asked.message_id or "", asked.last or "", strict_json.dumps(asked.content))
        run_id, is_running = await self._replacing_run(asked.thread_id, name)
        if is_running:
            return _begin(asked, graph, run_id, "")
        view = await read_thread(self._service, asked.thread_id)
        target = _message_to_replace(view, asked)
        if target is not None:
            content = asked.content if asked.kind == "edit" else target.content
            return _begin(replace(asked, content=content), graph, run_id, str(target.id), before=str(target.id))
        if asked.kind == "regenerate" and asked.content and asked.last is not None:
            # The page regenerates the answer to a message that was refused, because the thread was busy.
            return _submit(asked, graph, asked.last)
        raise Problem(404, "The thread has no such message. Load its messages again.")

    async def _replacing_run(self, thread_id: str, name: tuple[str, ...]) -> tuple[UUID, bool]:
        """Return the id of a run that takes the place of others, and whether it is running: this request began it before."""
        runs = await self._journal.aruns(thread_id, limit=2)
        if runs and not runs[0].ended:
            running = _run_id(thread_id, *name, runs[1].run_id if len(runs) > 1 else "")
            if str(running) == runs[0].run_id:
                return running, True
        return _run_id(thread_id, *name, runs[0].run_id if runs else ""), False

    async def _inputs(self, run: Run) -> list[ThreadMessage]:
        """Return what a user has said to a run that is going on: its stream has only the answer."""
        events = await self._journal.aread(run.run_id)
        return [ThreadMessage(one.data["message"], run.run_id) for one in events if one.kind == "llm.human.input"]


def _nothing() -> Response:
    return Response(status_code=204, headers=_NO_STORE)


def _run_id(thread_id: str, *parts: str) -> UUID:
    return uuid5(_NAMES, strict_json.dumps([thread_id, *parts]))


def _submit(asked: ChatRequest, graph: Graph, message_id: str) -> Start:
    return _begin(asked, graph, _run_id(asked.thread_id, "submit", message_id), message_id)


def _begin(asked: ChatRequest, graph: Graph, run_id: UUID, message_id: str, *, before: str | None = None) -> Start:
    message = HumanMessage(content=cast("Any", asked.content), id=message_id)
    return Start(
        run_id=run_id,
        is_named=True,
        graph=graph,
        input={"messages": [message]},
        if_busy="reject",
        before=before,
        config={},
        message_ids=[message_id],
    )


def _message_to_replace(view: ThreadView, asked: ChatRequest) -> Any:
    """Return the message of the user from which on the thread is written again; None if there is none."""
    humans = [at for at, message in enumerate(view.messages) if message.type == "human" and message.id]
    wanted = asked.message_id or asked.last
    if wanted is None:
        return view.messages[humans[-1]] if humans else None
    for at in humans:
        if view.messages[at].id == wanted:
            return view.messages[at]
    place = _place_of_answer(view, asked.thread_id, wanted)
    before = [at for at in humans if place is not None and at < place]
    if before:
        return view.messages[before[-1]]
    kept: Sequence[int] = [at for at in humans if view.messages[at].id == asked.last]
    return view.messages[kept[0]] if kept else None


def _place_of_answer(view: ThreadView, thread_id: str, wanted: str) -> int | None:
    """Return the place of the first message of the answer that a page knows by this id."""
    run_id = wanted.removeprefix(f"{thread_id}:")
    for at, (message, of) in enumerate(zip(view.messages, view.run_ids, strict=True)):
        if message.type != "human" and (of == run_id or message.id == wanted):
            return at
    return None
