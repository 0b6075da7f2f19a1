"""In which order the runs of a thread are settled: as the store began them, the oldest first.

Rule: a run is held, neither settled nor `moved_on`, while an older run of its thread and graph is not settled. If the newer
one were settled first, its words would stand in front of what was said before it, and the older run would count as one that
the conversation has left behind. Wall clocks decide nothing: those of two machines differ.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from ..capture.recorder import recorder_of
from ..common.twins import Effects
from ..events import GRAPH, PROBLEM, Run, RunStatus
from ..journal.core import core_of
from ..journal.run_reading import read_if_there, unsettled
from ..journal.waiting import off_loop
from .graph_runs import GraphRuns
from .settlements import settlements_of

if TYPE_CHECKING:
    from ..journal.run_journal import RunJournal

Verdict: TypeAlias = tuple[Literal["held", "whole", "moved_on"], str]
"""What is done about a run instead of settling it, and why."""
Older: TypeAlias = Literal["all", "left", "taken", "none"]
"""Which older runs hold a run: all that are not settled; of those only the ones that no living process works on (a new
message goes on beside the others, and leaves them behind); only the ones that a living process works on (the run has taken
up what the others left); or none (the run goes back to an earlier checkpoint)."""

_BEFORE_WORK: Final = {"run.start", "llm.human.input", "run.stop"}
_FIRST: Final = 50
"""Events of a run that are read to see whether it has begun to work."""
BEHIND: Final = "run {} is older, and is not settled yet: the runs of a thread are settled in the order in which they began"


def by_thread(runs: list[Run]) -> list[list[Run]]:
    """The runs of each thread, in their order. A run without a thread is alone."""
    found: dict[tuple[str | None, str | None], list[Run]] = {}
    for run in runs:
        found.setdefault((run.thread_id, run.run_id if run.thread_id is None else None), []).append(run)
    return list(found.values())


class Order:
    """Whether it is a run's turn to be settled, among the runs of one graph."""

    def __init__(self, journal: RunJournal, runs: GraphRuns) -> None:
        self._journal = journal
        self._core = core_of(journal)
        self._runs = runs
        self._settlements = settlements_of(journal)
        self._threads = recorder_of(journal).threads

    def hold(self, run: Run, before_run: str | None, older: Older) -> Effects[Verdict | None]:
        """Why a run is not settled now, or needs not be; None if it is to be settled. `before_run`: one that is about to
        begin, and has not touched the thread yet."""
        others = yield off_loop(self._journal, partial(self._journal.runs, run.thread_id))
        if (yield off_loop(self._journal, partial(self._core.store.run, run.run_id))) is None:
            others = []  # the store could not be told of it yet, and so of none that came after it
        place = next((place for place, other in enumerate(others) if other.run_id == run.run_id), len(others))
        newer = others[:place]
        if older != "none":
            first = yield from self._first_before(run, {other.run_id for other in newer}, older)
            if first is not None:
                return "held", BEHIND.format(first.run_id)
        return (yield from self._behind(run, newer, before_run))

    def _first_before(self, run: Run, newer: set[str], older: Older) -> Effects[Run | None]:
        """The oldest run that holds this one."""
        found: list[Run] = yield off_loop(self._journal, partial(unsettled, self._journal, run.thread_id))
        for other in found:
            if other.run_id == run.run_id:
                break
            if other.run_id not in newer and (yield from self._holds(other, older)):
                return other
        return None

    def _holds(self, other: Run, older: Older) -> Effects[bool]:
        has_graph = GRAPH in other.metadata
        if self._settlements.has_passed(other.run_id) or not self._runs.are_of(other) or PROBLEM in other.metadata:
            return False
        if self._runs.refuse(other, adopt=True) is not None:
            return False  # another graph settles it, which is attached here as well
        buffer = self._core.appender.buffers.get(other.run_id)
        if buffer is not None and buffer.ended and other.status == RunStatus.RUNNING:
            return False  # the store could not be told of its end yet
        if older != "all" or not has_graph:
            is_free = partial(self._core.dead_owners.owner_is_gone, other)
            is_taken = other.status == RunStatus.RUNNING and not (yield off_loop(self._journal, is_free))
            # While a run that only a handler records goes on, the journal cannot tell whether it writes the thread.
            if is_taken != (older == "taken") or (is_taken and not has_graph):
                return False
        return (yield from self._runs.would_lose(other)) is None

    def _behind(self, run: Run, newer: list[Run], before_run: str | None) -> Effects[Verdict | None]:
        """What newer runs of the thread, the newest first, mean for this one."""
        for other in newer:
            if other.run_id == before_run:
                continue
            if not self._runs.are_of(other):
                if other.done and (yield from self._runs.continue_thread_of(other)):
                    return "moved_on", f"run {other.run_id} of another graph came after it, on the same thread"
                continue
            if self._threads.waits(str(run.thread_id), other.run_id):
                continue  # for this
            if other.status == RunStatus.RUNNING:
                is_free = partial(self._core.dead_owners.owner_is_gone, other)
                if (yield off_loop(self._journal, is_free)):
                    continue
                # A message waits for a run that is running and claimed. It does not wait for one that has ended: it settles
                # that itself, and may have begun to work since its journal was read.
                waits = before_run is not None or run.status == RunStatus.RUNNING
                if waits and (yield from self._waits_elsewhere(other)):
                    continue
                # It may have ended since it was listed, and have been pruned.
                found = yield off_loop(self._journal, partial(self._core.store.run, other.run_id))
                if found is None:
                    continue
                if found.status == RunStatus.RUNNING:
                    return "held", f"run {other.run_id} is running on the same thread"
                other = found
            if (yield from self._took_up(other)):
                return "whole", f"run {other.run_id} resumed where it was cut off"
            elif other.done:
                return "moved_on", f"run {other.run_id} came after it"
        return None

    def _waits_elsewhere(self, other: Run) -> Effects[bool]:
        """Whether a newer run of another process has not begun to work: a new message does not before the older runs are
        settled, and until then its journal holds nothing but the message."""
        if other.owner == self._journal.owner_id or GRAPH not in other.metadata:
            return False
        read = partial(read_if_there, self._journal, other.run_id, _FIRST)
        said = {event.kind for event in (yield off_loop(self._journal, read))}
        return "llm.human.input" in said and said <= _BEFORE_WORK

    def _took_up(self, other: Run) -> Effects[bool]:
        """Whether a newer run that is not settled goes on where older ones were cut off: it stands for them, then."""
        events = yield off_loop(self._journal, partial(read_if_there, self._journal, other.run_id))
        wrote = any(event.kind == "run.checkpoint" and not event.data.get("before") for event in events)
        return wrote and not any(event.kind == "llm.human.input" for event in events)
