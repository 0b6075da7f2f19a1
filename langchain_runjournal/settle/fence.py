"""The fence before each checkpoint: a run may not write its thread after another process has claimed it.

Rule: the other process sets the fence of a run when it claims the run, so only the store knows about it. The store is asked
in the batch that makes the journal durable, and again if its answer is already stale when it arrives. If a store on another
machine cannot answer, the journal's own clock decides: no other process may claim a run before the lease has run out, so
the run writes its thread until then. After that, a checkpoint waits until the store can be asked, for half a minute.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ..common.twins import Effect, Effects
from ..errors import CheckpointFenced, LeaseExpired, RunFenced
from ..events import Run
from ..journal.core import JournalCore, core_of
from ..journal.waiting import make_durable, off_loop
from .writing_run import may_be_writing

if TYPE_CHECKING:
    from ..journal.run_journal import RunJournal
    from .saver import JournalSaver

_TRIES: Final = 3
"""How often the store is asked before one checkpoint, if each answer is stale when it arrives."""
_PATIENCE: Final = 30.0
"""Seconds that a checkpoint waits for a store that is away for longer than the lease."""
_LOOK: Final = 0.05


def ready_to_write(
    saver: JournalSaver,
    thread_id: str,
    config: Mapping[str, Any],
    report: Callable[[Exception | None], None],
    is_awaited: Callable[[], bool],
) -> Effects[None]:
    """Make the journal durable, and raise `CheckpointFenced` if another process has claimed the run that writes.

    `report` is called with the exception that kept the journal from becoming durable, or with None. If the store cannot
    answer, the run does not count as fenced: the checkpoint is written, as it is when the journal cannot be written. That
    holds until other machines may take this journal for dead. Then this waits for the store, 30 seconds at most, and no
    longer than `is_awaited` returns True and the run is running; after that it raises `LeaseExpired`.
    """
    journal, core = saver.journal, core_of(saver.journal)
    roots = may_be_writing(saver, thread_id, config)
    check = FenceCheck(journal, [root.run_id for root in roots]) if roots else None
    give_up = time.monotonic() + _PATIENCE
    tries = 0
    while tries < _TRIES:
        problem = yield make_durable(journal, None, check)
        report(problem)
        if check is None:
            return
        if problem is not None and not core.is_closed:
            yield off_loop(journal, check)  # a read needs none of the locks that the write waits for
        if check.is_too_late and is_awaited() and time.monotonic() < give_up and not all(root.over for root in roots):
            yield Effect(partial(time.sleep, _LOOK), partial(asyncio.sleep, _LOOK))
            continue
        check.raise_if_fenced(thread_id)
        if check.is_fresh:
            return
        tries += 1


def claimed_elsewhere(journal: RunJournal, run: Run) -> str | None:
    """Return why this journal does not settle a run that it began: another process has claimed it. None for any other
    run."""
    buffer = core_of(journal).appender.buffer_of(run.run_id)
    is_taken = buffer is not None and buffer.seq > 0 and run.owner not in (None, journal.owner_id)
    return "another process has claimed it, and settles it" if is_taken else None


def check_fence(journal: RunJournal, run: Run) -> Effects[None]:
    """Raise `CheckpointFenced` if another process has claimed a run of this journal since its settlement began."""
    if run.owner == journal.owner_id:
        check = FenceCheck(journal, [run.run_id])
        yield off_loop(journal, check)
        check.raise_if_fenced(str(run.thread_id))


class FenceCheck:
    """The fence of some runs, read from the store. Calling an instance may block, and never raises."""

    def __init__(self, journal: RunJournal, run_ids: list[str]) -> None:
        self._core = core_of(journal)
        self._run_ids = run_ids
        self._asked = float("inf")
        self.is_fenced = False
        self._is_unanswered = False

    def __call__(self) -> None:
        """Read the fence of each run from the store."""
        self._asked = self._core.clock.monotonic()
        try:
            self.is_fenced = all(self._is_fenced(run_id) for run_id in self._run_ids)
            self._is_unanswered = False
        except Exception:  # noqa: BLE001 - the store cannot be read: the barrier has reported that, or the next one does
            self.is_fenced, self._is_unanswered = False, True

    def raise_if_fenced(self, thread_id: str) -> None:
        """Raise `CheckpointFenced` if another process has claimed the runs, `LeaseExpired` if one may have."""
        if self.is_fenced:
            raise CheckpointFenced(thread_id=thread_id, run_ids=self._run_ids)
        raise_if_lease_expired(self._core, self._is_unanswered, thread_id, self._run_ids)

    @property
    def is_too_late(self) -> bool:
        """Whether the store could not be asked, and others may have claimed the runs."""
        return self._is_unanswered and not self._core.is_closed and self._core.lease_has_run_out()

    @property
    def is_fresh(self) -> bool:
        """Whether the answer is recent enough to be trusted.

        A process that is suspended sends no heartbeat, and after the time of a lease other processes regard it as dead. So
        an answer that is older than a third of the lease may be wrong. For a store on another machine that gave none, the
        lease itself is checked.
        """
        if self._is_unanswered and self._core.is_far:
            return True
        return self._core.clock.monotonic() - self._asked < self._core.lease / 3

    def _is_fenced(self, run_id: str) -> bool:
        core = self._core
        buffer = core.appender.buffer_of(run_id)
        if buffer is not None and isinstance(buffer.shut, RunFenced):
            return True
        owner_of = getattr(core.store, "owner_of", None)
        if owner_of is None:
            run = core.store.run(run_id)
            owner = None if run is None else run.owner or core.owner.owner_id
        else:
            owner = owner_of(run_id)
        if owner is None:
            # The run was deleted if any of its events were ever stored. Its thread was deleted with it, and must not come
            # back.
            return buffer is not None and buffer.base > 0
        return bool(owner != core.owner.owner_id)


def raise_if_lease_expired(core: JournalCore, is_unanswered: bool, thread_id: str, run_ids: list[str]) -> None:
    """Raise `LeaseExpired` if the store could not be asked whether these runs are still ours, and others may take this
    journal for dead."""
    if is_unanswered and core.lease_has_run_out():
        raise LeaseExpired(thread_id=thread_id, run_ids=run_ids, lease=core.lease)
