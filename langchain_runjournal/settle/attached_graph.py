"""The class of attached graphs: a subclass of the graph's class that adds the journal and the checkpointer at each call.

Rule: the checkpointer that counts is the one that LangGraph uses when a run begins. A program may set it long after it has
attached the graph, pass it in a config, or let a server copy the graph with another one. So the callbacks and the saver are
added at the call. They never stand in the config of the graph, where each snapshot would show them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from langchain_core.callbacks import BaseCallbackHandler, BaseCallbackManager
from langgraph._internal._config import ensure_config
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.pregel import Pregel

from ..capture.calling_graph import ATTACHMENTS, TASK

if TYPE_CHECKING:
    from .attachment import Attachment

_G = TypeVar("_G", bound="Pregel[Any, Any, Any, Any]")

LENT: Final = "__pregel_checkpointer"
"""The config key of the checkpointer that the caller of a graph lends it. The caller is a graph around it, or a server."""
_DROPPED: Final = ("__orig_class__", ATTACHMENTS)


def attachments_of(graph: object) -> tuple[Attachment, ...]:
    """Return the attachments of a graph, one for each journal."""
    found: tuple[Attachment, ...] = getattr(graph, "__dict__", {}).get(ATTACHMENTS, ())
    return found


def with_attachments(graph: _G, attachments: Sequence[Attachment]) -> _G:
    """Return a copy of a graph that has these attachments and no others. Without any, return a plain copy."""
    plain = getattr(type(graph), "_plain", type(graph))
    new = object.__new__(_class_over(plain) if attachments else plain)
    # Not with the graph's own `copy`: that calls `__init__`, and loses what `compile` has set since.
    new.__dict__.update({key: value for key, value in graph.__dict__.items() if key not in _DROPPED})
    if attachments:
        new.__dict__[ATTACHMENTS] = tuple(attachments)
    new.checkpointer = graph.checkpointer
    return cast("_G", new)


def without_coercion(graph: _G) -> _G:
    """Return a copy of a graph that does not coerce the state to the schemas of its nodes.

    LangGraph does so whenever it reads a state from which nodes are left to run, and raises if the schema refuses the state.
    An input that a pydantic model refuses is in the thread all the same, and then LangGraph can neither read nor write it.
    """
    new = with_attachments(graph, attachments_of(graph))
    new.nodes = {
        name: node if node.mapper is None else node.copy(update={"mapper": None}) for name, node in graph.nodes.items()
    }
    return new


def _wrapped(graph: Any, saver: Any) -> Any:
    if isinstance(saver, BaseCheckpointSaver):
        for one in attachments_of(graph):
            saver = one.saver_around(saver)
    return saver


def _prepared(graph: Any, config: Any) -> Any:
    """Return the config of a call with our callbacks. If the config lends the graph a checkpointer, wrap it in a
    `JournalSaver`."""
    prepared = dict(config or {})
    # Merge as LangGraph does: a server may lend its checkpointer through the context variable of the config as well.
    merged = ensure_config(graph.config, config)
    prepared["callbacks"] = _with_handlers(graph, prepared.get("callbacks"), merged["callbacks"])
    asked = merged["configurable"]
    if isinstance(asked.get(LENT), BaseCheckpointSaver) and TASK not in asked:
        prepared["configurable"] = {**(prepared.get("configurable") or {}), LENT: _wrapped(graph, asked[LENT])}
    return prepared


def _with_handlers(graph: Any, given: Any, merged: Any) -> Any:
    """Return the callbacks of a call with our handlers: what the call gives, if LangGraph then calls it with `merged`.

    The calls inside of the run inherit the handlers that record, and not those that settle: LangChain would create a
    coroutine for each of these at every token. Only a callback manager can say so.
    """
    attachments = attachments_of(graph)
    recording = [handler for one in attachments for handler in one.recording]
    settling = [handler for one in attachments for handler in one.settling]
    if isinstance(given, BaseCallbackManager):
        manager = given.copy()
        for handler in recording:
            manager.add_handler(handler)
    elif isinstance(merged, BaseCallbackManager):
        # A run around this one passes its manager on. LangGraph adds a list to it in order, but a manager in any order.
        return [*recording, *settling, *(given or ())]
    else:
        # LangGraph puts the callbacks of the graph itself behind a manager, and leaves out those that it has already.
        own = (merged or [])[: len(merged or ()) - len(given or ())]
        inherited: list[BaseCallbackHandler] = [*own, *recording, *(given or ())]
        manager = BaseCallbackManager(inherited.copy(), inherited)
    for local in settling:
        manager.add_handler(local, inherit=False)
    return manager


@functools.lru_cache(maxsize=64)
def _class_over(plain: type[Any]) -> type[Any]:
    """Return the class of attached graphs for one class of graphs."""

    def checkpointer(self: Any) -> Any:
        return self.__dict__.get("checkpointer")

    def set_checkpointer(self: Any, saver: Any) -> None:
        self.__dict__["checkpointer"] = _wrapped(self, saver)

    @functools.wraps(plain.copy)
    def copy(self: Any, update: dict[str, Any] | None = None) -> Any:
        attributes = {key: value for key, value in self.__dict__.items() if key not in _DROPPED}
        new = type(self)(**{**attributes, **(update or {})})
        new.__dict__[ATTACHMENTS] = attachments_of(self)
        new.checkpointer = new.checkpointer  # the constructor set it before the attachments were there
        return new

    def called(method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def call(self: Any, input: Any, config: Any = None, **options: Any) -> Any:
            return method(self, input, _prepared(self, config), **options)

        return call

    members = {
        "__module__": plain.__module__,
        "__qualname__": plain.__qualname__,
        "__doc__": plain.__doc__,
        "_plain": plain,
        "checkpointer": property(checkpointer, set_checkpointer),
        "copy": copy,
        "stream": called(plain.stream),
        "astream": called(plain.astream),
    }
    return type(plain.__name__, (plain,), members)
