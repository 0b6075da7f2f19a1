"""Synchronous and asynchronous twins: one generator decides, and two drivers wait, one by blocking and one by awaiting.

Rule: a decision is written once, as a generator that yields each wait as an `Effect`. `run_sync` and `run_async` drive it,
and nothing else is written twice.
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
    """A wait in its two forms. A generator that decides yields these."""

    now: Callable[[], _T]
    later: Callable[[], Awaitable[_T]]


Effects: TypeAlias = Generator[Effect[Any], Any, _T]


def off_the_loop(work: Callable[[], _T]) -> _T:
    """Return what `work` returns. If an event loop runs on this thread, do the work on another one and block until it ends.

    This is for the few facts that a synchronous call needs before it returns. `langgraph dev` refuses SQLite calls on its
    loop.
    """
    if asyncio._get_running_loop() is None:
        return work()
    with concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="runjournal-look") as one:
        return one.submit(work).result()


class Waited(Protocol):
    """A piece of work that will end."""

    @property
    def done(self) -> concurrent.futures.Future[Any]:
        """Set when the work has ended."""

    @property
    def thread(self) -> int:
        """The thread on which the work runs.

        A caller that blocks this thread until the work ends would wait for ever: a deadlock.
        """


class Pending:
    """The simplest `Waited`."""

    def __init__(self) -> None:
        self.done: concurrent.futures.Future[None] = concurrent.futures.Future()
        self.thread = threading.get_ident()


def wait_for(other: Waited, seconds: float | None, *, always: bool = True) -> Effect[bool]:
    """Wait until some work has ended, and return whether it has.

    The synchronous form cannot yield to the event loop. With `always`, it blocks, but never on the thread on which the work
    runs; without, it does not wait.
    """

    def here() -> bool:
        if always and other.thread != threading.get_ident():
            concurrent.futures.wait([other.done], seconds)
        return other.done.done()

    async def giving_way() -> bool:
        await asyncio.wait([asyncio.wrap_future(other.done)], timeout=seconds)
        return other.done.done()

    return Effect(here, giving_way)


async def nothing() -> None:
    """Do nothing: the asynchronous form of a step that only blocking callers need."""


def run_sync(steps: Effects[_T]) -> _T:
    """Drive the steps by blocking, and return their result."""
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
    """Drive the steps as `run_sync` does, without blocking the loop."""
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


_tasks: Final[set[asyncio.Task[Any]]] = set()
"""Strong references to tasks: the loop holds its tasks only weakly."""


def begin(work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
    """Start a task that runs to its end even if its waiter is cancelled."""
    task = context_without_run().run(asyncio.ensure_future, work)
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)
    return task


async def run_shielded(work: Coroutine[Any, Any, _T]) -> _T:
    """Await work that runs to its end even if the caller is cancelled once more."""
    return await asyncio.shield(begin(work))


def context_without_run() -> contextvars.Context:
    """Return a copy of the current context without the run that may be calling us.

    LangChain would otherwise report the new work to that run, to which it does not belong.
    """
    # a program that only reads a journal does not need it
    from langchain_core.runnables.config import var_child_runnable_config

    context = contextvars.copy_context()
    context.run(var_child_runnable_config.set, None)
    return context
