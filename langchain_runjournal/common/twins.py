"""What takes time, in both ways of doing it: here, or awaited.

Rule: what decides is written once, as a generator that yields what takes time (`Effect`). `run_sync` and `run_async` drive
it, and nothing else is written twice.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import threading
from collections.abc import Awaitable, Callable, Coroutine, Generator
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Effect(Generic[_T]):
    """Something that takes time, in both ways of doing it. What decides is written once, and yields these."""

    now: Callable[[], _T]
    later: Callable[[], Awaitable[_T]]


Effects: TypeAlias = Generator[Effect[Any], Any, _T]


def off_the_loop(work: Callable[[], _T]) -> _T:
    """Return what `work` returns. If a loop runs on this thread, another thread does the work, and this one waits for it.

    For the little that has to be known before a synchronous call may return. `langgraph dev` refuses SQLite on its loop.
    """
    if asyncio._get_running_loop() is None:
        return work()
    with concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="runjournal-look") as one:
        return one.submit(work).result()


class Waited(Protocol):
    """Something that comes to its end."""

    @property
    def done(self) -> concurrent.futures.Future[Any]:
        """Has a result then."""

    @property
    def thread(self) -> int:
        """Where it goes on: whoever waits for it there without giving way waits for ever."""


class Pending:
    """The plainest of these."""

    def __init__(self) -> None:
        self.done: concurrent.futures.Future[None] = concurrent.futures.Future()
        self.thread = threading.get_ident()


def wait_for(other: Waited, seconds: float | None, *, always: bool = True) -> Effect[bool]:
    """Wait until something is over, and whether it is. `always`: also where that cannot be done by giving way."""

    def here() -> bool:
        if always and other.thread != threading.get_ident():
            concurrent.futures.wait([other.done], seconds)
        return other.done.done()

    async def giving_way() -> bool:
        await asyncio.wait([asyncio.wrap_future(other.done)], timeout=seconds)
        return other.done.done()

    return Effect(here, giving_way)


async def nothing() -> None:
    """For what has to be done only by those who block."""


def run_sync(steps: Effects[_T]) -> _T:
    """Do it here."""
    try:
        do = next(steps)
        while True:
            try:
                value = do.now()
            except BaseException as exc:  # noqa: BLE001 - the steps decide what to do about it
                do = steps.throw(exc)
            else:
                do = steps.send(value)
    except StopIteration as stop:
        result: _T = stop.value
        return result


async def run_async(steps: Effects[_T]) -> _T:
    """Same as `run_sync`, without blocking the loop."""
    try:
        do = next(steps)
        while True:
            try:
                value = await do.later()
            except (Exception, asyncio.CancelledError) as exc:  # noqa: BLE001 - the same
                do = steps.throw(exc)
            else:
                do = steps.send(value)
    except StopIteration as stop:
        result: _T = stop.value
        return result


_going_on: Final[set[asyncio.Task[Any]]] = set()
"""The loop itself holds its tasks weakly."""


def begin(work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
    """A task for what is brought to its end, whoever waits for it."""
    task = context_without_run().run(asyncio.ensure_future, work)
    _going_on.add(task)
    task.add_done_callback(_going_on.discard)
    return task


async def run_shielded(work: Coroutine[Any, Any, _T]) -> _T:
    """Whoever waits may be cancelled once more. What has begun is brought to its end."""
    return await asyncio.shield(begin(work))


def context_without_run() -> contextvars.Context:
    """The context that we are in, but for the run that we may be called from: it would be told of a part that is none."""
    from langchain_core.runnables.config import var_child_runnable_config  # who only reads a journal does not need it

    context = contextvars.copy_context()
    context.run(var_child_runnable_config.set, None)
    return context
