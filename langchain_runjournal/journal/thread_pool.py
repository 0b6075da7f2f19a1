"""Threads in which what may block runs, so that no event loop has to wait for it."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")


class ThreadPool:
    """A few threads of our own: the loop's executor may be full of the application's synchronous tools."""

    def __init__(self) -> None:
        self._threads: concurrent.futures.ThreadPoolExecutor | None = None

    async def run(self, work: Callable[[], _T]) -> _T:
        """What `work` returns. RuntimeError when they have been shut down in between."""
        if self._threads is None:
            self._threads = concurrent.futures.ThreadPoolExecutor(4, thread_name_prefix="runjournal-reader")
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def shutdown(self) -> None:
        """Let them end when they have done what they are doing."""
        if self._threads is not None:
            self._threads.shutdown(wait=False)
