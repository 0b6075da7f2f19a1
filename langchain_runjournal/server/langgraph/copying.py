"""A copy of the checkpoints of a thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple

if TYPE_CHECKING:
    from .threads import Threads


async def copy_checkpoints(threads: Threads, source: str, target: str) -> None:
    """Copy all checkpoints of a thread, of each graph. A copy that fails leaves nothing behind."""
    names = filter(threads.has_saver, threads.service.graphs)
    savers: list[Any] = list({id(one): one for one in (threads.reader(name).graph.checkpointer for name in names)}.values())
    try:
        for saver in savers:
            await _copy(saver, source, target)
    except BaseException:
        for saver in savers:
            await saver.adelete_thread(target)
        raise


async def _copy(saver: Any, source: str, target: str) -> None:
    if type(saver).acopy_thread is not getattr(BaseCheckpointSaver, "acopy_thread", None):
        await saver.acopy_thread(source, target)
        return
    # First read, then write: a checkpointer may hold its connection while it lists.
    for found in [one async for one in saver.alist({"configurable": {"thread_id": source}})]:
        await _put(saver, found, target)


async def _put(saver: Any, found: CheckpointTuple, target: str) -> None:
    """Write one checkpoint of another thread, and what tasks have written behind it."""
    here = {**found.config["configurable"], "thread_id": target}
    config: dict[str, Any] = {"thread_id": target, "checkpoint_ns": here.get("checkpoint_ns", "")}
    if found.parent_config is not None:
        config["checkpoint_id"] = found.parent_config["configurable"]["checkpoint_id"]
    metadata: dict[str, Any] = dict(found.metadata or {})
    if "thread_id" in metadata:
        metadata["thread_id"] = target
    versions = found.checkpoint["channel_versions"]
    await saver.aput({"configurable": config}, found.checkpoint, metadata, versions)
    by_task: dict[str, list[tuple[str, Any]]] = {}
    for task_id, channel, value in found.pending_writes or ():
        by_task.setdefault(task_id, []).append((channel, value))
    for task_id, writes in by_task.items():
        await saver.aput_writes({"configurable": here}, writes, task_id)
