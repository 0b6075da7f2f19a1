"""The readers of a run: the code that reads it or waits for it, and what it means to the run that they leave.

Rule: a reader that is cancelled while it waits may return at once (for example after it has sent a keep-alive to its
client), so it counts as gone only when it has not returned within a second. A reader that is closed or garbage-collected is
gone.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from .cancellation import RunControl

if TYPE_CHECKING:
    from typing_extensions import Self

_RETURN_WITHIN: Final = 1.0
"""Seconds in which a reader that was cancelled may return."""


class Readers:
    """The readers of one run."""

    def __init__(self, control: RunControl, *, stops: bool) -> None:
        self._control = control
        self._stops = stops
        self._count = 0
        self._loop = asyncio.get_running_loop()

    def add(self, on_leave: Callable[[], None] | None = None) -> Reader:
        """Return a new reader. `on_leave` is called when it leaves before the run is over."""
        self._count += 1
        return Reader(self, self._loop, on_leave)

    def remove(self, *, early: bool) -> None:
        """Remove a reader. If the last one leaves `early`, before the run is over, ask a run that must not outlive its
        readers to stop."""
        self._count -= 1
        if early and self._stops and self._count <= 0 and not self._control.done.done():
            self._control.ask("disconnect")


class Reader:
    """A reader of one run. It acts on the event loop of the run, and takes each step inside of ``with reader:``."""

    def __init__(self, readers: Readers, loop: asyncio.AbstractEventLoop, on_leave: Callable[[], None] | None) -> None:
        self._readers = readers
        self._loop = loop
        self._on_leave = on_leave
        self._is_counted = True
        self._timer: asyncio.TimerHandle | None = None
        self.has_left = False
        """Whether the reader was closed, or has read to the end."""

    @property
    def is_away(self) -> bool:
        """Whether the reader may be gone: it was cancelled and has not returned, or it has left."""
        return self._timer is not None or not self._is_counted

    def __enter__(self) -> Self:
        self._cancel_timer()
        return self

    def __exit__(self, kind: type[BaseException] | None, *about: object) -> None:
        if kind is not None and issubclass(kind, asyncio.CancelledError):
            # It returns within a second, or not at all.
            if self._timer is None and self._is_counted:
                self._timer = self._loop.call_later(_RETURN_WITHIN, self._leave)
        elif kind is not None:
            self.leave(early=False)

    def leave(self, *, early: bool = True) -> None:
        """Leave the run, before it is over (`early`) or at its end. A second call does nothing."""
        self.has_left = True
        self._leave(early=early)

    def collected(self) -> None:
        """Leave the run because the stream object was garbage-collected. Called from its finalizer, on any thread."""
        if self._is_counted:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._leave)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _leave(self, *, early: bool = True) -> None:
        self._cancel_timer()
        if self._is_counted:
            self._is_counted = False
            self._readers.remove(early=early)
            if early and self._on_leave is not None:
                self._on_leave()
