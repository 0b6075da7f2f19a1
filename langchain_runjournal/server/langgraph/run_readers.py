"""The readers of runs, for `create_app(cancel_after=...)`: a run without readers is stopped.

Some clients only close their connection when the user presses Stop. To a server, that is the same as a network that was
lost, so a run gets some seconds in which its reader may come back, to this worker or to another one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from starlette.responses import Response

from ...journal.core import core_of

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from ..service import Service
    from .queue import RunQueue

logger = logging.getLogger("langchain_runjournal")


class RunReaders:
    """The readers of runs in one process."""

    def __init__(self, service: Service, queue: RunQueue, cancel_after: float | None) -> None:
        """`cancel_after`: seconds without a reader after which a run is stopped; None: it runs on."""
        self._service = service
        self._queue = queue
        self._after = cancel_after
        self._counts: dict[str, int] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def counted(self, run_id: str, response: Response) -> Response:
        """Return a response that counts as a reader of a run until it is sent."""
        if self._after is None:
            return response
        self._counts[run_id] = self._counts.get(run_id, 0) + 1
        timer = self._timers.pop(run_id, None)
        if timer is not None:
            timer.cancel()
        records, mine = self._queue.records, self._service.journal.owner_id
        try:
            await self._service.off_loop(partial(records.note_reader, run_id, mine))
        except Exception:
            logger.exception("could not note a reader of run %s, which another process may take for gone", run_id)
        return _Counted(response, partial(self._leave, run_id))

    def _leave(self, run_id: str) -> None:
        left = self._counts.get(run_id, 1) - 1
        if left:
            self._counts[run_id] = left
            return
        self._counts.pop(run_id, None)
        loop = asyncio.get_running_loop()
        self._timers[run_id] = loop.call_later(self._after or 0.0, self._begin, run_id)

    def _begin(self, run_id: str) -> None:
        self._timers.pop(run_id, None)
        task = asyncio.get_running_loop().create_task(self._stop_if_alone(run_id))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _stop_if_alone(self, run_id: str) -> None:
        try:
            if await self._service.off_loop(partial(self._has_readers, run_id)):
                return
            await self._queue.cancel(run_id, cause="disconnect")
        except Exception:
            logger.exception("could not stop run %s, whose last reader has left", run_id)

    def _has_readers(self, run_id: str) -> bool:
        """Return whether a reader has come back, to any process. That process stops the run when its last reader leaves."""
        if run_id in self._counts:
            return True
        records, mine = self._queue.records, self._service.journal.owner_id
        records.drop_reader(run_id, mine)
        owners = core_of(self._service.journal).dead_owners
        others = (owners.owner(one) for one in records.readers(run_id) if one != mine)
        return any(owner is not None and not owners.is_gone(owner) for owner in others)


class _Counted(Response):
    """A response whose end is reported."""

    def __init__(self, inner: Response, on_end: Callable[[], None]) -> None:
        super().__init__(status_code=inner.status_code)
        self.raw_headers = inner.raw_headers
        self._inner = inner
        self._on_end = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._inner(scope, receive, send)
        finally:
            self._on_end()
