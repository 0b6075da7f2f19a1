"""Effects of a journal that may block, for callers that block and for callers that await (see `common.twins`)."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from ..common.twins import Effect
from ..errors import JournalClosed
from .core import core_of

if TYPE_CHECKING:
    from .run_journal import RunJournal

_T = TypeVar("_T")


def off_loop(journal: RunJournal, work: Callable[[], _T]) -> Effect[_T]:
    """Return an effect that does work of a journal that may block. An asynchronous caller has it done by a thread."""
    return Effect(work, partial(core_of(journal).off_loop, work))


def make_durable(
    journal: RunJournal, seconds: float | None, then: Callable[[], object] | None = None
) -> Effect[Exception | None]:
    """Return an effect that waits until all appended events are durable, and returns the error that prevented it, or None.

    `then`: the writer thread calls it when the events are durable. A complaint about refused events is left for the next
    barrier of the program, which raises it.
    """

    def barrier() -> concurrent.futures.Future[None]:
        core = core_of(journal)
        if core.is_closed:
            raise JournalClosed(url=journal.url, refused=0)
        core.check_open()
        return core.writer.barrier(quiet=True, then=then)

    def here() -> Exception | None:
        try:
            barrier().result(seconds)
        except Exception as exc:  # noqa: BLE001 - returned to the caller
            return exc
        return None

    async def giving_way() -> Exception | None:
        try:
            await asyncio.wait_for(asyncio.wrap_future(barrier()), seconds)
        except Exception as exc:  # noqa: BLE001 - returned to the caller
            return exc
        return None

    return Effect(here, giving_way)
