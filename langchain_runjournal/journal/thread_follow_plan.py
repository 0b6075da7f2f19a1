r"""Pure: decides what a follower of a thread does next: it follows one run after the other.

Rule: the runs of a thread are followed in the order in which they began in the store, each up to its `run.end`. The
follower keeps the number of the run that it follows, or followed last: so it finds the next one also if that run was
deleted. It never ends by itself.

    NEXT --no later run--> WAIT --woken--> NEXT
      | ^
      | '--over, or deleted--------------------------.
      '-----run--> READ --nothing new, not over--> CHECK --must stay--> WAIT --woken--> READ or CHECK
                     ^---------------------------------|--may be left--> NEXT

A run that is not over holds the follower, and with it the later runs. It is left for a later run in two cases (`may_leave`):
it waits for a human, or its owner is dead. In both, a later run has got past its beginning. An attached graph settles the
earlier runs of its thread when a run begins, before the new run does anything, and `run.end` of a settled run is what a
follower waits for. So a run that was left is one that the later run does not settle: of a graph that is not attached, of
another graph, or with `settle="never"`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Final, NamedTuple

from ..events import Event, Run, RunStatus
from ..events.run import Begun
from .follow_plan import Page, Replay, Step

BEFORE_WORK: Final = frozenset({"run.start", "llm.human.input", "run.stop", "run.checkpoint"})
"""The kinds of events that a run may have before the earlier runs of its thread are settled."""


class ThreadStep(Enum):
    """The next action of the follower of a thread."""

    NEXT = "next"
    """Find the next run."""
    READ = "read"
    """Read on in the run."""
    CHECK = "check"
    """See whether the run may be left."""
    WAIT = "wait"


class Cursor(NamedTuple):
    """What a follower of a thread has: the events of a run up to a seq, and all earlier runs."""

    run_id: str
    seq: int


class ThreadReplay:
    """The position of one follower in one thread."""

    def __init__(self, thread_id: str, after: Cursor | None = None, url: str = "") -> None:
        self.thread_id = thread_id
        self.after = after
        """Where to begin; None once the follower has begun."""
        self.number = 0
        self.replay: Replay | None = None
        """The position in the run that is followed; None between two runs."""
        self.step = ThreadStep.NEXT
        self.is_held = False
        """Whether a later run has begun for which this one is left as soon as that is past its beginning."""
        self.is_paused = False
        """Whether the run that is followed waits for a human, as far as its events tell: nothing may happen for long."""
        self._queue: list[Begun] = []
        self._url = url
        self._is_checked = False

    # --- between runs -------------------------------------------------------------------------------------------------

    def begin(self, number: int, *, is_over: bool, is_paused: bool) -> None:
        """Begin where `after` says, in the run with this number. `is_over`: all of that run was seen."""
        if self.after is not None:
            cursor, self.after = self.after, None
            self.number = number
            if not is_over:
                self._follow(cursor.run_id, cursor.seq)
                self.is_paused = is_paused

    def take(self, later: Sequence[Begun]) -> None:
        """Take the next runs, the oldest first; none if there is none."""
        self._queue += later
        self._go_on()
        if self.replay is None:
            self.step = ThreadStep.WAIT

    def leave(self) -> None:
        """Leave the run: it is over, or was deleted, or holds nothing that is worth waiting for."""
        self.replay, self.step = None, ThreadStep.NEXT
        self._go_on()

    def _go_on(self) -> None:
        if self._queue and self.replay is None:
            run = self._queue.pop(0)
            self.number = run.number
            self._follow(run.run_id, 0)

    def _follow(self, run_id: str, seq: int) -> None:
        self.replay = Replay(run_id, seq, self._url)
        self.step, self.is_held, self.is_paused, self._is_checked = ThreadStep.READ, False, False, False

    # --- in a run -----------------------------------------------------------------------------------------------------

    def accept(self, page: Page, *, is_ours: bool) -> list[Event]:
        """Return the new events of a page. `is_ours`: this process is at work on the run, so that it need not be left."""
        if self.replay is None:
            return []
        fresh = self.replay.accept(page)
        if fresh:
            self.is_paused = fresh[-1].kind == "run.pause"
            self._is_checked = self._is_checked and not self.is_paused
        if self.replay.step is Step.DONE:
            self.leave()
        elif self.replay.step is Step.WAIT:
            # Other events than these end the wait; whether the run may be left is asked once, and again in doubt.
            self.step = ThreadStep.WAIT if is_ours or self._is_checked else ThreadStep.CHECK
        return fresh

    def checked(self, leave: Leave) -> None:
        """Note whether this run may be left for a later one."""
        self.is_held, self._is_checked = leave is Leave.SOON, True
        if leave is Leave.NOW:
            self.leave()
        else:
            self.step = ThreadStep.WAIT

    def read_on(self) -> None:
        """Read on: the run has events that came since it was read."""
        self.step = ThreadStep.READ

    def woken(self, *, in_doubt: bool) -> None:
        """Continue: a wake-up came, or the wait was long enough. `in_doubt`: no event of the run may be the reason."""
        if self.step is not ThreadStep.WAIT:
            return
        self.step = ThreadStep.NEXT if self.replay is None else ThreadStep.READ
        if self.replay is not None:
            self.replay.woken()
            self._is_checked = self._is_checked and not in_doubt


class Leave(Enum):
    """When a follower may leave a run that is not over."""

    NOW = "now"
    SOON = "soon"
    """As soon as a later run has got past its beginning."""
    NOT_YET = "not yet"


def may_leave(run: Run, later: Iterable[bool], *, owner_is_gone: bool) -> Leave:
    """Return when a follower may leave a run that is not over, and behind which others have begun. `later`: of each of them,
    whether it has got past its beginning (`is_past_beginning`)."""
    if run.ended or not (run.status == RunStatus.PAUSED or owner_is_gone):
        return Leave.NOT_YET
    return Leave.NOW if any(later) else Leave.SOON


def is_past_beginning(run: Run, first: Iterable[Event], *, owner_is_gone: bool) -> bool:
    """Return whether a run no longer settles the earlier runs of its thread: it works, waits, has ended, or has no living
    owner. `first`: its first events."""
    if run.status != RunStatus.RUNNING or owner_is_gone:
        return True
    return any(event.kind not in BEFORE_WORK for event in first)


def was_over(run: Run, last_seen: Event | None, seq: int) -> bool:
    """Return whether a reader that has the events up to `seq` has all of a run. `last_seen`: the event with that seq.

    What follows `run.end` is late, and no follower yields it."""
    if not run.ended or not seq:
        return False
    return last_seen is None or last_seen.kind == "run.end" or bool(last_seen.data.get("late"))
