"""Who reads a run, or waits for it, and what it means to the run that they go away.

Rule: whoever is cancelled while it waits may come again at once (to send a sign of life to its client, for one), so it is
gone only when it has not come again for a moment. Whoever closes what it reads, or drops it, is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from .cancellation import RunControl

if TYPE_CHECKING:
    from typing_extensions import Self

_MOMENT: Final = 1.0
"""Seconds in which whoever was cancelled may come again."""


class Readers:
    """Those of one run."""

    def __init__(self, started: RunControl, *, stops: bool) -> None:
        self._started = started
        self._stops = stops
        self._count = 0
        self._loop = asyncio.get_running_loop()

    def come(self, on_leave: Callable[[], None] | None = None) -> Reader:
        """One more. `on_leave` is called when it goes away before the run is over."""
        self._count += 1
        return Reader(self, self._loop, on_leave)

    def go(self, *, early: bool) -> None:
        """One less."""
        self._count -= 1
        if early and self._stops and self._count <= 0 and not self._started.done.done():
            self._started.ask("disconnect")


class Reader:
    """One of them. Whatever it does is done on the loop of the run; each step that it takes, inside of ``with guest:``."""

    def __init__(self, guests: Readers, loop: asyncio.AbstractEventLoop, on_leave: Callable[[], None] | None) -> None:
        self._guests = guests
        self._loop = loop
        self._on_leave = on_leave
        self._is_here = True
        self._timer: asyncio.TimerHandle | None = None
        self.has_left = False
        """Whether it has said so itself, or come to the end."""

    @property
    def is_away(self) -> bool:
        """Whether it may be gone: nobody waits for it."""
        return self._timer is not None or not self._is_here

    def __enter__(self) -> Self:
        self._back()
        return self

    def __exit__(self, kind: type[BaseException] | None, *about: object) -> None:
        if kind is not None and issubclass(kind, asyncio.CancelledError):
            # It comes again in a moment, or not at all.
            if self._timer is None and self._is_here:
                self._timer = self._loop.call_later(_MOMENT, self._go)
        elif kind is not None:
            self.leave(early=False)

    def leave(self, *, early: bool = True) -> None:
        """It goes away: before the run is over, or at its end. Doing it twice is fine."""
        self.has_left = True
        self._go(early=early)

    def dropped(self) -> None:
        """Nobody has what it reads from any more, wherever that is noticed."""
        if self._is_here:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._go)

    def _back(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _go(self, *, early: bool = True) -> None:
        self._back()
        if self._is_here:
            self._is_here = False
            self._guests.go(early=early)
            if early and self._on_leave is not None:
                self._on_leave()
