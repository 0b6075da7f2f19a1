"""Followers: the two shells around `replay`, one that blocks and one that awaits.

A follower of a run that this process writes reads what the run's lane holds, which a kill can no longer take away; any
other one reads the store, and is woken when SQLite says that somebody has written.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from typing import Final

from ..errors import RunNotFound
from ..events import Event, Run
from ..events.run_state import advance, begin
from .replay import Page, Replay, Step
from .writer import Writer

PAGE: Final = 2_000

_LONGEST_NAP: Final = 1.0
"""Seconds after which a follower looks without having been woken: a wake-up that gets lost costs no more than that."""


def look(writer: Writer, run_id: str, after: int, *, doubtful: bool = False) -> Page:
    """The next page of a run. Blocks for as long as the store takes."""
    page = look_here(writer, run_id, after)
    if page is not None and not (doubtful and not page.events):
        return page
    events = writer.store.read(run_id, after, PAGE)
    if events or page is not None:
        return Page(events, ended=page.ended if page is not None else False)
    run = find(writer, run_id)
    # Read again after the status: what came with the end must not be missed.
    return Page(writer.store.read(run_id, after, PAGE), ended=run.ended)


def find(writer: Writer, run_id: str) -> Run:
    """The run as the store has it. Raises `RunNotFound`."""
    run = writer.store.run(run_id)
    if run is None:
        # A process that died before it could store its first event has it in its spool.
        writer.dead_owners.collect()
        run = writer.store.run(run_id)
    buffer = writer.appender.buffers.get(run_id)
    if run is None and buffer is not None and buffer.pend and not buffer.base and not buffer.shut:
        # Appended here, and not stored yet because the store fails: what the lane knows is what there is to know.
        run = begin(run_id, buffer.marks[0].at if buffer.marks else 0.0, writer.owner.owner_id)
        for mark in list(buffer.marks):
            run = advance(run, mark)
    if run is None:
        raise RunNotFound(run_id=run_id, url=writer.store.url)
    return run


def look_here(writer: Writer, run_id: str, after: int) -> Page | None:
    """The next page from memory, or None if it has to come from the store."""
    buffer = writer.appender.buffers.get(run_id)
    if buffer is None or buffer.shut:
        return None
    ended = buffer.ended  # before its events: an end in between must not make an older page look like the last one
    events = buffer.tail(after, PAGE)
    return None if events is None else Page(events, ended)


def follow(writer: Writer, replay: Replay) -> Iterator[Event]:
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
            waiter.listen(writer, replay.run_id)
            yield from replay.accept(look(writer, replay.run_id, replay.after, doubtful=doubtful))
    finally:
        waiter.stop_listening(writer, replay.run_id)


async def afollow(
    writer: Writer, replay: Replay, off_loop: Callable[[Callable[[], Page]], Awaitable[Page]]
) -> AsyncIterator[Event]:
    """Every event, as long as the run lives."""
    waiter = _LoopSleeper(asyncio.get_running_loop(), writer)
    try:
        while replay.step is not Step.DONE:
            doubtful = False
            if replay.step is Step.WAIT:
                doubtful = not await waiter.sleep(_LONGEST_NAP)
                replay.woken()
            waiter.listen(writer, replay.run_id)
            # In memory: no reason to leave the loop.
            page = None if doubtful else look_here(writer, replay.run_id, replay.after)
            if page is None:
                page = await off_loop(partial(look, writer, replay.run_id, replay.after, doubtful=doubtful))
            for event in replay.accept(page):
                yield event
    finally:
        waiter.stop_listening(writer, replay.run_id)


class _Listener:
    """Signed up with the lane of a run of this process, or else with the writer, which watches the store."""

    def wake(self) -> None:
        raise AssertionError("each kind of listener says how it is woken")

    def listen(self, writer: Writer, run_id: str) -> None:
        buffer = writer.appender.buffers.get(run_id)
        if buffer is None or buffer.shut:
            writer.listeners.add(self)
            if writer.appender.asleep:
                writer.poke()
        elif self not in buffer.waiters:
            buffer.waiters.append(self)

    def stop_listening(self, writer: Writer, run_id: str) -> None:
        writer.listeners.discard(self)
        buffer = writer.appender.buffers.get(run_id)
        if buffer is not None and self in buffer.waiters:
            buffer.waiters.remove(self)


class _Sleeper(_Listener):
    """Sleeps in its thread."""

    def __init__(self) -> None:
        # A bare lock, held while there is nothing new. An Event takes a lock to be set, which the sleeper may hold: then
        # whoever appends would have to wait for it, and to win back the GIL after that.
        self._nothing_new = threading.Lock()
        self._nothing_new.acquire()

    def wake(self) -> None:
        with contextlib.suppress(RuntimeError):  # it is awake already
            self._nothing_new.release()

    def sleep(self, longest: float) -> bool:
        """Block until there may be something new, at most `longest` seconds."""
        return self._nothing_new.acquire(timeout=longest)


class _LoopSleeper(_Listener):
    """Sleeps in its event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, writer: Writer) -> None:
        self._loop = loop
        self._thread = threading.get_ident()
        self._writer = writer
        self._event = asyncio.Event()
        self._overslept = False

    def wake(self) -> None:
        if threading.get_ident() == self._thread:
            # A callback rather than the event itself: this may be in the middle of anything.
            if not self._loop.is_closed():
                self._loop.call_soon(self._event.set)
        else:
            # Waking a loop from outside writes to a pipe, and gives up the GIL: not in an append. The writer does it.
            self._writer.errands.append(self._wake_from_outside)
            self._writer.poke()

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

    def __init__(self, writer: Writer, run_id: str) -> None:
        self._about = writer, run_id
        self._sleeper = _Sleeper()
        self._loop_sleeper: _LoopSleeper | None = None

    def listen(self) -> None:
        """Listen, for a caller that blocks."""
        self._sleeper.listen(*self._about)

    async def alisten(self) -> None:
        """Same as :meth:`listen`, for a caller on an event loop."""
        if self._loop_sleeper is None:
            self._loop_sleeper = _LoopSleeper(asyncio.get_running_loop(), self._about[0])
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
