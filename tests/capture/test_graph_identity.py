"""The identity of a graph: its fingerprint."""

from __future__ import annotations

import operator
import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

from langgraph.graph import START, MessagesState, StateGraph
from typing_extensions import TypedDict

from langchain_runjournal.capture.graph_identity import fingerprint


class Wide(TypedDict):
    messages: Annotated[list[Any], operator.add]
    notes: Annotated[list[str], operator.add]
    plan: str


class Reordered(TypedDict):
    plan: str
    notes: Annotated[list[str], operator.add]
    messages: Annotated[list[Any], operator.add]


class OtherType(TypedDict):
    messages: Annotated[list[Any], operator.add]
    notes: Annotated[list[str], operator.add]
    plan: int


def _graph(state: Any, *nodes: str, name: str | None = None) -> Any:
    builder = StateGraph(state)
    for node in nodes:
        builder.add_node(node, lambda state: {})
        builder.add_edge(START, node)
    return builder.compile(name=name)


def test_order_and_name_do_not_matter() -> None:
    """Graphs with the same nodes and channels have one fingerprint, in whatever order and under whatever name."""
    assert fingerprint(_graph(Wide, "a", "b")) == fingerprint(_graph(Reordered, "b", "a", name="other"))


def test_nodes_channels_and_types_matter() -> None:
    """One node more, one channel less, another type or another reducer gives another fingerprint."""
    found = [_graph(Wide, "a"), _graph(Wide, "a", "b"), _graph(OtherType, "a"), _graph(MessagesState, "a")]
    assert len({fingerprint(graph) for graph in found}) == len(found)


_ELSEWHERE = """
from tests.capture.test_graph_identity import Wide, _graph
from langchain_runjournal.capture.graph_identity import fingerprint
print(fingerprint(_graph(Wide, "a", "b")))
"""


def test_it_is_the_same_in_another_process() -> None:
    """The fingerprint contains nothing of this process (hash seeds, addresses)."""
    found = {
        subprocess.run(
            [sys.executable, "-c", _ELSEWHERE],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert found == {fingerprint(_graph(Wide, "a", "b"))}
