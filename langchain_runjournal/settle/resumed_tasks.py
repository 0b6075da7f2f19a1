"""The messages that earlier runs said in a task that a later run resumed: one task may span several runs.

Rule: LangGraph gives a resumed task the id that it had, and an inner graph in that task resumes from its own state. The
earlier messages are in the state of that inner graph, and in no other thread until the task ends. A task that started again
from the beginning has nothing in such a state, so its earlier messages do not count.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ..common.twins import Effects
from ..events import DELTA, Event, Run
from ..journal.run_reading import read_if_there
from ..journal.waiting import off_loop
from ..messages import transcript as _transcript
from .evidence import SettlementEvidence

if TYPE_CHECKING:
    from ..journal.run_journal import RunJournal
    from .graph_thread import GraphThreads

_RUNS_BACK: Final = 50
"""The number of runs of a thread that are searched for the beginning of a task."""


def evidence_of(
    journal: RunJournal, threads: GraphThreads, run: Run, events: Sequence[Event], reason: str, *, late: bool = False
) -> Effects[SettlementEvidence]:
    """Return the evidence about a run: its own events, and the messages of earlier runs in tasks that it resumed.

    `late`: see `SettlementEvidence`.
    """
    evidence = SettlementEvidence(run, str(run.thread_id), events, reason, late=late)
    evidence.read((yield from earlier_messages(journal, threads, run, events)))
    evidence.read(_transcript.said(run.run_id, events, reason))
    return evidence


def earlier_messages(
    journal: RunJournal, threads: GraphThreads, run: Run, events: Sequence[Event]
) -> Effects[list[_transcript.Said]]:
    """Return the messages of earlier runs that stand in an inner graph of a task which this run resumed, in order."""
    recorded = [event for event in events if event.kind != DELTA]
    tasks = {event.data["task"] for event in recorded if "task" in event.data}
    if not tasks or run.thread_id is None or any(event.kind == "llm.human.input" for event in recorded):
        return []
    found: list[_transcript.Said] = []
    inner: dict[str, set[str]] = {}
    runs = yield off_loop(journal, partial(journal.runs, run.thread_id, None, _RUNS_BACK))
    older = next((place + 1 for place, one in enumerate(runs) if one.run_id == run.run_id), len(runs))
    for other in runs[older:]:
        theirs = yield off_loop(journal, partial(read_if_there, journal, other.run_id))
        kept = []
        for one in _transcript.said(other.run_id, theirs, other.cause or "error"):
            if one.task is None or one.task.id not in tasks or not one.graph:
                continue
            if one.graph not in inner:
                inner[one.graph] = yield from _ids_in_inner_graph(threads, run.thread_id, one.graph)
            if one.message["data"].get("id") in inner[one.graph]:
                kept.append(one)
        found = kept + found
        if any(event.kind == "llm.human.input" for event in theirs if event.kind != DELTA):
            break
    return found


def _ids_in_inner_graph(threads: GraphThreads, thread_id: str, namespace: str) -> Effects[set[str]]:
    """Return the ids of the messages in the state of an inner graph."""
    try:
        state: Any = yield threads.read(thread_id, namespace)
    except ValueError:
        return set()  # LangGraph does not find a graph that a node calls directly
    messages = threads.shape.messages(state.values) or []
    return {one.id for one in messages if getattr(one, "id", None)}
