"""The threads of a compiled graph: where its messages are, and how to add some.

Rule: only the graph itself writes its threads (`bulk_update_state`), because it knows its channels. A program that guesses
the channels loses those that it does not know. A thread that cannot be written this way is not changed, and the report says
why.
"""

from __future__ import annotations

import operator
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, cast

from langgraph.channels import BinaryOperatorAggregate, DeltaChannel, EphemeralValue, LastValue, Topic
from langgraph.channels.base import BaseChannel
from langgraph.pregel import NodeBuilder, Pregel
from langgraph.types import Overwrite, StateUpdate

from ..capture.calling_graph import PREVIOUS
from ..capture.graph_identity import identity, is_own, own_channels
from ..common.twins import Effect, nothing
from ..messages import forms as _forms
from .attached_graph import with_attachments, without_coercion
from .functional_api import END, Saved, function_of, reading
from .inapplicable_step import state_of
from .saver import JournalSaver

_START: Final = "__start__"
_ROOT: Final = "__root__"
_MESSAGES: Final = "messages"
_NO_RESULTS: Final = ("__error__", "__interrupt__", "__resume__")
"""The channels of pending writes that no superstep applies: why a task failed, and what it waits for."""
CLEAR: Final = (StateUpdate(None, "__end__"),)
"""The superstep that keeps what finished tasks have written, and drops the tasks that have not finished."""


class MessagesChannel:
    """The channel in which a graph keeps its messages, and their form. `problem` says why they cannot be written, if they
    cannot."""

    def __init__(self, graph: Pregel[Any, Any, Any, Any]) -> None:
        self.function = function_of(graph)
        self.channel: str | None = next((name for name in (_MESSAGES, _ROOT) if name in graph.channels), None)
        self.entry: str | None = None
        self.problem: str | None = None
        self.replaces_by_id = True
        self.replaces_all = False
        self.can_rewrite = True
        """Whether the whole list can be replaced, bypassing its reducer."""
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
            self._read_channel(graph.channels[self.channel])
            self.entry = _entry_node(graph.builder, self.channel)
            if self.problem is None and self.entry is None:
                self.problem = "neither its input nor a node without a router can write `messages`"

    def _read_channel(self, channel: Any) -> None:
        self._declared, self.is_delta = getattr(channel, "ValueType", None), isinstance(channel, DeltaChannel)
        if isinstance(channel, BinaryOperatorAggregate):
            self.replaces_by_id = channel.operator is not operator.add
        elif not self.is_delta and isinstance(channel, BaseChannel):
            # A channel without a reducer: each write replaces the whole list.
            self.replaces_all, self.replaces_by_id = True, False
            self.can_rewrite = isinstance(channel, LastValue)
        if self.channel == _ROOT:
            self.what = "its state"
        if _forms.is_other(self._declared):
            kind = getattr(_forms.plain(self._declared), "__name__", self._declared)
            self.problem = _forms.ONE_TEXT.format(what=self.what, kind=f"`{kind}`")

    def messages(self, values: Any) -> list[Any] | None:
        """Return the messages in a state; None if the state has something else in their place."""
        if isinstance(values, Saved):
            return self.function.messages(values.previous) if self.function is not None else None
        found = values if self.channel == _ROOT else values.get(_MESSAGES) if isinstance(values, dict) else None
        if found is None or found == {}:
            return []
        return list(found) if isinstance(found, (list, tuple)) else None

    def problem_with(self, values: Any) -> str | None:
        """Return why nothing can be written into this state; None if it can be written."""
        found = self.messages(values)
        if found is not None:
            return _forms.problem_of(found, self._declared, self.what)
        if self.function is not None and isinstance(values, Saved):
            return self.function.problem(values.previous)
        return f"what {self.what} hold is not a list of messages"

    def form(self, thread: Sequence[Any]) -> _forms.Form:
        """Return the form in which the thread keeps its messages."""
        return _forms.form_of(thread, self._declared)

    def written(self, thread: Sequence[Any], messages: Sequence[Any]) -> list[Any]:
        """Return messages in the form of the thread."""
        return _forms.written(self.form(thread), messages, thread)

    def unwritable(self, thread: Sequence[Any], messages: Sequence[Any]) -> str | None:
        """Return why these messages cannot be written in the form of the thread; None if they can."""
        return _forms.unwritable(self.form(thread), messages, self.what)

    def update(self, values: Any, added: Sequence[Any]) -> tuple[StateUpdate, ...]:
        """Return the superstep that adds messages to those of a state."""
        thread = self.messages(values) or []
        ours = self.written(thread, added)
        return self._step(values, [*thread, *ours] if self.replaces_all else ours)

    def rewrite(self, values: Any, whole: Sequence[Any]) -> tuple[StateUpdate, ...]:
        """Return the superstep after which the list is exactly this one, whatever its reducer does.

        `Overwrite` is LangGraph's own way to bypass a reducer. With `operator.add` it is the only way. With `add_messages`
        it keeps ids, objects and order; after a removal of all messages, the reducer would decide about them.
        """
        return self._step(values, list(whole) if self.replaces_all else Overwrite(list(whole)))

    def payload(self, step: Sequence[StateUpdate]) -> Any:
        """Return what a superstep of `update` or `rewrite` writes to the channel."""
        return step[0].values if self.channel == _ROOT else cast("Any", step[0].values)[_MESSAGES]

    def _step(self, values: Any, payload: Any) -> tuple[StateUpdate, ...]:
        if self.function is not None and isinstance(values, Saved):
            payload = self.function.saving(values, payload)
        elif self.channel != _ROOT:
            payload = {_MESSAGES: payload}
        return (StateUpdate(payload, self.entry),)


def _entry_node(builder: Any, channel: str) -> str | None:
    """Return the node in whose name messages are written.

    The start is best, if it takes messages and no router of the program would be called. A node that other nodes wait for is
    not used, because they would then wait for one node less.
    """
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
    """The threads of a graph, read and written without callbacks of the program."""

    def __init__(self, graph: Pregel[Any, Any, Any, Any], saver: Any = None) -> None:
        """Copy a graph. `saver`: the checkpointer that LangGraph uses for its threads, where it differs from the graph's
        own."""
        saver = graph.checkpointer if saver is None else saver
        config = {key: value for key, value in (graph.config or {}).items() if key != "callbacks"}
        self.graph = without_coercion(with_attachments(graph, ()))
        # Use the inner saver directly: the settler calls `JournalSaver.drained` separately to wait until the thread is
        # quiet.
        self.graph.checkpointer = saver.saver if isinstance(saver, JournalSaver) else saver
        self.graph.config = cast("Any", config or None)
        self.identity = identity(graph)
        self.name = self.identity.name
        self.channels = own_channels(graph)
        self.shape = MessagesChannel(graph)
        self.title = self.shape.function.name if self.shape.function is not None else self.name
        """The name that its program gives it: LangGraph gives all entrypoints the same name."""
        self.inner = {
            name: MessagesChannel(inner)
            for name, inner in graph.get_subgraphs()
            if isinstance(inner, Pregel) and inner.checkpointer is True
        }
        """The inner graphs that keep a thread of their own between calls (`checkpointer=True`), by their namespace."""
        self._alone = _writing_alone(self.graph, self.shape)
        self.guards: dict[str, Callable[[], Effect[None]]] = {}
        """By thread, the check before each write. It raises if the thread may not be written any more."""

    def read(self, thread_id: str, namespace: str = "", checkpoint_id: str | None = None) -> Effect[Any]:
        """Return the effect that reads the state of a thread, or of one of its checkpoints. Without `checkpoint_id`, the
        state includes what finished tasks have written, if that can be applied."""
        config, graph = _config(thread_id, namespace, checkpoint_id), self.graph
        if self.shape.function is not None and not namespace:
            return reading(graph, config)
        return state_of(graph, config)

    def unknown_channels(self, thread_id: str) -> Effect[list[str]]:
        """Return the effect that lists the channels which a thread holds and the graph lacks. The graph would write the
        thread without them."""
        config, saver = _config(thread_id, "", None), cast("Any", self.graph.checkpointer)
        config["configurable"]["checkpoint_ns"] = ""

        def unknown(found: Any) -> list[str]:
            held = found.checkpoint["channel_versions"] if found is not None else ()
            return sorted(name for name in held if is_own(name) and name not in self.channels)

        async def later() -> list[str]:
            return unknown(await saver.aget_tuple(config))

        return Effect(lambda: unknown(saver.get_tuple(config)), later)

    def peek(self, thread_id: str, namespace: str = "") -> Effect[Any]:
        """Return the effect that reads the newest checkpoint alone: its values (None without a checkpoint), without what
        finished tasks have written since; and the checkpoint itself, if it was read directly.

        This is one read of the checkpointer, where `read` also prepares the tasks that would come next.
        """
        shape, config = self.inner[namespace] if namespace else self.shape, _config(thread_id, namespace)
        saver: Any = self.graph.checkpointer
        if shape.is_delta:
            graph = self.graph
            return Effect(lambda: _stored(graph.get_state(config)), lambda: _then(graph.aget_state(config), _stored))
        config["configurable"].setdefault("checkpoint_ns", "")
        look = partial(_values, shape)
        return Effect(lambda: look(saver.get_tuple(config)), lambda: _then(saver.aget_tuple(config), look))

    def has_results(self, thread_id: str, state: Any) -> Effect[bool]:
        """Return the effect that tells whether writes wait that are not part of the thread yet: of finished tasks, which
        `state` shows, or what a `Command` has brought, which only the checkpoint shows.

        Where the newest checkpoint alone cannot tell, it is True if tasks are left over.
        """
        config, saver = _config(thread_id, ""), cast("Any", self.graph.checkpointer)
        config["configurable"]["checkpoint_ns"] = ""
        known: bool | None = None
        if self._alone is None or self.shape.is_delta:
            known = bool(state.next or state.tasks)
        elif any(getattr(task, "result", None) is not None for task in state.tasks):
            known = True

        def has(found: Any) -> bool:
            writes = () if found is None else found.pending_writes or ()
            return any(channel not in _NO_RESULTS for _, channel, _ in writes)

        async def later() -> bool:
            return has(await saver.aget_tuple(config)) if known is None else known

        return Effect(lambda: has(saver.get_tuple(config)) if known is None else known, later)

    def put(self, thread_id: str, namespace: str, step: Sequence[StateUpdate]) -> Effect[Any]:
        """Return the effect that writes one superstep of messages, after which no task is left to run.

        It drops what finished tasks have written: apply that first. Where a node that leads nowhere can write the messages,
        this is one checkpoint. Otherwise a second superstep drops the tasks to which the node leads.
        """
        if self._alone is None or namespace:
            return self.write(thread_id, namespace, [step, CLEAR])
        update = StateUpdate(self.shape.payload(step), self.shape.entry)
        return self.write(thread_id, "", [[update]], graph=self._alone)

    def write(
        self,
        thread_id: str,
        namespace: str,
        supersteps: Sequence[Sequence[StateUpdate]],
        checkpoint_id: str | None = None,
        graph: Any = None,
    ) -> Effect[Any]:
        """Return the effect that writes some supersteps, one after the other, behind the newest checkpoint or behind another
        one. `graph`: the copy of the graph that writes them."""
        config, graph = _config(thread_id, namespace, checkpoint_id), graph or self.graph
        guard = self.guards.get(thread_id, lambda: Effect(lambda: None, nothing))()

        def now() -> Any:
            guard.now()
            return graph.bulk_update_state(config, supersteps)

        async def later() -> Any:
            await guard.later()
            return await graph.abulk_update_state(config, supersteps)

        return Effect(now, later)


def _writing_alone(graph: Any, shape: MessagesChannel) -> Any:
    """Return a copy of a graph whose entry node writes messages and leads to no other node; None if there can be none.

    In a superstep without writes, the channels that begin tasks empty themselves, so the tasks that were left are dropped. A
    channel in which nodes wait for several others does not, so such a graph is written in two supersteps.
    """
    if shape.problem is not None or shape.function is not None or shape.channel is None or shape.entry is None:
        return None
    for name in graph.trigger_to_nodes:
        channel = graph.channels.get(name)
        if not isinstance(channel, EphemeralValue) and not (isinstance(channel, Topic) and not channel.accumulate):
            return None
    alone = with_attachments(graph, ())
    alone.nodes = {**graph.nodes, shape.entry: NodeBuilder().write_to(shape.channel).build()}
    return alone


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
    """Return the state in a checkpoint, as far as it concerns the messages."""
    if found is None:
        return None, None
    values = found.checkpoint["channel_values"]
    if shape.function is not None:
        return Saved(values.get(PREVIOUS), values.get(END)), found
    return values.get(_ROOT) if shape.channel == _ROOT else {_MESSAGES: values.get(_MESSAGES)}, found


async def _then(found: Awaitable[Any], then: Callable[[Any], Any]) -> Any:
    return then(await found)
