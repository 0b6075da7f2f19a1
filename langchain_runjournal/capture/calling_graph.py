"""Who calls: the attached graph whose run begins, with its thread and the checkpointer that LangGraph really uses for it.

Rule: LangChain's callbacks say which run begins and not which graph, and what they say of the thread is inherited: inside
of a node, it is that of the graph around. The graph itself stands right above the callback on the stack, with its config.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from langgraph.pregel import Pregel

from ..common.text import is_utf8
from ..events import PROBLEM
from ..journal.run_journal import RunJournal
from .call_tree import stack
from .graph_identity import Identity, identity

if TYPE_CHECKING:
    from .thread_slots import ThreadSaver

_NEAR: Final = 14
TASK: Final = "__pregel_task_id"
"""What the config of a graph has that runs as a task of another one, and so on that one's thread."""
PREVIOUS: Final = "__previous__"
"""The channel in which an entrypoint keeps what it saves for its next call."""
ATTACHMENTS: Final = "_runjournal_attachments"
"""The attribute of an attached graph that holds its attachments."""
INSIDE: Final = ("__pregel_read", TASK)
"""What the config of a graph has that runs as a part of another one, and so on that one's thread."""
_INSIDE: Final = (
    "it runs as a part of another graph, which is not attached, on the thread of that one: attach the outermost graph"
)
_NO_SAVER: Final = "the graph has no checkpointer: LangGraph keeps nothing of this thread"


class Attached(Protocol):
    """What a graph is attached with. `settle/` implements this."""

    journal: RunJournal


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """An attached graph whose run begins. It has a thread that can be settled, or a `problem` that says why not."""

    attachment: Attached
    graph: Pregel[Any, Any, Any, Any]
    identity: Identity
    thread_id: str | None
    saver: ThreadSaver | None
    checkpoint_id: str | None
    callbacks: Any
    """Those of the call: the object itself, which LangGraph hands on to the checkpointer."""
    names_its_run: bool
    """Whether the config of the call names the run."""
    problem: str | None = None

    def about(self) -> dict[str, str]:
        """For the metadata of its run: which graph can settle it, or why none can."""
        if self.problem is not None:
            return {PROBLEM: self.problem}
        return self.identity.to_metadata() if self.saver is not None else {}

    def is_given_other(self, inputs: Any) -> bool:
        """Whether an input without messages is one that an entrypoint reads the user's words from. A resume is none; a
        StateGraph has put what it was given into its state."""
        return PREVIOUS in self.graph.channels and inputs is not None and type(inputs).__name__ != "Command"


def attached_caller(journal: RunJournal) -> Caller | None:
    """The graph that begins a run and calls us for that, if it is attached to this journal."""
    asked = False
    for frame in stack(_NEAR):
        name = frame.f_code.co_name
        if asked:
            graph = frame.f_locals.get("self")
            return _caller(graph, frame.f_locals, journal) if isinstance(graph, Pregel) else None
        asked = name == "on_chain_start" and type(frame.f_locals.get("self")).__name__.endswith("CallbackManager")
    return None


def _caller(graph: Pregel[Any, Any, Any, Any], called: Mapping[str, Any], journal: RunJournal) -> Caller | None:
    attachment = next((one for one in getattr(graph, "__dict__", {}).get(ATTACHMENTS, ()) if one.journal is journal), None)
    if attachment is None:
        return None
    config = called.get("config") or {}
    configurable = config.get("configurable") or {}
    # Resolved by LangGraph before the callback; not all of its releases name it so.
    saver = called.get("checkpointer", graph.checkpointer)
    thread_id, problem = configurable.get("thread_id"), None
    if not is_utf8(str(thread_id)):
        thread_id, saver = None, None  # the saver refuses it as soon as LangGraph asks for the thread
    if any(key in configurable for key in INSIDE):
        saver, problem = None, _INSIDE
    elif not isinstance(getattr(saver, "journal", None), RunJournal):
        saver, problem = None, None if thread_id is None else _NO_SAVER
    elif saver.journal is not journal:
        saver = None  # attached to another journal as well, which settles its threads
    return Caller(
        attachment=attachment,
        graph=graph,
        identity=identity(graph),
        thread_id=None if thread_id is None else str(thread_id),
        saver=saver,
        checkpoint_id=configurable.get("checkpoint_id"),
        callbacks=config.get("callbacks"),
        names_its_run=config.get("run_id") is not None,
        problem=problem,
    )
