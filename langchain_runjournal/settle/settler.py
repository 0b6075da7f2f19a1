"""The settler: makes the thread of a run agree with the journal, through the graph that wrote the thread.

Rule: every decision is based on the journal and the thread, and none on the memory of this process, so that a stop and a
crash are settled by the same code.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar

from ..common.twins import Effect, Effects
from ..errors import RunNotFound, SettlementTimeout
from ..events import PROBLEM, Event, Run
from ..journal.core import core_of
from ..journal.run_reading import read_what_is_left
from ..journal.tool_history import look_up
from ..journal.waiting import make_durable, off_loop
from ..messages.forms import known_again
from ..messages.loading import as_messages
from .already_written import is_already_written
from .evidence import SettlementEvidence
from .failures import log_failure
from .fence import check_fence, claimed_elsewhere
from .graph_runs import GraphRuns
from .graph_thread import CLEAR, GraphThreads
from .inapplicable_step import is_inapplicable
from .order import Older, Order
from .plan import Plan, late_results, plan
from .repair import Repairer
from .resumed_tasks import evidence_of
from .run_position import checkpoint_id, last_applied_superstep, messages_before
from .settlements import ActiveSettlement, settlements_of
from .supersteps import cleared, is_left
from .supersteps import written as written_by_us
from .thread_hold import HeldElsewhere, ThreadHolds, Waits, is_held, name_of

if TYPE_CHECKING:
    from ..journal.run_journal import RunJournal
    from .saver import JournalSaver

logger = logging.getLogger("langchain_runjournal")

_T = TypeVar("_T")
Outcome: TypeAlias = Literal["settled", "whole", "moved_on", "left_alone", "held", "failed"]

_SETTLED: Final = ("settled", "whole")
_FINAL: Final = (*_SETTLED, "moved_on", "left_alone")
_PATIENCE: Final = 30.0
"""Seconds that a flush may take, and that a run's pending background writes may take."""
_ROUNDS: Final = 5
_REFUSED: Final = (
    "could not settle run %s, because a reducer of its graph refuses what is written: %s. The next message of its thread"
    " tries again"
)
_DELETED: Final = "the run was deleted, with its events"
_GONE: Final = "the checkpointer of this graph has no such thread"
_FAILED: Final = "could not settle run %s: %s. The next message of its thread tries again, and so does RunJournal.recover"
_NO_THREAD: Final = "run %s is not settled: its checkpointer no longer has thread %s; the journal has what the run said"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """The outcome for a run that did not come to its end.

    `outcome`: "settled" (the thread was made to agree), "whole" (it lacked nothing), "moved_on" (the conversation had
    continued without the run, and was not touched), "left_alone" (this graph's state cannot be written, for the `reason`
    given), "held" (for now: the run waits for a human or for an older run of its thread, or another run or settlement works
    on the thread) or "failed" (it is tried again before the next message of the thread, and by `RunJournal.recover`).
    """

    run_id: str
    thread_id: str | None
    outcome: Outcome
    reason: str | None = None
    messages: tuple[Mapping[str, Any], ...] = ()
    """The messages that were written, in order: `id`, `type` and `origin` of each, and `inserted` for a message that was not
    added at the end."""
    before: str | None = None
    """The checkpoint from which the run can still be resumed (see `RunJournal.resume_config`)."""
    after: str | None = None
    """The checkpoint that holds the settled thread."""

    @property
    def is_final(self) -> bool:
        """Whether nothing is left to do."""
        return self.outcome in _FINAL

    @property
    def is_settled(self) -> bool:
        """Whether the thread holds what the journal holds of the run."""
        return self.outcome in _SETTLED

    def to_data(self) -> dict[str, Any]:
        """Return the data of a `run.settled` event."""
        data = {key: value for key, value in asdict(self).items() if value and key not in ("run_id", "thread_id")}
        if not self.is_settled:
            data |= {"settled": False, "given_up": self.is_final, "problem": self.reason or self.outcome}
        return {**data, "messages": list(self.messages)}


class Settler:
    """The settlements of the runs of one graph."""

    def __init__(self, journal: RunJournal, threads: GraphThreads, saver: JournalSaver | None) -> None:
        self._journal = journal
        self._threads = threads
        self._settlements = settlements_of(journal)
        self._saver = saver
        self._holds = ThreadHolds(journal, threads)
        self._repairer = Repairer(journal, threads)
        self._warned = False
        self.runs = GraphRuns(journal, threads)
        self._order = Order(journal, self.runs)

    def settle(
        self,
        run_id: str,
        reason: str,
        *,
        over_pause: bool = False,
        before_run: str | None = None,
        late: bool = False,
        older: Older = "all",
        waits: Waits | None = None,
    ) -> Effects[Settlement]:
        """Settle the thread of a run. Never raise an Exception. If two calls ask for the same settlement at once, the second
        one waits for the first and returns its result.

        `over_pause`: settle the run even if it waits for a human, because the conversation continues without an answer.
        `before_run`: the run that is about to begin on the thread and has not touched it yet. `late`: the run is settled,
        and has received results since. `older`: which older runs of the thread hold it. `waits`: a function that returns
        whether the new message, for which this is done, still waits.
        """
        thread_id: str | None = None
        mine = ActiveSettlement(self.runs, run_id, over_pause, before_run, late)
        try:
            yield from self._flush()
            run = yield self._off(partial(self._journal.run, run_id))
            thread_id = run.thread_id
            if thread_id is None or PROBLEM in run.metadata:
                why = str(run.metadata.get(PROBLEM, "it has no thread"))
                return Settlement(run_id=run_id, thread_id=thread_id, outcome="left_alone", reason=why)
            mine.result = yield from self._holds.enter(thread_id, mine, waits)
            if mine.result is None:
                mine.result = yield from self._settle_alone(run_id, thread_id, reason, over_pause, before_run, late, older)
            if mine.result.is_final:
                self._settlements.mark_passed(run_id)
            return mine.result
        except HeldElsewhere as exc:
            mine.result = Settlement(run_id=run_id, thread_id=thread_id, outcome="held", reason=exc.reason)
            return mine.result
        except Exception as exc:  # noqa: BLE001 - returned as the result, and logged
            mine.result = self._failure(run_id, thread_id, exc)
            return mine.result
        finally:
            self._holds.exit(thread_id, mine)

    def _settle_alone(
        self, run_id: str, thread_id: str, reason: str, over_pause: bool, before_run: str | None, late: bool, older: Older
    ) -> Effects[Settlement]:
        """Settle the run while no other settlement works on its thread. Read the run again: it may have changed during the
        wait."""
        run = yield self._off(partial(self._journal.run, run_id))
        done = partial(Settlement, run_id=run_id, thread_id=thread_id)
        if (taken := claimed_elsewhere(self._journal, run)) is not None:
            return done(outcome="held", reason=taken)
        if run.done and not late:
            # Another process has settled the run while this settlement waited.
            return done(outcome="whole" if run.settled else "left_alone", reason=run.problem)
        yield from self._wait_until_quiet(thread_id)
        held = yield from self._order.verdict_on(run, before_run, "none" if late else older)
        if held is not None and not (late and held[0] in ("moved_on", "whole")):
            result = done(outcome=held[0], reason=held[1])
        else:
            result = yield from self._settle(run, thread_id, reason, over_pause, late, before_run is not None)
        if result.outcome == "moved_on" and (yield from is_already_written(self._journal, self._threads, run, reason)):
            result = replace(result, outcome="whole")
        return result

    def _failure(self, run_id: str, thread_id: str | None, problem: Exception) -> Settlement:
        outcome: Outcome = "failed"
        why = f"{type(problem).__name__}: {problem}"
        if isinstance(problem, RunNotFound) and problem.run_id == run_id:
            outcome, why = "left_alone", _DELETED
        elif is_inapplicable(problem):
            # The program's own reducer refuses the write, and the program has most likely received the same error. The
            # reducer will refuse it again, so newer runs of the thread need not wait for this one.
            self._settlements.mark_passed(run_id)
            logger.warning(_REFUSED, run_id, why)
        else:
            log_failure(problem, _FAILED, run_id)
        return Settlement(run_id=run_id, thread_id=thread_id, outcome=outcome, reason=why)

    def is_held_elsewhere(self, thread_id: str) -> bool:
        """Return whether another living journal settles a thread now. May block."""
        return is_held(self._journal, name_of(self._threads, thread_id))

    def _warn_once(self, what: str) -> None:
        if not self._warned:
            self._warned = True
            logger.warning(what)

    def _flush(self) -> Effects[None]:
        problem = yield make_durable(self._journal, _PATIENCE)
        if problem is not None:
            # The journal can be read all the same, and the thread should not suffer from the failed flush.
            logger.warning("settling without the latest events: %s", str(problem).rstrip("."))
            logger.debug("the traceback of this exception", exc_info=problem)

    def _wait_until_quiet(self, thread_id: str) -> Effects[None]:
        if self._saver is not None:
            saver = self._saver
            quiet = yield Effect(partial(saver.drained, thread_id, _PATIENCE), partial(saver.adrained, thread_id, _PATIENCE))
            if not quiet:
                raise SettlementTimeout(thread_id=thread_id, what="a background write to it", seconds=_PATIENCE)

    def _settle(
        self, run: Run, thread_id: str, reason: str, over_pause: bool, late: bool, is_new: bool
    ) -> Effects[Settlement]:
        events = yield self._off(partial(read_what_is_left, self._journal, run.run_id))
        evidence = yield from evidence_of(self._journal, self._threads, run, events, reason, late=late)
        shape = self._threads.shape
        state = yield self._threads.read(thread_id)
        before = evidence.before or checkpoint_id(state)
        done = partial(Settlement, run_id=run.run_id, thread_id=thread_id, before=before)
        if (problem := self._problem(state, evidence)) is not None:
            return done(outcome="left_alone", reason=problem)
        lost = yield from self.runs.would_lose(run)
        if lost is not None:
            return done(outcome="held", reason=lost)
        if (state.interrupts and not over_pause) or (evidence.has_completed and is_left(state)):
            return done(outcome="held", reason="it waits for a human" if state.interrupts else "tasks are left to run")
        if evidence.has_stored and before is None:
            # The thread was deleted, or lost with the memory of its process. Before a new message this is final: the message
            # begins another conversation, and the words of a deleted chat must not come back in it.
            logger.warning(_NO_THREAD, run.run_id, thread_id)
            return done(outcome="left_alone" if is_new else "failed", reason=_GONE)
        if evidence.resumed is not None and not evidence.has_base:
            state = yield from self._return_to_checkpoint(run, evidence, evidence.resumed, state)
        evidence.since = yield from messages_before(self._threads, evidence, state)
        evidence.step = yield from last_applied_superstep(self._threads, evidence, state)
        yield from self._settle_inner_graphs(thread_id, evidence)
        written: dict[str, Mapping[str, Any]] = {}
        for number in range(_ROUNDS):
            if (problem := self._problem(state)) is not None:
                return done(outcome="left_alone", reason=problem)
            found = shape.messages(state.values) or []
            by_id = shape.replaces_by_id and shape.form(found) == "messages"
            planned = yield from self._plan(self._thread_with_ids(found, evidence), evidence, by_id=by_id, late=late)
            if planned.moved_on:
                return done(outcome="moved_on", reason="an answer of another run stands behind it")
            if (problem := shape.unwritable(found, planned.at_end().add)) is not None:
                return done(outcome="left_alone", reason=problem)
            if not planned.add and not planned.insert and not is_left(state):
                break
            yield from self._record_before(run, evidence, before)
            if number == 0 and (yield self._threads.has_results(thread_id, state)):
                state = yield from cleared(self._threads, thread_id)
                continue
            yield written_by_us(self._threads, thread_id, state.values, planned.add, planned.insert)
            written |= planned.report()
            state = yield self._threads.read(thread_id)
        else:
            return done(
                outcome="left_alone",
                reason="its state does not keep what is written to it",
                messages=tuple(written.values()),
            )
        if not late and not evidence.has_completed:
            repaired = yield from self._repairer.repair(thread_id, state=state)
            written |= Plan([*repaired.messages]).report()
            if repaired.problem is not None:
                return done(outcome="left_alone", reason=repaired.problem, messages=tuple(written.values()))
            state = repaired.state or state
        outcome: Outcome = "settled" if written or before != checkpoint_id(state) else "whole"
        return done(outcome=outcome, messages=tuple(written.values()), after=checkpoint_id(state))

    def _problem(self, state: Any, evidence: SettlementEvidence | None = None) -> str | None:
        """Return why the thread in this state cannot be written, or why this run cannot be written into it; None if it can.
        The log says so once for a graph."""
        shape = self._threads.shape
        problem = shape.problem or shape.problem_with(state.values)
        if problem is None and evidence is not None and evidence.has_other_input and shape.function is not None:
            problem = shape.function.input_problem()
        if problem is not None:
            self._warn_once(
                f"the runs of {self._threads.title!r} are journaled, and their threads left as they are: {problem}"
            )
        return problem

    def _thread_with_ids(self, found: Sequence[Any], evidence: SettlementEvidence) -> list[Any]:
        """Return the messages of a thread, in which those of the run have the ids that they have in its transcript."""
        thread: list[Any] = list(core_of(self._journal).appender.as_recorded(as_messages(found)))
        if self._threads.shape.form(found) != "messages":
            given = partial(known_again, applied=evidence.applied, since=evidence.since)
            thread, evidence.transcript = given(thread, evidence.transcript, evidence.run_id)
        return thread

    def repair(self, thread_id: str, inputs: Any, is_free: Callable[[], Effects[bool]]) -> Effects[tuple[Any, Any]]:
        """Before a new message, add the missing results of the thread's requests, whether they are journaled or not.

        Requests that `inputs` answers itself are left, and nothing is written while another run works on the thread (only
        `is_free` knows that). Return the newest checkpoint of the thread and the saver that read it, if it was read and
        nothing had to be written.
        """
        mine = ActiveSettlement()
        broken, first = yield from self._repairer.broken(thread_id, inputs)
        if not broken or not (yield from is_free()):
            return first, self._threads.graph.checkpointer
        try:
            yield from self._holds.enter(thread_id, mine)
            yield from self._wait_until_quiet(thread_id)
            for namespace in broken:
                yield from self._repairer.repair(thread_id, namespace, inputs if not namespace else None)
        finally:
            self._holds.exit(thread_id, mine)
        return None, None

    def _return_to_checkpoint(self, run: Run, evidence: SettlementEvidence, place: str, state: Any) -> Effects[Any]:
        """Write behind the checkpoint `place` from which the run resumed another one, if the run has written no checkpoint
        itself.

        The newer checkpoints there come from an earlier settlement, and are no longer part of the thread.
        """
        if not (yield self._threads.read(evidence.thread_id, checkpoint_id=place)).created_at:
            return state
        yield self._threads.write(evidence.thread_id, "", [CLEAR], checkpoint_id=place)
        evidence.base, evidence.has_base = place, True
        if run.owner == self._journal.owner_id:
            # Only once: what is written behind that checkpoint from now on stays.
            self._journal.append(Event(run_id=run.run_id, kind="run.checkpoint", data={"base": place}))
        return (yield self._threads.read(evidence.thread_id))

    def _record_before(self, run: Run, evidence: SettlementEvidence, before: str | None) -> Effects[None]:
        """Record the newest checkpoint before the first write: after a crash in the middle, the run can still be resumed
        there."""
        yield from check_fence(self._journal, run)
        if (
            before is not None
            and evidence.before is None
            and not evidence.has_completed
            and run.owner == self._journal.owner_id
        ):
            evidence.before = before
            self._journal.append(Event(run_id=run.run_id, kind="run.checkpoint", data={"before": before}))
            yield from self._flush()

    def _plan(self, thread: Sequence[Any], evidence: SettlementEvidence, *, by_id: bool, late: bool) -> Effects[Plan]:
        def look() -> Plan:
            if late:
                return Plan(add=late_results(thread, evidence.ask, evidence.run_id) if by_id else [])
            given = partial(plan, thread, evidence.transcript, evidence.ask, run_id=evidence.run_id, tasks=evidence.tasks)
            found = given(
                applied=evidence.applied, step=evidence.step, by_id=by_id, since=evidence.since, cuts=evidence.cuts
            )
            found = found if self._threads.shape.can_rewrite else found.at_end()
            return found.of_completed() if evidence.has_completed else found

        found = look()
        if evidence.unknown:
            # An earlier run requested the call, and may know more about it.
            ask = partial(look_up, self._journal, evidence.thread_id, list(evidence.unknown))
            evidence.learn((yield self._off(ask)))
            found = look()
        return found

    def _settle_inner_graphs(self, thread_id: str, evidence: SettlementEvidence) -> Effects[None]:
        """Add the missing results in inner graphs that keep threads of their own."""
        for namespace, shape in () if evidence.has_completed else self._threads.inner.items():
            state = yield self._threads.read(thread_id, namespace)
            if shape.problem is not None or not shape.messages(state.values) or shape.problem_with(state.values):
                continue
            if is_left(state):
                state = yield from cleared(self._threads, thread_id, namespace)
            found = shape.messages(state.values) or []
            planned = plan(as_messages(found), (), evidence.ask, run_id=evidence.run_id, applied=True)
            if planned.add or is_left(state):
                yield written_by_us(self._threads, thread_id, state.values, planned.add, namespace=namespace)
            evidence.see([*as_messages(found), *planned.add])

    def _off(self, work: Callable[[], _T]) -> Effect[_T]:
        return off_loop(self._journal, work)
