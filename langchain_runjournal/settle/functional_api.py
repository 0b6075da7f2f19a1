"""The functional API: an `@entrypoint`, whose thread is the value that it saves for its next call.

Rule: LangGraph keeps that value in a channel of its own, and shows the returned value as the state. We read the saved value
from the checkpoint, and write it in the name of the entrypoint (`entrypoint.final`), which runs no code of the program. A
saved value that is neither a list of messages nor a dict with one is not changed.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from langgraph.func import entrypoint

from ..capture.calling_graph import PREVIOUS
from ..common.twins import Effect
from ..messages.forms import element_of, plain

if typing.TYPE_CHECKING:
    from langgraph.pregel import Pregel

END: Final = "__end__"
_MESSAGES: Final = "messages"


@dataclass(frozen=True, slots=True)
class Saved:
    """The content of a checkpoint of an entrypoint: the value for its next call, and the returned value."""

    previous: Any
    returned: Any


@dataclass(frozen=True, slots=True)
class Function:
    """An entrypoint.

    `declared`: the type of its list of messages, if its annotations name one. `in_dict`: whether that list is the `messages`
    of a dict; None if no annotation says so. `needs`: the other keys that the dict must have.
    """

    name: str
    declared: Any
    in_dict: bool | None
    needs: tuple[str, ...] = ()

    def messages(self, previous: Any) -> list[Any] | None:
        """Return the messages in a saved value. None if the value is something else, or if no annotation says what a first
        one would be."""
        if previous is None:
            return None if self.in_dict is None or self.needs else []
        found = previous.get(_MESSAGES) if isinstance(previous, Mapping) else previous
        return list(found) if isinstance(found, (list, tuple)) else None

    def problem(self, previous: Any) -> str:
        """Return why a saved value has no messages."""
        if previous is None and self.needs:
            keys = ", ".join(f"`{key}`" for key in self.needs)
            return (
                f"the entrypoint `{self.name}` has saved nothing on this thread yet, and the type of `previous` needs {keys}"
                " beside `messages`, for which only the program has values: declare them as `NotRequired` (or the type with"
                " `total=False`) and read them with a default, or let a first call end"
            )
        if previous is None:
            return (
                f"the entrypoint `{self.name}` has saved nothing on this thread yet, and no annotation says what it saves:"
                " annotate its parameter `previous`, as a list of messages or as a TypedDict with `messages`"
            )
        return f"what the entrypoint `{self.name}` saves is neither a list of messages nor a dict with `messages`"

    def input_problem(self) -> str:
        """Return why a call is not settled whose input holds no messages."""
        return (
            f"the entrypoint `{self.name}` was called with something that holds no messages, so the user's words are not"
            " known, and the answer would stand there alone: call it with a text, with messages, or with a dict that"
            " has `messages`"
        )

    def saving(self, values: Saved, messages: list[Any]) -> Any:
        """Return the value that replaces the old list of messages by another one; the rest of the saved value stays."""
        if isinstance(values.previous, Mapping):
            save: Any = {**values.previous, _MESSAGES: messages}
        else:
            save = {_MESSAGES: messages} if values.previous is None and self.in_dict else messages
        return entrypoint.final(value=values.returned, save=save)


def function_of(graph: Pregel[Any, Any, Any, Any]) -> Function | None:
    """Return the entrypoint that a graph was made of; None for a graph that was made otherwise."""
    if hasattr(graph, "builder") or PREVIOUS not in graph.channels or len(graph.nodes) != 1:
        return None
    [(name, node)] = graph.nodes.items()
    for declared in (getattr(graph.channels[PREVIOUS], "typ", None), _parameter(node)):
        found = plain(declared)
        # A TypedDict is a class, and a subclass of dict.
        if _is_class(found) and issubclass(found, Mapping) and _MESSAGES in getattr(found, "__annotations__", {}):
            hints = _hints(found)
            return Function(name, hints.get(_MESSAGES), True, _needs(found, hints))
        if element_of(found) is not None or found is list:
            return Function(name, found, False)
    return Function(name, None, None)


def _is_class(found: Any) -> bool:
    """Return whether a type is a class. On Python 3.10, `list[str]` is an instance of `type` as well."""
    return isinstance(found, type) and typing.get_origin(found) is None


def _hints(found: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(found, include_extras=True)
    except Exception:  # noqa: BLE001 - a name cannot be resolved here: the list itself then shows its form
        return {}


def _needs(found: Any, hints: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the keys beside `messages` that a dict of this type must have. If its annotations are strings, a TypedDict does
    not know which keys are `NotRequired`."""
    required: Any = getattr(found, "__required_keys__", found.__annotations__)
    said = {key: getattr(typing.get_origin(hint), "_name", None) for key, hint in hints.items()}
    needs = {key for key in required if said.get(key) != "NotRequired"} | {
        key for key, word in said.items() if word == "Required"
    }
    return tuple(sorted(needs - {_MESSAGES}))


def _parameter(node: Any) -> Any:
    """Return the annotation of the parameter `previous`."""
    function = getattr(node.bound, "func", None) or getattr(node.bound, "afunc", None)
    try:
        return None if function is None else typing.get_type_hints(inspect.unwrap(function)).get("previous")
    except Exception:  # noqa: BLE001 - a name cannot be resolved here, as in `_hints`
        return None


def reading(graph: Any, config: Any) -> Effect[Any]:
    """Return the effect that reads the state of a thread of an entrypoint, with the saved value in the place of the returned
    one."""

    def together(state: Any, found: Any) -> Any:
        values = found.checkpoint["channel_values"] if found is not None else {}
        return state._replace(values=Saved(values.get(PREVIOUS), values.get(END)))

    def now() -> Any:
        state = graph.get_state(config)
        return together(state, graph.checkpointer.get_tuple(state.config) if state.created_at else None)

    async def later() -> Any:
        state = await graph.aget_state(config)
        found: Awaitable[Any] | None = graph.checkpointer.aget_tuple(state.config) if state.created_at else None
        return together(state, await found if found is not None else None)

    return Effect(now, later)
