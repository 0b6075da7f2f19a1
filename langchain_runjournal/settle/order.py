"""The order in which the runs of a thread are settled: the order in which the store began them, the oldest first.

Rule: a run is held, neither settled nor `moved_on`, while an older run of its thread and graph is not settled. If the newer
run were settled first, its messages would stand in front of older ones, and the older run would count as one that the
conversation has left behind. Wall clocks decide nothing, because those of two machines differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from ..capture.recorder import recorder_of
from ..common.twins import Effects
from ..events import GRAPH, PROBLEM, Run, RunStatus
from ..journal.core import core_of
from ..journal.run_reading import read_if_there, unsettled
from ..journal.waiting import off_loop
from .graph_runs import GraphRuns
from .settlements import settlements_of
from .writing_run import FACTS

if TYPE_CHECKING:
    from ..journal.run_journal import RunJournal

Verdict: TypeAlias = tuple[Literal["held", "whole", "moved_on"], str]
"""The outcome of a run that is not settled now, and the reason."""
Older: TypeAlias = Literal["all", "left", "taken", "none"]
"""Which older runs hold a run: "all" that are not settled; "left": of those only the ones that no living process is running
(a new message begins beside the others, and leaves them behind); "taken": only the ones that a living process is running
(the run has resumed what the others left); "none" (the run goes back to an earlier checkpoint)."""

_BEFORE_WORK: Final = {"run.start", "llm.human.input", "run.stop"}
_FIRST: Final = 50
"""The number of events of a run that are read to see whether it has begun to work."""
BEHIND: Final = "run {} is older, and is not settled yet: the runs of a thread are settled in the order in which they began"


def by_thread(runs: list[Run]) -> list[list[Run]]:
    """Return the runs of each thread, in their order. A run without a thread is alone."""
    found: dict[tuple[str | None, str | None], list[Run]] = {}
    for run in runs:
        found.setdefault((run.thread_id, run.run_id if run.thread_id is None else None), []).append(run)
    return list(found.values())


class Order:
    """The order of the runs of one graph, which says whether a run may be settled now."""

    def __init__(self, journal: RunJournal, runs: GraphRuns) -> None:
        self._journal = journal
        self._core = core_of(journal)
        self._runs = runs
        self._settlements = settlements_of(journal)
        self._threads = recorder_of(journal).threads

    def verdict_on(self, run: Run, before_run: str | None, older: Older) -> Effects[Verdict | None]:
        """Return why a run is not settled now, or needs no settlement; None if it is to be settled. `before_run`: a run that
        is about to begin, and has not touched the thread yet."""
        others = yield off_loop(self._journal, partial(self._journal.runs, run.thread_id))
        if (yield off_loop(self._journal, partial(self._core.store.run, run.run_id))) is None:
            others = []  # the store does not have the run yet, and so none that came after it
        place = next((place for place, other in enumerate(others) if other.run_id == run.run_id), len(others))
        newer = others[:place]
        if older != "none":
            first = yield from self._first_before(run, {other.run_id for other in newer}, older)
            if first is not None:
                return "held", BEHIND.format(first.run_id)
        return (yield from self._verdict_of_newer(run, newer, before_run))

    def _first_before(self, run: Run, newer: set[str], older: Older) -> Effects[Run | None]:
        """Return the oldest run that holds this one."""
        found: list[Run] = yield off_loop(self._journal, partial(unsettled, self._journal, run.thread_id))
        for other in found:
            if other.run_id == run.run_id:
                break
            if other.run_id not in newer and (yield from self._blocks(other, older)):
                return other
        return None

    def _blocks(self, other: Run, older: Older) -> Effects[bool]:
        """Return whether an older run holds the newer ones of its thread."""
        has_graph = GRAPH in other.metadata
        if self._settlements.has_passed(other.run_id) or not self._runs.are_of(other) or PROBLEM in other.metadata:
            return False
        if self._runs.refuse(other, adopt=True) is not None:
            return False  # another graph that is attached in this process settles it
        buffer = self._core.appender.buffer_of(other.run_id)
        if buffer is not None and buffer.ended and other.status == RunStatus.RUNNING:
            return False  # the store does not have its end yet
        if older != "all" or not has_graph:
            owner_is_gone = partial(self._core.dead_owners.owner_is_gone, other)
            is_taken = other.status == RunStatus.RUNNING and not (yield off_loop(self._journal, owner_is_gone))
            # While a run is running that only a handler records, the journal does not show whether it writes the thread.
            if is_taken != (older == "taken") or (is_taken and not has_graph):
                return False
        return (yield from self._runs.would_lose(other)) is None

    def _verdict_of_newer(self, run: Run, newer: list[Run], before_run: str | None) -> Effects[Verdict | None]:
        """Return what newer runs of the thread, the newest first, mean for this one."""
        for other in newer:
            if other.run_id == before_run:
                continue
            if not self._runs.are_of(other):
                if other.done and (yield from self._runs.continue_thread_of(other)):
                    return "moved_on", f"run {other.run_id} of another graph came after it, on the same thread"
                continue
            if self._threads.waits(str(run.thread_id), other.run_id):
                continue  # it waits until this run is settled
            if other.status == RunStatus.RUNNING:
                owner_is_gone = partial(self._core.dead_owners.owner_is_gone, other)
                if (yield off_loop(self._journal, owner_is_gone)):
                    continue
                # A message waits for an older run that is running and claimed. It does not wait for an older run that has
                # ended: it settles that run itself, and may have begun to work since its journal was read.
                waits = before_run is not None or run.status == RunStatus.RUNNING
                if waits and (yield from self._waits_in_other_process(other)):
                    continue
                # The newer run may have ended since it was listed, and have been pruned.
                found = yield off_loop(self._journal, partial(self._core.store.run, other.run_id))
                if found is None:
                    continue
                if found.status == RunStatus.RUNNING:
                    return "held", f"run {other.run_id} is running on the same thread"
                other = found
            if (yield from self._has_resumed(other)):
                return "whole", f"run {other.run_id} resumed where it was cut off"
            elif other.done:
                return "moved_on", f"run {other.run_id} came after it"
        return None

    def _waits_in_other_process(self, other: Run) -> Effects[bool]:
        """Return whether a newer run of another process has not begun to work. A new message does not begin before the older
        runs are settled, and until then its journal holds nothing but the message."""
        if other.owner == self._journal.owner_id or GRAPH not in other.metadata:
            return False
        read = partial(read_if_there, self._journal, other.run_id, _FIRST)
        said = {event.kind for event in (yield off_loop(self._journal, read))}
        return "llm.human.input" in said and said <= _BEFORE_WORK

    def _has_resumed(self, other: Run) -> Effects[bool]:
        """Return whether a newer run, which is not settled itself, resumed older ones where they were cut off. Then it
        stands for them."""
        events = yield off_loop(self._journal, partial(read_if_there, self._journal, other.run_id))
        wrote = any(event.kind == "run.checkpoint" and _is_of_settling(event.data) for event in events)
        return wrote and not any(event.kind == "llm.human.input" for event in events)


def _is_of_settling(data: Mapping[str, Any]) -> bool:
    """Return whether a run of an attached graph has written the thread, by its `run.checkpoint`.

    A run that only a handler records has such events as well, without the words of a settlement.
    """
    return not data.get("before") and bool(data.keys() - FACTS)
