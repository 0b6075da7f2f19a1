"""Rollbacks: the thread is again as it was before a run. The journal keeps what the run said.

Rule: a rollback comes after the end of its run and before the begin of any other, which the queue of the thread sees to. So
all checkpoints from the first one of the run on are of this run, or of its settlement. Checkpoint ids are ordered by time.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from langgraph.checkpoint.base import BaseCheckpointSaver

from ...events import Event, Run
from ...settle.saver import JournalSaver

if TYPE_CHECKING:
    from ..service import Graph, Service

logger = logging.getLogger("langchain_runjournal")

_KEPT: Final = (
    "%s cannot delete single checkpoints: those of run %s stay in the history of thread %s, as a branch that was left"
)
_RESUME: Final = "__resume__"
_INTERRUPT: Final = "__interrupt__"


async def roll_back(service: Service, graph: Graph, run: Run) -> None:
    """Delete the checkpoints of a run that is over, and note that in the journal."""
    thread_id = str(run.thread_id)
    events = await service.journal.aread(run.run_id)
    since, base = first_checkpoint(events)
    saver = _inner(graph)
    if since is not None and saver is not None:
        await _undo(graph, saver, run.run_id, thread_id, since, base)
    if run.owner == service.journal.owner_id:
        data = {"rolled_back": True, "since": since, "late": True}
        service.journal.append(Event(run_id=run.run_id, kind="run.checkpoint", data=data))


def first_checkpoint(events: Sequence[Event]) -> tuple[str | None, str | None]:
    """Return the first checkpoint that a run or its settlement has written, and the one behind which the run began.

    None for the first: the run has written nothing.
    """
    about = [event.data for event in events if event.kind == "run.checkpoint"]
    base = next((one["base"] for one in about if "base" in one), None)
    written = [one["checkpoint_id"] for one in about if isinstance(one.get("checkpoint_id"), str)]
    settled = [event.data for event in events if event.kind == "run.settled"]
    for one in settled:
        place = one.get("checkpoint")
        if isinstance(place, str) and place != one.get("before"):
            written.append(place)
    return min(written, default=None), base


def _inner(graph: Graph) -> BaseCheckpointSaver[Any] | None:
    saver: Any = graph.checkpointer
    if isinstance(saver, JournalSaver):
        saver = saver.saver
    return saver if isinstance(saver, BaseCheckpointSaver) else None


async def _undo(
    graph: Graph, saver: BaseCheckpointSaver[Any], run_id: str, thread_id: str, since: str, base: str | None
) -> None:
    deletion = deletion_of(saver)
    if deletion is not None:
        await deletion(saver, thread_id, since)
    else:
        try:
            await saver.adelete_for_runs([run_id])
        except NotImplementedError:
            logger.info(_KEPT, type(saver).__name__, run_id, thread_id)
    newest = await saver.aget_tuple({"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}})
    if newest is None or newest.checkpoint["id"] < since:
        return
    if base is None:
        # The thread was empty before the run. The inner saver is asked: the journal keeps its runs.
        await saver.adelete_thread(thread_id)
        return
    place: Any = {"configurable": {"thread_id": thread_id, "checkpoint_ns": "", "checkpoint_id": base}}
    await graph.aupdate_state(place, None, as_node="__copy__")


Deletion = Callable[[Any, str, str], Awaitable[None]]


def deletion_of(saver: BaseCheckpointSaver[Any]) -> Deletion | None:
    """Return the function that deletes the checkpoints of a thread from one on; None for a saver that has no such way."""
    for kind in type(saver).__mro__:
        found = _DELETIONS.get(f"{kind.__module__}.{kind.__name__}")
        if found is not None:
            return found
    return None


async def _in_memory(saver: Any, thread_id: str, since: str) -> None:
    for checkpoints in saver.storage.get(thread_id, {}).values():
        for checkpoint_id in [one for one in checkpoints if one >= since]:
            del checkpoints[checkpoint_id]
    for key in [one for one in saver.writes if one[0] == thread_id and one[2] >= since]:
        del saver.writes[key]


_TABLES: Final[Mapping[str, str]] = {
    "checkpoints": "DELETE FROM checkpoints WHERE thread_id = ? AND checkpoint_id >= ?",
    "writes": "DELETE FROM writes WHERE thread_id = ? AND checkpoint_id >= ?",
}
_POSTGRES: Final = (
    "DELETE FROM checkpoints WHERE thread_id = %s AND checkpoint_id >= %s",
    "DELETE FROM checkpoint_writes WHERE thread_id = %s AND checkpoint_id >= %s",
)


async def _sqlite(saver: Any, thread_id: str, since: str) -> None:
    await saver.setup()
    async with saver.lock, saver.conn.cursor() as cursor:
        for statement in _TABLES.values():
            await cursor.execute(statement, (thread_id, since))
        await saver.conn.commit()


async def _postgres(saver: Any, thread_id: str, since: str) -> None:
    async with saver._cursor() as cursor, cursor.connection.transaction():
        for statement in _POSTGRES:
            await cursor.execute(statement, (thread_id, since))


_DELETIONS: Final[Mapping[str, Deletion]] = {
    "langgraph.checkpoint.memory.InMemorySaver": _in_memory,
    "langgraph.checkpoint.sqlite.aio.AsyncSqliteSaver": _sqlite,
    "langgraph.checkpoint.postgres.aio.AsyncPostgresSaver": _postgres,
}
