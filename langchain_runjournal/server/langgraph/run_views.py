"""Runs as the clients of LangGraph Server see them: those that they asked for, and those that began in another way."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Final

from ...capture.graph_identity import identity, identity_of
from ...events import Run, RunStatus
from .assistant_ids import assistant_id_of
from .plain import values_json
from .run_requests import RunRequest

if TYPE_CHECKING:
    from ..service import Graph, Service

_STATUS: Final = {
    RunStatus.RUNNING: "running",
    RunStatus.PAUSED: "success",
    RunStatus.COMPLETED: "success",
    RunStatus.FAILED: "error",
}
_CAUSES: Final = {"timeout": "timeout", "crash": "error"}
STATUSES: Final = ("pending", "running", "error", "success", "timeout", "interrupted")


def status_of(request: RunRequest, run: Run | None) -> str:
    """Return the status of a run. `run`: None if it has not begun."""
    if run is None:
        return "pending" if request.over is None else str(request.over["status"])
    return _STATUS.get(run.status) or _CAUSES.get(str(run.cause), "interrupted")


def run_json(request: RunRequest, run: Run | None) -> dict[str, Any]:
    """Return a run as a client reads it."""
    updated = request.created_at
    if run is not None:
        updated = run.ended_at or run.started_at or updated
    about = {"created_by": "system", "graph_id": request.graph, "assistant_id": request.assistant_id}
    return {
        "run_id": request.run_id,
        "thread_id": request.thread_id,
        "assistant_id": request.assistant_id,
        "created_at": time_text(request.created_at),
        "updated_at": time_text(updated),
        "status": status_of(request, run),
        "metadata": values_json({**about, **request.metadata}),
        "kwargs": kwargs_json(request),
        "multitask_strategy": request.multitask,
    }


def kwargs_json(request: RunRequest) -> dict[str, Any]:
    """Return what was asked for."""
    return {
        "input": request.input,
        "command": request.command,
        "config": dict(request.config),
        "context": request.context,
        "stream_mode": list(request.modes),
        "subgraphs": request.subgraphs,
        "resumable": request.resumable,
        "interrupt_before": request.interrupt_before,
        "interrupt_after": request.interrupt_after,
        "checkpoint": request.checkpoint,
        "durability": request.durability,
        "temporary": request.temporary,
    }


def time_text(seconds: float) -> str:
    """Return a time as clients parse it."""
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat()


def request_of(service: Service, run: Run) -> RunRequest:
    """Return the request that a run would have had that began in another way, such as by the page."""
    name = graph_name(service, run) or str(run.name)
    return RunRequest(
        run_id=run.run_id,
        thread_id=str(run.thread_id),
        graph=name,
        assistant_id=assistant_id_of(name),
        created_at=run.started_at or 0.0,
        modes=("values", "messages-tuple", "updates", "custom"),
        resumable=True,
    )


def graph_name(service: Service, run: Run) -> str | None:
    """Return the name under which this server has the graph of a run, or None."""
    found = identity_of(run)
    return next((name for name, graph in service.graphs.items() if identity(graph).is_same(found)), None)


def graph_named_by(service: Service, run: Run) -> Graph | None:
    """Return the graph of a run, if this server has it."""
    name = graph_name(service, run)
    return None if name is None else service.graphs[name]
