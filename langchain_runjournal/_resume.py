"""Where a run that was cut off can be taken up again, and what does so for those that were killed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from .errors import NothingToResume
from .events import Event, Run, RunStatus

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig

    from ._journal import RunJournal
    from ._turns import Turns

RESUME: Final = "__runjournal_resume"
"""The key in a config that names the checkpoint to go on from. LangGraph's own `checkpoint_id` would run the whole
interrupted step again, tools that have finished included; with this one, `JournalSaver` shows it that checkpoint as the
newest of the thread."""


def resume_config(run: Run, events: Iterable[Event]) -> RunnableConfig:
    """The config that goes on where the run was cut off, before anything was settled."""
    if run.thread_id is None:
        raise NothingToResume(run_id=run.run_id, reason="it has no thread")
    if run.status == RunStatus.COMPLETED:
        raise NothingToResume(run_id=run.run_id, reason="it is complete")
    touched, before = False, None
    for event in events:
        if event.kind == "run.checkpoint":
            before = before or event.data.get("before")
        elif event.kind == "run.settled":
            touched = touched or event.data.get("outcome") == "settled"
            before = before or event.data.get("before")
    if touched and before is None:
        raise NothingToResume(run_id=run.run_id, reason="it ended before its first checkpoint was written")
    configurable: dict[str, Any] = {"thread_id": run.thread_id}
    if before is not None:
        configurable[RESUME] = before
    return {"configurable": configurable}


def turns_of(journal: RunJournal, graph: Any) -> Turns:
    """What settles the runs of a graph. Looked up late: LangGraph takes half a second to import."""
    from . import _turns

    return _turns.turns_of(journal, graph)
