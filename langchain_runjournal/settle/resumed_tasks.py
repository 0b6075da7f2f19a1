"""What earlier runs said in tasks that a run took up: a task may span several runs.

Rule: LangGraph gives a task that is taken up the id that it had, and a graph inside of it goes on where it was. What was
said there before is in the state of that inner graph, and in no other thread until the task ends. A task that began anew has
nothing in such a state: its earlier words count for nothing.
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
"""How many runs of a thread are searched for the beginning of a task."""


def about_run(
    journal: RunJournal, threads: GraphThreads, run: Run, events: Sequence[Event], reason: str, *, late: bool = False
) -> Effects[SettlementEvidence]:
    """What a run said, by its events, with what earlier runs said in tasks that it took up.

    `late`: see `SettlementEvidence`."""
    about = SettlementEvidence(run, str(run.thread_id), events, reason, late=late)
    about.read((yield from said_before(journal, threads, run, events)))
    about.read(_transcript.said(run.run_id, events, reason))
    return about


def said_before(
    journal: RunJournal, threads: GraphThreads, run: Run, events: Sequence[Event]
) -> Effects[list[_transcript.Said]]:
    """The messages of earlier runs that stand in a graph inside of a task which this run took up, in order."""
    told = [event for event in events if event.kind != DELTA]
    tasks = {event.data["task"] for event in told if "task" in event.data}
    if not tasks or run.thread_id is None or any(event.kind == "llm.human.input" for event in told):
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
                inner[one.graph] = yield from _held(threads, run.thread_id, one.graph)
            if one.message["data"].get("id") in inner[one.graph]:
                kept.append(one)
        found = kept + found
        if any(event.kind == "llm.human.input" for event in theirs if event.kind != DELTA):
            break
    return found


def _held(threads: GraphThreads, thread_id: str, namespace: str) -> Effects[set[str]]:
    """The ids of the messages in the state of a graph inside of a task."""
    try:
        state: Any = yield threads.read(thread_id, namespace)
    except ValueError:
        return set()  # LangGraph does not find a graph that a node calls by itself
    messages = threads.shape.messages(state.values) or []
    return {one.id for one in messages if getattr(one, "id", None)}
