"""Pure: the state of a thread as the clients of LangGraph Server read it.

Rule: the ids of messages, tasks, interrupts and checkpoints are those that the streams carry too, because both come from the
checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from .plain import values_json

if TYPE_CHECKING:
    from langgraph.types import Interrupt, PregelTask, StateSnapshot

_PLACE: Final = ("thread_id", "checkpoint_ns", "checkpoint_id", "checkpoint_map")
"""The keys of a config that say where a checkpoint is."""
NO_CHECKPOINT: Final = "The thread has no such checkpoint. Read its history."
STATE_FIELDS: Final = (
    "values",
    "next",
    "tasks",
    "metadata",
    "created_at",
    "checkpoint",
    "parent_checkpoint",
    "interrupts",
    "checkpoint_id",
    "parent_checkpoint_id",
)


def state_json(snapshot: StateSnapshot) -> dict[str, Any]:
    """Return a state with all that clients read of one; that of an empty thread without a checkpoint."""
    if not has_checkpoint(snapshot):
        return empty_state()
    here, parent = checkpoint_json(snapshot.config), checkpoint_json(snapshot.parent_config)
    return {
        "values": values_json(snapshot.values),
        "next": list(snapshot.next),
        "tasks": [task_json(task) for task in snapshot.tasks],
        "metadata": values_json(snapshot.metadata),
        "created_at": snapshot.created_at,
        "checkpoint": here,
        "parent_checkpoint": parent,
        "interrupts": interrupts_json(snapshot.interrupts),
        "checkpoint_id": None if here is None else here.get("checkpoint_id"),
        "parent_checkpoint_id": None if parent is None else parent.get("checkpoint_id"),
    }


def empty_state() -> dict[str, Any]:
    """Return the state of a thread without any checkpoint."""
    return {**dict.fromkeys(STATE_FIELDS), "values": {}, "next": [], "tasks": [], "interrupts": []}


def has_checkpoint(snapshot: StateSnapshot) -> bool:
    """Return whether there is a checkpoint behind a state: LangGraph returns an empty one for a thread without any."""
    return snapshot.created_at is not None


def checkpoint_json(config: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return where a checkpoint is, by its config."""
    if config is None:
        return None
    place = config.get("configurable", {})
    return {"checkpoint_ns": "", **{key: place[key] for key in _PLACE if key in place}}


def task_json(task: PregelTask) -> dict[str, Any]:
    """Return a task of a state. `state` is that of its subgraph if it was read; else `checkpoint` says where it is."""
    inner: Any = task.state
    checkpoint = state = None
    if hasattr(inner, "tasks"):
        state, checkpoint = state_json(inner), checkpoint_json(inner.config)
    elif inner is not None:
        checkpoint = checkpoint_json(inner)
    return {
        "id": task.id,
        "name": task.name,
        "path": values_json(task.path),
        "error": None if task.error is None else error_text(task.error),
        "interrupts": interrupts_json(task.interrupts),
        "checkpoint": checkpoint,
        "state": state,
        "result": values_json(task.result),
    }


def error_text(error: Any) -> str:
    """Return the error of a task as LangGraph Server writes it."""
    return error if isinstance(error, str) else repr(error)


def interrupts_json(interrupts: Iterable[Interrupt]) -> list[dict[str, Any]]:
    """Return the questions to a human."""
    return [interrupt_json(one) for one in interrupts]


def interrupt_json(interrupt: Interrupt) -> dict[str, Any]:
    """Return one question to a human, with the schema of its answer if the graph gave one."""
    found = {"id": interrupt.id, "value": values_json(interrupt.value)}
    schema = getattr(interrupt, "response_schema", None)
    return found if schema is None else {**found, "response_schema": values_json(schema)}
