"""Followers that get whole pages, for servers: one step for all events that are there, and one each time that none came.

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

if TYPE_CHECKING:
    from .run_journal import RunJournal


async def afollow_pages(journal: RunJournal, run_id: str, after: int, tick: float) -> AsyncGenerator[Sequence[Event], None]:
    """Yield the events that :meth:`RunJournal.afollow` yields, as many at once as there are. Yield an empty page before each
    wait, and whenever none has come for `tick` seconds, or for less."""
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
            events = replay.accept(page)
            if events:
                yield events
    finally:
        sleeper.stop_listening(core, run_id)
