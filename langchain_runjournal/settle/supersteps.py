"""The supersteps that write a thread. Tasks that are left over are applied first.

Rule: what finished tasks have written becomes part of the thread before any message counts as missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..common.twins import Effect, Effects
from .graph_thread import CLEAR, GraphThreads
from .inapplicable_step import is_inapplicable


def cleared(threads: GraphThreads, thread_id: str, namespace: str = "") -> Effects[Any]:
    """Return the state of a thread after applying what its finished tasks have written and dropping the other tasks.

    This happens before any decision. A task that could not be stopped may have written something since the state was read,
    and that becomes part of the thread now. What it writes later does not.

    If the writes of the finished tasks cannot be applied, they are dropped, as LangGraph does with the next message. Their
    messages then come from the journal.
    """
    try:
        yield threads.write(thread_id, namespace, [CLEAR])
    except Exception as exc:
        if not is_inapplicable(exc):
            raise
        values = (yield threads.read(thread_id, namespace)).values
        yield threads.write(thread_id, namespace, [threads.inner.get(namespace, threads.shape).update(values, ()), CLEAR])
    return (yield threads.read(thread_id, namespace))


def written(
    threads: GraphThreads,
    thread_id: str,
    values: Any,
    add: Sequence[Any],
    insert: Mapping[int, Sequence[Any]] | None = None,
    namespace: str = "",
) -> Effect[Any]:
    """Return the effect that writes our messages, after which no task is left to run.

    Messages to insert are written first, in a superstep of their own that rewrites the list.
    """
    shape = threads.inner[namespace] if namespace else threads.shape
    if insert:
        whole: list[Any] = []
        for place, one in enumerate(found := shape.messages(values) or []):
            whole += [*shape.written(found, insert.get(place, ())), one]
        return threads.put(thread_id, namespace, shape.rewrite(values, whole))
    if add:
        return threads.put(thread_id, namespace, shape.update(values, add))
    return threads.write(thread_id, namespace, [CLEAR])


def is_left(state: Any) -> bool:
    """Return whether tasks are left over: tasks that have not run, or that have finished and are not yet part of the
    thread."""
    return bool(state.next or state.tasks)
