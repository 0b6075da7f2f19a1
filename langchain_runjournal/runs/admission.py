"""Two messages at once on a thread: one of them runs, and the other is rejected, waits, or takes its place.

Rule: the store decides, in one transaction, so that threads, event loops and processes all follow one rule. In one process,
the runs that wait begin in the order in which they came.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

from ..capture.graph_identity import identity_of
from ..capture.recorder import recorder_of
from ..common.twins import Effect, Effects, Pending, run_shielded, wait_for
from ..errors import InvalidArgument, JournalClosing, RunAbandoned, RunNotFound, ThreadBusy
from ..events import Event, Run, RunStatus
from ..journal import stop
from ..journal.core import core_of
from ..journal.extensions import Extension
from ..journal.ownership import patience_for
from ..journal.run_reading import unsettled
from ..journal.waiting import off_loop

if TYPE_CHECKING:
    from ..journal.run_journal import RunJournal

logger = logging.getLogger("langchain_runjournal")

IfBusy = Literal["reject", "stop", "wait"]

_LOOK_EVERY: Final = 0.1
"""Seconds after which a run that takes the place of all runs before it looks again for the one that is running."""
_SETTLING: Final = 5.0
"""Seconds for which `if_busy="reject"` waits for a run that a journal has claimed from a dead owner: settling it takes some
milliseconds, and a page may have said already that its answer was cut off."""
_END_DELAY: Final = 0.15
"""Seconds for which `if_busy="reject"` waits for the end of a run that another process owns: the call of that run may have
returned, and a store learns of an end up to 70 ms later."""
_RETRY_AFTER: Final = 0.02
_IDLE_LIMIT: Final = 0.1
"""Seconds that a run of this process may be over before its settlement begins. After that, no task settles it."""
_STOP_LIMIT: Final = 60.0
"""Seconds that a run may acquire to stop for another one."""


class Waiter(Pending):
    """A run that waits in line for a thread."""

    def leave(self, _: object = None) -> None:
        """Leave the line: the run may begin, or is not wanted any more."""
        self.done.set_result(None)


class WaitingLines(Extension):
    """The lines of one journal in which runs wait for their threads."""

    def __init__(self) -> None:
        self.last: dict[tuple[str, str], Waiter] = {}
        """The last run of each line, by graph and thread."""

    def after_fork(self) -> None:
        """Forget all lines in a forked child: they belong to the parent."""
        self.last.clear()


def lines_of(journal: RunJournal) -> WaitingLines:
    """Return the lines of a journal."""
    return core_of(journal).extensions.get(WaitingLines, WaitingLines)


class AnotherWaits(Exception):
    """The run whose question a new run answers no longer waits for it."""


class Admission:
    """The admission of a run to its thread."""

    def __init__(
        self,
        journal: RunJournal,
        run: Run,
        about: Callable[[], dict[str, Any]],
        wait_for_owner: float | None = None,
        answers: str | None = None,
    ) -> None:
        """`wait_for_owner`: see `attach`. `answers`: the paused run whose question the new run answers; if another one waits
        when the new run has the thread, it does not begin (`AnotherWaits`)."""
        self._journal = journal
        self._answers = answers
        self._wait_for_owner = wait_for_owner
        self._core = core_of(journal)
        self._run = run
        self._about = about
        """Function that returns the metadata of the run, called when the run begins."""
        self._lock = threading.Lock()
        self._is_taken = self._is_cancelled = False
        self._idle_since: dict[str, float] = {}
        """By run id, when this admission first saw a run that is over and whose settlement had not begun."""

    def acquire(self, if_busy: IfBusy) -> Effects[None]:
        """Begin the run as soon as it is the first in line and the thread is free. Raise `ThreadBusy` if `if_busy` asks for
        that."""
        if if_busy == "reject" or self._run.thread_id is None:
            yield from self._begin_when_free(if_busy)
            return
        line = lines_of(self._journal).last
        key, mine = (identity_of(self._run).key, self._run.thread_id), Waiter()
        before, line[key] = line.get(key), mine
        mine.done.add_done_callback(lambda _: line.pop(key) if line.get(key) is mine else None)
        try:
            while before is not None and not before.done.done():
                if if_busy == "stop":
                    # This run does not wait for the runs before it in line: it stops the one that is running.
                    running, _ = yield off_loop(self._journal, self._find_running)
                    if running is not None:
                        yield off_loop(self._journal, partial(stop.ask, self._journal, running.run_id, "superseded"))
                yield wait_for(before, _LOOK_EVERY if if_busy == "stop" else None)
            yield from self._begin_when_free(if_busy)
        finally:
            # A run that leaves the line early must not let the runs behind it overtake those before it.
            if before is None:
                mine.leave()
            else:
                before.done.add_done_callback(mine.leave)

    def _begin_when_free(self, if_busy: IfBusy) -> Effects[None]:
        besides: list[str] = []
        began = time.monotonic()
        while not (yield from self._begin(besides)):
            running, besides = yield off_loop(self._journal, self._find_running)
            if running is None:
                continue
            if running.run_id in self._idle_since:
                # Its settlement is about to begin, or never will: look again.
                yield Effect(partial(time.sleep, _RETRY_AFTER), partial(asyncio.sleep, _RETRY_AFTER))
                continue
            if if_busy == "reject":
                patience = yield off_loop(self._journal, partial(self._patience_with, running))
                if time.monotonic() - began < patience:
                    yield Effect(partial(time.sleep, _RETRY_AFTER), partial(asyncio.sleep, _RETRY_AFTER))
                    continue
                raise ThreadBusy(thread_id=self._run.thread_id, run_id=running.run_id)
            yield from self._wait_for_end(running, if_busy)

    def _patience_with(self, running: Run) -> float:
        """Return for how many seconds `if_busy="reject"` waits for the end of a run, or for the death of its owner."""
        if running.epoch > 1:
            return _SETTLING
        if running.owner == self._journal.owner_id:
            return 0.0
        owner = self._core.dead_owners.overdue(running)
        return _END_DELAY if owner is None else max(_END_DELAY, patience_for(owner, self._wait_for_owner))

    def _wait_for_end(self, running: Run, if_busy: IfBusy) -> Effects[None]:
        """Wait until the other run is over. If its owner dies meanwhile, or it is pruned, the caller looks again."""
        deadline = None
        with suppress(RunAbandoned, RunNotFound):
            if if_busy == "stop":
                yield off_loop(self._journal, partial(stop.ask, self._journal, running.run_id, "superseded"))
                deadline = time.monotonic() + _STOP_LIMIT
            try:
                yield from stop.until_over(self._journal, running.run_id, deadline)
            except TimeoutError:
                raise ThreadBusy(thread_id=self._run.thread_id, run_id=running.run_id) from None

    def _find_running(self) -> tuple[Run | None, list[str]]:
        """Return the run that is running on the thread now, and the runs that only seem to be running."""
        besides: list[str] = []
        if self._run.thread_id is None:
            return None, besides
        mine = identity_of(self._run)
        for other in reversed(unsettled(self._journal, self._run.thread_id)):
            if other.status != RunStatus.RUNNING:
                continue  # the run is settled before this one begins
            if identity_of(other).is_same(mine) and not self._is_abandoned(other):
                return other, besides
            besides.append(other.run_id)
        return None, besides

    def _is_abandoned(self, run: Run) -> bool:
        """Return whether no task and no process works on a run: it is settled before the next one begins."""
        if not recorder_of(self._journal).threads.is_idle(str(run.thread_id), run.run_id):
            self._idle_since.pop(run.run_id, None)
            return self._core.dead_owners.owner_is_gone(run)
        now = time.monotonic()
        return now - self._idle_since.setdefault(run.run_id, now) > _IDLE_LIMIT

    def _begin(self, besides: list[str]) -> Effects[bool]:
        try:
            begin = partial(self._begin_here, besides)
            has_begun: bool = yield Effect(begin, lambda: run_shielded(self._core.off_loop(begin)))
            return has_begun
        except BaseException:
            # Cancelled in the middle: the store may have begun the run, and no task would ever end it.
            with self._lock:
                self._is_cancelled = True
            self.withdraw()
            raise

    def _begin_here(self, besides: list[str]) -> bool:
        if self._core.local_runs.is_closing:
            raise JournalClosing(url=self._journal.url)
        run = replace(self._run, started_at=self._core.clock.wall() / 1000, metadata=self._about())
        in_the_way = self._core.store.begin(run, besides)
        if self._run.run_id in in_the_way:
            raise InvalidArgument(
                name='config["run_id"]', expected="an id that no run of the journal has", value=self._run.run_id
            )
        with self._lock:
            self._is_taken = not in_the_way
        if self._is_cancelled:
            self.withdraw()
        if self._is_taken and self._answers is not None:
            # Now no other run can take the question away. Before this one had the thread, another answer may have done so.
            waiting = self._journal.runs(self._run.thread_id, RunStatus.PAUSED, 1)
            if [run.run_id for run in waiting] != [self._answers]:
                self.withdraw()
                raise AnotherWaits(self._answers)
        return self._is_taken

    def withdraw(self) -> None:
        """Withdraw the run, which will not begin after all: the store keeps nothing of it."""
        with self._lock:
            is_ours, self._is_taken = self._is_taken, False
        if is_ours:
            try:
                self._core.store.withdraw(self._run.run_id, str(self._run.owner))
            except Exception:
                logger.exception("could not withdraw run %s, which has not begun; recording its end", self._run.run_id)
                data = {"status": "interrupted", "cause": "disconnect"}
                self._journal.append(Event(run_id=self._run.run_id, kind="run.end", data=data))
