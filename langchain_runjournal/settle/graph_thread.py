"""A compiled graph, as a settlement sees it: where its messages are, and how to add some.

Rule: only the graph itself writes its thread (`bulk_update_state`): it knows its channels, and a program that guesses them
loses those that it does not know. What cannot be written this way is left alone, and said.
"""

from __future__ import annotations

import operator
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, cast

from langgraph.channels import BinaryOperatorAggregate, DeltaChannel, LastValue
from langgraph.channels.base import BaseChannel
from langgraph.pregel import Pregel
from langgraph.types import Overwrite, StateUpdate

from ..capture.calling_graph import PREVIOUS
from ..capture.graph_identity import identity, is_own, own_channels
from ..common.twins import Effect, nothing
from ..messages import forms as _forms
from .attached_graph import with_attachments
from .functional_api import END, Saved, function_of, reading
from .inapplicable_step import state_of
from .saver import JournalSaver

_START: Final = "__start__"
_ROOT: Final = "__root__"
_MESSAGES: Final = "messages"
CLEAR: Final = (StateUpdate(None, "__end__"),)
"""The superstep that keeps what finished tasks have written, and drops the tasks that have not finished."""


class MessagesChannel:
    """Where a graph keeps its messages, and in which form. `problem` says why they cannot be written, if so."""

    def __init__(self, graph: Pregel[Any, Any, Any, Any]) -> None:
        self.function = function_of(graph)
        self.channel: str | None = next((name for name in (_MESSAGES, _ROOT) if name in graph.channels), None)
        self.entry: str | None = None
        self.problem: str | None = None
        self.replaces_by_id = True
        self.replaces_all = False
        self.can_rewrite = True
        """Whether the whole list can be written anew, past its reducer."""
        self.is_delta = False
        self.what = "its `messages`"
        self._declared: Any = None
        if self.function is not None:
            self.channel, self.entry = PREVIOUS, self.function.name
            self.replaces_all, self.replaces_by_id = True, False
            self.what, self._declared = f"what the entrypoint `{self.function.name}` saves", self.function.declared
        elif not hasattr(graph, "builder"):
            self.problem = "it is neither a StateGraph nor an entrypoint, and nothing else can write its state"
        elif self.channel is None:
            known = ", ".join(sorted(name for name in graph.channels if not name.startswith(("__", "branch:"))))
            self.problem = f"its state has no `messages` (it has: {known})"
        else:
            self._look_at(graph.channels[self.channel])
            self.entry = _way_in(graph.builder, self.channel)
            if self.problem is None and self.entry is None:
                self.problem = "neither its input nor a node without a router can write `messages`"

    def _look_at(self, channel: Any) -> None:
        self._declared, self.is_delta = getattr(channel, "ValueType", None), isinstance(channel, DeltaChannel)
        if isinstance(channel, BinaryOperatorAggregate):
            self.replaces_by_id = channel.operator is not operator.add
        elif not self.is_delta and isinstance(channel, BaseChannel):
            # No reducer: whoever writes gives the whole list.
            self.replaces_all, self.replaces_by_id = True, False
            self.can_rewrite = isinstance(channel, LastValue)
        if self.channel == _ROOT:
            self.what = "its state"
        if _forms.is_other(self._declared):
            kind = getattr(_forms.plain(self._declared), "__name__", self._declared)
            self.problem = _forms.ONE_TEXT.format(what=self.what, kind=f"`{kind}`")

    def messages(self, values: Any) -> list[Any] | None:
        """The messages in a state; None if there is something else in their place."""
        if isinstance(values, Saved):
            return self.function.messages(values.previous) if self.function is not None else None
        found = values if self.channel == _ROOT else values.get(_MESSAGES) if isinstance(values, dict) else None
        if found is None or found == {}:
            return []
        return list(found) if isinstance(found, (list, tuple)) else None

    def problem_with(self, values: Any) -> str | None:
        """Why nothing can be written into this state, if so."""
        found = self.messages(values)
        if found is not None:
            return _forms.problem_of(found, self._declared, self.what)
        if self.function is not None and isinstance(values, Saved):
            return self.function.problem(values.previous)
        return f"what {self.what} hold is not a list of messages"

    def form(self, thread: Sequence[Any]) -> _forms.Form:
        """The form in which the thread writes its messages."""
        return _forms.form_of(thread, self._declared)

    def written(self, thread: Sequence[Any], messages: Sequence[Any]) -> list[Any]:
        """Messages in the form of the thread."""
        return _forms.written(self.form(thread), messages, thread)

    def unwritable(self, thread: Sequence[Any], messages: Sequence[Any]) -> str | None:
        """Why these messages cannot be written in the form of the thread, if so."""
        return _forms.unwritable(self.form(thread), messages, self.what)

    def update(self, values: Any, added: Sequence[Any]) -> tuple[StateUpdate, ...]:
        """The superstep that adds messages to those of a state."""
        thread = self.messages(values) or []
        ours = self.written(thread, added)
        return self._step(values, [*thread, *ours] if self.replaces_all else ours)

    def rewrite(self, values: Any, whole: Sequence[Any]) -> tuple[StateUpdate, ...]:
        """The superstep after which the list is this one, whatever its reducer would make of it.

        `Overwrite` is LangGraph's own way past a reducer: with `operator.add` it is the only one, and with `add_messages` it
        keeps ids, objects and order, which a removal of all messages would leave to the reducer.
        """
        return self._step(values, list(whole) if self.replaces_all else Overwrite(list(whole)))

    def _step(self, values: Any, payload: Any) -> tuple[StateUpdate, ...]:
        if self.function is not None and isinstance(values, Saved):
            payload = self.function.saving(values, payload)
        elif self.channel != _ROOT:
            payload = {_MESSAGES: payload}
        return (StateUpdate(payload, self.entry),)


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


class GraphThreads:
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
        self.shape = MessagesChannel(graph)
        self.title = self.shape.function.name if self.shape.function is not None else self.name
        """What its program calls it: LangGraph gives all entrypoints one name."""
        self.inner = {
            name: MessagesChannel(inner)
            for name, inner in graph.get_subgraphs()
            if isinstance(inner, Pregel) and inner.checkpointer is True
        }
        """The graphs in it that remember on their own from turn to turn, by their namespace."""
        self.guards: dict[str, Callable[[], Effect[None]]] = {}
        """By thread, what is done before each write of it: it raises if the thread may not be written any more."""

    def read(self, thread_id: str, namespace: str = "", checkpoint_id: str | None = None) -> Effect[Any]:
        """The state of a thread, with what its finished tasks have written, if that can be applied; or what one of its
        checkpoints holds."""
        config, graph = _config(thread_id, namespace, checkpoint_id), self.graph
        if self.shape.function is not None and not namespace:
            return reading(graph, config)
        return state_of(graph, config)

    def unknown_channels(self, thread_id: str) -> Effect[list[str]]:
        """The channels that a thread holds and the graph does not have: it would write the thread without them."""
        config, saver = _config(thread_id, "", None), cast("Any", self.graph.checkpointer)
        config["configurable"]["checkpoint_ns"] = ""

        def unknown(found: Any) -> list[str]:
            held = found.checkpoint["channel_versions"] if found is not None else ()
            return sorted(name for name in held if is_own(name) and name not in self.channels)

        async def later() -> list[str]:
            return unknown(await saver.aget_tuple(config))

        return Effect(lambda: unknown(saver.get_tuple(config)), later)

    def peek(self, thread_id: str, namespace: str = "") -> Effect[Any]:
        """What the newest checkpoint of a thread holds, without what finished tasks have written since (None without one),
        and that checkpoint, if it was read by itself.

        One read of the checkpointer, where `read` prepares the tasks that would come next as well.
        """
        shape, config = self.inner[namespace] if namespace else self.shape, _config(thread_id, namespace)
        saver: Any = self.graph.checkpointer
        if shape.is_delta:
            graph = self.graph
            return Effect(lambda: _stored(graph.get_state(config)), lambda: _alater(graph.aget_state(config), _stored))
        config["configurable"].setdefault("checkpoint_ns", "")
        look = partial(_values, shape)
        return Effect(lambda: look(saver.get_tuple(config)), lambda: _alater(saver.aget_tuple(config), look))

    def write(
        self,
        thread_id: str,
        namespace: str,
        supersteps: Sequence[Sequence[StateUpdate]],
        checkpoint_id: str | None = None,
    ) -> Effect[Any]:
        """Some supersteps, one after the other, behind the newest checkpoint or another one."""
        config, graph = _config(thread_id, namespace, checkpoint_id), self.graph
        guard = self.guards.get(thread_id, lambda: Effect(lambda: None, nothing))()

        def here() -> Any:
            guard.now()
            return graph.bulk_update_state(config, supersteps)

        async def giving_way() -> Any:
            await guard.later()
            return await graph.abulk_update_state(config, supersteps)

        return Effect(here, giving_way)


def _config(thread_id: str, namespace: str, checkpoint_id: str | None = None) -> Any:
    configurable = {"thread_id": thread_id}
    if namespace or checkpoint_id is not None:
        configurable["checkpoint_ns"] = namespace
    if checkpoint_id is not None:
        configurable["checkpoint_id"] = checkpoint_id
    return {"configurable": configurable}


def _stored(state: Any) -> tuple[Any, Any]:
    return state.values if state.created_at else None, None


def _values(shape: MessagesChannel, found: Any) -> tuple[Any, Any]:
    """The state in a checkpoint, as far as its messages go."""
    if found is None:
        return None, None
    values = found.checkpoint["channel_values"]
    if shape.function is not None:
        return Saved(values.get(PREVIOUS), values.get(END)), found
    return values.get(_ROOT) if shape.channel == _ROOT else {_MESSAGES: values.get(_MESSAGES)}, found


async def _alater(found: Awaitable[Any], then: Callable[[Any], Any]) -> Any:
    return then(await found)
