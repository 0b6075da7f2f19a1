"""Whether a thread holds a run already, though the journal does not say that it is settled.

Rule: a run is left behind only if the thread lacks something of it. Whoever settles a run that belongs to a living process
cannot write so into the journal, and may be killed before it writes; newer runs then stand behind the words of the run.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ..common.twins import Effects
from ..journal.run_reading import read_if_there
from ..journal.waiting import off_loop
from ..messages.loading import as_messages
from .plan import holds
from .resumed_tasks import about_run

if TYPE_CHECKING:
    from ..events import Run
    from ..journal.run_journal import RunJournal
    from .graph_thread import GraphThreads


def stands_already(journal: RunJournal, threads: GraphThreads, run: Run, reason: str) -> Effects[bool]:
    """Whether the thread of a run holds all that it has said. False where its messages have no ids of their own."""
    shape = threads.shape
    state = yield threads.read(str(run.thread_id))
    if shape.problem is not None or shape.problem_with(state.values) is not None:
        return False
    found = shape.messages(state.values) or []
    if not found or shape.form(found) != "messages":
        return False
    events = yield off_loop(journal, partial(read_if_there, journal, run.run_id))
    about = yield from about_run(journal, threads, run, events, reason)
    given = partial(holds, as_messages(found), about.transcript, run_id=run.run_id)
    return given(applied=about.applied, tasks=about.tasks)
