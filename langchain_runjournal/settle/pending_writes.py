"""What a saver is writing: which checkpoints are under way, and how to wait until a thread is quiet.

Rule: nobody is ever told that a thread is quiet while something is being written to it, in whatever loop or thread.
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

_TURNS: Final = 10
"""LangGraph begins a write some three turns of the loop after the one that it has waited for."""
_MOST_THREADS: Final = 1_000
"""Of so many threads, those written last, it is remembered which loops have written them."""
_BLOCKED: Final = 1.0
"""Seconds after which a loop that does not turn counts as blocked."""
_PATIENCE: Final = 0.25
"""Seconds after which somebody who waits looks whether the loop that is waited for still runs."""
_LAST_TRY = 5.0
"""Seconds that a loop that is torn down may take for a write that it has cancelled."""

_T = TypeVar("_T")


@dataclass(eq=False, slots=True)
class _Write:
    thread_id: str
    loop: asyncio.AbstractEventLoop | None
    """What brings it to its end; None for one of a thread."""
    task: asyncio.Task[Any] | None = None
    over: Future[None] = field(default_factory=Future)


class PendingWrites:
    """The writes of one saver that are under way, in all threads and loops.

    Without a lock: a generator that is collected as garbage may write a checkpoint at any time, also in the middle of this.
    Whatever is done to the sets is one step.
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
            self._clear()  # a forked child: what the parent writes does not end here
        if loop is not None:
            loops = self._loops.pop(thread_id, set())
            loops.add(weakref.ref(loop, loops.discard))
            self._loops[thread_id] = loops
            while len(self._loops) > _MOST_THREADS:
                self._loops.pop(next(iter(self._loops)), None)
        write = _Write(thread_id, loop)
        self._writes.add(write)
        return write

    def keep(self, write: _Write, task: asyncio.Task[Any]) -> None:
        """A loop holds its tasks weakly, and of this one there may soon be nobody else who does."""
        write.task = task
        _kept.add(task)
        task.add_done_callback(lambda _: self.end(write))

    def end(self, write: _Write) -> None:
        """Count a write as finished, and wake those who wait for the thread to be quiet."""
        self._writes.discard(write)
        if write.task is not None:
            _kept.discard(write.task)
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
        """What is being written to a thread."""
        if self._pid != os.getpid():
            self._clear()
        found = [write for write in self._writes.copy() if write.thread_id == thread_id]
        for write in found:
            if write.loop is not None and write.loop.is_closed():
                self.end(write)  # nobody is left to do it
        return [write for write in found if not write.over.done()]

    def loops(self, thread_id: str) -> list[asyncio.AbstractEventLoop]:
        """The loops that write, or have written, a thread, and run."""
        alive = [reference() for reference in self._loops.get(thread_id, set()).copy()]
        return [loop for loop in alive if loop is not None and loop.is_running()]


_kept: set[asyncio.Task[Any]] = set()


async def insist(write: Callable[[], Awaitable[_T]]) -> _T:
    """Await a write, and once more if it is cancelled, in place of what may be there of it.

    A loop that is torn down (Ctrl-C) cancels every task once and then turns until all have ended. A write that gave up then
    would take more away than itself: the next checkpoint refers to values that this one was to store.
    """
    try:
        return await write()
    except asyncio.CancelledError:
        again = asyncio.ensure_future(write())
        await asyncio.wait({again}, timeout=_LAST_TRY)
        if not again.done():
            again.cancel()
            raise
        return again.result()


class _Look:
    """A look at a thread, in each of the next turns of a loop: whether any write to it begins there."""

    def __init__(self, traffic: PendingWrites, thread_id: str, loop: asyncio.AbstractEventLoop) -> None:
        self._pending_writes, self._thread_id, self._loop = traffic, thread_id, loop
        self.quiet = True
        self.over: Future[None] = Future()
        with contextlib.suppress(RuntimeError):  # it has been closed in between
            loop.call_soon_threadsafe(self._turn, _TURNS)

    def _turn(self, left: int) -> None:
        if self._pending_writes.of(self._thread_id):
            self.quiet = False
            left = 0
        if left:
            self._loop.call_soon(self._turn, left - 1)
        else:
            self.over.set_result(None)

    def is_under_way(self) -> bool:
        return not self.over.done() and self._loop.is_running()


class WriteDrain:
    """What to wait for until a thread is quiet; how to wait is up to the twins."""

    def __init__(
        self,
        traffic: PendingWrites,
        thread_id: str,
        timeout: float | None,
        *,
        here: asyncio.AbstractEventLoop | None = None,
        turning: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._pending_writes, self._thread_id = traffic, thread_id
        self._here = here
        """The loop that does not turn, because we are on it and block it."""
        self._turning = (turning,)
        """One that does, and on which a first write may be about to begin."""
        self._deadline = float("inf") if timeout is None else time.monotonic() + timeout
        self.quiet = False
        """The answer, when `waits` has ended."""

    def waits(self) -> Iterator[tuple[list[Future[None]], float]]:
        """Futures to wait for, and the seconds after which to go on all the same."""
        traffic, thread_id = self._pending_writes, self._thread_id
        while True:
            left = self._deadline - time.monotonic()
            writes = traffic.of(thread_id)
            if writes:
                if left <= 0 or any(write.loop is self._here is not None for write in writes):
                    return
                yield [write.over for write in writes], min(left, _PATIENCE)
                continue
            # One write may be followed by the next, which has waited for it: LangGraph chains them. Let their loops turn.
            loops = {*traffic.loops(thread_id), *self._turning} - {self._here}
            looks = [_Look(traffic, thread_id, loop) for loop in loops if loop is not None]
            began = time.monotonic()
            while under_way := [look.over for look in looks if look.is_under_way()]:
                if time.monotonic() > self._deadline + _PATIENCE:
                    return
                if time.monotonic() > began + _BLOCKED:
                    break  # it is blocked, by whoever waits for us: it begins no write
                yield under_way, _PATIENCE
            self.quiet = all(look.quiet for look in looks) and not traffic.of(thread_id)
            if self.quiet or left <= 0:
                return


async def any_of(futures: list[Future[None]], patience: float) -> None:
    """Until one of them is done. Cancelling it cancels none of them."""
    loop = asyncio.get_running_loop()
    woken = loop.create_future()

    def wake() -> None:
        if not woken.done():
            woken.set_result(None)

    def over(_: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop of who waited has been closed
            loop.call_soon_threadsafe(wake)

    for future in futures:
        future.add_done_callback(over)
    await asyncio.wait([woken], timeout=patience)
