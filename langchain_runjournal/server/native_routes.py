"""The routes of the native dialect: runs and threads of a journal. docs/server.md is the contract."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from starlette.responses import JSONResponse, Response

from ..events import Run, RunStatus
from .dialects.native import NATIVE
from .listing import threads_json
from .problems import Problem
from .requests import count, cursor_of, flag, read_json
from .starts import begin_run, parse_start
from .threads import run_json, thread_json

if TYPE_CHECKING:
    from starlette.requests import Request

    from .service import Service

_STOP_LIMIT: Final = 30.0
"""Seconds that `?wait=1` waits for the end of a run."""
_MOST: Final = 1_000
_NO_STORE: Final = {"cache-control": "no-store"}


class NativeRoutes:
    """The handlers of the native routes."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._journal = service.journal

    def table(self) -> list[tuple[str, str, Any]]:
        """Return the routes: method, path and handler."""
        return [
            ("GET", "/graphs", self.graphs),
            ("GET", "/threads", self.threads),
            ("DELETE", "/threads/{thread}", self.delete_thread),
            ("GET", "/threads/{thread}/messages", self.messages),
            ("GET", "/threads/{thread}/events", self.thread_events),
            ("GET", "/threads/{thread}/runs", self.runs),
            ("POST", "/threads/{thread}/runs", self.start),
            ("GET", "/runs/{run}", self.run),
            ("GET", "/runs/{run}/events", self.run_events),
            ("POST", "/runs/{run}/stop", self.stop),
        ]

    async def graphs(self, request: Request) -> Response:
        """Return the names of the graphs."""
        await self._service.access.check(request, "list", None)
        return _json({"graphs": sorted(self._service.graphs)})

    # --- threads ------------------------------------------------------------------------------------------------------

    async def threads(self, request: Request) -> Response:
        """Return the threads, the newest first."""
        await self._service.access.check(request, "list", None)
        limit, search = count(request, "limit", 50, _MOST), request.query_params.get("search", "")[:200]
        return _json({"threads": await threads_json(self._service, request, limit, search)})

    async def messages(self, request: Request) -> Response:
        """Return the messages of a thread."""
        thread_id = await self._service.thread_of(request, "read")
        return _json(await thread_json(self._service, thread_id))

    async def thread_events(self, request: Request) -> Response:
        """Stream a thread."""
        thread_id = await self._service.thread_of(request, "read")
        merge = flag(request, "merge")
        return await self._service.stream_thread(thread_id, cursor_of(request), NATIVE, merge=merge)

    async def runs(self, request: Request) -> Response:
        """Return the runs of a thread, the newest first."""
        thread_id = await self._service.thread_of(request, "read")
        found = await self._journal.aruns(thread_id, limit=count(request, "limit", 50, _MOST))
        return _json({"runs": [run_json(run) for run in found]})

    async def delete_thread(self, request: Request) -> Response:
        """Delete the runs and the checkpoints of a thread."""
        thread_id = await self._service.thread_of(request, "delete")
        await self._service.delete_thread(thread_id, force=flag(request, "force"))
        return Response(status_code=204)

    async def start(self, request: Request) -> Response:
        """Begin a run on a thread."""
        thread_id = await self._service.thread_of(request, "start")
        start = parse_start(await read_json(request, self._service.limits), self._service)
        run_id, is_new = await begin_run(self._service, thread_id, start)
        return _json({"run_id": run_id, "thread_id": thread_id}, 201 if is_new else 200)

    # --- runs ---------------------------------------------------------------------------------------------------------

    async def run(self, request: Request) -> Response:
        """Return a run as it stands."""
        return _json(run_json(await self._service.run_of(request, "read")))

    async def run_events(self, request: Request) -> Response:
        """Stream a run."""
        run = await self._service.run_of(request, "read")
        return await self._service.stream_run(run, cursor_of(request), NATIVE, merge=flag(request, "merge"))

    async def stop(self, request: Request) -> Response:
        """Ask a run to stop. With `?wait=1`, answer when its thread is settled."""
        run = await self._service.run_of(request, "stop")
        wait = flag(request, "wait")
        _check_is_running(run)
        was_asked = run.stop is not None
        run = await self._service.stop(run.run_id, wait=wait)
        if not was_asked and not wait and run.ended:
            _check_is_running(run)  # it ended before it could be asked
        return _json(run_json(run), 200 if was_asked or run.ended else 202)


def _check_is_running(run: Run) -> None:
    if run.ended:
        raise Problem(409, "The run is over. There is nothing to stop.", run_id=run.run_id, run_status=run.status.value)
    if run.status == RunStatus.PAUSED:
        detail = "The run waits for an answer, and no process works on it. Answer it, or send a new message."
        raise Problem(409, detail, run_id=run.run_id, run_status=run.status.value)


def _json(content: Any, status: int = 200) -> Response:
    return JSONResponse(content, status, _NO_STORE)
