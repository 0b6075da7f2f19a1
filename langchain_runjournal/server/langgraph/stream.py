"""A stand-in for the streams of runs."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from ...events import Run, RunStatus
from .plain import values_json
from .run_requests import RunRequest

if TYPE_CHECKING:
    from ..service import Graph, Service


async def stream_run(
    service: Service,
    graph: Graph,
    request: RunRequest,
    *,
    cursor: str | None,
    modes: Sequence[str] | None = None,
    begun: Callable[[], Awaitable[Run | None]],
    on_gone: Callable[[], None] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Return the stream of a run."""
    return _Stream(service, graph, request, begun, on_gone, dict(headers or {}))


class _Stream(Response):
    def __init__(self, service: Any, graph: Any, request: Any, begun: Any, on_gone: Any, headers: dict[str, str]) -> None:
        super().__init__(headers={**headers, "content-type": "text/event-stream; charset=utf-8"})
        del self.headers["content-length"]
        self._about = service, graph, request, begun, on_gone

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        import asyncio

        service, graph, request, begun, on_gone = self._about
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})

        async def put(event: str, data: Any) -> None:
            body = f"event: {event}\ndata: {json.dumps(data)}\n\n".encode()
            await send({"type": "http.response.body", "body": body, "more_body": True})

        async def work() -> None:
            await put("metadata", {"run_id": request.run_id, "attempt": 1})
            run = await begun()
            if run is not None:
                async for event in service.journal.afollow(run.run_id):
                    if event.kind == "run.pause":
                        break
                values = await final_values(service, graph, await service.journal.arun(run.run_id))
                if "__error__" in values:
                    await put("error", values["__error__"])
                else:
                    await put("values", values)
            await put("end", None)
            await send({"type": "http.response.body", "body": b"", "more_body": False})

        async def left() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass

        tasks = [asyncio.ensure_future(work()), asyncio.ensure_future(left())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if not tasks[0].done() and on_gone is not None:
                on_gone()
            if tasks[0].done():
                tasks[0].result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def final_values(service: Service, graph: Graph, run: Run) -> Any:
    """Return the values of a run that is over."""
    if run.status == RunStatus.FAILED or run.cause == "crash":
        kind, _, text = (run.error or run.cause or "Error").partition(": ")
        return {"__error__": {"error": kind, "message": text}}
    state: Any = await graph.aget_state({"configurable": {"thread_id": run.thread_id}})
    values = values_json(state.values)
    if run.status == RunStatus.PAUSED:
        values["__interrupt__"] = [{"value": values_json(one.value), "id": one.id} for one in state.interrupts]
    return values
