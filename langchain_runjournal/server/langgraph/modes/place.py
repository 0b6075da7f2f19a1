"""Pure: where in a graph something happened, as metadata that clients read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from .steps import SEPARATOR

_OURS: Final = "runjournal_"
_INTEGRATION: Final = "ls_integration"
"""What LangGraph says of a run, and a model, in another way, of a call."""
_FIRST: Final = ("graph_id", "thread_id", "run_id", "assistant_id")


def base_metadata(about: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the metadata of all messages of a run begins with. `about`: the metadata with which the run began, which
    the caller chose; `known`: what the server knows of the run."""
    given = {key: value for key, value in about.items() if not key.startswith(_OURS) and key not in known}
    first = {key: known[key] for key in _FIRST if known.get(key) is not None}
    return {**first, **given}


def graph_namespace(checkpoint_ns: str) -> str:
    """Return the namespace of the graph in which a task runs."""
    return checkpoint_ns.rpartition(SEPARATOR)[0]


def call_metadata(base: Mapping[str, Any], started: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata of the messages of a model call. `started`: the data of its `llm.start`."""
    found = {**base, **task_metadata(started.get("node"), started.get("step"), str(started.get("checkpoint_ns") or ""))}
    found.pop(_INTEGRATION, None)
    found["checkpoint_ns"] = found["langgraph_checkpoint_ns"].partition(SEPARATOR)[0]
    found["ls_model_type"] = "chat"
    if started.get("provider"):
        found["ls_provider"] = started["provider"]
    if started.get("model"):
        found["ls_model_name"] = started["model"]
    return found


def bare_metadata(base: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of the metadata of a run LangGraph repeats for each task in the mode `tasks`."""
    return {key: value for key, value in base.items() if key not in ("thread_id", _INTEGRATION)}


def task_metadata(node: Any, step: Any, checkpoint_ns: str) -> dict[str, Any]:
    """Return what the metadata of anything in a task says of the task."""
    found = {"langgraph_step": step, "langgraph_node": node, "langgraph_checkpoint_ns": checkpoint_ns}
    outer, is_inside, _ = checkpoint_ns.partition(SEPARATOR)
    return {**found, "checkpoint_ns": outer} if is_inside else found


class Payload(NamedTuple):
    """What a frame says, before it has an id."""

    mode: str
    """The mode that it belongs to."""
    event: str
    data: str
    """One line of JSON."""


def named(event: str, namespace: str, *, subgraphs: bool) -> str:
    """Return the name of a frame's event: with the namespace of the graph, if the reader wants to tell graphs apart."""
    return f"{event}{SEPARATOR}{namespace}" if subgraphs and namespace else event
