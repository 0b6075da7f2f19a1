"""Streams of runs for the clients of LangGraph Server: the response, and what `wait` and `join` answer."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from ...events import Run, RunStatus
from ..problems import Problem
from ..transport import EventStream
from .feed import RunStream, StreamRequest
from .modes.projector import error_json
from .modes.steps import INTERRUPT
from .plain import values_json
from .stored_steps import StoredSteps

if TYPE_CHECKING:
    from starlette.responses import Response

    from ..service import Graph, Service

_HEADERS: Final = {"cache-control": "no-store"}
_NEAR: Final = 300
"""How many events before its end are read first for the last checkpoint of a run."""


def check_room(service: Service) -> None:
    """Raise a `Problem` if no stream can be opened now.

    Call this before a run is created: a client that gets a 5xx afterwards would begin the run again.
    """
    if service.open_streams >= service.limits.streams:
        raise Problem(503, "Too many streams are open. Close one, or come back in a moment.", retry_after=5)


async def stream_run(
    service: Service,
    graph: Graph,
    request: StreamRequest,
    *,
    cursor: str | None,
    modes: Sequence[str] | None = None,
    begun: Callable[[], Awaitable[Run | None]],
    on_gone: Callable[[], None] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Return the response that streams a run, from its start or from behind `cursor`, until it ends or waits for a human.

    `modes`: only these, as a join asks for them. `begun`: waits until the journal has the run; None says that it never
    begins. `on_gone`: called if the client leaves before the end of the stream. Unlike `check_room`, this never refuses.
    """
    source = RunStream(service, graph, request, cursor=cursor, modes=modes, begun=begun)
    service.open_streams += 1

    def on_end() -> None:
        service.open_streams -= 1
        if on_gone is not None and not source.is_complete:
            on_gone()

    # Its clients take a clean end without `event: end` for the end of the run, or ask for the run each time: no lease.
    timing = replace(service.timing, lease=math.inf)
    fields = {**_HEADERS, **(headers or {})}
    return EventStream(source, timing, headers=fields, on_end=on_end, on_abandoned=service.recover_soon)


async def final_values(service: Service, graph: Graph, run: Run) -> Any:
    """Return what `wait` and `join` answer for a run that is over or waits for a human: the values of its thread as it left
    it, with its questions; or its error as ``{"__error__": {"error", "message"}}``."""
    if run.status == RunStatus.FAILED:
        return {"__error__": error_json(run.error)}
    place, asked = await _end_of(service, run)
    steps = StoredSteps(service.journal, graph, run.thread_id)
    step = await steps.step("", place) if steps.is_there else None
    if step is None and steps.is_there:
        step = await steps.step("", None)
    values = None if step is None else values_json(step.values)
    if run.status == RunStatus.PAUSED:
        return {**(values if isinstance(values, Mapping) else {}), INTERRUPT: asked}
    return values


async def _end_of(service: Service, run: Run) -> tuple[str | None, list[Any]]:
    """Return the last checkpoint of a run, and the questions that it waits with."""
    for after in sorted({max(0, run.last_seq - _NEAR), 0}, reverse=True):
        asked: list[Any] = []
        for event in reversed(await service.journal.aread(run.run_id, after)):
            data = event.data
            if event.kind == "run.pause" and not asked:
                asked = [{"value": one.get("value"), "id": one.get("id")} for one in data.get("interrupts") or ()]
            if event.kind == "run.settled" and data.get("after"):
                return str(data["after"]), asked
            if event.kind == "run.checkpoint" and not data.get("checkpoint_ns") and data.get("checkpoint_id"):
                return str(data["checkpoint_id"]), asked
            if event.kind == "run.pause" and data.get("checkpoint_id"):
                return str(data["checkpoint_id"]), asked
    return None, []
