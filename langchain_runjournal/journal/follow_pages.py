"""Followers that get whole pages, for servers: one step for all events that are there, and one before each wait.

`follow` yields events one by one. A server sends all events of a page in one write, and it must send a sign of life when
there are none.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ..events import Event
from .core import core_of
from .follow import LoopSleeper, longest_sleep, look, look_here
from .follow_plan import Replay, Step
from .thread_follow import Listening, look_at_thread, look_at_thread_here, patience_of, replay_of
from .thread_follow_plan import ThreadStep

if TYPE_CHECKING:
    from .run_journal import RunJournal

Page = Sequence[Event]


async def afollow_pages(journal: RunJournal, run_id: str, after: int, tick: float) -> AsyncGenerator[Page, None]:
    """Yield the events that :meth:`RunJournal.afollow` yields, as many at once as there are, and an empty page before each
    wait. A wait takes `tick` seconds at most."""
    core, replay = core_of(journal), Replay(run_id, after, journal.url)
    core.check_open()
    sleeper = LoopSleeper(asyncio.get_running_loop(), core.duties)
    try:
        while replay.step is not Step.DONE:
            doubtful = False
            if replay.step is Step.WAIT:
                yield ()
                sleeper.position = replay.after
                doubtful = not await sleeper.sleep(min(tick, longest_sleep(core)))
                replay.woken()
            sleeper.listen(core, run_id)
            page = None if doubtful else look_here(core, run_id, replay.after)
            if page is None:
                about = run_id, replay.after
                page = await core.off_loop(partial(look, core, *about, doubtful=doubtful, was_live=replay.was_live))
            if events := replay.accept(page):
                yield events
    finally:
        sleeper.stop_listening(core, run_id)


async def afollow_thread_pages(
    journal: RunJournal, thread_id: str, after: tuple[str, int] | None, tick: float
) -> AsyncGenerator[Page, None]:
    """Yield the events that :meth:`RunJournal.afollow_thread` yields, in pages as :func:`afollow_pages` does. A page has
    events of one run."""
    core, plan = core_of(journal), replay_of(thread_id, after, journal.url)
    core.check_open()
    sleeper = LoopSleeper(asyncio.get_running_loop(), core.duties)
    listening = Listening(core, plan, sleeper)
    try:
        while True:
            doubtful = False
            if plan.step is ThreadStep.WAIT:
                yield ()
                patience = patience_of(core, plan)
                doubtful = not await sleeper.sleep(tick if patience is None else min(tick, patience))
                listening.woken(in_doubt=doubtful)
            listening.listen()
            events = None if doubtful else look_at_thread_here(core, plan)
            if events is None:
                events = await core.off_loop(partial(look_at_thread, core, plan, doubtful))
            if events:
                yield events
    finally:
        listening.stop()
