"""The checkpoint writes of a saver that are pending, and how to wait until a thread is quiet.

Rule: a thread never counts as quiet while a write to it is pending, in whatever event loop or thread.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import os
import time
import weakref
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

_ITERATIONS: Final = 10
"""Iterations of an event loop to watch. LangGraph begins a write some three iterations after the write that it has
awaited."""
_MOST_THREADS: Final = 1_000
"""The number of threads, the most recently written ones, whose writing event loops are remembered."""
_BLOCKED: Final = 1.0
"""Seconds after which a loop that does not iterate counts as blocked."""
_PATIENCE: Final = 0.25
"""Seconds after which a waiter checks whether the loop that it waits for still runs."""
_LAST_TRY: Final = 5.0
"""Seconds that a loop that is shutting down may take for a write that it has cancelled."""

_T = TypeVar("_T")


@dataclass(eq=False, slots=True)
class _Write:
    """A pending write."""

    thread_id: str
    loop: asyncio.AbstractEventLoop | None
    """The loop that runs the write; None if a thread runs it."""
    task: asyncio.Task[Any] | None = None
    over: Future[None] = field(default_factory=Future)


class PendingWrites:
    """The pending writes of one saver, in all threads and loops.

    It has no lock. A generator that is garbage-collected may write a checkpoint at any time, also in the middle of one of
    these methods. So each change of the sets is one atomic operation.
    """

    broken = False
    """Whether the last flush has failed."""

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._pid = os.getpid()
        self._writes: set[_Write] = set()
        self._loops: dict[str, set[weakref.ref[asyncio.AbstractEventLoop]]] = {}

    def begin(self, thread_id: str, loop: asyncio.AbstractEventLoop | None) -> _Write:
        """Count a write of a thread as begun."""
        if self._pid != os.getpid():
            self._clear()  # a forked child: the writes of the parent do not end in this process
        if loop is not None:
            loops = self._loops.pop(thread_id, set())
            loops.add(weakref.ref(loop, loops.discard))
            self._loops[thread_id] = loops
            while len(self._loops) > _MOST_THREADS:
                self._loops.pop(next(iter(self._loops)), None)
        write = _Write(thread_id, loop)
        self._writes.add(write)
        return write

    def hold_task(self, write: _Write, task: asyncio.Task[Any]) -> None:
        """Keep a strong reference to the task of a write until it ends. A loop holds its tasks weakly, and soon no other
        reference may be left."""
        write.task = task
        _held_tasks.add(task)
        task.add_done_callback(lambda _: self.end(write))

    def end(self, write: _Write) -> None:
        """Count a write as finished, and wake all that wait for the thread to be quiet."""
        self._writes.discard(write)
        if write.task is not None:
            _held_tasks.discard(write.task)
        with contextlib.suppress(concurrent.futures.InvalidStateError):
            write.over.set_result(None)

    @contextlib.contextmanager
    def write(self, thread_id: str) -> Iterator[None]:
        """Count the block as a write of the thread."""
        write = self.begin(thread_id, None)
        try:
            yield
        finally:
            self.end(write)

    def of(self, thread_id: str) -> list[_Write]:
        """Return the pending writes of a thread."""
        if self._pid != os.getpid():
            self._clear()
        found = [write for write in self._writes.copy() if write.thread_id == thread_id]
        for write in found:
            if write.loop is not None and write.loop.is_closed():
                self.end(write)  # a closed loop cannot end the write itself
        return [write for write in found if not write.over.done()]

    def loops(self, thread_id: str) -> list[asyncio.AbstractEventLoop]:
        """Return the loops that write the thread, or have written it, and are running."""
        alive = [reference() for reference in self._loops.get(thread_id, set()).copy()]
        return [loop for loop in alive if loop is not None and loop.is_running()]


_held_tasks: set[asyncio.Task[Any]] = set()


async def wait_before_the_end(write: asyncio.Future[Any]) -> None:
    """Wait for a write that was cancelled and begun again, on a loop that is shutting down."""
    await asyncio.wait({write}, timeout=_LAST_TRY)


async def await_again_if_cancelled(write: Callable[[], Awaitable[_T]]) -> _T:
    """Await a write. If it is cancelled, await it once more, in place of what the first attempt may have written.

    A loop that is shutting down (Ctrl-C) cancels every task once, and then runs until all have ended. A write that gave up
    then would lose more than itself: the next checkpoint refers to values that this one was to store.
    """
    try:
        return await write()
    except asyncio.CancelledError:
        again = asyncio.ensure_future(write())
        await wait_before_the_end(again)
        if not again.done():
            again.cancel()
            raise
        return again.result()


class _LoopWatch:
    """A watch over the next iterations of a loop, which sees whether a write to the thread begins there."""

    def __init__(self, pending: PendingWrites, thread_id: str, loop: asyncio.AbstractEventLoop) -> None:
        self._pending_writes, self._thread_id, self._loop = pending, thread_id, loop
        self.quiet = True
        self.over: Future[None] = Future()
        with contextlib.suppress(RuntimeError):  # the loop was closed in the meantime
            loop.call_soon_threadsafe(self._iterate, _ITERATIONS)

    def _iterate(self, left: int) -> None:
        if self._pending_writes.of(self._thread_id):
            self.quiet = False
            left = 0
        if left:
            self._loop.call_soon(self._iterate, left - 1)
        else:
            self.over.set_result(None)

    def is_under_way(self) -> bool:
        return not self.over.done() and self._loop.is_running()


class WriteDrain:
    """The futures to wait for until a thread is quiet. The sync and async twins of the saver decide how to wait."""

    def __init__(
        self,
        pending: PendingWrites,
        thread_id: str,
        timeout: float | None,
        *,
        here: asyncio.AbstractEventLoop | None = None,
        running: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._pending_writes, self._thread_id = pending, thread_id
        self._here = here
        """The loop that cannot iterate, because the caller is on it and blocks it."""
        self._running_loop = (running,)
        """A running loop, on which a first write may be about to begin."""
        self._deadline = float("inf") if timeout is None else time.monotonic() + timeout
        self.quiet = False
        """Whether the thread is quiet, when `waits` has ended."""

    def waits(self) -> Iterator[tuple[list[Future[None]], float]]:
        """Yield futures to wait for, and the seconds after which to continue if none of them is done."""
        pending, thread_id = self._pending_writes, self._thread_id
        while True:
            left = self._deadline - time.monotonic()
            writes = pending.of(thread_id)
            if writes:
                if left <= 0 or any(write.loop is self._here is not None for write in writes):
                    return
                yield [write.over for write in writes], min(left, _PATIENCE)
                continue
            # The next write may follow one that it has awaited: LangGraph chains them. Watch some iterations of their loops.
            loops = {*pending.loops(thread_id), *self._running_loop} - {self._here}
            watches = [_LoopWatch(pending, thread_id, loop) for loop in loops if loop is not None]
            began = time.monotonic()
            while under_way := [watch.over for watch in watches if watch.is_under_way()]:
                if time.monotonic() > self._deadline + _PATIENCE:
                    return
                if time.monotonic() > began + _BLOCKED:
                    break  # the loop is blocked, by a caller that waits for this drain: it begins no write
                yield under_way, _PATIENCE
            self.quiet = all(watch.quiet for watch in watches) and not pending.of(thread_id)
            if self.quiet or left <= 0:
                return


async def any_of(futures: list[Future[None]], patience: float) -> None:
    """Wait until one of the futures is done, or for `patience` seconds. Cancelling the wait cancels none of them."""
    loop = asyncio.get_running_loop()
    woken = loop.create_future()

    def wake() -> None:
        if not woken.done():
            woken.set_result(None)

    def over(_: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop of the waiter was closed
            loop.call_soon_threadsafe(wake)

    for future in futures:
        future.add_done_callback(over)
    await asyncio.wait([woken], timeout=patience)
