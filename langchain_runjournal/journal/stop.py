"""`RunJournal.stop`: asks a run to stop, and waits until it has ended."""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Final

from ..common.arguments import one_of, seconds
from ..common.twins import Effect, Effects, nothing
from ..errors import RunAbandoned, StopTimeout, WouldDeadlock
from ..events import CAUSES, Run, RunStatus
from .core import core_of
from .follow import RunWaiter
from .waiting import off_loop

if TYPE_CHECKING:
    from .run_journal import RunJournal

_LONGEST: Final = 1.0
"""The seconds after which a waiting call looks without having been woken, for example at whether the owner is alive."""


def ask(journal: RunJournal, run_id: str, cause: str) -> Run:
    """Store a stop request, and deliver it if this journal owns the run. Return the run."""
    one_of("cause", cause, CAUSES)
    run = journal.run(run_id)
    if run.status == RunStatus.PAUSED:
        return run  # no process is working on it
    if not run.ended:
        run = core_of(journal).store.request_stop(run_id, cause) or run
    if run.stop is not None and not run.ended and run.owner == journal.owner_id:
        core_of(journal).stops.deliver(run_id, run.stop)
    return run


def stop(journal: RunJournal, run_id: str, cause: str, wait: bool, timeout: float | None) -> Effects[Run]:
    """Implement `RunJournal.stop`."""
    timeout = seconds("timeout", timeout)
    give_up = None if timeout is None else time.monotonic() + timeout
    run: Run = yield off_loop(journal, partial(ask, journal, run_id, cause))
    if not wait or _is_over(run):
        return run
    try:
        return (yield from until_over(journal, run_id, give_up))
    except TimeoutError:
        raise StopTimeout(run_id=run_id, seconds=timeout) from None


def until_over(journal: RunJournal, run_id: str, give_up: float | None) -> Effects[Run]:
    """Wait until a run has ended, or is paused for a human. Raise `RunAbandoned`, and at `give_up` a `TimeoutError`."""
    waiter = RunWaiter(core_of(journal), run_id)
    try:
        while True:
            yield Effect(partial(_check_loop_is_free, journal, run_id), nothing)
            yield Effect(waiter.listen, waiter.alisten)
            if not _is_running_here(journal, run_id):
                run: Run = yield off_loop(journal, partial(journal.run, run_id))
                if _is_over(run):
                    return run
                if (yield off_loop(journal, partial(core_of(journal).dead_owners.owner_is_gone, run))):
                    raise RunAbandoned(run_id=run_id)
            left = _LONGEST if give_up is None else min(_LONGEST, give_up - time.monotonic())
            if left <= 0:
                raise TimeoutError
            yield Effect(partial(waiter.sleep, left), partial(waiter.asleep, left))
    finally:
        waiter.end()


def _is_over(run: Run) -> bool:
    """Return whether the run has ended or is paused for a human, so that no process is working on it."""
    return run.ended or run.status == RunStatus.PAUSED


def _is_running_here(journal: RunJournal, run_id: str) -> bool:
    """Return whether this journal owns the run and it has not ended, as far as that is known without the store."""
    buffer = core_of(journal).appender.buffers.get(run_id)
    return buffer is not None and not buffer.shut and not buffer.ended and not buffer.paused


def _check_loop_is_free(journal: RunJournal, run_id: str) -> None:
    """Raise `WouldDeadlock` if the caller is about to block the event loop of the run, which could never end then."""
    started = core_of(journal).local_runs.named(run_id)
    if started is not None and started.thread == threading.get_ident() and not started.done.done():
        hint = "On the event loop, await the method that begins with an a, such as `astop`"
        raise WouldDeadlock(url=journal.url, where="on the event loop of the run, which the wait blocks", hint=hint)
