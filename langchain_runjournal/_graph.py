"""A compiled graph, as a settlement sees it: where its messages are, and how to add some.

Rule: only the graph itself writes its thread (`bulk_update_state`): it knows its channels, and a program that guesses them
loses those that it does not know. What cannot be written this way is left alone, and said.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, Final

from langgraph.channels import BinaryOperatorAggregate, DeltaChannel
from langgraph.channels.base import BaseChannel
from langgraph.pregel import Pregel
from langgraph.types import StateUpdate

from ._steps import Do
from .events import GRAPH, Run
from .saver import JournalSaver

_START: Final = "__start__"
_ROOT: Final = "__root__"
_MESSAGES: Final = "messages"
CLEAR: Final = (StateUpdate(None, "__end__"),)
"""The superstep that keeps what finished tasks have written, and drops the tasks that have not finished."""


def graph_of(run: Run) -> str:
    """The name of the graph whose run it is."""
    return str(run.metadata.get(GRAPH, run.name))


class Shape:
    """Where a graph keeps its messages. `problem` says why they cannot be written, if so."""

    def __init__(self, graph: Pregel[Any, Any, Any, Any]) -> None:
        self.channel = next((name for name in (_MESSAGES, _ROOT) if name in graph.channels), None)
        self.entry: str | None = None
        self.problem: str | None = None
        self.replaces_by_id = True
        self.replaces_all = False
        if not hasattr(graph, "builder"):
            self.problem = "it is no StateGraph, and nothing but its entrypoint can write its state"
        elif self.channel is None:
            known = ", ".join(sorted(name for name in graph.channels if not name.startswith(("__", "branch:"))))
            self.problem = f"its state has no `messages` (it has: {known})"
        else:
            self._look_at(graph.channels[self.channel])
            self.entry = _way_in(graph.builder, self.channel)
            if self.entry is None:
                self.problem = "neither its input nor a node without a router can write `messages`"

    def _look_at(self, channel: Any) -> None:
        if isinstance(channel, BinaryOperatorAggregate):
            self.replaces_by_id = channel.operator is not operator.add
        elif not isinstance(channel, DeltaChannel) and isinstance(channel, BaseChannel):
            # No reducer: whoever writes gives the whole list.
            self.replaces_all, self.replaces_by_id = True, False

    def messages(self, values: Any) -> list[Any] | None:
        """The messages in a state; None if there is something else in their place."""
        found = values if self.channel == _ROOT else values.get(_MESSAGES) if isinstance(values, dict) else None
        if found is None or found == {}:
            return []
        return list(found) if isinstance(found, (list, tuple)) else None

    def update(self, thread: Sequence[Any], added: Sequence[Any]) -> tuple[StateUpdate, ...]:
        """The superstep that adds messages to those of the thread."""
        payload: Any = [*thread, *added] if self.replaces_all else list(added)
        return (StateUpdate(payload if self.channel == _ROOT else {_MESSAGES: payload}, self.entry),)


def _way_in(builder: Any, channel: str) -> str | None:
    """The node in whose name messages are written: best the start, if it takes them and no router of the program would be
    called; a node that others wait for would leave them waiting for less."""
    branches = builder.branches
    takes = channel == _ROOT or channel in builder.schemas.get(builder.input_schema, {})
    awaited = {name for names, _ in builder.waiting_edges for name in names}
    free = [name for name in builder.nodes if not branches.get(name) and name not in awaited]
    if takes and not branches.get(_START):
        return _START
    if free:
        return str(free[0])
    return _START if takes else None


class Threads:
    """The threads of a graph, read and written without anybody's callbacks."""

    def __init__(self, graph: Pregel[Any, Any, Any, Any]) -> None:
        # Past our own saver: it is asked apart whether the thread is quiet.
        saver = graph.checkpointer.saver if isinstance(graph.checkpointer, JournalSaver) else graph.checkpointer
        config = {key: value for key, value in (graph.config or {}).items() if key != "callbacks"}
        self.graph = graph.copy({"checkpointer": saver, "config": config or None})
        self.name = graph.get_name()
        self.shape = Shape(graph)
        self.inner = {
            name: Shape(inner)
            for name, inner in graph.get_subgraphs()
            if isinstance(inner, Pregel) and inner.checkpointer is True
        }
        """The graphs in it that remember on their own from turn to turn, by their namespace."""

    def read(self, thread_id: str, namespace: str = "", checkpoint_id: str | None = None) -> Do[Any]:
        """The state of a thread, with what its finished tasks have written; or what one of its checkpoints holds."""
        config, graph = _config(thread_id, namespace, checkpoint_id), self.graph
        return Do(lambda: graph.get_state(config), lambda: graph.aget_state(config))

    def write(
        self,
        thread_id: str,
        namespace: str,
        supersteps: Sequence[Sequence[StateUpdate]],
        checkpoint_id: str | None = None,
    ) -> Do[Any]:
        """Some supersteps, one after the other, behind the newest checkpoint or another one."""
        config, graph = _config(thread_id, namespace, checkpoint_id), self.graph
        return Do(
            lambda: graph.bulk_update_state(config, supersteps),
            lambda: graph.abulk_update_state(config, supersteps),
        )


def _config(thread_id: str, namespace: str, checkpoint_id: str | None = None) -> Any:
    configurable = {"thread_id": thread_id}
    if namespace or checkpoint_id is not None:
        configurable["checkpoint_ns"] = namespace
    if checkpoint_id is not None:
        configurable["checkpoint_id"] = checkpoint_id
    return {"configurable": configurable}
