"""Runs that clients ask for: the body checked against what the client may do and what the thread is, and then stored.

Rule: everything that can be refused is refused before the request is stored. From then on the client has its run, and never
gets a 5xx for it: clients send a request again that was answered by one.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from ...errors import InvalidArgument
from ..problems import Problem, not_found
from ..threads import fork_before
from .assistant_ids import assistant_id_of, graph_of_assistant
from .queue import Busy, RunQueue
from .run_requests import RunRequest, message_ids, needs_update, parse_run, unknown_members
from .run_start import StartRefused, allowed_keys, waiting_run
from .states import NO_CHECKPOINT, has_checkpoint

if TYPE_CHECKING:
    from starlette.requests import Request

    from .threads import Threads

logger = logging.getLogger("langchain_runjournal")

_MOST_UNKNOWN: Final = 100
_BUSY: Final = (
    "Thread is already running a task. Wait for it to finish, or choose another multitask strategy: enqueue, interrupt or"
    " rollback."
)


class RunCreation:
    """Creates the runs of one application."""

    def __init__(self, threads: Threads, queue: RunQueue) -> None:
        self._threads = threads
        self._service = threads.service
        self._queue = queue
        self._unknown: set[str] = set()
        """The options of newer clients that the log has named."""

    async def create(
        self, request: Request, thread_id: str | None, body: Mapping[str, Any], *, run_id: str | None = None
    ) -> RunRequest:
        """Store the run that a body asks for, on a thread or on one of its own, and let it begin. Raise a `Problem`.

        `run_id`: the id of the run, if the caller must know it before the run begins.
        """
        place = thread_id or str(uuid4())
        await self._service.access.check(request, "start", place)
        name = graph_of_assistant(body.get("assistant_id"), self._service.graphs)
        if name is None:
            names = ", ".join(sorted(self._service.graphs))
            raise Problem(422, f'"assistant_id" must be the name of a graph, or the id of its assistant. Graphs: {names}.')
        asked = self._parsed(body, name, place, run_id or str(uuid4()), is_temporary=thread_id is None)
        if thread_id is not None:
            await self._check_thread(request, body, asked)
        if asked.command is not None and "resume" in asked.command:
            waiting = await waiting_run(self._service, place)
            asked = replace(asked, answers=None if waiting is None else waiting.run_id)
        await self._store(asked)
        return asked

    def _parsed(self, body: Mapping[str, Any], name: str, place: str, run_id: str, *, is_temporary: bool) -> RunRequest:
        allowed = allowed_keys(self._service, self._service.graphs[name])
        about = {"run_id": run_id, "thread_id": place, "graph": name, "assistant_id": assistant_id_of(name)}
        try:
            asked = parse_run(body, allowed=allowed, now=time.time(), **about)
        except InvalidArgument as exc:
            raise Problem(422, f"In the body, {exc.name} must be {exc.expected}.") from None
        if not is_temporary and asked.temporary and body.get("on_completion") == "delete":
            raise Problem(422, '"on_completion": "delete" is for runs without a thread. Delete the thread instead.')
        for option in unknown_members(body):
            if option[:40] not in self._unknown and len(self._unknown) < _MOST_UNKNOWN:
                self._unknown.add(option[:40])
                logger.warning("a client asks for a run with the option %r, which this server does not know", option[:40])
        return replace(asked, temporary=asked.temporary and is_temporary)

    async def _check_thread(self, request: Request, body: Mapping[str, Any], asked: RunRequest) -> None:
        access, thread_id = self._service.access, asked.thread_id
        if needs_update(body):
            await access.check(request, "update", thread_id)
        elif (ids := message_ids(asked)) and not await access.may(request, "update", thread_id):
            # A message with the id of another one would take its place.
            await fork_before(self._service.graphs[asked.graph], thread_id, None, ids, is_again=False)
        if body.get("if_not_exists") != "create" and await self._threads.find(thread_id) is None:
            raise not_found()
        if asked.checkpoint is not None and self._threads.has_saver(asked.graph):
            # LangGraph would begin with an empty state there, and the thread would show nothing of its past.
            place = {"thread_id": thread_id, "checkpoint_ns": "", **asked.checkpoint}
            if not has_checkpoint(await self._threads.state(asked.graph, place)):
                raise Problem(404, NO_CHECKPOINT)

    async def _store(self, asked: RunRequest) -> None:
        about = {name: asked.config[name] for name in ("configurable", "recursion_limit") if name in asked.config}
        try:
            await self._queue.add(asked)
        except Busy as exc:
            raise Problem(409, _BUSY, run_id=exc.run_id) from None
        except StartRefused as exc:
            raise Problem(422, str(exc)) from None
        except InvalidArgument as exc:
            raise Problem(422, f"The request cannot be stored: {exc.expected}.") from exc
        # The client has its run: nothing that fails from here on may be an answer that it takes for a refusal.
        try:
            await self._threads.write(
                lambda rows: rows.stamp(asked.thread_id, graph=asked.graph, assistant_id=asked.assistant_id, config=about)
            )
        except Exception:
            logger.exception("could not note the graph of thread %s", asked.thread_id)
