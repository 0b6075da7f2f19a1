"""Where a run that was cut off can be taken up again, and what does so for those that were killed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from ..errors import NothingToResume
from ..events import GRAPH, Event, Run, RunStatus

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig

    from ..journal.run_journal import RunJournal
    from .schedule import SettlementSchedule

RESUME: Final = "__runjournal_resume"
"""In ``config["configurable"]``: the id of the checkpoint that a run of the outermost graph goes on from, shown to it by
`JournalSaver` as the newest of its thread. With ``checkpoint_id`` instead, LangGraph would run the whole interrupted step
again, tools that have finished included. The two underscores in front keep it out of the metadata that LangGraph stores."""


TAKES_UP: Final = "__runjournal_takes_up"
"""In the same place: the id of the run that is taken up."""


def resume_config(run: Run, events: Iterable[Event]) -> RunnableConfig:
    """The config that goes on where the run was cut off, before anything was settled."""
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
    # The checkpoint of an earlier run does not hold what this one was given. Only of attached graphs is that known.
    missing = given and not applied and GRAPH in run.metadata
    if missing or (touched and before is None):
        raise NothingToResume(run_id=run.run_id, reason="it ended before its first checkpoint was written")
    configurable: dict[str, Any] = {"thread_id": run.thread_id, TAKES_UP: run.run_id}
    if before is not None:
        configurable[RESUME] = before
    return {"configurable": configurable}


def turns_of(journal: RunJournal, graph: Any) -> SettlementSchedule:
    """What settles the runs of a graph. Looked up late: LangGraph takes half a second to import."""
    from . import schedule as _turns

    return _turns.turns_of(journal, graph)
