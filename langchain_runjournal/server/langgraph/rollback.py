"""Rollbacks: the thread is again as it was before a run. The journal keeps what the run said.

Rule: a rollback comes after the end of its run and before the begin of any other, which the queue of the thread sees to. So
all checkpoints from the first one of the run on are of this run, or of its settlement. Checkpoint ids are ordered by time.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from langgraph.checkpoint.base import BaseCheckpointSaver

from ...events import Event, Run
from ...settle.saver import JournalSaver
from .undo import Undo, undo_of

if TYPE_CHECKING:
    from ..service import Graph, Service

logger = logging.getLogger("langchain_runjournal")

_KEPT: Final = "%s cannot delete single checkpoints: those of run %s stay in the history of thread %s, as a left branch"
_RESUME: Final = "__resume__"
"""The channel with the answers to the questions of a task."""


async def roll_back(service: Service, graph: Graph, run: Run, before: Mapping[str, Any] | None) -> None:
    """Delete the checkpoints of a run that is over, and note that in the journal. `before`: see `writes_before`."""
    thread_id = str(run.thread_id)
    since, base = first_checkpoint(await service.journal.aread(run.run_id))
    saver = _inner(graph)
    if saver is not None:
        undo = undo_of(saver)
        if since is not None:
            await _undo(graph, saver, undo, run.run_id, thread_id, since, base)
        if before is not None and undo is not None:
            await _restore_writes(saver, undo, thread_id, before)
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
    has_written = [one for one in settled if isinstance(one.get("after"), str) and one["after"] != one.get("before")]
    # The settlement may have written several: all those behind the newest one before it.
    written += [f"{one['before']} " if one.get("before") else "" for one in has_written]
    return min(written, default=None), base


def _inner(graph: Graph) -> BaseCheckpointSaver[Any] | None:
    saver: Any = graph.checkpointer
    if isinstance(saver, JournalSaver):
        saver = saver.saver
    return saver if isinstance(saver, BaseCheckpointSaver) else None


async def _undo(
    graph: Graph,
    saver: BaseCheckpointSaver[Any],
    undo: Undo | None,
    run_id: str,
    thread_id: str,
    since: str,
    base: str | None,
) -> None:
    if undo is not None:
        await undo.checkpoints(thread_id, since)
        return
    try:
        await saver.adelete_for_runs([run_id])
    except (NotImplementedError, AttributeError):  # older checkpointers lack the method
        logger.info(_KEPT, type(saver).__name__, run_id, thread_id)
    newest = await saver.aget_tuple(_place(thread_id))
    if newest is None or newest.checkpoint["id"] < since:
        return
    if base is None:
        # The thread was empty before the run. The inner saver is asked: the journal keeps its runs.
        await saver.adelete_thread(thread_id)
        return
    await graph.aupdate_state(_place(thread_id, base), None, as_node="__copy__")


# --- a run that continues from a checkpoint writes beside that one --------------------------------------------------------


async def writes_before(graph: Graph, thread_id: str, checkpoint: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return what stands beside the checkpoint from which a run continues: the id, and each write by task and channel."""
    saver = _inner(graph)
    if saver is None:
        return None
    found = await saver.aget_tuple(_place(thread_id, (checkpoint or {}).get("checkpoint_id")))
    if found is None:
        return None
    writes = [
        [task, channel, len(value) if channel == _RESUME and isinstance(value, list) else None]
        for task, channel, value in found.pending_writes or ()
    ]
    return {"checkpoint_id": found.checkpoint["id"], "writes": writes}


async def _restore_writes(saver: BaseCheckpointSaver[Any], undo: Undo, thread_id: str, before: Mapping[str, Any]) -> None:
    place = _place(thread_id, before["checkpoint_id"])
    found = await saver.aget_tuple(place)
    kept = {(task, channel): answers for task, channel, answers in before["writes"]}
    for task, channel, value in () if found is None else found.pending_writes or ():
        answers = kept.get((task, channel))
        if (task, channel) not in kept:
            await undo.write(thread_id, before["checkpoint_id"], task, channel)
        elif answers is not None and isinstance(value, list) and len(value) > answers:
            await saver.aput_writes(place, [(channel, value[:answers])], task)


def _place(thread_id: str, checkpoint_id: str | None = None) -> Any:
    place = {"thread_id": thread_id, "checkpoint_ns": ""}
    return {"configurable": place if checkpoint_id is None else {**place, "checkpoint_id": checkpoint_id}}
