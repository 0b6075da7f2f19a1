"""The chunks of a run on their way to their reader.

Rule: a run waits for a slow reader and for no other one: not for a reader that has gone, nor for one that may never begin.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from functools import partial
from typing import Any, Final

from ..errors import ChunksGone
from .readers import Reader, Readers

_MAX_BEHIND: Final = 64
"""How many chunks a slow reader may be behind before the run waits for it."""
_MAX_UNREAD: Final = 1_000
"""How many chunks are kept for a reader that has not begun to read."""


class Pipe:
    """The queue of chunks from one run to one reader, both on the same event loop."""

    def __init__(self, run_id: str, readers: Readers) -> None:
        self._run_id = run_id
        self._readers = readers
        self._loop = asyncio.get_running_loop()
        self._chunks: deque[Any] = deque()
        self._reader: Reader | None = None
        self._discarded: str | None = None
        """Why the chunks are discarded, or None."""
        self._is_over = False
        self._error: Exception | None = None
        # The futures on which the reader and the run wait, while they do.
        self._reader_sleeps: asyncio.Future[None] | None = None
        self._run_sleeps: asyncio.Future[None] | None = None

    async def put(self, chunk: Any) -> None:
        """Add a chunk, and wait while the reader is too far behind."""
        if self._discarded is not None:
            return
        self._chunks.append(chunk)
        if self._reader_sleeps is not None:
            _wake(self._reader_sleeps)
        if (self._reader is None or self._reader.is_away) and len(self._chunks) > _MAX_UNREAD:
            self.discard(f"no reader came, and more than {_MAX_UNREAD} chunks were waiting")
        while self._discarded is None and self._reader and not self._reader.is_away and len(self._chunks) >= _MAX_BEHIND:
            self._run_sleeps = self._loop.create_future()
            await self._run_sleeps

    def close(self, error: Exception | None) -> None:
        """Note that the run is over. A reader can still read the chunks that are left; then `error` is raised, if there is
        one."""
        self._is_over, self._error = True, error
        if self._reader_sleeps is not None:
            _wake(self._reader_sleeps)

    def read(self) -> ChunkReader:
        """Return the one reader. Raise `ChunksGone` if another reader has the chunks, or they are discarded."""
        if self._discarded is None and self._reader is not None:
            raise ChunksGone(run_id=self._run_id, reason="another reader has them already")
        if self._discarded is not None:
            raise ChunksGone(run_id=self._run_id, reason=self._discarded)
        self._reader = self._readers.add(partial(self.discard, "their reader was closed or garbage-collected"))
        return ChunkReader(self, self._reader)

    def discard(self, why: str) -> None:
        """Discard the chunks, because no reader gets them any more: the run continues without waiting."""
        if self._discarded is None:
            self._discarded = why
            self._chunks.clear()
            if self._run_sleeps is not None:
                _wake(self._run_sleeps)

    async def next(self) -> Any:
        """Return the next chunk."""
        while not self._chunks:
            if self._discarded is not None:
                raise ChunksGone(run_id=self._run_id, reason=self._discarded)
            if self._is_over:
                error, self._error = self._error, None
                if error is not None:
                    raise error
                raise StopAsyncIteration
            self._reader_sleeps = self._loop.create_future()
            await self._reader_sleeps
        chunk = self._chunks.popleft()
        if self._run_sleeps is not None and len(self._chunks) < _MAX_BEHIND:
            _wake(self._run_sleeps)
        return chunk

    def wake_run(self) -> None:
        """Let the run continue, because the reader may be gone."""
        if self._run_sleeps is not None:
            _wake(self._run_sleeps)

    def handle_collected(self) -> None:
        """Discard the chunks if no code reads them: the handle was garbage-collected. Called from its finalizer, on any
        thread."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._discard_unread)

    def _discard_unread(self) -> None:
        if self._reader is None:
            self.discard("their RunHandle was garbage-collected before anything read them")


class ChunkReader:
    """The iterator that `RunHandle.stream` returns."""

    def __init__(self, pipe: Pipe, reader: Reader) -> None:
        self._pipe = pipe
        self._reader = reader

    def __aiter__(self) -> ChunkReader:
        return self

    async def __anext__(self) -> Any:
        if self._reader.has_left:
            raise StopAsyncIteration
        if asyncio.get_running_loop() is not self._pipe._loop:
            raise ChunksGone(run_id=self._pipe._run_id, reason="only the event loop that started the run can read them")
        with self._reader:
            try:
                return await self._pipe.next()
            except asyncio.CancelledError:
                self._pipe.wake_run()
                raise

    async def aclose(self) -> None:
        """Stop reading."""
        self._reader.leave()

    def __del__(self) -> None:
        self._reader.collected()


def _wake(sleeping: asyncio.Future[None]) -> None:
    if not sleeping.done():
        sleeping.set_result(None)
