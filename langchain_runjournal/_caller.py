"""Who calls: the attached graph whose run begins, with its thread.

Rule: LangChain's callbacks say which run begins and not which graph, and what they say of the thread is inherited: inside
of a node, it is that of the graph around. The graph itself stands right above the callback on the stack, with its config.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from langgraph.pregel import Pregel

from ._identity import fingerprint
from ._tracker import stack
from .saver import JournalSaver

if TYPE_CHECKING:
    from ._journal import RunJournal

_NEAR: Final = 14
INSIDE: Final = ("__pregel_read", "__pregel_checkpointer")
"""What the config of a graph has that runs as a part of another one, and so on that one's thread."""


@dataclass(frozen=True, slots=True)
class Caller:
    """A graph that is attached, and begins a run on a thread of its own."""

    graph: str
    fingerprint: str
    thread_id: str
    saver: JournalSaver
    checkpoint_id: str | None


def attached_caller(journal: RunJournal) -> Caller | None:
    """The graph that tells us of its beginning, if it is attached to this journal."""
    asked = False
    for frame in stack(_NEAR):
        name = frame.f_code.co_name
        if asked:
            graph = frame.f_locals.get("self")
            return _caller(graph, frame.f_locals.get("config"), journal) if isinstance(graph, Pregel) else None
        asked = name == "on_chain_start" and type(frame.f_locals.get("self")).__name__.endswith("CallbackManager")
    return None


def _caller(graph: Pregel[Any, Any, Any, Any], config: Any, journal: RunJournal) -> Caller | None:
    saver = graph.checkpointer
    configurable = (config or {}).get("configurable") or {}
    thread_id = configurable.get("thread_id")
    if not isinstance(saver, JournalSaver) or saver.journal is not journal or thread_id is None:
        return None
    if any(key in configurable for key in INSIDE):
        return None
    return Caller(graph.get_name(), fingerprint(graph), str(thread_id), saver, configurable.get("checkpoint_id"))
