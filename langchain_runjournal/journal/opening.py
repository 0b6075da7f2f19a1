"""`RunJournal.aopen`: opens a journal off the event loop, since after a crash it may have to import a million events."""

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
            """Declare the signature of `RunJournal`."""

    @classmethod
    async def aopen(cls, url: str | os.PathLike[str] | Store, **options: Unpack[Options]) -> Self:
        """Open a journal like ``RunJournal(url, ...)``, without blocking the event loop.

        Opening a journal imports the spools of dead owners, which can take a second for a million events. Use it as
        ``async with await RunJournal.aopen("runs.db") as journal``. If this call is cancelled, it closes the journal again.
        """
        return await _in_a_thread(lambda: cls(url, **options), _close)


async def _in_a_thread(make: Callable[[], _T], undo: Callable[[_T], None]) -> _T:
    # A thread of its own: the synchronous tools of the application may occupy the executor of the event loop.
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
