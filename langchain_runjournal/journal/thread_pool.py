"""A thread pool for functions that may block, so that no event loop has to wait for them."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")


class ThreadPool:
    """A few threads of our own, because synchronous tools of the application may occupy the executor of the event loop."""

    def __init__(self) -> None:
        self._threads: concurrent.futures.ThreadPoolExecutor | None = None

    async def run(self, work: Callable[[], _T]) -> _T:
        """Return what `work` returns. Raise `RuntimeError` if the threads were shut down meanwhile."""
        if self._threads is None:
            self._threads = concurrent.futures.ThreadPoolExecutor(4, thread_name_prefix="runjournal-reader")
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def shutdown(self) -> None:
        """Let the threads end after their current work."""
        if self._threads is not None:
            self._threads.shutdown(wait=False)
