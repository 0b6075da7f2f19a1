"""The class of an attached graph: that of the graph, whose runs take their journal and their checkpointer with them.

Rule: what counts is what LangGraph uses when a run begins. A program may set the checkpointer long after it has attached the
graph, hand it over in a config, or let a server make a copy with another one. So the callbacks and the saver are put in at
the call, and nothing of ours stands in the config of the graph, where it would come out again in each snapshot.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from langchain_core.runnables.config import merge_configs
from langgraph._internal._config import ensure_config
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.pregel import Pregel

from ..capture.calling_graph import ATTACHMENTS, TASK

if TYPE_CHECKING:
    from .attachment import Attachment

_G = TypeVar("_G", bound="Pregel[Any, Any, Any, Any]")

LENT: Final = "__pregel_checkpointer"
"""The checkpointer that the caller of a graph lends it: a graph around it, or a server."""
_DROPPED: Final = ("__orig_class__", ATTACHMENTS)


def attachments_of(graph: object) -> tuple[Attachment, ...]:
    """What a graph is attached with, one for each journal."""
    found: tuple[Attachment, ...] = getattr(graph, "__dict__", {}).get(ATTACHMENTS, ())
    return found


def with_attachments(graph: _G, attachments: Sequence[Attachment]) -> _G:
    """A copy of a graph that is attached with these, and with nothing else; with none, a plain copy."""
    plain = getattr(type(graph), "_plain", type(graph))
    new = object.__new__(_class_over(plain) if attachments else plain)
    # Not by its `copy`: that calls `__init__`, and loses what `compile` has set since.
    new.__dict__.update({key: value for key, value in graph.__dict__.items() if key not in _DROPPED})
    if attachments:
        new.__dict__[ATTACHMENTS] = tuple(attachments)
    new.checkpointer = graph.checkpointer
    return cast("_G", new)


def _wrapped(graph: Any, saver: Any) -> Any:
    if isinstance(saver, BaseCheckpointSaver):
        for one in attachments_of(graph):
            saver = one.saver_around(saver)
    return saver


def _prepared(graph: Any, config: Any) -> Any:
    """The config of a call, with our callbacks; a checkpointer that it lends the graph is one of ours."""
    prepared = dict(config or {})
    ours = [handler for one in attachments_of(graph) for handler in one.handlers]
    prepared["callbacks"] = merge_configs({"callbacks": ours}, {"callbacks": prepared.get("callbacks")})["callbacks"]
    # As LangGraph will read it: a server lends its checkpointer by the context as well.
    asked = ensure_config(graph.config, config)["configurable"]
    if isinstance(asked.get(LENT), BaseCheckpointSaver) and TASK not in asked:
        prepared["configurable"] = {**(prepared.get("configurable") or {}), LENT: _wrapped(graph, asked[LENT])}
    return prepared


@functools.lru_cache(maxsize=64)
def _class_over(plain: type[Any]) -> type[Any]:
    """The class of attached graphs of one class."""

    def checkpointer(self: Any) -> Any:
        return self.__dict__.get("checkpointer")

    def set_checkpointer(self: Any, saver: Any) -> None:
        self.__dict__["checkpointer"] = _wrapped(self, saver)

    @functools.wraps(plain.copy)
    def copy(self: Any, update: dict[str, Any] | None = None) -> Any:
        attributes = {key: value for key, value in self.__dict__.items() if key not in _DROPPED}
        new = type(self)(**{**attributes, **(update or {})})
        new.__dict__[ATTACHMENTS] = attachments_of(self)
        new.checkpointer = new.checkpointer  # the constructor has set it before they were there
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
