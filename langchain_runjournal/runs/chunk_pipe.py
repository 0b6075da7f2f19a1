"""The chunks of a run on their way to whoever reads them.

Rule: a run waits for a reader that is slow, and for nobody else: not for one that has gone, nor for one that may never come.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from functools import partial
from typing import Any, Final

from ..errors import ChunksGone
from .readers import Reader, Readers

_ROOM: Final = 64
"""How many chunks a slow reader may be behind, until the run waits for it."""
_UNREAD: Final = 1_000
"""How many chunks are kept for a reader that has not come yet."""


class Pipe:
    """From one run to one reader, both on the same event loop."""

    def __init__(self, run_id: str, guests: Readers) -> None:
        self._run_id = run_id
        self._guests = guests
        self._loop = asyncio.get_running_loop()
        self._chunks: deque[Any] = deque()
        self._guest: Reader | None = None
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
        if (self._guest is None or self._guest.is_away) and len(self._chunks) > _UNREAD:
            self.let_go(f"no reader came, and more than {_UNREAD} chunks were waiting")
        while self._gone is None and self._guest and not self._guest.is_away and len(self._chunks) >= _ROOM:
            self._room = self._loop.create_future()
            await self._room

    def close(self, error: Exception | None) -> None:
        """The run is over. What has not been read can still be, and then the error is raised, if there is one."""
        self._is_over, self._error = True, error
        if self._news is not None:
            _wake(self._news)

    def read(self) -> ChunkReader:
        """The one reader. Raises `ChunksGone`."""
        if self._gone is None and self._guest is not None:
            raise ChunksGone(run_id=self._run_id, reason="another reader has them already")
        if self._gone is not None:
            raise ChunksGone(run_id=self._run_id, reason=self._gone)
        self._guest = self._guests.come(partial(self.let_go, "their reader was closed or garbage-collected"))
        return ChunkReader(self, self._guest)

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
            if self._gone is not None:
                raise ChunksGone(run_id=self._run_id, reason=self._gone)
            if self._is_over:
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

    def stop_waiting(self) -> None:
        """The reader may be gone: the run goes on."""
        if self._room is not None:
            _wake(self._room)

    def forsake(self) -> None:
        """Nobody can ever come to read, wherever that is noticed."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._forsaken)

    def _forsaken(self) -> None:
        if self._guest is None:
            self.let_go("their RunHandle was garbage-collected before anything read them")


class ChunkReader:
    """See `RunHandle.stream`."""

    def __init__(self, pipe: Pipe, guest: Reader) -> None:
        self._pipe = pipe
        self._guest = guest

    def __aiter__(self) -> ChunkReader:
        return self

    async def __anext__(self) -> Any:
        if self._guest.has_left:
            raise StopAsyncIteration
        if asyncio.get_running_loop() is not self._pipe._loop:
            raise ChunksGone(run_id=self._pipe._run_id, reason="only the event loop that started the run can read them")
        with self._guest:
            try:
                return await self._pipe.next()
            except asyncio.CancelledError:
                self._pipe.stop_waiting()
                raise

    async def aclose(self) -> None:
        """Read no further."""
        self._guest.leave()

    def __del__(self) -> None:
        self._guest.dropped()


def _wake(sleeping: asyncio.Future[None]) -> None:
    if not sleeping.done():
        sleeping.set_result(None)
