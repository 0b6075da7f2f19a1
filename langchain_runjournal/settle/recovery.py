"""Recovery: settle all runs of a graph that dead owners left, on all threads at once.

Rule: a run is claimed before it is settled, and the runs of a thread are settled in their order. A thread that cannot be
settled does not keep the others from being settled.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.pregel import Pregel

from ..capture.recorder import recorder_of
from ..common.twins import Effects, context_without_run, run_async, run_shielded, run_sync
from ..errors import InvalidArgument, RunNotFound
from ..events import GRAPH, Run
from ..journal.core import core_of
from ..journal.run_reading import unsettled
from ..journal.waiting import off_loop
from .graph_runs import GraphRuns
from .graph_thread import GraphThreads
from .order import BEHIND, by_thread
from .schedule import SettlementSchedule
from .settlements import settlements_of
from .settler import Settlement, Settler

if TYPE_CHECKING:
    from ..journal.run_journal import RunJournal


class Recovery:
    """The recovery of the runs of one graph."""

    def __init__(self, journal: RunJournal, schedule: SettlementSchedule, runs: GraphRuns) -> None:
        self._journal = journal
        self._schedule = schedule
        self._runs = runs

    def now(self, adopt: bool) -> list[Settlement]:
        """Recover, and block until it is done."""
        return context_without_run().run(run_sync, self._recover(adopt))

    async def later(self, adopt: bool) -> list[Settlement]:
        """Recover, without blocking the loop."""
        return await run_shielded(run_async(self._recover(adopt)))

    def _recover(self, adopt: bool) -> Effects[list[Settlement]]:
        """Settle everything that runs of dead owners left, thread by thread. `adopt`: also runs of a graph of this name that
        has other nodes or channels."""
        recorder_of(self._journal).end_idle_runs()
        left = yield off_loop(self._journal, partial(unsettled, self._journal))
        found: list[Settlement] = []
        for runs in by_thread([run for run in left if self._runs.share_name(run)]):
            found += yield from self._recover_thread(runs, adopt)
        return found

    def _recover_thread(self, runs: list[Run], adopt: bool) -> Effects[list[Settlement]]:
        """Settle the runs of one thread, oldest first. Leave the runs behind one that another process settles."""
        found: list[Settlement] = []
        first: Run | None = None
        for run in runs:
            why = self._runs.refuse(run, adopt=adopt)
            if why is None and first is not None:
                why = BEHIND.format(first.run_id)
            with suppress(RunNotFound):  # another process has settled the run, and it was pruned
                if why is not None:
                    if (yield off_loop(self._journal, partial(self._is_claimable, run))):
                        found.append(Settlement(run_id=run.run_id, thread_id=run.thread_id, outcome="held", reason=why))
                    continue
                result = yield from self._recover_run(run)
                if result is not None:
                    found.append(result)
                elif (
                    not (yield off_loop(self._journal, partial(self._journal.run, run.run_id))).done
                    and GRAPH in run.metadata
                ):
                    first = run
        return found

    def _recover_run(self, run: Run) -> Effects[Settlement | None]:
        """Settle a run, if it can be claimed. Return None if another settlement or process works on it, or if nothing is
        left to do."""
        with settlements_of(self._journal).reserve(run.run_id) as other:
            if other is not None or self._schedule.is_running_here(run):
                return None
            try:
                if not (yield off_loop(self._journal, partial(self._journal.claim, run.run_id))):
                    return None
            except OSError as exc:
                # The spool of the owner cannot be read. That must not keep the other threads from being settled.
                reason = f"{type(exc).__name__}: {exc}"
                return Settlement(run_id=run.run_id, thread_id=run.thread_id, outcome="failed", reason=reason)
            return (yield from self._schedule.settle_left(run, None))

    def _is_claimable(self, run: Run) -> bool:
        """Return whether no other settlement or process works on a run. This method does not claim it."""
        if self._schedule.is_running_here(run) or self._journal.run(run.run_id).done:
            return False
        return run.owner == self._journal.owner_id or core_of(self._journal).dead_owners.owner_is_gone(run)


def recovery_of(journal: RunJournal, graph: Any) -> Recovery:
    """Return the recovery of the runs of a graph, attached or not."""
    core_of(journal).check_open()
    if not isinstance(graph, Pregel):
        raise InvalidArgument(name="graph", expected="the compiled graph whose runs are to be settled", value=graph)
    if not isinstance(graph.checkpointer, BaseCheckpointSaver):
        raise InvalidArgument(name="graph", expected="compiled with the checkpointer that holds its threads", value=graph)
    settler = Settler(journal, GraphThreads(graph), None)
    return Recovery(journal, SettlementSchedule(journal, settler), settler.runs)
