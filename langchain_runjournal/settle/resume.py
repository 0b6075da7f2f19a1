"""The checkpoint at which a run that was cut off can be resumed, and the recovery of killed runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from ..errors import NothingToResume
from ..events import GRAPH, Event, Run, RunStatus

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig

    from ..journal.run_journal import RunJournal
    from .recovery import Recovery

RESUME: Final = "__runjournal_resume"
"""The key in ``config["configurable"]`` for the id of the checkpoint from which a run of the outermost graph resumes.

`JournalSaver` shows that checkpoint to the run as the newest of its thread. With ``checkpoint_id`` instead, LangGraph would
run the whole interrupted superstep again, including the tools that have finished. Because of the two leading underscores,
LangGraph does not store the key in its metadata.
"""


RESUMED_RUN: Final = "__runjournal_takes_up"
"""The key in the same dict for the id of the run that is resumed."""


def resume_config(run: Run, events: Iterable[Event]) -> RunnableConfig:
    """Return the config that resumes a run where it was cut off, at the checkpoint before any settlement."""
    if run.thread_id is None:
        raise NothingToResume(run_id=run.run_id, reason="it has no thread")
    if run.status == RunStatus.COMPLETED:
        raise NothingToResume(run_id=run.run_id, reason="it is complete")
    given = applied = touched = False
    before: str | None = None
    for event in events:
        if event.kind == "llm.human.input":
            given = True
        elif event.kind == "run.checkpoint":
            applied = applied or "applied" in event.data
            before = before or event.data.get("before") or event.data.get("resumed")
        elif event.kind == "run.settled":
            touched = touched or event.data.get("outcome") == "settled"
            before = before or event.data.get("before")
    # The checkpoint of an earlier run does not hold the input of this one. The journal knows that only of attached graphs.
    missing = given and not applied and GRAPH in run.metadata
    if missing or (touched and before is None):
        raise NothingToResume(run_id=run.run_id, reason="it ended before its first checkpoint was written")
    configurable: dict[str, Any] = {"thread_id": run.thread_id, RESUMED_RUN: run.run_id}
    if before is not None:
        configurable[RESUME] = before
    return {"configurable": configurable}


def recovery_of(journal: RunJournal, graph: Any) -> Recovery:
    """Return the recovery of the runs of a graph. The import is late: LangGraph takes half a second to import."""
    from . import recovery as _recovery

    return _recovery.recovery_of(journal, graph)
