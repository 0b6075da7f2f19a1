"""What `runjournal doctor --graph` finds out about a graph: what is attached to it, and which checkpointer it has."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from ..common.masked_urls import masked
from ..settle.attached_graph import attachments_of
from .doctor_journal import at_home
from .graph_loader import load_graph
from .options import CommandFailed

if TYPE_CHECKING:
    from langgraph.pregel import Pregel


async def graph_facts(name: str) -> dict[str, Any]:
    """Import a graph, and return what is attached to it, without any message of the program.

    Raises `click.UsageError` if the name is not module:attribute.
    """
    async with AsyncExitStack() as stack:
        try:
            graph = await load_graph(name, stack, needs_checkpointer=False)
        except CommandFailed as exc:
            return {"name": name, "error": _not_loaded(exc)}
        return {"name": name, "error": None, **_facts(graph)}


def _not_loaded(exc: CommandFailed) -> str:
    """Return why a graph could not be loaded, without the message of the program."""
    cause = exc.__cause__
    if cause is None:
        return "it is not a compiled graph: give what compile() returns"
    if isinstance(cause, ModuleNotFoundError) and cause.name:
        return f"the module {cause.name} was not found"
    return f"its module raised {type(cause).__name__}"


def _facts(graph: Pregel[Any, Any, Any, Any]) -> dict[str, Any]:
    from .. import JournalCallbackHandler, JournalSaver

    saver: Any = graph.checkpointer
    inner = saver.saver if isinstance(saver, JournalSaver) else saver
    found = (graph.config or {}).get("callbacks") or []
    handlers = found if isinstance(found, list) else getattr(found, "handlers", [])
    return {
        "class": _class_of(graph),
        "attached": [
            {"journal": at_home(masked(one.journal.url)), "url": one.journal.url, "settle": one.mode}
            for one in attachments_of(graph)
        ],
        "handler": any(isinstance(one, JournalCallbackHandler) for one in handlers),
        "checkpointer": None if inner is None or isinstance(inner, bool) else _class_of(inner),
        "journal_saver": isinstance(saver, JournalSaver),
        "messages": "messages" in graph.channels,
        "attached_subgraphs": sum(bool(attachments_of(one)) for one in _subgraphs(graph)),
    }


def _subgraphs(graph: Pregel[Any, Any, Any, Any]) -> list[Any]:
    try:
        return [one for _, one in graph.get_subgraphs(recurse=True)]
    except Exception:  # noqa: BLE001 - the graph is the program's, and may refuse
        return []


def _class_of(thing: object) -> str:
    plain = getattr(type(thing), "_plain", type(thing))
    return f"{plain.__module__}.{plain.__qualname__}"
