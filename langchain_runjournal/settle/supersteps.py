"""How a thread is written: which supersteps there are, and that tasks which are left over come first.

Rule: what finished tasks have written becomes part of the thread before anything is missed in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..common.twins import Effects
from .graph_thread import CLEAR, GraphThreads, MessagesChannel
from .inapplicable_step import is_inapplicable


def cleared(threads: GraphThreads, thread_id: str, namespace: str = "") -> Effects[Any]:
    """The state of a thread when what its finished tasks have written is part of it, and the others are dropped.

    Before anything is decided: a task that nobody could stop may have given something since the state was read, and that
    becomes part of the thread now. What it gives from here on does not.

    Where what they have written cannot be applied, it is dropped, as LangGraph does with the next message. Their messages
    then come from the journal.
    """
    try:
        yield threads.write(thread_id, namespace, [CLEAR])
    except Exception as exc:
        if not is_inapplicable(exc):
            raise
        values = (yield threads.read(thread_id, namespace)).values
        yield threads.write(thread_id, namespace, [threads.inner.get(namespace, threads.shape).update(values, ()), CLEAR])
    return (yield threads.read(thread_id, namespace))


def supersteps(
    shape: MessagesChannel, values: Any, add: Sequence[Any], insert: Mapping[int, Sequence[Any]] | None = None
) -> list[Any]:
    """Ours, and then nothing may be left to run. What is inserted goes first, alone: the list is written anew with it."""
    if insert:
        whole: list[Any] = []
        for place, one in enumerate(found := shape.messages(values) or []):
            whole += [*shape.written(found, insert.get(place, ())), one]
        return [shape.rewrite(values, whole), CLEAR]
    return [shape.update(values, add), CLEAR] if add else [CLEAR]


def is_left(state: Any) -> bool:
    """Whether tasks are left over: to be run, or finished and not yet part of the thread."""
    return bool(state.next or state.tasks)
