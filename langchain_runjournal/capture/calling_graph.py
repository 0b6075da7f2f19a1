"""The caller of a run: the attached graph whose run begins, with its thread and the checkpointer that LangGraph uses for it.

Rule: LangChain's callbacks name the run that begins, but not its graph. The thread in their metadata is inherited: inside of
a node, it is the thread of the graph around. The frame of the graph stands right above the callback on the stack, with its
config.
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

_MAX_FRAMES: Final = 14
TASK: Final = "__pregel_task_id"
"""Key in the config of a graph that runs as a task of another graph, and so on the thread of that graph."""
PREVIOUS: Final = "__previous__"
"""Channel in which an entrypoint keeps what it saves for its next call."""
ATTACHMENTS: Final = "_runjournal_attachments"
"""Attribute of an attached graph that holds its attachments."""
INSIDE: Final = ("__pregel_read", TASK)
"""Keys in the config of a graph that runs as a part of another graph, and so on the thread of that graph."""
_INSIDE: Final = (
    "it runs as a part of another graph, which is not attached, on the thread of that one: attach the outermost graph"
)
_NO_SAVER: Final = "the graph has no checkpointer: LangGraph keeps nothing of this thread"


class Attached(Protocol):
    """The attachment of a graph to a journal. `settle/` implements this."""

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
    """The callbacks of the call: the object itself, which LangGraph passes to the checkpointer."""
    names_its_run: bool
    """Whether the config of the call names the run."""
    problem: str | None = None

    def about(self) -> dict[str, str]:
        """Return metadata for its run: which graph can settle it, or why none can."""
        if self.problem is not None:
            return {PROBLEM: self.problem}
        return self.identity.to_metadata() if self.saver is not None else {}

    def is_given_other(self, inputs: Any) -> bool:
        """Return whether an entrypoint reads the user's words from an input without messages. It does not from a resume; a
        StateGraph has put its input into its state."""
        return PREVIOUS in self.graph.channels and inputs is not None and type(inputs).__name__ != "Command"


def called_graph() -> tuple[Pregel[Any, Any, Any, Any], Mapping[str, Any]] | None:
    """Return the graph that begins and calls the handler for that, and the variables of its call; None if no graph does."""
    is_next = False
    for frame in stack(_MAX_FRAMES):
        name = frame.f_code.co_name
        if is_next:
            called = frame.f_locals
            graph = called.get("self")
            return (graph, called) if isinstance(graph, Pregel) else None
        is_next = name == "on_chain_start" and type(frame.f_locals.get("self")).__name__.endswith("CallbackManager")
    return None


def attached_caller(journal: RunJournal) -> Caller | None:
    """Return the graph that begins a run and calls the handler for that, if it is attached to this journal."""
    found = called_graph()
    return None if found is None else caller_of(*found, journal)


def caller_of(graph: Pregel[Any, Any, Any, Any], called: Mapping[str, Any], journal: RunJournal) -> Caller | None:
    """Return the caller of a run from a graph and the variables of its call, if the graph is attached to this journal."""
    attachment = next((one for one in getattr(graph, "__dict__", {}).get(ATTACHMENTS, ()) if one.journal is journal), None)
    if attachment is None:
        return None
    config = called.get("config") or {}
    configurable = config.get("configurable") or {}
    # LangGraph resolves it before the callback; not all releases use this name for it.
    saver = called.get("checkpointer", graph.checkpointer)
    thread_id, problem = configurable.get("thread_id"), None
    if not is_utf8(str(thread_id)):
        thread_id, saver = None, None  # the saver refuses it as soon as LangGraph asks for the thread
    if any(key in configurable for key in INSIDE):
        saver, problem = None, _INSIDE
    elif not isinstance(getattr(saver, "journal", None), RunJournal):
        saver, problem = None, None if thread_id is None else _NO_SAVER
    elif saver.journal is not journal:
        saver = None  # the graph is attached to another journal as well, which settles its threads
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
