"""Settling: make the thread of a run agree with the journal, through the graph that wrote it.

Rule: everything is decided from the journal and the thread, nothing from what happens to be in memory, so that a Stop and a
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
from .already_written import stands_already
from .evidence import SettlementEvidence
from .failures import warn_of
from .fence import still_ours, why_not_ours
from .graph_runs import GraphRuns
from .graph_thread import CLEAR, GraphThreads
from .inapplicable_step import is_inapplicable
from .order import Older, Order
from .plan import Plan, late_results, plan
from .repair import Mender
from .resumed_tasks import about_run
from .settlements import Settling, settlements_of
from .supersteps import cleared, is_left, supersteps
from .thread_hold import Alone, HeldElsewhere, Waits, is_held, name_of

if TYPE_CHECKING:
    from ..journal.run_journal import RunJournal
    from .saver import JournalSaver

logger = logging.getLogger("langchain_runjournal")

_T = TypeVar("_T")
Outcome: TypeAlias = Literal["settled", "whole", "moved_on", "left_alone", "held", "failed"]

_SETTLED: Final = ("settled", "whole")
_FINAL: Final = (*_SETTLED, "moved_on", "left_alone")
_PATIENCE: Final = 30.0
"""Seconds that a flush, or what a run has left to be written in the background, may take."""
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
    """What was done about a run that did not come to its end.

    `outcome`: "settled" (the thread was made to agree), "whole" (it lacked nothing), "moved_on" (the conversation had gone
    on without the run, and was not touched), "left_alone" (this graph's state cannot be written, for the `reason` given),
    "held" (for now: it waits for a human or for an older run of its thread, or something works on it) or "failed" (it is
    tried again before the next turn, and by `RunJournal.recover`).
    """

    run_id: str
    thread_id: str | None
    outcome: Outcome
    reason: str | None = None
    messages: tuple[Mapping[str, Any], ...] = ()
    """The messages that were written, in order: `id`, `type` and `origin` of each; `inserted`, if not at the end."""
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
        """For an event."""
        data = {key: value for key, value in asdict(self).items() if value and key not in ("run_id", "thread_id")}
        if not self.is_settled:
            data |= {"settled": False, "given_up": self.is_final, "problem": self.reason or self.outcome}
        return {**data, "messages": list(self.messages)}


class Settler:
    """Settles the runs of one graph."""

    def __init__(self, journal: RunJournal, threads: GraphThreads, saver: JournalSaver | None) -> None:
        self._journal = journal
        self._threads = threads
        self._settlements = settlements_of(journal)
        self._saver = saver
        self._alone = Alone(journal, threads)
        self._mender = Mender(journal, threads)
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
        """Make the thread of a run whole. Never raises an Exception. Asked for the same twice at once, the second waits for
        the first, and returns its result.

        `over_pause`: also if it waits for a human, since the conversation goes on without an answer. `before_run`: the run
        that is about to begin on the thread, and has not touched it yet. `late`: it is settled, and has got results since.
        `older`: which older runs of the thread hold it. `waits`: whether the message still waits that this is done for.
        """
        thread_id: str | None = None
        mine = Settling(self.runs, run_id, over_pause, before_run, late)
        try:
            yield from self._flush()
            run = yield self._off(partial(self._journal.run, run_id))
            thread_id = run.thread_id
            if thread_id is None or PROBLEM in run.metadata:
                why = str(run.metadata.get(PROBLEM, "it has no thread"))
                return Settlement(run_id=run_id, thread_id=thread_id, outcome="left_alone", reason=why)
            mine.result = yield from self._alone.enter(thread_id, mine, waits)
            if mine.result is None:
                mine.result = yield from self._in_turn(run_id, thread_id, reason, over_pause, before_run, late, older)
            if mine.result.is_final:
                self._settlements.passed(run_id)
            return mine.result
        except HeldElsewhere as exc:
            mine.result = Settlement(run_id=run_id, thread_id=thread_id, outcome="held", reason=exc.reason)
            return mine.result
        except Exception as exc:  # noqa: BLE001 - given back, and logged
            mine.result = self._failed(run_id, thread_id, exc)
            return mine.result
        finally:
            self._alone.leave(thread_id, mine)

    def _in_turn(
        self, run_id: str, thread_id: str, reason: str, over_pause: bool, before_run: str | None, late: bool, older: Older
    ) -> Effects[Settlement]:
        """The same when nothing else settles a run of the thread. What was read of the run before may have changed."""
        run = yield self._off(partial(self._journal.run, run_id))
        done = partial(Settlement, run_id=run_id, thread_id=thread_id)
        if (taken := why_not_ours(self._journal, run)) is not None:
            return done(outcome="held", reason=taken)
        if run.done and not late:
            # Another process has settled it, while this one waited for its turn.
            return done(outcome="whole" if run.settled else "left_alone", reason=run.problem)
        yield from self._drained(thread_id)
        held = yield from self._order.hold(run, before_run, "none" if late else older)
        if held is not None and not (late and held[0] in ("moved_on", "whole")):
            result = done(outcome=held[0], reason=held[1])
        else:
            result = yield from self._settle(run, thread_id, reason, over_pause, late, before_run is not None)
        if result.outcome == "moved_on" and (yield from stands_already(self._journal, self._threads, run, reason)):
            result = replace(result, outcome="whole")
        return result

    def _failed(self, run_id: str, thread_id: str | None, problem: Exception) -> Settlement:
        outcome: Outcome = "failed"
        why = f"{type(problem).__name__}: {problem}"
        if isinstance(problem, RunNotFound) and problem.run_id == run_id:
            outcome, why = "left_alone", _DELETED
        elif is_inapplicable(problem):
            # The program's own reducer, and most likely the error that the program has got as well. It will refuse the same
            # again: newer runs of the thread need not wait for that.
            self._settlements.passed(run_id)
            logger.warning(_REFUSED, run_id, why)
        else:
            warn_of(problem, _FAILED, run_id)
        return Settlement(run_id=run_id, thread_id=thread_id, outcome=outcome, reason=why)

    def is_held_elsewhere(self, thread_id: str) -> bool:
        """Whether another living journal settles a thread now. May block."""
        return is_held(self._journal, name_of(self._threads, thread_id))

    def _warn(self, what: str) -> None:
        if not self._warned:
            self._warned = True
            logger.warning(what)

    def _flush(self) -> Effects[None]:
        problem = yield make_durable(self._journal, _PATIENCE)
        if problem is not None:
            # What it holds can be read all the same, and the thread should not suffer for it.
            logger.warning("settling without the latest events: the journal could not be flushed", exc_info=problem)

    def _drained(self, thread_id: str) -> Effects[None]:
        if self._saver is not None:
            saver = self._saver
            quiet = yield Effect(partial(saver.drained, thread_id, _PATIENCE), partial(saver.adrained, thread_id, _PATIENCE))
            if not quiet:
                raise SettlementTimeout(thread_id=thread_id, what="a background write to it", seconds=_PATIENCE)

    def _settle(
        self, run: Run, thread_id: str, reason: str, over_pause: bool, late: bool, is_new: bool
    ) -> Effects[Settlement]:
        events = yield self._off(partial(read_what_is_left, self._journal, run.run_id))
        about = yield from about_run(self._journal, self._threads, run, events, reason, late=late)
        shape = self._threads.shape
        state = yield self._threads.read(thread_id)
        before = about.before or _checkpoint_id(state)
        done = partial(Settlement, run_id=run.run_id, thread_id=thread_id, before=before)
        if (problem := self._problem(state, about)) is not None:
            return done(outcome="left_alone", reason=problem)
        lost = yield from self.runs.would_lose(run)
        if lost is not None:
            return done(outcome="held", reason=lost)
        if (state.interrupts and not over_pause) or (about.has_completed and is_left(state)):
            return done(outcome="held", reason="it waits for a human" if state.interrupts else "tasks are left to run")
        if about.has_stored and before is None:
            # Deleted, or lost with its process. Before a new message it is gone for good: what comes then is another
            # conversation, and the words of a chat that somebody has deleted must not come back in it.
            logger.warning(_NO_THREAD, run.run_id, thread_id)
            return done(outcome="left_alone" if is_new else "failed", reason=_GONE)
        if about.resumed is not None and not about.has_base:
            state = yield from self._back(run, about, about.resumed, state)
        about.since = yield from self._since(about, state)
        about.step = yield from self._step(about, state)
        yield from self._settle_inner(thread_id, about)
        added: dict[str, Mapping[str, Any]] = {}
        for turn in range(_ROUNDS):
            if (problem := self._problem(state)) is not None:
                return done(outcome="left_alone", reason=problem)
            found = shape.messages(state.values) or []
            by_id = shape.replaces_by_id and shape.form(found) == "messages"
            todo = yield from self._plan(self._thread(found, about), about, by_id=by_id, late=late)
            if todo.moved_on:
                return done(outcome="moved_on", reason="an answer of another run stands behind it")
            if (problem := shape.unwritable(found, todo.at_end().add)) is not None:
                return done(outcome="left_alone", reason=problem)
            if not todo.add and not todo.insert and not is_left(state):
                break
            yield from self._remember(run, about, before)
            if turn == 0 and is_left(state):
                state = yield from cleared(self._threads, thread_id)
                continue
            yield self._threads.write(thread_id, "", supersteps(shape, state.values, todo.add, todo.insert))
            added |= todo.told()
            state = yield self._threads.read(thread_id)
        else:
            return done(
                outcome="left_alone", reason="its state does not keep what is written to it", messages=tuple(added.values())
            )
        if not late and not about.has_completed:
            rest = yield from self._mender.mend(thread_id, state=state)
            added |= Plan([*rest.messages]).told()
            if rest.problem is not None:
                return done(outcome="left_alone", reason=rest.problem, messages=tuple(added.values()))
            state = rest.state or state
        outcome: Outcome = "settled" if added or before != _checkpoint_id(state) else "whole"
        return done(outcome=outcome, messages=tuple(added.values()), after=_checkpoint_id(state))

    def _problem(self, state: Any, about: SettlementEvidence | None = None) -> str | None:
        """Why the thread in this state cannot be written, if so, or nothing of this run. Said once for a graph."""
        shape = self._threads.shape
        problem = shape.problem or shape.problem_with(state.values)
        if problem is None and about is not None and about.is_given_other and shape.function is not None:
            problem = shape.function.unheard()
        if problem is not None:
            self._warn(f"the runs of {self._threads.title!r} are journaled, and their threads left as they are: {problem}")
        return problem

    def _thread(self, found: Sequence[Any], about: SettlementEvidence) -> list[Any]:
        """The messages of a thread, in which those of the run have the ids that they have in its transcript."""
        thread: list[Any] = list(core_of(self._journal).appender.as_recorded(as_messages(found)))
        if self._threads.shape.form(found) != "messages":
            given = partial(known_again, applied=about.applied, since=about.since)
            thread, about.transcript = given(thread, about.transcript, about.run_id)
        return thread

    def mend(self, thread_id: str, inputs: Any, is_free: Callable[[], Effects[bool]]) -> Effects[tuple[Any, Any]]:
        """Before a new message: answer what is open in the thread, journaled or not, unless `inputs` answers it itself or
        something else works on the thread (which only `is_free` can say). Returns the newest checkpoint of the thread, if it
        was read and nothing was to be written, and the saver that has read it."""
        mine = Settling()
        broken, first = yield from self._mender.broken(thread_id, inputs)
        if not broken or not (yield from is_free()):
            return first, self._threads.graph.checkpointer
        try:
            yield from self._alone.enter(thread_id, mine)
            yield from self._drained(thread_id)
            for namespace in broken:
                yield from self._mender.mend(thread_id, namespace, inputs if not namespace else None)
        finally:
            self._alone.leave(thread_id, mine)
        return None, None

    def _back(self, run: Run, about: SettlementEvidence, place: str, state: Any) -> Effects[Any]:
        """A run that took up another one, and has written no checkpoint: what stands there was settled before, and is not
        part of the thread any more."""
        if not (yield self._threads.read(about.thread_id, checkpoint_id=place)).created_at:
            return state
        yield self._threads.write(about.thread_id, "", [CLEAR], checkpoint_id=place)
        about.base, about.has_base = place, True
        if run.owner == self._journal.owner_id:
            # Once: what is written there from now on stays.
            self._journal.append(Event(run_id=run.run_id, kind="run.checkpoint", data={"base": place}))
        return (yield self._threads.read(about.thread_id))

    def _remember(self, run: Run, about: SettlementEvidence, before: str | None) -> Effects[None]:
        """Before anything is written: after a crash in the middle, this is still where the run can be resumed."""
        yield from still_ours(self._journal, run)
        if before is not None and about.before is None and not about.has_completed and run.owner == self._journal.owner_id:
            about.before = before
            self._journal.append(Event(run_id=run.run_id, kind="run.checkpoint", data={"before": before}))
            yield from self._flush()

    def _since(self, about: SettlementEvidence, state: Any) -> Effects[int]:
        """How many messages of the thread stood there before the run."""
        if about.applied:
            return 0  # then what it was given is not looked for
        messages = self._threads.shape.messages
        found, old = messages(state.values) or [], None
        if about.base is not None and about.base != _checkpoint_id(state):
            old = messages((yield self._threads.read(about.thread_id, checkpoint_id=about.base)).values)
        elif about.has_base and about.base is None:
            old = []
        if old is None and is_left(state):
            # It has written nothing but what its finished tasks gave, which this state shows and no checkpoint holds.
            place = _checkpoint_id(state)
            old = messages((yield self._threads.read(about.thread_id, checkpoint_id=place)).values) if place else []
        if old is None:
            return len(found)  # it has written nothing
        same = [as_messages([one]) == as_messages([other]) for one, other in zip(old, found, strict=False)]
        return same.index(False) if False in same else len(same)

    def _step(self, about: SettlementEvidence, state: Any) -> Effects[int | None]:
        """The last superstep of the run whose writes the thread holds; None where that cannot be known."""
        if not about.is_attached:
            return None
        if about.remembered is not None and about.remembered != _checkpoint_id(state):
            # What stands behind it was written by an earlier settlement, which was cut off.
            state = yield self._threads.read(about.thread_id, checkpoint_id=about.remembered)
        return about.applied_at(_checkpoint_id(state), _parent_id(state), state.metadata or {})

    def _plan(self, thread: Sequence[Any], about: SettlementEvidence, *, by_id: bool, late: bool) -> Effects[Plan]:
        def look() -> Plan:
            if late:
                return Plan(add=late_results(thread, about.ask, about.run_id) if by_id else [])
            given = partial(plan, thread, about.transcript, about.ask, run_id=about.run_id, tasks=about.tasks)
            found = given(applied=about.applied, step=about.step, by_id=by_id, since=about.since, cuts=about.cuts)
            found = found if self._threads.shape.can_rewrite else found.at_end()
            return found.of_completed() if about.has_completed else found

        found = look()
        if about.unknown:
            # Asked for in an earlier run, which may know more.
            ask = partial(look_up, self._journal, about.thread_id, list(about.unknown))
            about.learn((yield self._off(ask)))
            found = look()
        return found

    def _settle_inner(self, thread_id: str, about: SettlementEvidence) -> Effects[None]:
        """Graphs inside of this one that remember on their own: their requests have to be answered as well."""
        for namespace, shape in () if about.has_completed else self._threads.inner.items():
            state = yield self._threads.read(thread_id, namespace)
            if shape.problem is not None or not shape.messages(state.values) or shape.problem_with(state.values):
                continue
            if is_left(state):
                state = yield from cleared(self._threads, thread_id, namespace)
            found = shape.messages(state.values) or []
            todo = plan(as_messages(found), (), about.ask, run_id=about.run_id, applied=True)
            if todo.add or is_left(state):
                yield self._threads.write(thread_id, namespace, supersteps(shape, state.values, todo.add))
            about.see([*as_messages(found), *todo.add])

    def _off(self, work: Callable[[], _T]) -> Effect[_T]:
        return off_loop(self._journal, work)


def _checkpoint_id(state: Any) -> str | None:
    found = state.config["configurable"].get("checkpoint_id") if state.created_at else None
    return None if found is None else str(found)


def _parent_id(state: Any) -> str | None:
    return None if state.parent_config is None else str(state.parent_config["configurable"]["checkpoint_id"])
