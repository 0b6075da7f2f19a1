"""The ids of assistants: one for each graph, the same after a restart and in each process."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from uuid import NAMESPACE_URL, uuid5

_NAME: Final = "langchain-runjournal/langgraph/assistant/"


def assistant_id_of(graph: str) -> str:
    """Return the id of the assistant of a graph, by the name of the graph."""
    return str(uuid5(NAMESPACE_URL, _NAME + graph))


def graph_of_assistant(named: object, graphs: Iterable[str]) -> str | None:
    """Return the name of the graph that a client names, by its name or by the id of its assistant; None if it is unknown."""
    if not isinstance(named, str):
        return None
    return next((graph for graph in graphs if named in (graph, assistant_id_of(graph))), None)
