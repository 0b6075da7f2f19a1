"""`record_partial_ai_message`: writes one cut-off answer into a thread, once."""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.pregel import Pregel

from ..common.arguments import one_of, thread
from ..common.twins import Effects, context_without_run, run_async, run_shielded, run_sync
from ..errors import InvalidArgument, NoMessages
from ..events import CAUSES, Cause, RunStatus
from ..journal.core import core_of
from ..journal.waiting import off_loop
from ..messages.forms import known_again
from ..messages.loading import as_messages, load
from ..messages.marks import origin_of
from ..messages.partial import partial_message
from ..messages.tool_results import CallKnowledge
from .bare_checkpointer import BareThread
from .graph_thread import GraphThreads
from .plan import plan
from .saver import JournalSaver
from .supersteps import cleared, is_left, written

logger = logging.getLogger("langchain_runjournal")

_NAMES: Final = uuid.UUID("0f1c8f26-7b0d-5d6e-8a43-1d0a4a9b7c11")


def record_partial_ai_message(
    target: Pregel[Any, Any, Any, Any] | BaseCheckpointSaver[Any],
    config: RunnableConfig,
    message: AIMessage,
    *,
    cause: Cause = "stop",
) -> bool:
    """Write the received part of a cut-off answer into a LangGraph thread, once. Return whether it was written.

    `target` is the compiled graph, or its bare checkpointer where the graph is not available. The checkpointer suffices only
    for a state with a plain `messages` channel and no other pending write; otherwise `NoMessages` is raised. `message` is
    what you have of the answer: the sum of the chunks that arrived, or a message of `RunJournal.transcript`. Its words are
    kept as they are. Its tool calls, thoughts without a signature, and ids that only the provider's own record has are
    removed, since no program could send them back. Tool requests at the end of the thread that have no result get one first,
    and no task is left to run.

    It does nothing and returns False in these cases: the thread has a message of that id already, whole or partial;
    `message` has no visible content; the thread waits for a human (a bare checkpointer shows an `interrupt`, but no
    breakpoint); or a run of the thread is running, as far as the journal of an attached graph shows. No other message is
    changed. An attached graph does all of this by itself.
    """
    return context_without_run().run(run_sync, _record(target, _thread_of(config), _checked(message), cause))


async def arecord_partial_ai_message(
    target: Pregel[Any, Any, Any, Any] | BaseCheckpointSaver[Any],
    config: RunnableConfig,
    message: AIMessage,
    *,
    cause: Cause = "stop",
) -> bool:
    """Write as :func:`record_partial_ai_message` does, without blocking the loop. A write that has begun is completed even
    if the caller is cancelled."""
    return await run_shielded(run_async(_record(target, _thread_of(config), _checked(message), cause)))


def _record(target: Any, thread_id: str, message: AIMessage, cause: str) -> Effects[bool]:
    one_of("cause", cause, CAUSES)
    ours = _partial_of(message, thread_id, cause)
    if ours is None:
        return _refused(thread_id, "the message has no visible content")
    if isinstance(target, Pregel) and isinstance(target.checkpointer, BaseCheckpointSaver):
        if isinstance(target.checkpointer, JournalSaver) and (yield from _is_busy(target.checkpointer, thread_id)):
            return _refused(thread_id, "a run of the thread is running or waits for a human")
        return (yield from _through_graph(target, thread_id, ours, cause))
    if isinstance(target, BaseCheckpointSaver):
        return (yield from BareThread(target, thread_id).add(ours, partial(_planned, cause=cause)))
    raise InvalidArgument(name="target", expected="a compiled graph with a checkpointer, or a checkpointer", value=target)


def _is_busy(saver: JournalSaver, thread_id: str) -> Effects[bool]:
    runs = yield off_loop(saver.journal, partial(saver.journal.runs, thread_id, None, 10))
    for run in runs:
        if run.status == RunStatus.RUNNING and not (
            yield off_loop(saver.journal, partial(core_of(saver.journal).dead_owners.owner_is_gone, run))
        ):
            return True
    return bool(runs) and runs[0].status == RunStatus.PAUSED


def _through_graph(graph: Any, thread_id: str, ours: AIMessage, cause: str) -> Effects[bool]:
    threads = GraphThreads(graph)
    if threads.shape.problem is not None:
        raise NoMessages(what=f"The graph {threads.title}", reason=threads.shape.problem)
    state = yield threads.read(thread_id)
    if state.interrupts or set(state.next) & set(graph.interrupt_before_nodes):
        return _refused(thread_id, "the thread waits for a human")
    problem = threads.shape.problem_with(state.values) or threads.shape.unwritable(_found(threads, state), [ours])
    if problem is not None:
        raise NoMessages(what=f"The graph {threads.title}", reason=problem)
    standing = next((one for one in _thread(threads, state, ours) if one.id == ours.id), None)
    if standing is not None:
        if origin_of(standing) == "partial" and is_left(state):
            yield from cleared(threads, thread_id)
        return _refused(thread_id, "the thread already has a message with this id")
    if is_left(state):
        state = yield from cleared(threads, thread_id)
    add = _planned(_thread(threads, state, ours), ours, cause=cause)
    if (problem := threads.shape.unwritable(_found(threads, state), add)) is not None:
        raise NoMessages(what=f"The graph {threads.title}", reason=problem)
    yield written(threads, thread_id, state.values, add)
    state = yield threads.read(thread_id)
    if not any(one.id == ours.id for one in _thread(threads, state, ours)):
        raise NoMessages(what=f"The graph {threads.title}", reason="its state does not keep what is written to `messages`")
    return True


def _found(threads: GraphThreads, state: Any) -> list[Any]:
    return threads.shape.messages(state.values) or []


def _thread(threads: GraphThreads, state: Any, ours: AIMessage) -> list[Any]:
    """Return the messages of a thread. In a list without ids, our message is recognised by its words."""
    found = _found(threads, state)
    thread: list[Any] = list(as_messages(found))
    if threads.shape.form(found) != "messages":
        thread, _ = known_again(thread, [ours], "", applied=True, since=0)
    return thread


def _planned(thread: list[Any], ours: AIMessage, *, cause: str) -> list[Any]:
    """Return what to add before the message and the message itself: the missing results come first."""
    known = CallKnowledge(cause=cause)
    return plan(thread, [ours], lambda message, request: known, run_id="", applied=True).add


def _refused(thread_id: str, why: str) -> bool:
    logger.info("wrote no partial message to thread %s: %s", thread_id, why)
    return False


def _thread_of(config: RunnableConfig) -> str:
    configurable = config.get("configurable") if isinstance(config, Mapping) else None
    thread_id = configurable.get("thread_id") if isinstance(configurable, Mapping) else None
    if thread_id is None or thread_id == "":
        raise InvalidArgument(name="config", expected='{"configurable": {"thread_id": ...}}', value=config)
    if isinstance(configurable, Mapping) and configurable.get("checkpoint_ns"):
        raise InvalidArgument(name="config", expected="that of the thread itself, without a checkpoint_ns", value=config)
    return thread("thread_id", thread_id)


def _checked(message: Any) -> AIMessage:
    if not isinstance(message, AIMessage):
        raise InvalidArgument(name="message", expected="an AIMessage, or the sum of its chunks", value=message)
    return message


@dataclass(slots=True)
class _Said:
    """The content of a message, in the form in which a stream is kept."""

    content: Any
    calls: list[dict[str, Any]]
    metadata: Mapping[str, Any]
    id: str | None


def _partial_of(message: AIMessage, thread_id: str, cause: str) -> AIMessage | None:
    if origin_of(message) == "partial" and not isinstance(message, AIMessageChunk):
        return message
    if isinstance(message, AIMessageChunk):
        calls: list[dict[str, Any]] = [dict(call) for call in message.tool_call_chunks]
    else:
        calls = [{**call, "args": json.dumps(call["args"], default=str)} for call in message.tool_calls]
        calls += [dict(call) for call in message.invalid_tool_calls]
    id = message.id or f"rjs-{uuid.uuid5(_NAMES, f'{thread_id}|{json.dumps(message.content, default=str)}')}"
    said = _Said(content=message.content, calls=calls, metadata=message.response_metadata, id=id)
    data = partial_message(said, reason=cause)
    found = load("", [data]) if data is not None else []
    return found[0] if found and isinstance(found[0], AIMessage) else None
