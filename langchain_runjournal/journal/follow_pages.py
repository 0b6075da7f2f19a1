"""Followers that get whole pages, for servers: one step for all events that are there, and one before each wait.

`follow` yields events one by one. A server sends all events of a page in one write, and it must send a sign of life when
there are none.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ..events import Event
from .core import core_of
from .follow import longest_sleep, look
from .follow_plan import Replay, Step
from .shared_waits import PageSleeper, waits_of
from .thread_follow import Listening, is_ours, look_at_thread, look_at_thread_here, patience_of, replay_of
from .thread_follow_plan import ThreadStep

if TYPE_CHECKING:
    from .run_journal import RunJournal

Page = Sequence[Event]
Tap = Callable[[Page], bool]
"""Is offered a page during a wait. It returns whether it has taken the page, which is not yielded then: so a reader that is
ready needs no turn of its task."""


async def afollow_pages(
    journal: RunJournal, run_id: str, after: int, tick: float, tap: Tap | None = None
) -> AsyncGenerator[Page, None]:
    """Yield the events that :meth:`RunJournal.afollow` yields, as many at once as there are, and an empty page before each
    wait. A wait takes `tick` seconds at most."""
    core, replay = core_of(journal), Replay(run_id, after, journal.url)
    core.check_open()
    waits = waits_of(core)
    sleeper = PageSleeper(waits)

    def take(tap: Tap) -> bool:
        sleeper.listen(core, run_id)
        page = waits.look_here(core, run_id, replay.after)
        return page is not None and replay.would_wait(page) and tap(page.events) and replay.passed(page)

    sleeper.take = None if tap is None else partial(take, tap)
    try:
        while replay.step is not Step.DONE:
            doubtful = False
            if replay.step is Step.WAIT:
                yield ()
                sleeper.position = replay.after
                doubtful = not await sleeper.sleep(min(tick, longest_sleep(core)))
                replay.woken()
            sleeper.listen(core, run_id)
            page = None if doubtful else waits.look_here(core, run_id, replay.after)
            if page is None:
                about = run_id, replay.after
                page = await core.off_loop(partial(look, core, *about, doubtful=doubtful, was_live=replay.was_live))
            if events := replay.accept(page):
                yield events
    finally:
        sleeper.stop_listening(core, run_id)


async def afollow_thread_pages(
    journal: RunJournal, thread_id: str, after: tuple[str, int] | None, tick: float, tap: Tap | None = None
) -> AsyncGenerator[Page, None]:
    """Yield the events that :meth:`RunJournal.afollow_thread` yields, in pages as :func:`afollow_pages` does. A page has
    events of one run."""
    core, plan = core_of(journal), replay_of(thread_id, after, journal.url)
    core.check_open()
    waits = waits_of(core)
    sleeper = PageSleeper(waits)
    listening = Listening(core, plan, sleeper)

    def take(tap: Tap) -> bool:
        replay = plan.replay
        if replay is None or sleeper.has_thread_news:
            return False
        listening.listen()
        page = waits.look_here(core, replay.run_id, replay.after)
        if page is None or not replay.would_wait(page) or not tap(page.events):
            return False
        plan.woken(in_doubt=False)
        return bool(plan.accept(page, is_ours=is_ours(core, replay.run_id)))

    sleeper.take = None if tap is None else partial(take, tap)
    try:
        while True:
            doubtful = False
            if plan.step is ThreadStep.WAIT:
                yield ()
                patience = patience_of(core, plan)
                doubtful = not await sleeper.sleep(tick if patience is None else min(tick, patience))
                listening.woken(in_doubt=doubtful)
            listening.listen()
            events = None if doubtful else look_at_thread_here(core, plan, waits.look_here)
            if events is None:
                events = await core.off_loop(partial(look_at_thread, core, plan, doubtful))
            if events:
                yield events
    finally:
        listening.stop()
