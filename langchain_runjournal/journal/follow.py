"""Followers: the two shells around `replay`, one that blocks and one that awaits.

A follower of a run that this process writes reads what the run's lane holds, which a kill can no longer take away; any
other one reads the store, and is woken when SQLite says that somebody has written.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from ..errors import RunNotFound
from ..events import Event, Run
from ..events.run_state import advance, begin
from .bell import Bell
from .replay import Page, Replay, Step

if TYPE_CHECKING:
    from .core import JournalCore
    from .duties import Duties

PAGE: Final = 2_000

_LONGEST_NAP: Final = 1.0
"""Seconds after which a follower looks without having been woken: a wake-up that gets lost costs no more than that."""


def look(core: JournalCore, run_id: str, after: int, *, doubtful: bool = False) -> Page:
    """The next page of a run. Blocks for as long as the store takes."""
    page = look_here(core, run_id, after)
    if page is not None and not (doubtful and not page.events):
        return page
    events = core.store.read(run_id, after, PAGE)
    if events or page is not None:
        return Page(events, ended=page.ended if page is not None else False)
    run = find(core, run_id)
    # Read again after the status: what came with the end must not be missed.
    return Page(core.store.read(run_id, after, PAGE), ended=run.ended)


def find(core: JournalCore, run_id: str) -> Run:
    """The run as the store has it. Raises `RunNotFound`."""
    run = core.store.run(run_id)
    if run is None:
        # A process that died before it could store its first event has it in its spool.
        core.dead_owners.collect()
        run = core.store.run(run_id)
    buffer = core.appender.buffers.get(run_id)
    if run is None and buffer is not None and buffer.pend and not buffer.base and not buffer.shut:
        # Appended here, and not stored yet because the store fails: what the lane knows is what there is to know.
        run = begin(run_id, buffer.marks[0].at if buffer.marks else 0.0, core.owner.owner_id)
        for mark in list(buffer.marks):
            run = advance(run, mark)
    if run is None:
        raise RunNotFound(run_id=run_id, url=core.store.url)
    return run


def look_here(core: JournalCore, run_id: str, after: int) -> Page | None:
    """The next page from memory, or None if it has to come from the store."""
    buffer = core.appender.buffers.get(run_id)
    if buffer is None or buffer.shut:
        return None
    ended = buffer.ended  # before its events: an end in between must not make an older page look like the last one
    events = buffer.tail(after, PAGE)
    return None if events is None else Page(events, ended)


def follow(core: JournalCore, replay: Replay) -> Iterator[Event]:
    """Every event, as long as the run lives. Blocks between them."""
    waiter = _Sleeper()
    try:
        while replay.step is not Step.DONE:
            doubtful = False
            if replay.step is Step.WAIT:
                # Not woken for long: the run may have gone on elsewhere, with an owner that has claimed it.
                doubtful = not waiter.sleep(_LONGEST_NAP)
                replay.woken()
            # Before reading, so that a wake-up that comes after it makes the next sleep return at once.
            waiter.listen(core, replay.run_id)
            yield from replay.accept(look(core, replay.run_id, replay.after, doubtful=doubtful))
    finally:
        waiter.stop_listening(core, replay.run_id)


async def afollow(
    core: JournalCore, replay: Replay, off_loop: Callable[[Callable[[], Page]], Awaitable[Page]]
) -> AsyncIterator[Event]:
    """Every event, as long as the run lives."""
    waiter = _LoopSleeper(asyncio.get_running_loop(), core.duties)
    try:
        while replay.step is not Step.DONE:
            doubtful = False
            if replay.step is Step.WAIT:
                doubtful = not await waiter.sleep(_LONGEST_NAP)
                replay.woken()
            waiter.listen(core, replay.run_id)
            # In memory: no reason to leave the loop.
            page = None if doubtful else look_here(core, replay.run_id, replay.after)
            if page is None:
                page = await off_loop(partial(look, core, replay.run_id, replay.after, doubtful=doubtful))
            for event in replay.accept(page):
                yield event
    finally:
        waiter.stop_listening(core, replay.run_id)


class _Listener:
    """Signed up with the lane of a run of this process, or else with the writer, which watches the store."""

    def wake(self) -> None:
        raise AssertionError("each kind of listener says how it is woken")

    def listen(self, core: JournalCore, run_id: str) -> None:
        buffer = core.appender.buffers.get(run_id)
        if buffer is None or buffer.shut:
            core.duties.listeners.add(self)
            if core.writer.appender.asleep:
                core.bell.ring()
        elif self not in buffer.waiters:
            buffer.waiters.append(self)

    def stop_listening(self, core: JournalCore, run_id: str) -> None:
        core.duties.listeners.discard(self)
        buffer = core.appender.buffers.get(run_id)
        if buffer is not None and self in buffer.waiters:
            buffer.waiters.remove(self)


class _Sleeper(_Listener):
    """Sleeps in its thread."""

    def __init__(self) -> None:
        self._bell = Bell()

    def wake(self) -> None:
        self._bell.ring()

    def sleep(self, longest: float) -> bool:
        """Block until there may be something new, at most `longest` seconds."""
        return self._bell.wait(longest)


class _LoopSleeper(_Listener):
    """Sleeps in its event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, duties: Duties) -> None:
        self._loop = loop
        self._thread = threading.get_ident()
        self._duties = duties  # not the core: what the writer thread holds must not keep a dropped journal
        self._event = asyncio.Event()
        self._overslept = False

    def wake(self) -> None:
        if threading.get_ident() == self._thread:
            # A callback rather than the event itself: this may be in the middle of anything.
            if not self._loop.is_closed():
                self._loop.call_soon(self._event.set)
        else:
            # Waking a loop from outside writes to a pipe, and gives up the GIL: not in an append. The writer does it.
            self._duties.give(self._wake_from_outside)

    def _wake_from_outside(self) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._event.set)

    async def sleep(self, longest: float) -> bool:
        # Not `wait_for`: before Python 3.12 it loses a cancellation that comes together with the news.
        self._overslept = False
        timer = self._loop.call_later(longest, self._oversleep)
        try:
            await self._event.wait()
        finally:
            timer.cancel()
            self._event.clear()
        return not self._overslept

    def _oversleep(self) -> None:
        self._overslept = not self._event.is_set()
        self._event.set()


class RunWaiter:
    """Sleep until a run may have gone on, in both ways. Listen, look, and sleep: nothing in between is missed."""

    def __init__(self, core: JournalCore, run_id: str) -> None:
        self._about = core, run_id
        self._sleeper = _Sleeper()
        self._loop_sleeper: _LoopSleeper | None = None

    def listen(self) -> None:
        """Listen, for a caller that blocks."""
        self._sleeper.listen(*self._about)

    async def alisten(self) -> None:
        """Same as :meth:`listen`, for a caller on an event loop."""
        if self._loop_sleeper is None:
            self._loop_sleeper = _LoopSleeper(asyncio.get_running_loop(), self._about[0].duties)
        self._loop_sleeper.listen(*self._about)

    def sleep(self, longest: float) -> bool:
        """Block until there may be something new, at most `longest` seconds."""
        return self._sleeper.sleep(longest)

    async def asleep(self, longest: float) -> bool:
        """Same as :meth:`sleep`, without blocking the loop."""
        return self._loop_sleeper is not None and await self._loop_sleeper.sleep(longest)

    def end(self) -> None:
        """Stop listening."""
        for sleeper in (self._sleeper, self._loop_sleeper):
            if sleeper is not None:
                sleeper.stop_listening(*self._about)
