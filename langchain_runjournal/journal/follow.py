"""Followers: the two shells around `replay`, one that blocks and one that awaits.

A follower of a run that this process writes reads the run buffer, whose events a kill can no longer lose. Any other follower
reads the store, and the writer thread wakes it when the store reports that another process has written.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from ..errors import RunNotFound, StoreFailed
from ..events import Event, Run, RunStatus
from ..events.run_state import advance, begin
from .follow_plan import Page, Replay, Step
from .wake_signal import WakeSignal

if TYPE_CHECKING:
    from .core import JournalCore
    from .writer_duties import Duties

PAGE: Final = 2_000

_LONGEST_SLEEP: Final = 1.0
_LONGEST_SLEEP_ELSEWHERE: Final = 5.0
"""The seconds after which a follower looks without having been woken: a lost wake-up delays it by no more than this. The
second one holds for a store that reports writes, where a look takes three calls of a server."""


def look(core: JournalCore, run_id: str, after: int, *, doubtful: bool = False, was_live: bool = False) -> Page:
    """Return the next page of a run. Block for as long as the store takes.

    `doubtful`: if memory has nothing new, look into the store as well. `was_live`: the caller has seen the run live, and has
    been woken since. If there is nothing new, the wake-up came late, and the run has not ended without an event.
    """
    page = look_here(core, run_id, after)
    if page is not None and not (doubtful and not page.events):
        return page
    try:
        events = core.store.read(run_id, after, PAGE)
    except StoreFailed:
        if page is None:
            raise
        return page  # this process writes the run: the store is asked only in case another owner has claimed it
    if events or page is not None or (was_live and not doubtful and core.duties.others.is_woken):
        return Page(events, ended=page.ended if page is not None else None, is_last=len(events) < PAGE)
    run = find(core, run_id)
    # Read the events after the status, so that no event that came together with the end is missed.
    events = core.store.read(run_id, after, PAGE)
    return Page(events, ended=run.ended, is_last=len(events) < PAGE)


def find(core: JournalCore, run_id: str) -> Run:
    """Return the run as the store has it. Raise `RunNotFound`."""
    run = core.store.run(run_id)
    if run is None:
        # The spool of a dead owner may hold the first event of the run.
        core.dead_owners.import_spools()
        run = core.store.run(run_id)
    buffer = core.appender.buffers.get(run_id)
    if run is None and buffer is not None and buffer.pend and not buffer.base and not buffer.shut:
        # The run was appended here, and the store has failed to take it so far: the run buffer alone knows the run.
        run = as_appended(core, begin(run_id, buffer.marks[0].at if buffer.marks else 0.0, core.owner.owner_id))
    if run is None:
        raise RunNotFound(run_id=run_id, url=core.store.url)
    return run


def as_appended(core: JournalCore, run: Run) -> Run:
    """Return a run after the marks that this process has appended, and the store does not have yet."""
    buffer = core.appender.buffers.get(run.run_id)
    if buffer is None or buffer.shut:
        return run
    for mark in list(buffer.marks):
        run = advance(run, mark)
    if buffer.paused and not run.ended:  # the store may have taken that mark already
        run = replace(run, status=RunStatus.PAUSED)
    return replace(run, last_seq=max(run.last_seq, buffer.seq))


def look_here(core: JournalCore, run_id: str, after: int) -> Page | None:
    """Return the next page from memory, or None if only the store has it."""
    buffer = core.appender.buffers.get(run_id)
    if buffer is None or buffer.shut:
        return None
    ended = buffer.ended  # before the events: if the run ends in between, an older page must not count as the last one
    events = buffer.tail(after, PAGE)
    return None if events is None else Page(events, ended)


def longest_sleep(core: JournalCore) -> float:
    """Return after how many seconds a follower looks without having been woken."""
    return _LONGEST_SLEEP_ELSEWHERE if core.duties.others.is_woken else _LONGEST_SLEEP


def follow(core: JournalCore, replay: Replay) -> Iterator[Event]:
    """Yield every event until the run ends. Block between events."""
    waiter = Sleeper()
    try:
        while replay.step is not Step.DONE:
            doubtful = False
            if replay.step is Step.WAIT:
                # Without a wake-up for so long, another owner may have claimed the run and may write it.
                waiter.position = replay.after
                doubtful = not waiter.sleep(longest_sleep(core))
                replay.woken()
            # Listen before reading, so that an event that comes after the read makes the next sleep return at once.
            waiter.listen(core, replay.run_id)
            yield from replay.accept(look(core, replay.run_id, replay.after, doubtful=doubtful, was_live=replay.was_live))
    finally:
        waiter.stop_listening(core, replay.run_id)


async def afollow(
    core: JournalCore, replay: Replay, off_loop: Callable[[Callable[[], Page]], Awaitable[Page]]
) -> AsyncIterator[Event]:
    """Yield every event until the run ends. Await between events."""
    waiter = LoopSleeper(asyncio.get_running_loop(), core.duties)
    try:
        while replay.step is not Step.DONE:
            doubtful = False
            if replay.step is Step.WAIT:
                waiter.position = replay.after
                doubtful = not await waiter.sleep(longest_sleep(core))
                replay.woken()
            waiter.listen(core, replay.run_id)
            # A read from memory does not block, so it can stay on the event loop.
            page = None if doubtful else look_here(core, replay.run_id, replay.after)
            if page is None:
                about = replay.run_id, replay.after
                page = await off_loop(partial(look, core, *about, doubtful=doubtful, was_live=replay.was_live))
            for event in replay.accept(page):
                yield event
    finally:
        waiter.stop_listening(core, replay.run_id)


class Listener:
    """The base of the sleepers. A sleeper listens to the buffer of its run if this process writes the run.

    Otherwise it listens to the writer thread, which watches the store.
    """

    position: int | None = None
    """The last event that the follower has; None for a `RunWaiter`, which waits for any change of the run."""

    has_thread_news = False
    """Whether a run may have begun on the thread that the follower follows (see `thread_watch`)."""

    def wake(self) -> None:
        """Wake the follower, from any thread, without waiting."""
        raise AssertionError("each kind of listener says how it is woken")

    def listen(self, core: JournalCore, run_id: str) -> None:
        """Be woken once, when the run has something new."""
        buffer = core.appender.buffer_of(run_id)
        if buffer is None or buffer.shut:
            core.duties.listeners[self] = run_id
            if core.writer.appender.asleep:
                core.bell.ring()
        else:
            buffer.waiters[self] = None

    def stop_listening(self, core: JournalCore, run_id: str) -> None:
        """Be woken no more."""
        core.duties.listeners.pop(self, None)
        buffer = core.appender.buffers.get(run_id)
        if buffer is not None:
            buffer.waiters.pop(self, None)


class Sleeper(Listener):
    """A listener that blocks its thread while it sleeps."""

    def __init__(self) -> None:
        self._bell = WakeSignal()

    def wake(self) -> None:
        """Wake the thread."""
        self._bell.ring()

    def sleep(self, longest: float | None) -> bool:
        """Block until there may be something new, at most `longest` seconds. Return whether a wake-up came."""
        return self._bell.wait(-1 if longest is None else longest)


class LoopSleeper(Listener):
    """A listener that awaits on its event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, duties: Duties) -> None:
        self._loop = loop
        self._thread = threading.get_ident()
        self._duties = duties  # not the core: the writer thread must hold no reference that keeps a dropped journal alive
        self._event = asyncio.Event()
        self._overslept = False

    def wake(self) -> None:
        """Wake the coroutine, from any thread."""
        if threading.get_ident() == self._thread:
            # Schedule a callback instead of setting the event here: this call may interrupt any code of the loop.
            if not self._loop.is_closed():
                self._loop.call_soon(self._event.set)
        else:
            # Waking a loop from another thread writes to a pipe, which releases the GIL. An append must not do that, so the
            # writer thread does.
            self._duties.give(self._wake_from_outside)

    def _wake_from_outside(self) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._event.set)

    async def sleep(self, longest: float | None) -> bool:
        """Await until there may be something new, at most `longest` seconds. Return whether a wake-up came."""
        # Not `wait_for`: before Python 3.12, it loses a cancellation that comes together with the wake-up.
        self._overslept = False
        timer = None if longest is None else self._loop.call_later(longest, self._oversleep)
        try:
            await self._event.wait()
        finally:
            if timer is not None:
                timer.cancel()
            self._event.clear()
        return not self._overslept

    def _oversleep(self) -> None:
        self._overslept = not self._event.is_set()
        self._event.set()


class RunWaiter:
    """A waiter that sleeps until a run may have changed, for callers that block and for callers that await.

    Call `listen`, look at the run, then call `sleep`: a change in between makes `sleep` return at once.
    """

    def __init__(self, core: JournalCore, run_id: str) -> None:
        self._about = core, run_id
        self._sleeper = Sleeper()
        self._loop_sleeper: LoopSleeper | None = None

    def listen(self) -> None:
        """Begin to listen, for a caller that blocks."""
        self._sleeper.listen(*self._about)

    async def alisten(self) -> None:
        """Begin to listen, for a caller on an event loop."""
        if self._loop_sleeper is None:
            self._loop_sleeper = LoopSleeper(asyncio.get_running_loop(), self._about[0].duties)
        self._loop_sleeper.listen(*self._about)

    def sleep(self, longest: float) -> bool:
        """Block until there may be something new, at most `longest` seconds. Return whether a wake-up came."""
        return self._sleeper.sleep(longest)

    async def asleep(self, longest: float) -> bool:
        """Do what :meth:`sleep` does, without blocking the event loop."""
        return self._loop_sleeper is not None and await self._loop_sleeper.sleep(longest)

    def end(self) -> None:
        """Stop listening."""
        for sleeper in (self._sleeper, self._loop_sleeper):
            if sleeper is not None:
                sleeper.stop_listening(*self._about)
