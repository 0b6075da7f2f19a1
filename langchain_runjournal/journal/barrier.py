"""Barriers: futures that the writer thread resolves. A waiter that is cancelled does not disturb the others."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future

from ..errors import RunJournalError


class Barrier(Future[None]):
    """A future that is done when all events that were appended before it are durable."""

    def __init__(self, *, quiet: bool = False, then: Callable[[], object] | None = None) -> None:
        super().__init__()
        self.quiet = quiet
        """Whether this barrier leaves complaints (refused and lost events) to the next barrier that is not quiet."""
        self._then = then

    def open(self) -> None:
        """Call `then`, and resolve the barrier, on the writer thread. `then` may block, but must not raise."""
        if self._then is not None:
            self._then()
        self.set_result(None)


def fail(barriers: list[Barrier], make: Callable[[], RunJournalError], cause: BaseException | None = None) -> None:
    """Fail all barriers, each with an exception of its own.

    If two threads raised the same exception object, it would mix up their tracebacks.
    """
    for barrier in barriers:
        error = make()
        error.__cause__ = cause
        barrier.set_exception(error)
