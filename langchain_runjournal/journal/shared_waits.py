"""Waits that followers of one event loop share, for servers: a hundred readers of a run are woken by one callback, read its
new events from memory once, and need no timer each.

While events come faster than `PAUSE`, readers are woken once in each such pause, and then get all events of it together.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple
from weakref import WeakKeyDictionary, ref

from ..common.alarms import alarms
from ..events import MARKS
from .extensions import Extension
from .follow import Listener, look_here
from .follow_plan import Page

if TYPE_CHECKING:
    from .core import JournalCore
    from .run_buffer import RunBuffer
    from .writer_duties import Duties

PAUSE: Final = 0.002
"""The least seconds between two wake-ups."""
_KIND: Final = attrgetter("kind")
_MARKS: Final = frozenset(MARKS)
_LARGE, _KEPT = 256, 64
"""The most events of a page that is kept for other readers, and the most of such pages."""


class _Kept(NamedTuple):
    buffer: RunBuffer
    after: int
    seq: int
    ended: bool
    page: Page


class SharedWaits(Extension):
    """The waits of one journal, by event loop."""

    def __init__(self) -> None:
        self._found: WeakKeyDictionary[asyncio.AbstractEventLoop, LoopWaits] = WeakKeyDictionary()

    def after_fork(self) -> None:
        """Forget the event loops of the parent process."""
        self._found = WeakKeyDictionary()

    def here(self, core: JournalCore) -> LoopWaits:
        """Return the waits of the running event loop."""
        loop = asyncio.get_running_loop()
        found = self._found.get(loop)
        if found is None:
            found = self._found[loop] = LoopWaits(loop, core.duties)
        return found


class LoopWaits:
    """The waits of the followers of one journal on one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, duties: Duties) -> None:
        self._loop = ref(loop)  # the journal must not keep a loop that is over
        self.alarms = alarms()
        self._thread = threading.get_ident()
        self._duties = duties  # not the core, which a timer of the loop must not keep alive
        self._woken: deque[PageSleeper] = deque()
        self._is_due = False
        self._rang_at = 0.0
        self._pages: dict[str, _Kept] = {}

    def wake(self, sleeper: PageSleeper) -> None:
        """Wake a sleeper soon. Any thread may call this, and it does not wait."""
        self._woken.append(sleeper)
        if self._is_due:
            return
        self._is_due = True
        try:
            self._schedule()
        except BaseException:  # a signal handler may raise here, and the next wake-up must not rely on this one
            self._is_due = False
            raise

    def _schedule(self) -> None:
        if threading.get_ident() != self._thread:
            self._duties.give(self._wake_from_outside)
            return
        loop = self._loop()
        if loop is not None and not loop.is_closed():
            loop.call_soon(self._plan, loop)

    def _wake_from_outside(self) -> None:
        loop = self._loop()
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._plan, loop)

    def _plan(self, loop: asyncio.AbstractEventLoop) -> None:
        due = self._rang_at + PAUSE
        if loop.time() < due:
            loop.call_at(due, self._ring, loop)
        else:
            self._ring(loop)

    def _ring(self, loop: asyncio.AbstractEventLoop) -> None:
        self._is_due = False  # before the loop: a sleeper that comes meanwhile is woken here, or by the next callback
        self._rang_at = loop.time()
        while self._woken:
            self._woken.popleft().ring(is_news=True)

    def look_here(self, core: JournalCore, run_id: str, after: int) -> Page | None:
        """Return what `follow.look_here` returns. Readers at the same place of a run share the page."""
        buffer = core.appender.buffers.get(run_id)
        if buffer is None or buffer.shut:
            self._pages.pop(run_id, None)
            return None
        kept, seq, ended = self._pages.get(run_id), buffer.seq, buffer.ended
        if kept and kept.seq == seq and kept.after == after and kept.buffer is buffer and kept.ended is ended:
            return kept.page
        page = look_here(core, run_id, after)
        if page is not None and page.events and page.events[-1].seq >= seq:
            # Whatever comes from now on wakes the reader, which has begun to listen.
            page = page._replace(is_last=True, is_plain=_MARKS.isdisjoint(map(_KIND, page.events)))
            if page.events[-1].seq == seq and len(page.events) <= _LARGE:
                self._keep(run_id, _Kept(buffer, after, seq, ended, page))
        return page

    def _keep(self, run_id: str, kept: _Kept) -> None:
        self._pages.pop(run_id, None)
        self._pages[run_id] = kept
        if len(self._pages) > _KEPT:
            del self._pages[next(iter(self._pages))]


class PageSleeper(Listener):
    """A listener that awaits together with the others of its event loop."""

    def __init__(self, waits: LoopWaits) -> None:
        self._waits = waits
        self._future: asyncio.Future[None] | None = None
        self._has_news = False
        self.take: Callable[[], bool] | None = None
        """Called at news during a sleep. If it returns True, the sleep goes on."""

    def wake(self) -> None:
        """Wake the coroutine, from any thread."""
        self._waits.wake(self)

    def ring(self, *, is_news: bool = False) -> None:
        """End the sleep. Without news, the sleep was long enough."""
        self._has_news = self._has_news or is_news
        future = self._future
        if future is None or future.done():
            return
        try:
            if is_news and self.take is not None and self.take():
                return
        except Exception as exc:  # noqa: BLE001 - the sleeper gets it
            future.set_exception(exc)
        else:
            future.set_result(None)

    async def sleep(self, longest: float) -> bool:
        """Await until there may be something new, `longest` seconds or a little more. Return whether a wake-up came."""
        if not self._has_news:
            waits = self._waits
            self._future = asyncio.get_running_loop().create_future()
            alarm = waits.alarms.set(longest, self.ring)
            try:
                await self._future
            finally:
                waits.alarms.cancel(alarm, self.ring)
                self._future = None
        has_news, self._has_news = self._has_news, False
        return has_news


def waits_of(core: JournalCore) -> LoopWaits:
    """Return the waits of a journal on the running event loop."""
    return core.extensions.get(SharedWaits, SharedWaits).here(core)
