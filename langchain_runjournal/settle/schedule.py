"""When threads are settled: at the end of a run, before the next one begins, and when a program comes up again.

Rule: a new message is always preceded by a settlement of what the last run left, a resume never. A run that may still be
alive is never touched; one whose owner is gone is claimed first, so that of two processes one settles it and one waits.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.pregel import Pregel

from ..capture.recorder import recorder_of
from ..capture.run_endings import standing
from ..capture.thread_slots import ThreadSlot
from ..common.twins import Effect, Effects, context_without_run, run_async, run_shielded, run_sync, wait_for
from ..errors import InvalidArgument, RunNotFound
from ..events import GRAPH, Event, Run, RunStatus
from ..journal.core import core_of
from ..journal.run_reading import read_what_is_left, unsettled
from ..journal.waiting import make_durable, off_loop
from ..messages.tool_evidence import Evidence
from .graph_thread import GraphThreads
from .order import BEHIND, Older, by_thread
from .settlements import settlements_of
from .settler import Settlement, Settler
from .thread_hold import Waits

if TYPE_CHECKING:
    from ..journal.run_journal import RunJournal

logger = logging.getLogger("langchain_runjournal")

_T = TypeVar("_T")
_RUNS_BACK: Final = (10, 100, 1_000)
"""How many runs of a thread are looked at before a new one begins: each of them has looked at those before it."""
_LEAVING: Final = 1.0
"""Seconds that a new run waits for one on its thread that seems to go on: left by its consumer, it may be about to end."""
_SETTLING: Final = 60.0
"""Seconds after which it says that it still waits for another process that settles, and after which it waits no longer for a
run of this process that is being cancelled."""
_LOOK: Final = 0.05
_UNHEARD: Final = 0.15
"""Seconds that a new message waits for the end of a run that another process owns: its call may have returned, and a store
hears of an end up to 70 ms later."""
_STILL_SETTLING: Final = (
    "the new message on thread %s waits for journal %s, which has claimed run %s and has not settled it for %.0f s. The"
    " new message begins when that is done, or when the process of that journal ends"
)
_GOES_ON: Final = "run %s is still running on thread %s, where another run begins: one of them will lose what it writes"


class SettlementSchedule:
    """The settlements of one graph."""

    def __init__(self, journal: RunJournal, settler: Settler) -> None:
        self._journal = journal
        self._core = core_of(journal)
        self._capture = recorder_of(journal)
        self._settler = settler
        self._settlements = settlements_of(journal)
        self._told: set[str] = set()
        """The runs of other graphs that the log has named."""

    def conclude(self, key: int) -> Effects[None]:
        """A run has come to an abnormal end: settle its thread, and then tell that it has ended."""
        root = self._capture.unsettled(key)
        if root is None or root.turn is None or root.turn.ending is None:
            return
        if not self._begins_to_settle(root.turn):
            # Begun twice, by the task of the run and by LangChain's callback: the first one does it.
            yield wait_for(root.turn, _SETTLING)
            return
        result: Settlement | None = None
        older: Older = "none" if root.turn.branches else "taken" if root.turn.resumes else "all"
        try:
            if root.started is not None and root.left is not None:
                yield wait_for(root.left, root.started.patience())
            # Whoever stops a run does not answer what it asks, or has answered and stops what came of it. A call that is
            # just cancelled, or has failed, may be meant to be asked again.
            is_over = root.started is not None or root.turn.resumes
            over_pause = is_over and root.turn.ending["status"] == "interrupted"
            why = _reason(root.turn.ending)
            waits = (
                (lambda: False) if root.turn.leaves else None
            )  # a message that was cancelled while it waited ends at once
            settle = partial(self._settler.settle, root.run_id, why, over_pause=over_pause)
            result = yield from settle(older=older, waits=waits)
        finally:
            # Also if the loop is torn down in the middle: then it is done before the next turn.
            final = result is not None and result.is_final
            data, problem = (result.to_data(), result.reason) if result is not None else (None, "cut off")
            tell = partial(self._capture.conclude, key, data if final else None, problem)
            root.turn.is_worked_on = False
            self._capture.tracker.do(tell)
        yield make_durable(self._journal, _SETTLING)

    def _begins_to_settle(self, turn: ThreadSlot) -> bool:
        """Whether the run of a turn is settled by whoever asks: of several, one."""
        mine: list[bool] = []

        def begin() -> None:
            mine.append(not turn.is_worked_on)
            turn.is_worked_on = True

        self._capture.tracker.do(begin)
        return mine[0]

    def prepare(self, turn: ThreadSlot, run_id: str, inputs: Any = None) -> Effects[None]:
        """A new message has come for a thread: settle what was left there, before the graph looks at it."""
        turn.waits = True
        try:
            yield from self._prepare(turn, run_id)
            is_free = partial(self._is_free, turn.thread_id, run_id)
            turn.keep_read(*(yield from self._settler.mend(turn.thread_id, inputs, is_free)))
        finally:
            turn.waits = False

    def _prepare(self, turn: ThreadSlot, run_id: str) -> Effects[None]:
        yield from self._wait_for_others(turn)
        runs: list[Run] = []
        before: list[Run] = []
        for limit in _RUNS_BACK:
            runs = yield self._off(partial(self._journal.runs, turn.thread_id, None, limit))
            # Newer ones may be there already, which wait for this one.
            older = next((place + 1 for place, run in enumerate(runs) if run.run_id == run_id), 0)
            before = [run for run in runs[older:] if self._settler.runs.share_name(run)]
            if len(runs) < limit or len(before) > _RUNS_BACK[0] // 2:
                break  # else, most of them are those of other graphs
        # However many runs ago it was: what is left to settle has an index of its own.
        listed = {run.run_id for run in runs}
        left = yield self._off(partial(unsettled, self._journal, turn.thread_id))
        before += [run for run in reversed(left) if run.run_id not in listed and self._settler.runs.share_name(run)]
        listed |= {run.run_id for run in left}
        # What the store could not be told yet is known here.
        for run_left in self._capture.threads.take_open(turn):
            if run_left not in listed:
                with suppress(RunNotFound):
                    run = yield self._off(partial(self._journal.run, run_left))
                    before = [run, *before] if self._settler.runs.are_of(run) else before
        before = yield from self._ours(before)
        for run in reversed(before):
            if run.done or (run.status == RunStatus.PAUSED and run is not before[0]):
                continue  # in the second case, the conversation has gone on since
            with suppress(RunNotFound):  # somebody else has settled it, and it was pruned
                yield from self._settle_for(turn, run, run_id)
            if turn.leaves:
                return
        ours = self._capture.threads.take_late(turn)
        for run in before:
            if run.run_id in ours or (run is before[0] and (yield from self._has_late(run))):
                cause = run.cause or "error"
                settle = partial(self._settler.settle, run.run_id, cause, over_pause=True, before_run=run_id)
                result = yield from settle(late=True, waits=lambda: not turn.leaves)
                self._note(run, result)

    def _settle_for(self, turn: ThreadSlot, run: Run, new_run: str) -> Effects[None]:
        """Settle an earlier run of the thread before a new one begins, unless it goes on. If somebody else settles it, that
        is waited for."""
        while True:
            with self._settlements.hand(run.run_id) as other:
                if other is None:
                    if self._goes_on(run):
                        return
                    if run.status == RunStatus.RUNNING and not (yield from self._take_over(turn, run)):
                        return
                    result = yield from self._settle_before(run, new_run, lambda: not turn.leaves)
                    if not result.is_final:
                        self._capture.threads.left_open(turn, run.run_id)
                    return
            began = time.monotonic()
            is_over = yield wait_for(other, _LEAVING)
            if turn.leaves or (not is_over and (other.stands_still() or time.monotonic() - began < _LEAVING / 2)):
                return  # it cannot be waited for here
            run = yield self._off(partial(self._journal.run, run.run_id))
            if run.done:
                return

    def _ours(self, runs: list[Run]) -> Effects[list[Run]]:
        """Those that this graph settles before a new message, of the runs of graphs of its name."""
        found: list[Run] = []
        for run in runs:
            ours, why = self._settler.runs.are_of(run), None
            if not run.done:
                # On the thread that this graph goes on with, another version has run before it.
                adopt = not ours and (yield from self._settler.runs.continue_thread_of(run))
                why = self._settler.runs.refuse(run, adopt=adopt)
                ours = ours or adopt
            if ours and why is None:
                found.append(run)
            elif why is not None and run.run_id not in self._told:
                self._told.add(run.run_id)
                logger.warning("not settling run %s on thread %s: %s", run.run_id, run.thread_id, why)
        return found

    def _is_free(self, thread_id: str, run_id: str) -> Effects[bool]:
        """Whether no other run goes on on a thread, of whatever graph."""
        for run in (yield self._off(partial(unsettled, self._journal, thread_id))):
            if run.status != RunStatus.RUNNING:
                continue
            if run.run_id != run_id and not self._capture.threads.waits(thread_id, run.run_id):
                is_dead = self._off(partial(self._core.dead_owners.owner_is_gone, run))
                if self._goes_on(run) or not (yield is_dead):
                    return False
        return True

    def take_up(self, turn: ThreadSlot) -> Effects[None]:
        """A run takes up one that waited for a human: that one waits no more."""
        yield self._off(partial(self._capture.cut_calls.recall, self._journal, turn.thread_id))
        for run in (yield self._off(partial(self._journal.runs, turn.thread_id, RunStatus.PAUSED, None))):
            if self._settler.runs.are_of(run) and (yield self._off(partial(self._journal.claim, run.run_id))):
                data = {"status": "completed", "usage": dict(run.usage)}
                self._journal.append(Event(run_id=run.run_id, kind="run.end", data=data))

    def _has_late(self, run: Run) -> Effects[bool]:
        """Whether a run of another program has got results after its end. Of one of ours, we would have been told."""
        if run.owner == self._journal.owner_id or run.status not in (RunStatus.INTERRUPTED, RunStatus.FAILED):
            return False
        events = yield self._off(partial(read_what_is_left, self._journal, run.run_id))
        return Evidence(run.run_id, events).has_late

    def _wait_for_others(self, turn: ThreadSlot) -> Effects[None]:
        if any(other.is_lost() for _, other in self._capture.threads.others(turn)):
            self._capture.end_idle_runs()
        for root, other in self._capture.threads.others(turn):
            give_up = time.monotonic() + _SETTLING
            while True:
                began = time.monotonic()
                if (yield wait_for(other, _LEAVING, always=root.over)):
                    break
                if root.over and not other.is_worked_on:
                    # Its loop was torn down, or Ctrl-C has come in between. We settle it ourselves, then.
                    self._capture.tracker.do(partial(self._capture.give_up, root, "cut off"))
                    break
                if turn.leaves:
                    return
                now_waits = time.monotonic() - began > _LEAVING / 2  # not where only giving way would do
                # For a settlement as long as it takes: what begins in the middle of it would lose what it writes.
                is_settling = root.over and not other.stands_still()
                if not now_waits or (began > give_up and not is_settling) or not (root.over or other.is_leaving()):
                    logger.warning(_GOES_ON, root.run_id, turn.thread_id)
                    break

    def _take_over(self, turn: ThreadSlot, run: Run) -> Effects[bool]:
        """Whether the run is to be settled now. False if it lives, or if somebody else has settled it meanwhile.

        Whoever else has claimed it settles it, or dies: then it is claimed here, at the next look. Where only its heartbeat
        tells whether an owner lives (another container), the next beat is waited for, or the end of its lease.
        """
        began = time.monotonic()
        beats = yield self._off(partial(self._core.dead_owners.beats_in_doubt, run))
        warn_at: float | None = began + _SETTLING
        while not (yield self._off(partial(self._journal.claim, run.run_id))):
            run = yield self._off(partial(self._journal.run, run.run_id))
            if run.ended or run.status == RunStatus.PAUSED:
                # Whoever has claimed it may not have settled it: because our new run seemed to go on there.
                return run.ended and not run.done
            if turn.leaves:
                return False
            lives = beats is None or beats != (yield self._off(partial(self._core.dead_owners.beats_in_doubt, run)))
            gives_up = run.epoch == 1 and lives and time.monotonic() - began > _UNHEARD
            # While its owner settles the thread, the run has come to its end.
            if gives_up and not (yield self._off(partial(self._settler.is_held_elsewhere, turn.thread_id))):
                logger.warning(_GOES_ON, run.run_id, turn.thread_id)
                return False  # it has its first owner, who lives
            if warn_at is not None and time.monotonic() > warn_at:
                logger.warning(_STILL_SETTLING, turn.thread_id, run.owner, run.run_id, _SETTLING)
                warn_at = None
            yield Effect(partial(time.sleep, _LOOK), partial(asyncio.sleep, _LOOK))
        return True

    def _settle_before(self, run: Run, new_run: str | None, waits: Waits | None = None) -> Effects[Settlement]:
        """Settle what an earlier run left, and tell it where it is ours to tell."""
        cause = run.cause or {RunStatus.RUNNING: "crash", RunStatus.PAUSED: "superseded"}.get(run.status)
        over_pause = new_run is not None
        ending: dict[str, Any] = {"status": "interrupted", "cause": cause, "usage": dict(run.usage)}
        try:
            settle = partial(self._settler.settle, run.run_id, cause or "error", over_pause=over_pause, before_run=new_run)
            result = yield from settle(older="all" if new_run is None else "left", waits=waits)
        except BaseException:
            # The loop is torn down, say. Claimed and not ended, it would look as if it went on.
            if run.status == RunStatus.RUNNING and run.run_id in self._core.appender.buffers:
                cut = {**ending, "settled": False, "problem": "cut off"}
                self._journal.append(Event(run_id=run.run_id, kind="run.end", data=cut))
            raise
        # Refused if another task or process has settled the run meanwhile.
        if (yield self._off(partial(self._journal.claim, run.run_id))):
            # As it stands now: somebody else may have told its end.
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

    def _note(self, run: Run, result: Settlement) -> None:
        if result.messages and run.owner == self._journal.owner_id:
            self._journal.append(Event(run_id=run.run_id, kind="run.settled", data={**result.to_data(), "late": True}))

    def recover(self, adopt: bool = False) -> Effects[list[Settlement]]:
        """Settle all that was left by runs whose owner is gone, thread by thread. `adopt`: also those of a graph of this
        name that has other nodes or channels."""
        self._capture.end_idle_runs()
        left = yield self._off(partial(unsettled, self._journal))
        found: list[Settlement] = []
        for runs in by_thread([run for run in left if self._settler.runs.share_name(run)]):
            found += yield from self._recover_thread(runs, adopt)
        return found

    def _recover_thread(self, runs: list[Run], adopt: bool) -> Effects[list[Settlement]]:
        """The same for the runs of one thread, oldest first. Behind one that somebody else is at, the others are left."""
        found: list[Settlement] = []
        first: Run | None = None
        for run in runs:
            why = self._settler.runs.refuse(run, adopt=adopt)
            if why is None and first is not None:
                why = BEHIND.format(first.run_id)
            with suppress(RunNotFound):  # somebody else has settled it, and it was pruned
                if why is not None:
                    if (yield self._off(partial(self._may_take, run))):
                        found.append(Settlement(run_id=run.run_id, thread_id=run.thread_id, outcome="held", reason=why))
                    continue
                result = yield from self._recover_run(run)
                if result is not None:
                    found.append(result)
                elif not (yield self._off(partial(self._journal.run, run.run_id))).done and GRAPH in run.metadata:
                    first = run
        return found

    def _recover_run(self, run: Run) -> Effects[Settlement | None]:
        """Settle a run, if it can be taken: not if somebody works on it, and not if nothing is left to do."""
        with self._settlements.hand(run.run_id) as other:
            if other is not None or self._goes_on(run):
                return None
            try:
                if not (yield self._off(partial(self._journal.claim, run.run_id))):
                    return None
            except OSError as exc:
                # What its owner left cannot be read. That must not keep the other threads from being settled.
                reason = f"{type(exc).__name__}: {exc}"
                return Settlement(run_id=run.run_id, thread_id=run.thread_id, outcome="failed", reason=reason)
            return (yield from self._settle_before(run, None))

    def _may_take(self, run: Run) -> bool:
        """Whether nobody else works on a run, which is not claimed by this."""
        if self._goes_on(run) or self._journal.run(run.run_id).done:
            return False
        return run.owner == self._journal.owner_id or self._core.dead_owners.owner_is_gone(run)

    def _goes_on(self, run: Run) -> bool:
        """Whether a run is one of this process that has not come to its end: also one that only a handler records."""
        is_ours = run.status == RunStatus.RUNNING and run.owner == self._journal.owner_id
        return is_ours or self._capture.threads.is_live(str(run.thread_id), run.run_id)

    def recover_now(self, adopt: bool) -> list[Settlement]:
        """Recover, here."""
        return context_without_run().run(run_sync, self.recover(adopt))

    async def recover_later(self, adopt: bool) -> list[Settlement]:
        """Recover, without blocking the loop."""
        return await run_shielded(run_async(self.recover(adopt)))

    def _off(self, work: Callable[[], _T]) -> Effect[_T]:
        return off_loop(self._journal, work)


def _reason(ending: Mapping[str, Any]) -> str:
    return str(ending.get("cause") or "error")


def turns_of(journal: RunJournal, graph: Any) -> SettlementSchedule:
    """What settles the runs of a graph, attached or not."""
    core_of(journal).check_open()
    if not isinstance(graph, Pregel):
        raise InvalidArgument(name="graph", expected="the compiled graph whose runs are to be settled", value=graph)
    if not isinstance(graph.checkpointer, BaseCheckpointSaver):
        raise InvalidArgument(name="graph", expected="compiled with the checkpointer that holds its threads", value=graph)
    return SettlementSchedule(journal, Settler(journal, GraphThreads(graph), None))
