"""`because`: why the program ends a run, said where it ends it.

Rule: asyncio does not say why a task is cancelled or a stream closed. A program that knows says it in the same context, and
the callback that records the end of the run reads it there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Final

from ..common.arguments import one_of
from ..events import CAUSES, Cause

_said: Final[ContextVar[Cause | None]] = ContextVar("runjournal_because", default=None)


@contextmanager
def because(cause: Cause) -> Iterator[None]:
    """Record this cause for the runs that are cut off inside of the block.

    ``with because("stop"): await stream.aclose()`` is what a Stop button does to a stream. It holds for streams that are
    closed in the block, for calls in it that are cancelled, and for tasks that begin in it. It does not hold for another
    task that is cancelled from there: use ``task.cancel("superseded")``. A run that completes or fails is recorded as such,
    and a cause that was given to `RunJournal.stop`, or to `cancel`, counts more. It stops nothing by itself.
    """
    one_of("cause", cause, CAUSES)
    token = _said.set(cause)
    try:
        yield
    finally:
        with suppress(ValueError):  # a generator around the block, which is closed in another context than it was begun in
            _said.reset(token)


def said() -> Cause | None:
    """The cause that was said around what is done now."""
    return _said.get()
