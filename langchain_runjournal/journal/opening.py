"""Opening a journal off the event loop: after a crash, there may be a million events to bring in first."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

from ..common.clock import Clock
from ..redact import Redact
from ..stores import Store, Synchronous

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

logger = logging.getLogger("langchain_runjournal")

_T = TypeVar("_T")


class Options(TypedDict, total=False):
    """The options of `RunJournal`."""

    synchronous: Synchronous | None
    lease: float
    busy_timeout: float | None
    spool_dir: str | os.PathLike[str] | None
    spool_limit: int
    redact: Redact | None
    clock: Clock | None


class Opening:
    """The part of `RunJournal` that opens it for a program with an event loop."""

    if TYPE_CHECKING:

        def __init__(self, url: str | os.PathLike[str] | Store, **options: Unpack[Options]) -> None:
            """As `RunJournal` has it."""

    @classmethod
    async def aopen(cls, url: str | os.PathLike[str] | Store, **options: Unpack[Options]) -> Self:
        """Same as ``RunJournal(url, ...)``, without blocking the loop.

        After a crash, opening brings in what killed processes left, which can take a second for a million events. Use it as
        ``async with await RunJournal.aopen("runs.db") as journal``. A journal whose opening is cancelled is closed again.
        """
        return await _in_a_thread(lambda: cls(url, **options), _close)


async def _in_a_thread(make: Callable[[], _T], undo: Callable[[_T], None]) -> _T:
    # A thread of its own: the executor of the loop may be full of the application's synchronous tools.
    executor = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="runjournal-open")
    made = executor.submit(make)
    executor.shutdown(wait=False)
    try:
        return await asyncio.shield(asyncio.wrap_future(made))
    except asyncio.CancelledError:
        made.add_done_callback(lambda done: undo(done.result()) if done.exception() is None else None)
        raise


def _close(journal: Any) -> None:
    try:
        journal.close()
    except Exception:
        logger.exception("could not close %r, whose opening was cancelled", journal)
