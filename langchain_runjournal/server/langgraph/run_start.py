"""Starts of runs by the LangGraph API: a stored request, and the run that it becomes."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID, uuid5

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.types import Command, Send

from ...errors import RunNotFound
from ...events import Run, RunStatus
from ...runs.admission import AnotherWaits
from ...runs.start import start_answer
from ..threads import open_questions
from .rollback import writes_before
from .run_requests import RunRequest, metadata_for_graph, with_ids

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from langchain_core.runnables import RunnableConfig

    from ..service import Graph, Service
    from .run_records import RunRecords

_STREAM_MODE: Final = ["messages", "custom"]
"""So that models stream which nodes call by `ainvoke`, and so that a stream writer writes. The server reads no chunks: the
journal has everything."""
_ANSWERED: Final = "The question that this run answers is no longer open. Read the state of the thread."


class StartRefused(Exception):
    """A run that cannot begin. The text is for the client."""


def allowed_keys(service: Service, graph: Graph) -> Collection[str]:
    """Return the keys of `configurable` and `context` that a client may set for a graph."""
    declared = {spec.id for spec in graph.config_specs if spec.id not in _LANGGRAPHS}
    return service.configurable | declared | _context_keys(graph)


def _context_keys(graph: Graph) -> set[str]:
    """Return the keys that the context schema of a graph declares: a dataclass, a `TypedDict` or a model of pydantic."""
    schema: Any = getattr(graph, "context_schema", None)
    own = set(getattr(schema, "__annotations__", {}))
    return own | {name for one in getattr(schema, "__mro__", ()) for name in getattr(one, "__annotations__", {})}


_LANGGRAPHS: Final = ("thread_id", "checkpoint_id", "checkpoint_ns", "thread_ts")


async def begin_request(service: Service, request: RunRequest, records: RunRecords) -> None:
    """Begin the run of a request, and return when every process can see it.

    Raise `ThreadBusy` if another run is running, `StartRefused` if the run can never begin, and what the store raises. A run
    that has begun already is left alone.
    """
    graph = service.graphs.get(request.graph)
    if graph is None:
        raise StartRefused(f"The server does not have the graph {request.graph!r}. Serve it again, or begin another run.")
    try:
        await _begin(service, graph, request, records)
    except AnotherWaits:
        raise StartRefused(_ANSWERED) from None
    except (TypeError, ValueError, LookupError) as exc:
        if not await has_begun(service, request.run_id):
            raise StartRefused(f"The graph does not take this: {exc}") from exc


async def has_begun(service: Service, run_id: str) -> bool:
    """Return whether the journal has a run."""
    try:
        await service.journal.arun(run_id)
    except RunNotFound:
        return False
    return True


async def waiting_run(service: Service, thread_id: str) -> Run | None:
    """Return the run of a thread that waits for a human, or None."""
    found = await service.journal.aruns(thread_id, RunStatus.PAUSED, 1)
    return found[0] if found else None


async def _begin(service: Service, graph: Graph, request: RunRequest, records: RunRecords) -> None:
    if request.checkpoint is not None and request.checkpoint == await _newest(graph, request.thread_id):
        # Pages name the checkpoint that they show, also where they go on from the end of the thread.
        request = replace(request, checkpoint=None)
    if not request.has_input:
        await _note_writes(service, graph, request, records)
    given, answers = await _given(service, request)
    settings = request.config
    configurable = {**settings.get("configurable", {}), "thread_id": request.thread_id, **(request.checkpoint or {})}
    config: RunnableConfig = {"configurable": configurable, "run_id": UUID(request.run_id)}
    # LangGraph keeps these in the metadata of the checkpoints, where clients look for the run of a state.
    about_run = {"graph_id": request.graph, "assistant_id": request.assistant_id}
    config["metadata"] = {
        **metadata_for_graph(request),
        **about_run,
        "thread_id": request.thread_id,
        "run_id": request.run_id,
    }
    for name in ("tags", "recursion_limit", "max_concurrency"):
        if name in settings:
            config[name] = settings[name]
    options: dict[str, Any] = {
        "interrupt_before": request.interrupt_before,
        "interrupt_after": request.interrupt_after,
        "durability": request.durability,
        "context": _context(graph, request),
    }
    options = {name: value for name, value in options.items() if value is not None}
    about: Any = {"journal": service.journal, "if_busy": "reject", "stream_mode": _STREAM_MODE}
    await start_answer(answers, graph, given, config, subgraphs=request.subgraphs, **about, **options)


async def _note_writes(service: Service, graph: Graph, request: RunRequest, records: RunRecords) -> None:
    """Note what stands beside the checkpoint from which a run continues: the run will write there too."""
    before = await writes_before(graph, request.thread_id, request.checkpoint)
    change = partial(replace, before=before)
    await service.off_loop(partial(records.change, request.run_id, change))


async def _newest(graph: Graph, thread_id: str) -> dict[str, Any] | None:
    saver: Any = graph.checkpointer
    if not isinstance(saver, BaseCheckpointSaver):
        return None
    found = await saver.aget_tuple({"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}})
    return None if found is None else {"checkpoint_id": found.checkpoint["id"]}


def _context(graph: Graph, request: RunRequest) -> Any:
    """Return the context of a run. Older clients send it as `configurable`, as LangGraph once took it."""
    if getattr(graph, "context_schema", None) is None:
        return request.context
    given = request.context if request.context is not None else request.config.get("configurable", {})
    declared = _context_keys(graph)
    return {name: value for name, value in given.items() if name in declared} or None


async def _given(service: Service, request: RunRequest) -> tuple[Any, str | None]:
    """Return the input of the graph, and the paused run that it answers."""
    command = request.command
    if command is None:
        run_id = UUID(request.run_id)
        given = with_ids(request.input, lambda at: str(uuid5(run_id, str(at))))
        return (given if request.has_input else None), None
    waiting, resume = None, None
    if "resume" in command:
        waiting, resume = await waiting_run(service, request.thread_id), command["resume"]
        if request.answers is not None and (waiting is None or waiting.run_id != request.answers):
            raise StartRefused(_ANSWERED)
        if waiting is not None and resume in (None, {}):
            # LangGraph would take these for no answer at all.
            questions = await open_questions(service, waiting)
            if len(questions) != 1:
                raise StartRefused("Several questions are open. Give the answers by the ids of their questions.")
            resume = {questions[0]["id"]: resume}
    found = Command(resume=resume, update=_update(command.get("update")), goto=_goto(command.get("goto")))
    return found, None if waiting is None or request.checkpoint is not None else waiting.run_id


def _update(given: Any) -> Any:
    return [tuple(one) for one in given] if isinstance(given, list) else given


def _goto(given: Any) -> Any:
    if isinstance(given, list):
        return [_target(one) for one in given]
    return () if given is None else _target(given)


def _target(given: str | Mapping[str, Any]) -> Any:
    return given if isinstance(given, str) else Send(given["node"], given.get("input"))
