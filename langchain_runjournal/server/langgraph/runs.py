"""The routes of runs: create, stream, wait, join, list, cancel and delete, on a thread or without one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from starlette.responses import JSONResponse, Response

from ...errors import InvalidArgument, RunAbandoned, RunNotFound, StopTimeout
from ...events import Run, RunStatus
from ..feed import owner_is_gone
from ..problems import Problem, not_found
from ..requests import read_json
from .asked import flag_in, list_in, number_in, one_in, select_in, selected, uuid_of
from .queue import RunQueue
from .run_creation import RunCreation
from .run_readers import RunReaders
from .run_requests import RunRequest, modes_of
from .run_views import STATUSES, request_of, run_json, status_of
from .stream import check_room, final_values, stream_run
from .temporary_threads import TemporaryThreads
from .thread_stream import ThreadStream, open_stream
from .wait_response import WaitResponse

if TYPE_CHECKING:
    from starlette.requests import Request

    from .threads import Threads

logger = logging.getLogger("langchain_runjournal")

_NO_STORE: Final = {"cache-control": "no-store"}
_STOP_LIMIT: Final = 30.0
"""Seconds that a cancel with `wait=1` waits for the end of a run."""
_FIELDS: Final = (
    "run_id",
    "thread_id",
    "assistant_id",
    "created_at",
    "updated_at",
    "status",
    "metadata",
    "kwargs",
    "multitask_strategy",
)
_MOST: Final = 1_000
_NOTHING_TO_CANCEL: Final = "No matching runs to cancel: they are over, or do not exist."


class Found(NamedTuple):
    """A run that a request names."""

    request: RunRequest
    run: Run | None


class RunRoutes:
    """The handlers of the routes of runs."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._service = threads.service
        self._journal = threads.journal
        self.queue = RunQueue(threads.service)
        self.creation = RunCreation(threads, self.queue)
        self._readers = RunReaders(threads.service, self.queue, threads.service.cancel_after)
        self.temporary = TemporaryThreads(threads.service)
        self.tasks: set[asyncio.Task[Any]] = set()
        threads.is_waiting, threads.all_waiting = self.queue.is_waiting, self.queue.records.waiting
        threads.service.when_deleting.append(self.queue.withdraw_all)
        threads.service.when_deleted.append(self.queue.forget_all)
        threads.service.at_open.append(self.open)
        threads.service.at_close.append(self.close)

    def table(self) -> list[tuple[str, str, Any]]:
        """Return the routes: method, path and handler."""
        return [
            ("POST", "/threads/{thread}/runs/stream", self.create_and_stream),
            ("POST", "/threads/{thread}/runs/wait", self.create_and_wait),
            ("POST", "/threads/{thread}/runs", self.create),
            ("GET", "/threads/{thread}/runs", self.list_runs),
            ("GET", "/threads/{thread}/runs/{run}", self.get),
            ("DELETE", "/threads/{thread}/runs/{run}", self.delete),
            ("GET", "/threads/{thread}/runs/{run}/stream", self.join_stream),
            ("GET", "/threads/{thread}/runs/{run}/join", self.join),
            ("POST", "/threads/{thread}/runs/{run}/cancel", self.cancel),
            ("GET", "/threads/{thread}/stream", self.join_thread),
            ("POST", "/runs/stream", self.create_and_stream),
            ("POST", "/runs/wait", self.create_and_wait),
            ("POST", "/runs/cancel", self.cancel_many),
            ("POST", "/runs", self.create),
            ("GET", "/runs/{run}/stream", self.join_stream),
            ("GET", "/runs/{run}/join", self.join),
        ]

    async def open(self) -> None:
        """Take over what dead processes have left. Called when the server begins to serve."""
        await self.queue.look_at_all()
        self.temporary.look()

    async def close(self) -> None:
        """Stop working. What is left stays, for the next process."""
        await self.queue.close()
        await self.temporary.close()

    # --- create -------------------------------------------------------------------------------------------------------

    async def create(self, request: Request) -> Response:
        """Create a run, and answer at once."""
        asked = await self._create(request)
        return JSONResponse(run_json(asked, None), headers={**_NO_STORE, "content-location": _place(asked)})

    async def create_and_stream(self, request: Request) -> Response:
        """Create a run, and stream it."""
        check_room(self._service)
        asked = await self._create(request)
        is_stateless = "thread" not in request.path_params
        where = f"/runs/{asked.run_id}" if is_stateless else _place(asked)
        headers = {"location": f"{where}/stream", "content-location": where}
        return await self._stream(asked, cursor=None, modes=None, headers=headers, on_gone=self._on_gone(asked))

    async def create_and_wait(self, request: Request) -> Response:
        """Create a run, and answer with the values when it is over."""
        asked = await self._create(request)
        return await self._wait(asked, self._on_gone(asked))

    async def _create(self, request: Request) -> RunRequest:
        named = request.path_params.get("thread")
        thread_id = None if named is None else uuid_of(named, "thread")
        body = await read_json(request, self._service.limits, of_any_type=True)
        asked = await self.creation.create(request, thread_id, body)
        if asked.temporary:
            try:
                await self.temporary.add(asked)
            except Exception:
                logger.exception("could not note that thread %s is to be deleted after its run", asked.thread_id)
        return asked

    def _on_gone(self, asked: RunRequest) -> Callable[[], None] | None:
        """Return what is called when the client that created a run leaves before its end."""
        if asked.on_disconnect != "cancel":
            return None
        return lambda: self._begin_to_cancel(asked.run_id)

    def _begin_to_cancel(self, run_id: str) -> None:
        task = asyncio.get_running_loop().create_task(self._cancel_quietly(run_id))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _cancel_quietly(self, run_id: str) -> None:
        try:
            await self.queue.cancel(run_id, cause="disconnect")
        except Exception:
            logger.exception("could not stop run %s, whose client has left", run_id)

    # --- join ---------------------------------------------------------------------------------------------------------

    async def join_stream(self, request: Request) -> Response:
        """Stream a run, from the last frame that the client has seen."""
        found = await self._found(request, "read")
        names = [one for part in request.query_params.getlist("stream_mode") for one in part.strip("[]").split(",")]
        chosen = [name for one in names if (name := one.strip(' "'))]
        try:
            modes = modes_of(chosen) if chosen else None
        except InvalidArgument as exc:
            raise Problem(422, f"The query parameter {exc.name} must be {exc.expected}.") from None
        where = _place(found.request)
        headers = {"location": f"{where}/stream", "content-location": where}
        given = request.headers.getlist("last-event-id")
        cursor = given[-1] if given else request.query_params.get("last_event_id")
        gone = self._if_asked(request, found.request)
        return await self._stream(found.request, cursor=cursor, modes=modes, headers=headers, on_gone=gone)

    async def join_thread(self, request: Request) -> Response:
        """Stream a thread, run by run, without an end."""
        known = await self._threads.named(request, "read")
        named = request.query_params.getlist("stream_mode")
        if set(named) - {"run_modes", ""}:
            raise Problem(422, 'The query parameter "stream_mode" must be "run_modes": the frames of the runs.')
        given = request.headers.getlist("last-event-id")
        source = ThreadStream(self._service, known.thread_id, given[-1] if given else None, self._request_of)
        return open_stream(self._service, source)

    async def _request_of(self, run: Run) -> RunRequest | None:
        found = await self._service.off_loop(partial(self._find, run.run_id, run.thread_id))
        return None if found is None else found.request

    async def join(self, request: Request) -> Response:
        """Answer with the values when a run is over."""
        found = await self._found(request, "read")
        return await self._wait(found.request, self._if_asked(request, found.request))

    def _if_asked(self, request: Request, asked: RunRequest) -> Callable[[], None] | None:
        """Return what is called when this reader leaves early: nothing, unless it has asked for that itself."""
        if flag_in(request.query_params, "cancel_on_disconnect"):
            return lambda: self._begin_to_cancel(asked.run_id)
        return None

    async def _stream(
        self,
        asked: RunRequest,
        *,
        cursor: str | None,
        modes: Sequence[str] | None,
        headers: Mapping[str, str],
        on_gone: Callable[[], None] | None,
    ) -> Response:
        response = await stream_run(
            self._service,
            self._service.graphs[asked.graph],
            asked,
            cursor=cursor,
            modes=modes,
            begun=lambda: self.queue.begun(asked.run_id),
            on_gone=on_gone,
            headers=headers,
        )
        return await self._readers.counted(asked.run_id, response)

    async def _wait(self, asked: RunRequest, on_gone: Callable[[], None] | None) -> Response:
        headers = {"location": f"{_place(asked)}/join", "content-location": _place(asked)}
        response = WaitResponse(lambda: self._values(asked), self._service.timing, headers=headers, on_gone=on_gone)
        return await self._readers.counted(asked.run_id, response)

    async def _values(self, asked: RunRequest) -> Any:
        run = await self.queue.begun(asked.run_id)
        if run is None:
            request = await self._service.off_loop(lambda: self.queue.records.request(asked.run_id))
            error = None if request is None or request.over is None else request.over.get("error")
            cancelled = {"error": "RunCancelled", "message": "The run was cancelled before it began."}
            return {"__error__": error or cancelled}
        async for event in self._journal.afollow(run.run_id):
            if event.kind == "run.pause":
                break
        run = await self._journal.arun(run.run_id)
        if run.cause == "crash":
            return {"__error__": {"error": "RunCrashed", "message": "The process that worked on the run has died."}}
        return await final_values(self._service, self._service.graphs[asked.graph], run)

    # --- read ---------------------------------------------------------------------------------------------------------

    async def get(self, request: Request) -> Response:
        """Return a run as it stands."""
        found = await self._found(request, "read")
        return JSONResponse(run_json(found.request, found.run), headers=_NO_STORE)

    async def list_runs(self, request: Request) -> Response:
        """Return the runs of a thread, the newest first."""
        known = await self._threads.named(request, "read")
        query = request.query_params
        limit, offset = number_in(query, "limit", 10, most=_MOST), number_in(query, "offset", 0)
        status = one_in(query, "status", STATUSES, "") or None
        named = [part for one in query.getlist("select") for part in one.split(",") if part]
        select = select_in({"select": named}, _FIELDS)
        found = await self._service.off_loop(lambda: self._all(known.thread_id))
        wanted = [one for one in found if status in (None, status_of(*one))][offset : offset + limit]
        return JSONResponse([selected(run_json(*one), select) for one in wanted], headers=_NO_STORE)

    def _all(self, thread_id: str) -> list[Found]:
        """Return the runs of a thread, the newest first. Blocks."""
        runs = {run.run_id: run for run in self._journal.runs(thread_id, None, None)}
        entries = {entry.run_id for entry in self.queue.records.entries(thread_id) if entry.job == "begin"}
        requests = {one.run_id: one for one in self.queue.records.requests(thread_id)}
        found = [Found(one, runs.get(run_id)) for run_id, one in requests.items()]
        found += [Found(request_of(self._service, run), run) for run_id, run in runs.items() if run_id not in requests]
        shown = [one for one in found if _is_there(one, one.request.run_id in entries)]
        return sorted(shown, key=lambda one: one.request.created_at, reverse=True)

    # --- cancel and delete --------------------------------------------------------------------------------------------

    async def cancel(self, request: Request) -> Response:
        """Stop a run, or withdraw it if it has not begun."""
        rollback = one_in(request.query_params, "action", ("interrupt", "rollback"), "interrupt") == "rollback"
        wait = flag_in(request.query_params, "wait")
        found = await self._found(request, "stop")
        run_id = found.request.run_id
        if rollback:
            await self._service.access.check(request, "update", found.request.thread_id)
        if not await self.queue.cancel(run_id, rollback=rollback):
            raise Problem(404, _NOTHING_TO_CANCEL)
        if not wait:
            return Response(status_code=202, headers=_NO_STORE)
        return JSONResponse({}, 200 if await self._until_over(run_id, rollback) else 202, _NO_STORE)

    async def _until_over(self, run_id: str, rollback: bool) -> bool:
        with suppress(RunNotFound):  # it had not begun
            try:
                await self._journal.astop(run_id, wait=True, timeout=_STOP_LIMIT)
            except RunAbandoned:
                await self._service.recover()
            except StopTimeout:
                return False
        return not rollback or await self.queue.until_rolled_back(run_id, _STOP_LIMIT)

    async def cancel_many(self, request: Request) -> Response:
        """Stop runs: those that are named, or all with a status that the request may stop."""
        body = await read_json(request, self._service.limits, of_any_type=True)
        rollback = one_in(request.query_params, "action", ("interrupt", "rollback"), "interrupt") == "rollback"
        status = one_in(body, "status", ("pending", "running", "all"), "") or None
        thread_id = None if body.get("thread_id") is None else uuid_of(body["thread_id"], "thread")
        named = [uuid_of(one, "run") for one in list_in(body, "run_ids") or []]
        if not named and status is None:
            raise Problem(422, 'Send "thread_id" with "run_ids", or "status": "pending", "running" or "all".')
        asked = 0
        for run_id in named or await self._service.off_loop(lambda: self._going(status)):
            found = await self._service.off_loop(partial(self._find, run_id, thread_id))
            if found is not None and await self._may_cancel(request, found.request.thread_id, rollback):
                asked += await self.queue.cancel(run_id, rollback=rollback)
        if not asked:
            raise Problem(404, _NOTHING_TO_CANCEL)
        return Response(status_code=204, headers=_NO_STORE)

    async def _may_cancel(self, request: Request, thread_id: str, rollback: bool) -> bool:
        """Return whether a request may stop the runs of a thread. A rollback deletes checkpoints as well."""
        access = self._service.access
        return await access.may(request, "stop", thread_id) and (
            not rollback or await access.may(request, "update", thread_id)
        )

    def _going(self, status: str | None) -> list[str]:
        """Return the runs that are not over. Blocks."""
        pending = [entry.run_id for entry in self.queue.records.entries(None) if entry.job == "begin"]
        running = [run.run_id for run in self._journal.runs(None, RunStatus.RUNNING, None)]
        return (pending if status != "running" else []) + (running if status != "pending" else [])

    async def delete(self, request: Request) -> Response:
        """Delete a run from the journal. The checkpoints stay: a rollback deletes those."""
        found = await self._found(request, "delete")
        run_id = found.request.run_id
        if found.run is None:
            await self.queue.cancel(run_id, rollback=True)
        elif found.run.status == RunStatus.RUNNING:
            raise Problem(409, "The run is running. Cancel it first.", run_id=run_id)
        else:
            with suppress(RunNotFound):
                await self._journal.adelete(run_id=run_id)
        await self._service.off_loop(lambda: self.queue.records.forget(run_id))
        return Response(status_code=204)

    # --- which run ----------------------------------------------------------------------------------------------------

    async def _found(self, request: Request, action: Any) -> Found:
        """Return the run that the URL names, if the request may do that. Raise a `Problem`."""
        run_id = uuid_of(request.path_params["run"], "run")
        named = request.path_params.get("thread")
        thread_id = None if named is None else uuid_of(named, "thread")
        if thread_id is not None:
            await self._service.access.check(request, action, thread_id)
        found = await self._service.off_loop(lambda: self._find(run_id, thread_id))
        if found is None:
            raise not_found()
        if thread_id is None:
            await self._service.access.check(request, action, found.request.thread_id)
        if found.run is None:
            self.queue.look_at(found.request.thread_id)  # its process may be dead
        elif found.run.status == RunStatus.RUNNING and await self._service.off_loop(
            lambda: owner_is_gone(self._journal, run_id)
        ):
            self._service.recover_soon()
        return found

    def _find(self, run_id: str, thread_id: str | None) -> Found | None:
        """Return a run; None if it does not exist. Blocks."""
        asked, run = self.queue.records.request(run_id), None
        with suppress(RunNotFound):
            run = self._journal.run(run_id)
        if asked is None and run is not None and run.thread_id is not None:
            asked = request_of(self._service, run)
        if asked is None or thread_id not in (None, asked.thread_id) or asked.graph not in self._service.graphs:
            return None
        if run is None and asked.over is None:
            is_pending = self.queue.records.entry(run_id) is not None
            with suppress(RunNotFound):
                run = self._journal.run(run_id)  # it has begun since the first look
            return Found(asked, run) if run is not None or is_pending else None
        found = Found(asked, run)
        return found if _is_there(found, False) else None


def _is_there(found: Found, is_pending: bool) -> bool:
    """Return whether clients see a run: not after a rollback or a deletion."""
    if found.request.rolled_back is not None:
        return False
    return found.run is not None or found.request.over is not None or is_pending


def _place(asked: RunRequest) -> str:
    return f"/threads/{asked.thread_id}/runs/{asked.run_id}"
