"""The chunks of a run on their way to whoever reads them.

Rule: a run waits for a reader that is slow, and for nobody else: not for one that has gone, nor for one that may never come.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import Any, Final, Protocol

from .errors import ChunksGone

_ROOM: Final = 64
"""How many chunks a slow reader may be behind, until the run waits for it."""
_UNREAD: Final = 1_000
"""How many chunks are kept for a reader that has not come yet."""


class Guests(Protocol):
    """Who reads a run."""

    def come(self) -> None:
        """One more."""

    def leave(self) -> None:
        """One goes away, before the run is over."""


class Pipe:
    """From one run to one reader, both on the same event loop."""

    def __init__(self, run_id: str, guests: Guests) -> None:
        self._run_id = run_id
        self._guests = guests
        self._loop = asyncio.get_running_loop()
        self._chunks: deque[Any] = deque()
        self._is_read = False
        self._gone: str | None = None
        """Why there is nothing to read any more."""
        self._is_over = False
        self._error: Exception | None = None
        # What each side sleeps on, while it does.
        self._news: asyncio.Future[None] | None = None
        self._room: asyncio.Future[None] | None = None

    async def put(self, chunk: Any) -> None:
        """Hand on a chunk, and wait while the reader is too far behind."""
        if self._gone is not None:
            return
        self._chunks.append(chunk)
        if self._news is not None:
            _wake(self._news)
        if not self._is_read and len(self._chunks) > _UNREAD:
            self.let_go(f"nobody came to read them, and more than {_UNREAD} were waiting")
        while self._is_read and self._gone is None and len(self._chunks) >= _ROOM:
            self._room = self._loop.create_future()
            await self._room

    def close(self, error: Exception | None) -> None:
        """The run is over. What has not been read can still be, and then the error is raised, if there is one."""
        self._is_over, self._error = True, error
        if self._news is not None:
            _wake(self._news)

    def read(self) -> Reader:
        """The one reader. Raises `ChunksGone`."""
        if self._gone is None and self._is_read:
            raise ChunksGone(run_id=self._run_id, reason="somebody reads them already")
        if self._gone is not None:
            raise ChunksGone(run_id=self._run_id, reason=self._gone)
        self._is_read = True
        self._guests.come()
        return Reader(self)

    def let_go(self, why: str) -> None:
        """Nobody reads any more: the run goes on without waiting."""
        if self._gone is None:
            self._gone = why
            self._chunks.clear()
            if self._room is not None:
                _wake(self._room)

    async def next(self) -> Any:
        """The next chunk."""
        while not self._chunks:
            if self._is_over or self._gone is not None:
                error, self._error = self._error, None
                if error is not None:
                    raise error
                raise StopAsyncIteration
            self._news = self._loop.create_future()
            await self._news
        chunk = self._chunks.popleft()
        if self._room is not None and len(self._chunks) < _ROOM:
            _wake(self._room)
        return chunk

    def leave(self) -> None:
        """The reader goes away, wherever that is noticed."""
        if self._gone is None:
            # Not where the garbage collector happens to run.
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._left)

    def _left(self) -> None:
        if self._gone is not None:
            return  # noticed twice: closed, and then dropped
        was_over = self._is_over and not self._chunks
        self.let_go("their reader has gone")
        if not was_over:
            self._guests.leave()

    def forsake(self) -> None:
        """Nobody can ever come to read, wherever that is noticed."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._forsaken)

    def _forsaken(self) -> None:
        if not self._is_read:
            self.let_go("nobody has them")


class Reader:
    """See `RunHandle.stream`. It leaves when it is closed, dropped, or cancelled while it waits for a chunk."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe

    def __aiter__(self) -> Reader:
        return self

    async def __anext__(self) -> Any:
        if asyncio.get_running_loop() is not self._pipe._loop:
            raise ChunksGone(run_id=self._pipe._run_id, reason="only the event loop that began the run can read them")
        try:
            return await self._pipe.next()
        except asyncio.CancelledError:
            self._pipe.leave()
            raise

    async def aclose(self) -> None:
        """Read no further."""
        self._pipe.leave()

    def __del__(self) -> None:
        self._pipe.leave()


def _wake(sleeping: asyncio.Future[None]) -> None:
    if not sleeping.done():
        sleeping.set_result(None)
