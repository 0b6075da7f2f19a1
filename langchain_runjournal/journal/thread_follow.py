"""Followers of threads: the two shells around `thread_follow_plan`, one that blocks and one that awaits.

A follower that waits between two runs asks nothing: the writer thread wakes it when a run begins on its thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from ..common.arguments import count, text, thread
from ..errors import InvalidArgument, RunNotFound
from ..events import Event, Run, RunStatus
from ..stores import Begun
from .follow import Listener, LoopSleeper, Sleeper, as_appended, find, longest_sleep, look, look_here
from .follow_plan import Page, Replay
from .thread_follow_plan import Cursor, Leave, ThreadReplay, ThreadStep, is_past_beginning, may_leave, was_over

if TYPE_CHECKING:
    from .core import JournalCore

_RUNS: Final = 200
_FIRST: Final = 50
"""The number of events of a later run that are read to see whether it has begun to work."""
_LATER: Final = 10
_HELD: Final = 0.25
"""The seconds between two looks whether a run may be left for a later one, which takes milliseconds in most cases."""
_PAUSED: Final = 30.0
"""The seconds between two looks at a run that waits for a human, if no wake-up comes."""

_Look = Callable[[], "list[Event]"]
_LookHere = Callable[["JournalCore", str, int], "Page | None"]


def replay_of(thread_id: object, after: object, url: str) -> ThreadReplay:
    """Return the position of a follower. Raise `InvalidArgument` for a cursor that is none."""
    return ThreadReplay(thread("thread_id", thread_id), _cursor(after), url)


def _cursor(after: object) -> Cursor | None:
    if after is None:
        return None
    if isinstance(after, str):
        run_id, _, seq = after.rpartition(":")
        if run_id and seq.isascii() and seq.isdigit():
            return Cursor(text("after", run_id), count("after", int(seq)) or 0)
    elif isinstance(after, tuple) and len(after) == 2:
        return Cursor(text("after", after[0]), count("after", after[1]) or 0)
    raise InvalidArgument(name="after", expected="(run_id, seq), the text 'run_id:seq', or None", value=after)


def follow_thread(core: JournalCore, plan: ThreadReplay) -> Iterator[Event]:
    """Yield the events of all runs of a thread, without an end. Block between events."""
    waiter = Sleeper()
    listening = Listening(core, plan, waiter)
    try:
        while True:
            doubtful = False
            if plan.step is ThreadStep.WAIT:
                doubtful = not waiter.sleep(patience_of(core, plan))
                listening.woken(in_doubt=doubtful)
            listening.listen()
            yield from look_at_thread(core, plan, doubtful)
    finally:
        listening.stop()


async def afollow_thread(
    core: JournalCore, plan: ThreadReplay, off_loop: Callable[[_Look], Awaitable[list[Event]]]
) -> AsyncIterator[Event]:
    """Yield the events of all runs of a thread, without an end. Await between events."""
    waiter = LoopSleeper(asyncio.get_running_loop(), core.duties)
    listening = Listening(core, plan, waiter)
    try:
        while True:
            doubtful = False
            if plan.step is ThreadStep.WAIT:
                doubtful = not await waiter.sleep(patience_of(core, plan))
                listening.woken(in_doubt=doubtful)
            listening.listen()
            # A read from memory does not block, so it can stay on the event loop.
            found = None if doubtful else look_at_thread_here(core, plan)
            if found is None:
                found = await off_loop(partial(look_at_thread, core, plan, doubtful))
            for event in found:
                yield event
    finally:
        listening.stop()


class Listening:
    """What wakes one follower: the run that it follows, and its thread."""

    def __init__(self, core: JournalCore, plan: ThreadReplay, waiter: Listener) -> None:
        self._core, self._plan, self._waiter = core, plan, waiter
        self._run_id: str | None = None

    def listen(self) -> None:
        """Listen before reading, so that what comes after the read makes the next sleep return at once."""
        core, waiter, replay = self._core, self._waiter, self._plan.replay
        run_id = None if replay is None else replay.run_id
        if self._run_id is not None and self._run_id != run_id:
            waiter.stop_listening(core, self._run_id)
        self._run_id = run_id
        listeners = core.duties.others.threads.listeners
        if waiter not in listeners:
            listeners[waiter] = self._plan.thread_id
            if core.writer.appender.asleep:
                core.bell.ring()
        if replay is not None:
            waiter.position = replay.after
            waiter.listen(core, replay.run_id)
            if self._plan.is_paused:
                # Another process may continue the run, of which the buffer of this one does not learn at once.
                core.duties.listeners[waiter] = replay.run_id

    def woken(self, *, in_doubt: bool) -> None:
        """Note that the sleep is over. Between two runs, only the watch over threads ends it: a follower that woke for
        another reason (to send a sign of life) asks the store nothing."""
        has_news, self._waiter.has_thread_news = self._waiter.has_thread_news, False
        if has_news or self._plan.replay is not None:
            self._plan.woken(in_doubt=in_doubt or has_news)

    def stop(self) -> None:
        """Stop listening."""
        self._core.duties.others.threads.listeners.pop(self._waiter, None)
        if self._run_id is not None:
            self._waiter.stop_listening(self._core, self._run_id)


def patience_of(core: JournalCore, plan: ThreadReplay) -> float | None:
    """Return how long a follower may sleep without a wake-up; None between two runs."""
    if plan.replay is None:
        return None
    if plan.is_held:
        return _HELD
    return _PAUSED if plan.is_paused else longest_sleep(core)


def look_at_thread_here(core: JournalCore, plan: ThreadReplay, look_here: _LookHere = look_here) -> list[Event] | None:
    """Do the next step if memory suffices for it: reading a run on which this process works. Return its events, or None."""
    if plan.step is ThreadStep.WAIT:
        return []
    if plan.step is not ThreadStep.READ or plan.replay is None:
        return None
    page = look_here(core, plan.replay.run_id, plan.replay.after)
    if page is None or not (page.events or is_ours(core, plan.replay.run_id)):
        return None
    return plan.accept(page, is_ours=is_ours(core, plan.replay.run_id))


def look_at_thread(core: JournalCore, plan: ThreadReplay, doubtful: bool) -> list[Event]:
    """Do the next step, and return the events that it finds. Block for as long as the store takes."""
    core.check_open()
    replay = plan.replay
    if plan.step is ThreadStep.WAIT:
        return []
    if plan.after is not None:
        _begin(core, plan)
    elif replay is None:
        plan.take(core.store.began(plan.number, thread_id=plan.thread_id, limit=_RUNS))
    else:
        try:
            if plan.step is ThreadStep.CHECK:
                _check(core, plan, replay)
            else:
                page = look(core, replay.run_id, replay.after, doubtful=doubtful, was_live=replay.was_live)
                return plan.accept(page, is_ours=is_ours(core, replay.run_id))
        except RunNotFound:
            plan.leave()
    return []


def is_ours(core: JournalCore, run_id: str) -> bool:
    """Return whether this process is at work on a run."""
    buffer = core.appender.buffers.get(run_id)
    return buffer is not None and not (buffer.shut or buffer.ended or buffer.paused)


def _begin(core: JournalCore, plan: ThreadReplay) -> None:
    """Begin where the caller says. Raise `RunNotFound`, or `InvalidArgument` for a run of another thread."""
    cursor = plan.after
    if cursor is None:
        return
    run = find(core, cursor.run_id)
    if run.thread_id != plan.thread_id:
        expected = f"a run of thread {plan.thread_id!r}, whose runs are followed"
        raise InvalidArgument(name="after", expected=expected, value=f"{cursor.run_id}:{cursor.seq}")
    number = _number_of(core, plan.thread_id, cursor.run_id)
    if number is None:  # the store does not have it yet
        core.catch_up()
        number = _number_of(core, plan.thread_id, cursor.run_id)
    if number is None:
        raise RunNotFound(run_id=cursor.run_id, url=core.store.url)
    last_seen = next(iter(core.store.read(cursor.run_id, cursor.seq - 1, 1)), None) if run.ended and cursor.seq else None
    is_paused = run.status == RunStatus.PAUSED
    plan.begin(number, is_over=was_over(run, last_seen, cursor.seq), is_paused=is_paused)


def _number_of(core: JournalCore, thread_id: str, run_id: str) -> int | None:
    runs = core.store.began(0, thread_id=thread_id, limit=None)
    return next((run.number for run in runs if run.run_id == run_id), None)


def _check(core: JournalCore, plan: ThreadReplay, replay: Replay) -> None:
    """See whether a run that is not over may be left, because a later one has got past its beginning."""
    later = core.store.began(plan.number, thread_id=plan.thread_id, limit=_LATER)
    if not later:
        plan.checked(Leave.NOT_YET)
        return
    run = as_appended(core, find(core, replay.run_id))
    owner_is_gone = run.owner is not None and core.dead_owners.owner_is_gone(run)
    leave = may_leave(run, (_is_past_beginning(core, one) for one in later), owner_is_gone=owner_is_gone)
    if leave is Leave.NOW and core.store.read(replay.run_id, replay.after, 1):
        plan.read_on()  # what came meanwhile, also from the spool of the dead owner
    else:
        plan.checked(leave)


def _is_past_beginning(core: JournalCore, one: Begun) -> bool:
    run: Run | None = core.store.run(one.run_id)
    if run is None:
        return False
    owner_is_gone = run.owner is not None and core.dead_owners.owner_is_gone(run)
    return is_past_beginning(run, core.store.read(one.run_id, 0, _FIRST), owner_is_gone=owner_is_gone)
