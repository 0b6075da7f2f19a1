"""The routes of the protocol: a command to a thread, and the events of a thread."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from starlette.responses import JSONResponse, Response

from ....errors import InvalidArgument
from ...problems import Problem
from ...requests import read_json
from ...threads import open_questions
from ...transport import EventStream
from ..asked import uuid_of
from ..run_start import waiting_run
from ..run_views import graph_named_by, request_of
from ..stream import check_room
from .feed import ThreadStream
from .readers import ThreadReaders
from .subscription import parse_subscription

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

    from ...service import Service
    from ..queue import RunQueue
    from ..run_creation import RunCreation
    from ..run_requests import RunRequest

_NO_STORE: Final = {"cache-control": "no-store"}
_KNOWN: Final = (
    "subscription.subscribe",
    "subscription.unsubscribe",
    "subscription.reconnect",
    "agent.getTree",
    "input.inject",
    "state.get",
    "state.listCheckpoints",
    "state.fork",
)
"""Commands of the protocol that are not served: no client sends them over this transport."""
_AS_STREAMED: Final = {
    "if_not_exists": "create",
    "stream_mode": ["values", "updates", "messages-tuple", "custom"],
    "stream_subgraphs": True,
    "stream_resumable": True,
}
"""How the older endpoints see a run that a command has begun."""


class Refused(Exception):
    """A command that cannot be done. Clients get it as an answer with status 200."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class ProtocolRoutes:
    """The handlers of the routes of the protocol."""

    def __init__(self, service: Service, queue: RunQueue, creation: RunCreation) -> None:
        self._service = service
        self._queue = queue
        self._creation = creation
        self._readers = ThreadReaders()

    def table(self) -> list[tuple[str, str, Any]]:
        """Return the routes: method, path and handler."""
        return [
            ("POST", "/threads/{thread}/commands", self.command),
            ("POST", "/threads/{thread}/stream/events", self.events),
        ]

    # --- events -------------------------------------------------------------------------------------------------------

    async def events(self, request: Request) -> Response:
        """Stream the events of a thread, which need not exist yet."""
        thread_id = uuid_of(request.path_params["thread"], "thread")
        body = await read_json(request, self._service.limits, of_any_type=True)
        await self._service.access.check(request, "read", thread_id)
        try:
            asked = parse_subscription(body)
        except InvalidArgument as exc:
            about: Any = exc
            raise Problem(400, f"In the body, {about.name} must be {about.expected}.") from None
        check_room(self._service)
        self._service.open_streams += 1
        source = ThreadStream(self._service, self._queue.records, self._readers, thread_id, asked)
        # Clients take a clean end for a lost connection, or for the end of the run: no lease.
        timing = replace(self._service.timing, lease=math.inf)
        return EventStream(source, timing, headers=_NO_STORE, on_end=self._on_end, on_abandoned=self._service.recover_soon)

    def _on_end(self) -> None:
        self._service.open_streams -= 1

    # --- commands -----------------------------------------------------------------------------------------------------

    async def command(self, request: Request) -> Response:
        """Do what a command asks for."""
        thread_id = uuid_of(request.path_params["thread"], "thread")
        body = await read_json(request, self._service.limits, of_any_type=True)
        number, method, params = body.get("id"), body.get("method"), body.get("params", {})
        if isinstance(number, bool) or not isinstance(number, int):
            raise Problem(422, '"id" must be the number of the command.')
        try:
            if not isinstance(params, dict):
                raise Refused("invalid_argument", '"params" must be an object.')
            match method:
                case "run.start":
                    asked = await self._start(request, thread_id, params)
                    return self._done(number, {"run_id": asked.run_id}, asked.run_id)
                case "input.respond":
                    asked = await self._respond(request, thread_id, params)
                    return self._done(number, {}, asked.run_id)
                case str() if method in _KNOWN:
                    raise Refused("not_supported", f"This server does not serve the command {method}.")
                case _:
                    raise Refused("unknown_command", '"method" must be "run.start" or "input.respond".')
        except Refused as exc:
            answer = {"type": "error", "id": number, "error": exc.code, "message": str(exc)}
            return JSONResponse(answer, headers=_NO_STORE)

    def _done(self, number: int, result: Mapping[str, Any], run_id: str) -> Response:
        answer = {"type": "success", "id": number, "result": result, "meta": {"applied_through_seq": 0}}
        return _Answer(answer, self._readers, run_id)

    async def _start(self, request: Request, thread_id: str, params: Mapping[str, Any]) -> RunRequest:
        body = {name: params[name] for name in ("assistant_id", "input", "config", "metadata") if name in params}
        config = body.get("config")
        configurable = config.get("configurable") if isinstance(config, dict) else None
        if isinstance(configurable, dict) and isinstance(configurable.get("checkpoint_id"), str):
            body["checkpoint"] = {
                key: configurable[key] for key in ("checkpoint_id", "checkpoint_ns") if key in configurable
            }
        return await self._create(request, thread_id, body)

    async def _respond(self, request: Request, thread_id: str, params: Mapping[str, Any]) -> RunRequest:
        await self._service.access.check(request, "start", thread_id)
        answers = _answers(params)
        waiting = await waiting_run(self._service, thread_id)
        asked = [] if waiting is None else await open_questions(self._service, waiting)
        known = {one.get("id") for one in asked if isinstance(one, Mapping)}
        graph = None if waiting is None else graph_named_by(self._service, waiting)
        if waiting is None or graph is None or not answers.keys() <= known:
            missing = next((one for one in answers if one not in known), "")
            raise Refused("no_such_interrupt", f"No question of the thread waits with the id {missing[:64]!r}.")
        command = {"resume": answers, **{name: params[name] for name in ("update", "goto") if params.get(name) is not None}}
        body = {name: params[name] for name in ("config", "metadata") if params.get(name) is not None}
        about = {"assistant_id": request_of(self._service, waiting).assistant_id, "command": command}
        return await self._create(request, thread_id, {**body, **about})

    async def _create(self, request: Request, thread_id: str, body: Mapping[str, Any]) -> RunRequest:
        whole = {**body, **_AS_STREAMED}
        run_id = str(uuid4())
        self._readers.began(run_id)
        try:
            return await self._creation.create(request, thread_id, whole, run_id=run_id)
        except Problem as exc:
            if exc.status in (409, 422):
                raise Refused("invalid_argument", exc.detail) from None
            raise


class _Answer(JSONResponse):
    """The answer to a command that has begun a run: it goes out before the events of the run."""

    def __init__(self, content: Any, readers: ThreadReaders, run_id: str) -> None:
        super().__init__(content, headers=_NO_STORE)
        self._readers = readers
        self._run_id = run_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            with suppress(OSError):  # the client has left
                await super().__call__(scope, receive, send)
        finally:
            self._readers.answered(self._run_id)


def _answers(params: Mapping[str, Any]) -> dict[str, Any]:
    several = params.get("responses", [params])
    if not isinstance(several, list) or not several:
        raise Refused("invalid_argument", '"responses" must be a list of answers.')
    found: dict[str, Any] = {}
    for one in several:
        if not isinstance(one, dict) or not isinstance(one.get("interrupt_id"), str) or "response" not in one:
            raise Refused("invalid_argument", 'An answer must have "interrupt_id" and "response".')
        found[one["interrupt_id"]] = one["response"]
    return found
