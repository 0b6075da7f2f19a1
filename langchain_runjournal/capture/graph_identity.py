"""What tells one compiled graph from another: its nodes and its channels.

Rule: the same program gives the same fingerprint in every process, whatever the order in which nodes and channels were
added, and whatever release of LangGraph compiled them. So only names and kinds count, no object, no address, no repr.
"""

from __future__ import annotations

import hashlib
import json
import typing
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from langgraph.pregel import Pregel

from ..events import FINGERPRINT, GRAPH, UNNAMED, Run

_INTERNAL: Final = ("__", "branch:", "join:")
"""How LangGraph's own channels begin. It makes them from the nodes and edges, and may make others in its next release."""
_LENGTH: Final = 16


@dataclass(frozen=True, slots=True)
class Identity:
    """Which graph a run is one of."""

    name: str
    fingerprint: str | None
    """None in the runs of journals that did not know of it yet."""

    @property
    def is_named(self) -> bool:
        """Whether the program has given it a name of its own."""
        return self.name != UNNAMED

    def is_same(self, other: Identity) -> bool:
        """Whether both are one graph, or two versions of one: a name of its own tells a graph from the others."""
        if self.name != other.name:
            return False
        return self.is_named or self.is_exactly(other)

    def is_exactly(self, other: Identity) -> bool:
        """Whether nothing tells them apart."""
        known = {self.fingerprint, other.fingerprint} - {None}
        return self.name == other.name and len(known) <= 1

    @property
    def key(self) -> str:
        """What all versions of the graph have in common."""
        return self.name if self.is_named else f"{self.name}|{self.fingerprint}"

    def to_metadata(self) -> dict[str, str]:
        """For the metadata of a run."""
        return {GRAPH: self.name} | ({} if self.fingerprint is None else {FINGERPRINT: self.fingerprint})

    def __str__(self) -> str:
        return f"{self.name!r} ({self.fingerprint})" if self.fingerprint else repr(self.name)


def identity(graph: Pregel[Any, Any, Any, Any]) -> Identity:
    """That of a compiled graph."""
    return Identity(str(graph.get_name()), fingerprint(graph))


def identity_of(run: Run) -> Identity:
    """That of the graph whose run it is; of a run without one, what it is called."""
    said: Mapping[str, Any] = run.metadata
    found = said.get(FINGERPRINT)
    return Identity(str(said.get(GRAPH, run.name)), found if isinstance(found, str) else None)


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
