"""The identity of a compiled graph: its nodes and its channels distinguish it from other graphs.

Rule: the same program gives the same fingerprint in every process, in whatever order it adds nodes and channels, and with
whatever release of LangGraph compiles them. So only names and kinds count; objects, addresses and reprs do not.
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
"""Prefixes of LangGraph's own channels. LangGraph makes these from the nodes and edges, and may make others in its next
release."""
_LENGTH: Final = 16


@dataclass(frozen=True, slots=True)
class Identity:
    """The graph that a run belongs to."""

    name: str
    fingerprint: str | None
    """None in the runs of journals that did not record it yet."""

    @property
    def is_named(self) -> bool:
        """Whether the program has given the graph a name of its own."""
        return self.name != UNNAMED

    def is_same(self, other: Identity) -> bool:
        """Return whether both are one graph, or two versions of one: a name of its own distinguishes a graph from the
        others."""
        if self.name != other.name:
            return False
        return self.is_named or self.is_exactly(other)

    def is_exactly(self, other: Identity) -> bool:
        """Return whether neither the names nor the fingerprints differ. An unknown fingerprint does not differ."""
        known = {self.fingerprint, other.fingerprint} - {None}
        return self.name == other.name and len(known) <= 1

    @property
    def key(self) -> str:
        """The key that all versions of the graph have in common."""
        return self.name if self.is_named else f"{self.name}|{self.fingerprint}"

    def to_metadata(self) -> dict[str, str]:
        """Return the identity as metadata of a run."""
        return {GRAPH: self.name} | ({} if self.fingerprint is None else {FINGERPRINT: self.fingerprint})

    def __str__(self) -> str:
        return f"{self.name!r} ({self.fingerprint})" if self.fingerprint else repr(self.name)


def identity(graph: Pregel[Any, Any, Any, Any]) -> Identity:
    """Return the identity of a compiled graph."""
    return Identity(str(graph.get_name()), fingerprint(graph))


def identity_of(run: Run) -> Identity:
    """Return the identity of the graph of a run; for a run without a graph, the name of the run."""
    metadata: Mapping[str, Any] = run.metadata
    found = metadata.get(FINGERPRINT)
    return Identity(str(metadata.get(GRAPH, run.name)), found if isinstance(found, str) else None)


_fingerprints: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()


def fingerprint(graph: Pregel[Any, Any, Any, Any]) -> str:
    """Return the fingerprint of a graph: 16 hexadecimal digits. A node or a channel more, less or of another type changes
    it."""
    found = _fingerprints.get(graph)
    if found is None:
        found = _fingerprints[graph] = _computed(graph)
    return found


def _computed(graph: Pregel[Any, Any, Any, Any]) -> str:
    nodes = sorted(str(name) for name in graph.nodes if not str(name).startswith("__"))
    channels = sorted(f"{name}: {_kind(channel)}" for name, channel in graph.channels.items() if is_own(name))
    text = json.dumps([hasattr(graph, "builder"), nodes, channels], ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_LENGTH]


def own_channels(graph: Pregel[Any, Any, Any, Any]) -> frozenset[str]:
    """Return the names of the channels that the program has declared."""
    return frozenset(str(name) for name in graph.channels if is_own(name))


def is_own(channel: object) -> bool:
    """Return whether the program has declared a channel. LangGraph keeps the others for itself."""
    return not str(channel).startswith(_INTERNAL)


def _kind(channel: Any) -> str:
    reducer = getattr(channel, "operator", None) or getattr(channel, "reducer", None)
    return f"{type(channel).__name__}({_type_name(getattr(channel, 'typ', None))}, {_reducer_name(reducer)})"


def _reducer_name(reducer: Any) -> str:
    if reducer is None:
        return ""
    if str(getattr(reducer, "__module__", "")).startswith("langgraph."):
        return "langgraph"  # LangGraph wraps `add_messages` in private functions, whose names it may change
    return str(getattr(reducer, "__qualname__", None) or type(reducer).__qualname__)


def _type_name(declared: Any) -> str:
    """Return the outermost name of a type: releases differ in how they write what stands in its brackets."""
    while typing.get_origin(declared) is typing.Annotated:
        declared = typing.get_args(declared)[0]
    outer = typing.get_origin(declared) or declared
    name = getattr(outer, "__qualname__", None) or getattr(outer, "_name", None)
    return str(name) if isinstance(name, str) else "Any"
