"""The tool history of a thread: looks up in the journal what the runs of the thread know of its tool calls."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ..events import Run, RunStatus
from ..messages.tool_evidence import Call, Evidence
from ..messages.tool_results import CallKnowledge
from .core import core_of
from .extensions import Extension
from .run_reading import read_if_there

if TYPE_CHECKING:
    from .run_journal import RunJournal

_REMEMBERED: Final = 64
_RUNS_BACK: Final = 50
"""How many runs of a thread are searched for a result that its history lacks."""


class ToolHistory(Extension):
    """The cache of the look-ups of one journal, by run and last seq of the run."""

    def __init__(self) -> None:
        self.evidence: dict[tuple[str, int], Evidence] = {}

    def forget(self, run_ids: Collection[str]) -> None:
        """Forget runs that were deleted."""
        gone = set(run_ids)
        for key in [key for key in list(self.evidence) if key[0] in gone]:
            self.evidence.pop(key, None)


def tool_history_of(journal: RunJournal) -> ToolHistory:
    """Return the cache of a journal."""
    return core_of(journal).extensions.get(ToolHistory, ToolHistory)


def look_up(journal: RunJournal, thread_id: str, wanted: Sequence[Call]) -> dict[Call, CallKnowledge]:
    """Return what the runs of a thread know of some calls: a real result if there is one, else the newest knowledge.

    A run that has completed with an open request has handed the request to its caller (a tool in the browser, for example),
    and does not know whether the tool was started. A paused run counts as completed only if the run that resumed it has
    completed.
    """
    found: dict[Call, CallKnowledge] = {}
    missing = set(wanted)
    has_completed = False
    for run in journal.runs(thread_id, limit=_RUNS_BACK):
        if not missing:
            break
        evidence = _of(journal, run)
        has_completed = run.status == RunStatus.COMPLETED and (has_completed or not evidence.has_paused)
        for call in list(missing):
            known = evidence.known(call)
            if known is None:
                continue
            if has_completed and known.state == "never_started":
                known = replace(known, state="unknown")
            if known.result is not None or evidence.has_asked(call):
                missing.discard(call)  # only newer runs could know more
            if known.result is not None or call not in found:
                found[call] = known
    return found


def _of(journal: RunJournal, run: Run) -> Evidence:
    """Return what a run knows. Cache it until the run gets an event: a model call may ask for all runs of a thread."""
    remembered, key = tool_history_of(journal).evidence, (run.run_id, run.last_seq)
    found = remembered.get(key)
    if found is None:
        found = remembered[key] = Evidence(run.run_id, read_if_there(journal, run.run_id), run.cause)
        while len(remembered) > _REMEMBERED:
            remembered.pop(next(iter(remembered)), None)
    return found
