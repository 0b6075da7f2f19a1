"""Two messages at once on a thread: one of them runs, and the other is rejected, waits, or takes its place.

Rule: the store decides, in one transaction, so that it is the same among threads, event loops and processes. In one process,
those who wait get their turns in the order in which they came.
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
from ..journal import stop as _stopping
from ..journal.core import core_of
from ..journal.extensions import Extension
from ..journal.run_reading import unsettled
from ..journal.waiting import off_loop

if TYPE_CHECKING:
    from ..journal.run_journal import RunJournal

logger = logging.getLogger("langchain_runjournal")

IfBusy = Literal["reject", "stop", "wait"]

_LOOK: Final = 0.1
"""Seconds until whoever wants to take the place of all in front looks again for the one that runs."""
_UNHEARD: Final = 0.15
"""Seconds that `if_busy="reject"` waits for the end of a run that another process owns: its call may have returned, and a
store hears of an end up to 70 ms later."""
_SHORTLY: Final = 0.02
_STOPPING: Final = 60.0
"""Seconds that a run may take to stop for another one."""


class Waiting(Pending):
    """One of those who stand in line for a thread."""

    def leave(self, _: object = None) -> None:
        """It has its turn, or does not want it any more."""
        self.done.set_result(None)


class Lines(Extension):
    """Those who wait, of one journal."""

    def __init__(self) -> None:
        self.last: dict[tuple[str, str], Waiting] = {}
        """By graph and thread, the last of them."""

    def after_fork(self) -> None:
        """In a child: all of them are the parent's."""
        self.last.clear()


def lines_of(journal: RunJournal) -> Lines:
    """Return the lines of a journal."""
    return core_of(journal).extensions.get(Lines, Lines)


class Admission:
    """The place of a run on its thread."""

    def __init__(self, journal: RunJournal, run: Run, about: Callable[[], dict[str, Any]]) -> None:
        self._journal = journal
        self._core = core_of(journal)
        self._run = run
        self._about = about
        """Its metadata, looked up when it begins."""
        self._lock = threading.Lock()
        self._is_taken = self._is_given_up = False

    def take(self, if_busy: IfBusy) -> Effects[None]:
        """Begin the run, when and if that is possible. Raises `ThreadBusy`."""
        if if_busy == "reject" or self._run.thread_id is None:
            yield from self._take(if_busy)
            return
        line = lines_of(self._journal).last
        key, mine = (identity_of(self._run).key, self._run.thread_id), Waiting()
        before, line[key] = line.get(key), mine
        mine.done.add_done_callback(lambda _: line.pop(key) if line.get(key) is mine else None)
        try:
            while before is not None and not before.done.done():
                if if_busy == "stop":
                    # It does not wait for those in front to have had their turns: whatever runs is stopped for it.
                    busy, _ = yield off_loop(self._journal, self._look)
                    if busy is not None:
                        yield off_loop(self._journal, partial(_stopping.ask, self._journal, busy.run_id, "superseded"))
                yield wait_for(before, _LOOK if if_busy == "stop" else None)
            yield from self._take(if_busy)
        finally:
            # Whoever leaves the line early does not let those behind it go before those in front.
            if before is None:
                mine.leave()
            else:
                before.done.add_done_callback(mine.leave)

    def _take(self, if_busy: IfBusy) -> Effects[None]:
        besides: list[str] = []
        give_up = time.monotonic() + _UNHEARD
        while not (yield from self._begin(besides)):
            busy, besides = yield off_loop(self._journal, self._look)
            if busy is None:
                continue
            if if_busy == "reject":
                if busy.owner != self._journal.owner_id and time.monotonic() < give_up:
                    yield Effect(partial(time.sleep, _SHORTLY), partial(asyncio.sleep, _SHORTLY))
                    continue
                raise ThreadBusy(thread_id=self._run.thread_id, run_id=busy.run_id)
            yield from self._give_way(busy, if_busy)

    def _give_way(self, busy: Run, if_busy: IfBusy) -> Effects[None]:
        """Wait until the other run is over. One that dies meanwhile, or is pruned, is looked at again."""
        give_up = None
        with suppress(RunAbandoned, RunNotFound):
            if if_busy == "stop":
                yield off_loop(self._journal, partial(_stopping.ask, self._journal, busy.run_id, "superseded"))
                give_up = time.monotonic() + _STOPPING
            try:
                yield from _stopping.until_over(self._journal, busy.run_id, give_up)
            except TimeoutError:
                raise ThreadBusy(thread_id=self._run.thread_id, run_id=busy.run_id) from None

    def _look(self) -> tuple[Run | None, list[str]]:
        """The run that has the thread now, and those that only seem to."""
        besides: list[str] = []
        if self._run.thread_id is None:
            return None, besides
        mine = identity_of(self._run)
        for other in reversed(unsettled(self._journal, self._run.thread_id)):
            if other.status != RunStatus.RUNNING:
                continue  # it is settled before this one begins
            if identity_of(other).is_same(mine) and not self._is_dead(other):
                return other, besides
            besides.append(other.run_id)
        return None, besides

    def _is_dead(self, run: Run) -> bool:
        """Whether nobody works on it: it is settled before the next one begins."""
        is_idle = recorder_of(self._journal).threads.is_idle(str(run.thread_id), run.run_id)
        return is_idle or self._core.dead_owners.owner_is_gone(run)

    def _begin(self, besides: list[str]) -> Effects[bool]:
        try:
            begin = partial(self._begin_here, besides)
            has_begun: bool = yield Effect(begin, lambda: run_shielded(self._core.off_loop(begin)))
            return has_begun
        except BaseException:
            # Cancelled in the middle: the run may have begun, and nobody would ever end it.
            with self._lock:
                self._is_given_up = True
            self.give_back()
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
        if self._is_given_up:
            self.give_back()
        return self._is_taken

    def give_back(self) -> None:
        """It will not begin, after all: nothing is left of it."""
        with self._lock:
            is_ours, self._is_taken = self._is_taken, False
        if is_ours:
            try:
                self._core.store.withdraw(self._run.run_id, str(self._run.owner))
            except Exception:
                logger.exception("could not withdraw run %s, which has not begun; recording its end", self._run.run_id)
                data = {"status": "interrupted", "cause": "disconnect"}
                self._journal.append(Event(run_id=self._run.run_id, kind="run.end", data=data))
