"""What tells one compiled graph from another: its nodes and its channels.

Rule: the same program gives the same fingerprint in every process, whatever the order in which nodes and channels were
added, and whatever release of LangGraph compiled them. So only names and kinds count, no object, no address, no repr.
"""

from __future__ import annotations

import hashlib
import json
import typing
import weakref
from typing import Any, Final

from langgraph.pregel import Pregel

_INTERNAL: Final = ("__", "branch:", "join:")
"""How LangGraph's own channels begin. It makes them from the nodes and edges, and may make others in its next release."""
_LENGTH: Final = 16


_known: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()


def fingerprint(graph: Pregel[Any, Any, Any, Any]) -> str:
    """The identity of a graph as 16 hexadecimal digits. A node or a channel more, less or of another type changes it."""
    found = _known.get(graph)
    if found is None:
        found = _known[graph] = _computed(graph)
    return found


def _computed(graph: Pregel[Any, Any, Any, Any]) -> str:
    nodes = sorted(str(name) for name in graph.nodes if not str(name).startswith("__"))
    channels = sorted(f"{name}: {_kind(channel)}" for name, channel in graph.channels.items() if is_own(name))
    said = json.dumps([hasattr(graph, "builder"), nodes, channels], ensure_ascii=False)
    return hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()[:_LENGTH]


def own_channels(graph: Pregel[Any, Any, Any, Any]) -> frozenset[str]:
    """The channels that the program has declared, by their names."""
    return frozenset(str(name) for name in graph.channels if is_own(name))


def is_own(channel: object) -> bool:
    """Whether a channel is the program's, and not one that LangGraph keeps for itself."""
    return not str(channel).startswith(_INTERNAL)


def _kind(channel: Any) -> str:
    reducer = getattr(channel, "operator", None) or getattr(channel, "reducer", None)
    return f"{type(channel).__name__}({_type_name(getattr(channel, 'typ', None))}, {_reducer_name(reducer)})"


def _reducer_name(reducer: Any) -> str:
    if reducer is None:
        return ""
    if str(getattr(reducer, "__module__", "")).startswith("langgraph."):
        return "langgraph"  # `add_messages` is wrapped in private functions, whose names are LangGraph's business
    return str(getattr(reducer, "__qualname__", None) or type(reducer).__qualname__)


def _type_name(declared: Any) -> str:
    """The outermost name of a type: what stands in its brackets is written differently from release to release."""
    while typing.get_origin(declared) is typing.Annotated:
        declared = typing.get_args(declared)[0]
    outer = typing.get_origin(declared) or declared
    name = getattr(outer, "__qualname__", None) or getattr(outer, "_name", None)
    return str(name) if isinstance(name, str) else "Any"
