"""Barriers: futures that the writer resolves, safe from waiters that are cancelled."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future

from ..errors import RunJournalError


class Barrier(Future[None]):
    """Somebody who waits until all that was appended before is durable."""

    def __init__(self, *, quiet: bool = False, then: Callable[[], object] | None = None) -> None:
        super().__init__()
        self.quiet = quiet
        """Whether it leaves it to others to hear what was refused."""
        self._then = then

    def open(self) -> None:
        """Let go on who waits. `then` is called before, where blocking is allowed: by the writer. It may not raise."""
        if self._then is not None:
            self._then()
        self.set_result(None)


def fail(barriers: list[Barrier], make: Callable[[], RunJournalError], cause: BaseException | None = None) -> None:
    """Let all of them raise. One exception for each: one that is raised in two threads mixes up their tracebacks."""
    for barrier in barriers:
        error = make()
        error.__cause__ = cause
        barrier.set_exception(error)
