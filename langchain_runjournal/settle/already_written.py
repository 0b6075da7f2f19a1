"""The check whether a thread holds a run already, although the journal does not say that the run is settled.

Rule: a run counts as left behind only if the thread lacks a part of it. A process that settles a run of another living
process cannot append that settlement to the journal of the other one, and a process may be killed between its write of the
thread and its write of the journal. In both cases newer runs of the thread stand behind the messages of the run.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ..common.twins import Effects
from ..journal.run_reading import read_if_there
from ..journal.waiting import off_loop
from ..messages.loading import as_messages
from .plan import holds
from .resumed_tasks import evidence_of

if TYPE_CHECKING:
    from ..events import Run
    from ..journal.run_journal import RunJournal
    from .graph_thread import GraphThreads


def is_already_written(journal: RunJournal, threads: GraphThreads, run: Run, reason: str) -> Effects[bool]:
    """Return whether the thread of a run holds all messages of the run. False where the messages of the thread have no ids
    of their own."""
    shape = threads.shape
    state = yield threads.read(str(run.thread_id))
    if shape.problem is not None or shape.problem_with(state.values) is not None:
        return False
    held = shape.messages(state.values) or []
    if not held or shape.form(held) != "messages":
        return False
    events = yield off_loop(journal, partial(read_if_there, journal, run.run_id))
    evidence = yield from evidence_of(journal, threads, run, events, reason)
    is_held = partial(holds, as_messages(held), evidence.transcript, run_id=run.run_id)
    return is_held(applied=evidence.applied, tasks=evidence.tasks)
