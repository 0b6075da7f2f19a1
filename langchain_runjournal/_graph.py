"""A compiled graph, as a settlement sees it: where its messages are, and how to add some.

Rule: only the graph itself writes its thread (`bulk_update_state`): it knows its channels, and a program that guesses them
loses those that it does not know. What cannot be written this way is left alone, and said.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, Final, cast

from langgraph.channels import BinaryOperatorAggregate, DeltaChannel
from langgraph.channels.base import BaseChannel
from langgraph.pregel import Pregel
from langgraph.types import StateUpdate

from ._attached import with_attachments
from ._identity import identity, is_own, own_channels
from ._steps import Do
from .saver import JournalSaver

_START: Final = "__start__"
_ROOT: Final = "__root__"
_MESSAGES: Final = "messages"
CLEAR: Final = (StateUpdate(None, "__end__"),)
"""The superstep that keeps what finished tasks have written, and drops the tasks that have not finished."""


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

    def __init__(self, graph: Pregel[Any, Any, Any, Any], saver: Any = None) -> None:
        """`saver`: the checkpointer that LangGraph uses for them, where that is not the graph's own."""
        saver = graph.checkpointer if saver is None else saver
        config = {key: value for key, value in (graph.config or {}).items() if key != "callbacks"}
        self.graph = with_attachments(graph, ())
        # Past our own saver: it is asked apart whether the thread is quiet.
        self.graph.checkpointer = saver.saver if isinstance(saver, JournalSaver) else saver
        self.graph.config = cast("Any", config or None)
        self.identity = identity(graph)
        self.name = self.identity.name
        self.channels = own_channels(graph)
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

    def unknown_channels(self, thread_id: str) -> Do[list[str]]:
        """The channels that a thread holds and the graph does not have: it would write the thread without them."""
        config, saver = _config(thread_id, "", None), cast("Any", self.graph.checkpointer)
        config["configurable"]["checkpoint_ns"] = ""

        def unknown(found: Any) -> list[str]:
            held = found.checkpoint["channel_versions"] if found is not None else ()
            return sorted(name for name in held if is_own(name) and name not in self.channels)

        async def later() -> list[str]:
            return unknown(await saver.aget_tuple(config))

        return Do(lambda: unknown(saver.get_tuple(config)), later)

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
