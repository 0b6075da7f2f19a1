"""Threads: the messages of a thread as it stands, where a message can be edited, and the list of the threads.

Rule: what a run that is going on has said comes from its stream, and never from here: so no message is shown twice, and the
cursor that stands beside the messages says from where on the stream has the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from langgraph.checkpoint.base import BaseCheckpointSaver

from ..common import strict_json
from ..events import Event, Run, RunStatus
from ..journal.run_reading import read_if_there
from ..messages.loading import as_messages
from ..messages.marks import mark_in
from ..messages.plain_text import text_of, thinking_of
from ..settle.graph_thread import GraphThreads
from .frames import run_name
from .problems import Problem

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage

    from .service import Graph, Service

_TRIES: Final = 5
_RUNS_BACK: Final = 200
"""How many runs of a thread are searched for the origin of its messages."""
_FAR_BACK: Final = 2_000
"""How many checkpoints of a thread are searched for the one before a message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork:
    """Where a run begins that does not begin at the end of its thread."""

    checkpoint_id: str | None


def run_json(run: Run) -> dict[str, Any]:
    """Return what a client may know of a run. No member of it is a cursor."""
    return {
        "run_id": run.run_id,
        "thread_id": run.thread_id,
        "name": run.name,
        "status": run.status.value,
        "cause": run.cause,
        "error": run.error,
        "stop": run.stop,
        "settled": run.settled,
        "continues": run.continues,
        "started_at": run.started_at,
        "ended_at": run.ended_at,
        "usage": strict_json.plain(run.usage),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadView:
    """A thread as it stands, without what a run that is going on has said."""

    messages: Sequence[BaseMessage]
    run_ids: Sequence[str | None]
    """The run of each message, if it is known."""
    newest: Run | None
    going: Run | None
    """The run that is running, or waits for a human."""
    questions: Sequence[Any]
    values: Any
    """The state of the graph; None for an empty thread."""


def messages_in(threads: GraphThreads, values: Any) -> list[BaseMessage]:
    """Return the messages in a state, without what stands among them and is none: an entrypoint saves any list."""
    found: list[BaseMessage] = []
    for one in threads.shape.messages(values) or []:
        if not isinstance(one, str):  # of which LangChain would make a message of the user
            with suppress(Exception):
                found += as_messages([one])
    return found


async def read_thread(service: Service, thread_id: str) -> ThreadView:
    """Return a thread as it stands."""
    graph = await service.graph_of(thread_id)
    newest, state = await service.newest_run(thread_id), None
    for _ in range(_TRIES):
        state = await _state(service, graph, thread_id, newest)
        again = await service.newest_run(thread_id)
        if _mark(again) == _mark(newest):
            break
        newest = again  # a run has begun or ended meanwhile: the state may be one or the other
    messages = messages_in(GraphThreads(graph), state) if state is not None else []
    origins = await service.off_loop(lambda: _origins(service, thread_id))
    going = newest if _is_going(newest) else None
    questions = [] if going is None else await open_questions(service, going)
    run_ids = _runs_of(messages, origins)
    return ThreadView(messages=messages, run_ids=run_ids, newest=newest, going=going, questions=questions, values=state)


async def thread_json(service: Service, thread_id: str) -> dict[str, Any]:
    """Return the messages of a thread, the run that is going on, its questions, and the cursor behind the messages."""
    view = await read_thread(service, thread_id)
    newest, going = view.newest, view.going
    return {
        "thread_id": thread_id,
        "messages": [message_json(one, run_id) for one, run_id in zip(view.messages, view.run_ids, strict=True)],
        "run": None if going is None else run_json(going),
        "questions": view.questions,
        "cursor": None if newest is None else f"{run_name(newest.run_id)}:{0 if going is not None else newest.last_seq}",
    }


def _mark(run: Run | None) -> tuple[str, RunStatus] | None:
    return None if run is None else (run.run_id, run.status)


def _is_going(run: Run | None) -> bool:
    """Return whether a run is running, or waits for a human: then its stream has its messages."""
    return run is not None and not run.ended


async def _state(service: Service, graph: Graph, thread_id: str, newest: Run | None) -> Any:
    """Return the state of a thread without what a run that is going on has written; None for an empty thread."""
    checkpoint_id = None
    _check_has_threads(graph)
    if newest is not None and _is_going(newest):
        base = await _base(service, newest.run_id)
        if base is not None:
            checkpoint_id = base.data["base"]
            if checkpoint_id is None:
                return None
    state = await GraphThreads(graph).read(thread_id, checkpoint_id=checkpoint_id).later()
    return state.values


def _check_has_threads(graph: Graph) -> None:
    if not isinstance(graph.checkpointer, BaseCheckpointSaver):
        raise Problem(422, "This graph keeps no messages: it has no checkpointer. Read the streams of its runs.")


async def read_before(service: Service, graph: Graph, run: Run) -> tuple[Sequence[BaseMessage], Any]:
    """Return the messages that a thread had before a run, and its state then; nothing, if that is not known any more."""
    base = await _base(service, run.run_id)
    if base is not None and base.data["base"] is None:
        return [], None
    if base is None and run.ended:
        newest = await service.newest_run(str(run.thread_id))
        if newest is None or newest.run_id != run.run_id:
            return [], None
    return await read_state(graph, str(run.thread_id), None if base is None else base.data["base"])


async def read_state(graph: Graph, thread_id: str, checkpoint_id: str | None = None) -> tuple[Sequence[BaseMessage], Any]:
    """Return the messages of a thread, and its whole state."""
    _check_has_threads(graph)
    threads = GraphThreads(graph)
    values = (await threads.read(thread_id, checkpoint_id=checkpoint_id).later()).values
    return messages_in(threads, values), values


async def _base(service: Service, run_id: str) -> Event | None:
    """Return the event that names the checkpoint behind which a run writes. Without it, the run has written nothing."""
    for limit in (100, None):
        for event in await service.journal.aread(run_id, 0, limit):
            if event.kind == "run.checkpoint" and "base" in event.data:
                return event
    return None


async def open_questions(service: Service, run: Run) -> list[Any]:
    """Return the questions for whose answers a run waits."""
    if run.status != RunStatus.PAUSED:
        return []
    events = await service.journal.aread(run.run_id)
    asked = [event.data.get("interrupts") for event in events if event.kind == "run.pause"]
    return list(asked[-1]) if asked and isinstance(asked[-1], list) else []


def _origins(service: Service, thread_id: str) -> dict[str, str]:
    """Return the run of each message of a thread, by the id of the message or of its tool call. Blocks."""
    found: dict[str, str] = {}
    for run in service.journal.runs(thread_id, None, _RUNS_BACK):
        ids = service.origins.get((run.run_id, run.last_seq), partial(_ids, service, run.run_id))
        for id in ids:
            found.setdefault(id, run.run_id)
    return found


def _ids(service: Service, run_id: str) -> frozenset[str]:
    """Return the ids of the messages in the events of a run, and of its tool calls. Blocks."""
    found: set[Any] = set()
    for event in read_if_there(service.journal, run_id):
        if event.kind in ("llm.human.input", "llm.ai.response", "llm.tool.result"):
            message = event.data.get("message")
            fields = message.get("data") if isinstance(message, Mapping) else None
            if isinstance(fields, Mapping):
                found |= {fields.get("id"), fields.get("tool_call_id")}
        elif event.kind == "tool.start":
            found.add(event.data.get("tool_call_id"))
    return frozenset(one for one in found if isinstance(one, str))


def _runs_of(messages: Sequence[BaseMessage], origins: Mapping[str, str]) -> list[str | None]:
    """Return the run of each message. A message of unknown origin is of the run of the message before it."""
    found: list[str | None] = []
    run_id: str | None = None
    for message in messages:
        keys = (message.id, getattr(message, "tool_call_id", None))
        known = next((origins[key] for key in keys if isinstance(key, str) and key in origins), None)
        run_id = known or (None if message.type == "human" else run_id)
        found.append(mark_in(message.additional_kwargs).get("run_id") or run_id)
    return found


def message_json(message: BaseMessage, run_id: str | None) -> dict[str, Any]:
    """Return a message as JSON. `provenance` is the mark of this package; None for a message as the graph wrote it."""
    found: dict[str, Any] = {
        "id": message.id,
        "type": message.type,
        "text": text_of(message.content),
        "content": strict_json.plain(message.content),
        "provenance": strict_json.plain(mark_in(message.additional_kwargs)) or None,
        "run_id": run_id,
    }
    if message.name is not None:
        found["name"] = message.name
    if message.type == "ai":
        found["reasoning"] = thinking_of(message.content, message.additional_kwargs)
        for key in ("tool_calls", "invalid_tool_calls"):
            found[key] = strict_json.plain(getattr(message, key, []))
    if message.type == "tool":
        found |= {"tool_call_id": getattr(message, "tool_call_id", None), "status": getattr(message, "status", None)}
    return found


# --- back to a message ----------------------------------------------------------------------------------------------------


async def fork_before(
    graph: Graph, thread_id: str, before: str | None, message_ids: Sequence[str], *, is_again: bool
) -> Fork | None:
    """Return where a run begins that takes the place of all from the message `before` on; None for the end of the thread.

    `is_again`: the run brings no message, so there must be something left to do. Raise a `Problem` if the thread lacks the
    message, or if one of `message_ids` is taken already.
    """
    threads = GraphThreads(graph)
    if threads.shape.function is not None and before is not None:
        raise Problem(422, "This graph cannot go back to a message. Send a new one.")
    state = await threads.read(thread_id).later()
    ids = _message_ids(threads, state.values)
    if before is not None and before not in ids:
        raise Problem(404, "The thread has no such message. Read its messages again.")
    if is_again and any(one.type == "human" and one.id == before for one in messages_in(threads, state.values)):
        raise Problem(422, '"before" is a message of the user: send the new one as "input", or give the id of an answer.')
    fork = None
    if before is not None:
        fork, ids = await _checkpoint_before(threads, thread_id, before, is_again=is_again)
    if taken := [one for one in message_ids if one in ids]:
        raise Problem(
            409, f"The thread has a message with the id {taken[0]!r} already. Leave out the id, or choose another."
        )
    return fork


async def _checkpoint_before(
    threads: GraphThreads, thread_id: str, before: str, *, is_again: bool
) -> tuple[Fork, list[Any]]:
    """Return the newest checkpoint of the present branch that does not have the message, and the ids that it has."""
    graph: Any = threads.graph
    wanted: str | None = None
    async for state in graph.aget_state_history({"configurable": {"thread_id": thread_id}}, limit=_FAR_BACK):
        checkpoint_id = state.config["configurable"]["checkpoint_id"]
        if wanted is not None and checkpoint_id != wanted:
            continue  # of a branch that was left
        parent = state.parent_config
        wanted = None if parent is None else parent["configurable"]["checkpoint_id"]
        ids = _message_ids(threads, state.values)
        # Right behind an input, the input itself is not in the messages yet, and would be taken again.
        is_input = (state.metadata or {}).get("source") == "input" and wanted is not None
        if before not in ids and not is_input and (state.next or not is_again):
            return Fork(checkpoint_id=checkpoint_id), ids
        if wanted is None:
            break
    raise Problem(409, "The thread does not reach back to before this message. Send a new message instead.")


def _message_ids(threads: GraphThreads, values: Any) -> list[Any]:
    return [message.id for message in messages_in(threads, values)]
