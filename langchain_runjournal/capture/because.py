"""`because`: the program gives the cause for which it ends a run.

Rule: asyncio does not report why a task is cancelled or a stream is closed. A program that knows sets the cause in a context
variable, and the callback that records the end of the run reads it there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Final

from ..common.arguments import one_of
from ..events import CAUSES, Cause

_cause: Final[ContextVar[Cause | None]] = ContextVar("runjournal_because", default=None)


@contextmanager
def because(cause: Cause) -> Iterator[None]:
    """Record this cause for the runs that are cut off inside the block.

    ``with because("stop"): await stream.aclose()`` is what a Stop button does to a stream. The cause holds for streams that
    the block closes, for calls in it that are cancelled, and for tasks that begin in it. It does not hold for another task
    that the block cancels: use ``task.cancel("superseded")``. A run that completes or fails keeps that status. A cause that
    was given to `RunJournal.stop`, or to `cancel`, takes precedence. `because` stops nothing by itself.
    """
    one_of("cause", cause, CAUSES)
    token = _cause.set(cause)
    try:
        yield
    finally:
        with suppress(ValueError):  # a generator contains the block, and is closed in another context than it was started in
            _cause.reset(token)


def current_cause() -> Cause | None:
    """Return the cause that `because` has set in this context, or None."""
    return _cause.get()
