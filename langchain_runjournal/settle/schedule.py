"""The schedule of settlements: at the end of a run, and before the next run of the thread begins.

Rule: a new message is always preceded by a settlement of what earlier runs left, a resume never. A run that may still be
alive is never touched. A run with a dead owner is claimed first, so that of two processes one settles it and the other one
waits.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ..capture.recorder import recorder_of
from ..capture.run_endings import standing
from ..capture.thread_slots import ThreadSlot
from ..common.twins import Effect, Effects, wait_for
from ..errors import RunNotFound, StoreFailed
from ..events import Event, Run, RunStatus
from ..journal.core import core_of
from ..journal.dead_owners import WaitForOwner
from ..journal.run_reading import read_what_is_left, unsettled
from ..journal.waiting import make_durable, off_loop
from ..messages.tool_evidence import Evidence
from .failures import log_failure
from .order import Older
from .settlements import settlements_of
from .settler import Settlement, Settler
from .thread_hold import Waits

if TYPE_CHECKING:
    from ..journal.run_journal import RunJournal

logger = logging.getLogger("langchain_runjournal")

_T = TypeVar("_T")
_RUNS_BACK: Final = (10, 100, 1_000)
"""The numbers of runs of a thread that are read before a new one begins. Each of those runs has
looked at the runs before it."""
_LEAVING: Final = 1.0
"""Seconds that a new run waits for another one on its thread that seems to be running. Its consumer may have left it, so
that it is about to end."""
_SETTLING: Final = 60.0
"""Seconds after which a waiting run logs that another process is still settling, and after which it no longer waits for a
run of this process that is being cancelled."""
_LOOK: Final = 0.05
_END_DELAY: Final = 0.15
"""Seconds that a new message waits for the end of a run that another process owns. The call of that run may have returned,
and a store receives the end up to 70 ms later."""
_NOT_SETTLED: Final = "run %s begins before what earlier runs left on its thread is settled: %s"
_STILL_SETTLING: Final = (
    "the new message on thread %s waits for journal %s, which has claimed run %s and has not settled it for %.0f s. The"
    " new message begins when that is done, or when the process of that journal ends"
)
_UNDECIDED: Final = (
    "the new message on thread %s begins before run %s is settled: its owner is on another machine and may be dead, but the"
    " lease of that owner had not run out after %.1f s (attach(..., wait_for_owner=...) sets that time)"
)
_OVERLAP: Final = "run %s is still running on thread %s, where another run begins: one of them will lose what it writes"


class SettlementSchedule:
    """The settlements of one graph, and when they are due."""

    def __init__(self, journal: RunJournal, settler: Settler, wait_for_owner: float | None = None) -> None:
        """`wait_for_owner`: how long a new message waits until the heartbeats of an owner on another machine tell whether
        that owner is alive; None for its lease and the time of one heartbeat."""
        self._journal = journal
        self._wait_for_owner = wait_for_owner
        self._core = core_of(journal)
        self._capture = recorder_of(journal)
        self._settler = settler
        self._settlements = settlements_of(journal)
        self._warned_of: set[str] = set()
        """The runs of other graphs about which the log has warned."""

    def settle_ended(self, key: int) -> Effects[None]:
        """Settle the thread of a run that came to an abnormal end, then append the end of the run."""
        root = self._capture.unsettled(key)
        if root is None or root.turn is None or root.turn.ending is None:
            return
        if not self._is_first_to_settle(root.turn):
            # The task of the run and LangChain's callback may both arrive here. The first one settles.
            yield wait_for(root.turn, _SETTLING)
            return
        result: Settlement | None = None
        older: Older = "none" if root.turn.branches else "taken" if root.turn.resumes else "all"
        try:
            if root.started is not None and root.left is not None:
                yield wait_for(root.left, root.started.patience())
            # A program that stops a run does not answer the question at which it paused, or has answered it and stops the
            # resumed run. After a call that was only cancelled, or that failed, the program may still answer the question.
            is_over = root.started is not None or root.turn.resumes
            over_pause = is_over and root.turn.ending["status"] == "interrupted"
            why = _cause_of(root.turn.ending)
            # A message that was cancelled while it waited ends at once.
            waits: Waits | None = (lambda: False) if root.turn.leaves else None
            settle = partial(self._settler.settle, root.run_id, why, over_pause=over_pause)
            result = yield from settle(older=older, waits=waits)
        finally:
            # Also if the loop shuts down in the middle. Then the thread is settled before the next run begins.
            final = result is not None and result.is_final
            data, problem = (result.to_data(), result.reason) if result is not None else (None, "cut off")
            append_end = partial(self._capture.conclude, key, data if final else None, problem)
            root.turn.is_worked_on = False
            self._capture.tracker.do(append_end)
        yield make_durable(self._journal, _SETTLING)

    def _is_first_to_settle(self, slot: ThreadSlot) -> bool:
        """Return whether this caller is the first of several to settle the run of a slot."""
        mine: list[bool] = []

        def begin() -> None:
            mine.append(not slot.is_worked_on)
            slot.is_worked_on = True

        self._capture.tracker.do(begin)
        return mine[0]

    def prepare_thread(self, slot: ThreadSlot, run_id: str, inputs: Any = None) -> Effects[None]:
        """Settle what earlier runs left on a thread, before the graph reads it for a new message."""
        slot.waits = True
        try:
            try:
                yield from self._settle_older_runs(slot, run_id)
            except Exception as exc:  # noqa: BLE001 - the message begins all the same, and never with open requests
                log_failure(exc, _NOT_SETTLED, run_id)
            is_thread_free = partial(self._is_thread_free, slot, run_id)
            slot.keep_read(*(yield from self._settler.repair(slot.thread_id, inputs, is_thread_free)))
        finally:
            slot.waits = False

    def _settle_older_runs(self, slot: ThreadSlot, run_id: str) -> Effects[None]:
        yield from self._wait_for_others(slot)
        runs: list[Run] = []
        candidates: list[Run] = []
        for limit in _RUNS_BACK:
            runs = yield self._off(partial(self._journal.runs, slot.thread_id, None, limit))
            # Newer runs may be there already, which wait for this one.
            older = next((place + 1 for place, run in enumerate(runs) if run.run_id == run_id), 0)
            candidates = [run for run in runs[older:] if self._settler.runs.share_name(run)]
            if len(runs) < limit or len(candidates) > _RUNS_BACK[0] // 2:
                break  # else, most of these runs belong to other graphs
        # The store has an index of unsettled runs, so a run is found however many newer ones there are.
        listed = {run.run_id for run in runs}
        left = yield self._off(partial(unsettled, self._journal, slot.thread_id))
        candidates += [run for run in reversed(left) if run.run_id not in listed and self._settler.runs.share_name(run)]
        listed |= {run.run_id for run in left}
        # If the store could not be written, it lacks runs. This process knows them.
        for run_left in self._capture.threads.take_open(slot):
            if run_left not in listed:
                with suppress(RunNotFound):
                    run = yield self._off(partial(self._journal.run, run_left))
                    candidates = [run, *candidates] if self._settler.runs.are_of(run) else candidates
        candidates = yield from self._own_runs(candidates)
        for run in reversed(candidates):
            if run.done or (run.status == RunStatus.PAUSED and run is not candidates[0]):
                continue  # in the second case, the conversation has continued since
            with suppress(RunNotFound):  # another process has settled the run, and it was pruned
                yield from self._settle_older(slot, run, run_id)
            if slot.leaves:
                return
        ours = self._capture.threads.take_late(slot)
        for run in candidates:
            if run.run_id in ours or (run is candidates[0] and (yield from self._has_late(run))):
                cause = run.cause or "error"
                settle = partial(self._settler.settle, run.run_id, cause, over_pause=True, before_run=run_id)
                result = yield from settle(late=True, waits=lambda: not slot.leaves)
                self._append_late_results(run, result)

    def _settle_older(self, slot: ThreadSlot, run: Run, new_run: str) -> Effects[None]:
        """Settle an earlier run of the thread before a new one begins, unless the earlier one is running. If another
        settlement has reserved it, wait for that one."""
        while True:
            with self._settlements.reserve(run.run_id) as other:
                if other is None:
                    if self.is_running_here(run):
                        return
                    if run.status == RunStatus.RUNNING and not (yield from self._claim(slot, run)):
                        return
                    result = yield from self.settle_left(run, new_run, lambda: not slot.leaves)
                    if not result.is_final:
                        self._capture.threads.left_open(slot, run.run_id)
                    return
            began = time.monotonic()
            is_over = yield wait_for(other, _LEAVING)
            if slot.leaves or (not is_over and (other.stands_still() or time.monotonic() - began < _LEAVING / 2)):
                return  # waiting for the other settlement would deadlock, or is in vain
            run = yield self._off(partial(self._journal.run, run.run_id))
            if run.done:
                return

    def _own_runs(self, runs: list[Run]) -> Effects[list[Run]]:
        """Return the runs that this graph settles before a new message, of the runs of graphs of its name."""
        found: list[Run] = []
        for run in runs:
            ours, why = self._settler.runs.are_of(run), None
            if not run.done:
                # Another version of this graph may have run before it on the same thread.
                adopt = not ours and (yield from self._settler.runs.continue_thread_of(run))
                why = self._settler.runs.refuse(run, adopt=adopt)
                ours = ours or adopt
            if ours and why is None:
                found.append(run)
            elif why is not None and run.run_id not in self._warned_of:
                self._warned_of.add(run.run_id)
                logger.warning("not settling run %s on thread %s: %s", run.run_id, run.thread_id, why)
        return found

    def _is_thread_free(self, slot: ThreadSlot, run_id: str) -> Effects[bool]:
        """Return whether no other run is known to be running on a thread, of whatever graph.

        A run of an owner on another machine does not count: the message has waited for the heartbeats of that owner, and
        begins beside the run. If it left the requests of that run open, a provider would refuse the message.
        """
        try:
            runs: list[Run] = yield self._off(partial(unsettled, self._journal, slot.thread_id))
        except StoreFailed:
            return not any(not other.waits for _, other in self._capture.threads.others(slot))
        for run in runs:
            if run.status != RunStatus.RUNNING or run.run_id == run_id:
                continue
            if self._capture.threads.waits(slot.thread_id, run.run_id):
                continue
            if self.is_running_here(run) or not (yield self._off(partial(self._may_be_dead, run))):
                return False
        return True

    def _may_be_dead(self, run: Run) -> bool:
        owners = self._core.dead_owners
        return owners.owner_is_gone(run) or owners.elsewhere(run) is not None

    def complete_paused(self, slot: ThreadSlot) -> Effects[None]:
        """Complete the runs that waited for a human, because the run of this slot resumes them."""
        yield self._off(partial(self._capture.cut_calls.recall, self._journal, slot.thread_id))
        for run in (yield self._off(partial(self._journal.runs, slot.thread_id, RunStatus.PAUSED, None))):
            if self._settler.runs.are_of(run) and (yield self._off(partial(self._journal.claim, run.run_id))):
                data = {"status": "completed", "usage": dict(run.usage)}
                self._journal.append(Event(run_id=run.run_id, kind="run.end", data=data))

    def _has_late(self, run: Run) -> Effects[bool]:
        """Return whether a run of another process has received results after its end. Results of our own runs are reported
        to this process."""
        if run.owner == self._journal.owner_id or run.status not in (RunStatus.INTERRUPTED, RunStatus.FAILED):
            return False
        events = yield self._off(partial(read_what_is_left, self._journal, run.run_id))
        return Evidence(run.run_id, events).has_late

    def _wait_for_others(self, slot: ThreadSlot) -> Effects[None]:
        if any(other.is_lost() for _, other in self._capture.threads.others(slot)):
            self._capture.end_idle_runs()
        for root, other in self._capture.threads.others(slot):
            give_up = time.monotonic() + _SETTLING
            while True:
                began = time.monotonic()
                if (yield wait_for(other, _LEAVING, always=root.over)):
                    break
                if root.over and not other.is_worked_on:
                    # The loop of the other run was shut down, or Ctrl-C interrupted it. This run settles it, then.
                    self._capture.tracker.do(partial(self._capture.give_up, root, "cut off"))
                    break
                if slot.leaves:
                    return
                # False where waiting on this thread would block the loop that the other run needs.
                now_waits = time.monotonic() - began > _LEAVING / 2
                # Wait for a settlement without a limit: a run that begins in the middle of it would lose what it writes.
                is_settling = root.over and not other.stands_still()
                if not now_waits or (began > give_up and not is_settling) or not (root.over or other.is_leaving()):
                    logger.warning(_OVERLAP, root.run_id, slot.thread_id)
                    break

    def _claim(self, slot: ThreadSlot, run: Run) -> Effects[bool]:
        """Claim a run once its owner is dead. Return False if the owner is alive, or if another process has settled the run.

        A process that has claimed the run settles it, or dies, and then this loop claims it. Where only a heartbeat shows
        whether an owner lives (another machine), wait for the next heartbeat or for the end of the lease, at most
        `wait_for_owner` seconds.
        """
        began = time.monotonic()
        wait: WaitForOwner = yield self._off(partial(WaitForOwner, self._core.dead_owners, run, self._wait_for_owner))
        warn_at: float | None = began + _SETTLING
        while True:
            waited = time.monotonic() - began
            try:
                is_ours = yield from self._try_to_claim(slot, run.run_id, wait, waited)
            except StoreFailed:
                if waited > wait.patience:
                    raise
                is_ours = None
            if is_ours is not None:
                return is_ours
            if warn_at is not None and time.monotonic() > warn_at:
                run = yield self._off(partial(self._journal.run, run.run_id))
                logger.warning(_STILL_SETTLING, slot.thread_id, run.owner, run.run_id, _SETTLING)
                warn_at = None
            yield Effect(partial(time.sleep, _LOOK), partial(asyncio.sleep, _LOOK))

    def _try_to_claim(self, slot: ThreadSlot, run_id: str, wait: WaitForOwner, waited: float) -> Effects[bool | None]:
        """Try to claim a run. Return whether it is ours now, or None if the message has to wait."""
        if (yield self._off(partial(self._journal.claim, run_id))):
            return True
        # Before the run is read: its owner releases the thread after the end of the run is stored.
        is_late = waited > _END_DELAY
        is_settling = is_late and (yield self._off(partial(self._settler.is_held_elsewhere, slot.thread_id)))
        run = yield self._off(partial(self._journal.run, run_id))
        if run.ended or run.status == RunStatus.PAUSED:
            # The process that claimed it may not have settled it, because our new run seemed to be running there.
            return bool(run.ended and not run.done)
        if slot.leaves:
            return False
        if run.epoch > 1:
            return None
        known: str = yield self._off(partial(wait.look, run, waited))
        if known == "unknown":
            return None
        if known == "undecided":
            logger.warning(_UNDECIDED, slot.thread_id, run_id, wait.patience)
            return False
        # While its owner settles the thread, the run has come to its end.
        if not is_late or is_settling:
            return None
        logger.warning(_OVERLAP, run_id, slot.thread_id)
        return False  # its first owner is alive

    def settle_left(self, run: Run, new_run: str | None, waits: Waits | None = None) -> Effects[Settlement]:
        """Settle what an earlier run left, and append the outcome if this journal owns the run."""
        cause = run.cause or {RunStatus.RUNNING: "crash", RunStatus.PAUSED: "superseded"}.get(run.status)
        over_pause = new_run is not None
        ending: dict[str, Any] = {"status": "interrupted", "cause": cause, "usage": dict(run.usage)}
        try:
            settle = partial(self._settler.settle, run.run_id, cause or "error", over_pause=over_pause, before_run=new_run)
            result = yield from settle(older="all" if new_run is None else "left", waits=waits)
        except BaseException:
            # The loop may be shutting down. A run that is claimed and not ended would look as if it were running.
            if run.status == RunStatus.RUNNING and run.run_id in self._core.appender.buffers:
                cut = {**ending, "settled": False, "problem": "cut off"}
                self._journal.append(Event(run_id=run.run_id, kind="run.end", data=cut))
            raise
        # The claim fails if another task or process has settled the run meanwhile.
        if (yield self._off(partial(self._journal.claim, run.run_id))):
            # Read the run again: another task or process may have appended its end.
            run = yield self._off(partial(self._journal.run, run.run_id))
            if result.is_final:
                data = result.to_data()
                self._journal.append(Event(run_id=run.run_id, kind="run.settled", data=data))
                ending |= standing(data)
            else:
                ending |= {"settled": False, "problem": result.reason}
                if run.ended and run.problem != result.reason:
                    self._journal.append(Event(run_id=run.run_id, kind="run.settled", data=result.to_data()))
            if not run.ended:
                self._journal.append(Event(run_id=run.run_id, kind="run.end", data=ending))
            yield make_durable(self._journal, _SETTLING)
        return result

    def _append_late_results(self, run: Run, result: Settlement) -> None:
        if result.messages and run.owner == self._journal.owner_id:
            self._journal.append(Event(run_id=run.run_id, kind="run.settled", data={**result.to_data(), "late": True}))

    def is_running_here(self, run: Run) -> bool:
        """Return whether a run of this process has not ended, including a run that only a handler records."""
        is_ours = run.status == RunStatus.RUNNING and run.owner == self._journal.owner_id
        return is_ours or self._capture.threads.is_live(str(run.thread_id), run.run_id)

    def _off(self, work: Callable[[], _T]) -> Effect[_T]:
        return off_loop(self._journal, work)


def _cause_of(ending: Mapping[str, Any]) -> str:
    return str(ending.get("cause") or "error")
