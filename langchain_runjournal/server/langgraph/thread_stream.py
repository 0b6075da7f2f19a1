"""The stream of a thread for `threads.joinStream`: the frames of its runs, one run after the other.

Rule: the frames of a run are those of its own stream, with the same ids, so a cursor of one works for the other. The stream
of a thread has no end.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING

from ...common import strict_json
from ...events import Run, RunStatus
from ..feed import Batch, Direct
from ..frames import Frame, run_name
from ..transport import EventStream
from .feed import END, RunStream
from .stream import check_room

if TYPE_CHECKING:
    from starlette.responses import Response

    from ..service import Service
    from .run_requests import RunRequest


class ThreadStream:
    """One thread for one reader."""

    def __init__(
        self,
        service: Service,
        thread_id: str,
        cursor: str | None,
        request_of: Callable[[Run], Awaitable[RunRequest | None]],
    ) -> None:
        """`cursor`: None for the run that is running, and what comes. `request_of`: returns what a run was asked with; None
        for one that clients do not see."""
        self._service = service
        self._journal = service.journal
        self._thread_id = thread_id
        self._cursor = cursor
        self._request_of = request_of
        self._stream: RunStream | None = None
        self.direct: Direct | None = None

    @property
    def is_abandoned(self) -> bool:
        """Whether the owner of the present run is dead, and no process has settled the run yet."""
        return self._stream is not None and self._stream.is_abandoned

    async def batches(self) -> AsyncGenerator[Batch, None]:
        """Yield the batches, and an empty one at least once in each heartbeat."""
        runs = (await self._journal.aruns(self._thread_id, None, None))[::-1]
        last = runs[-1] if runs else None
        for run in self._wanted(runs):
            async with aclosing(self._frames(run, self._cursor)) as batches:
                async for batch in batches:
                    yield batch
            last = run
        while True:
            following = asyncio.ensure_future(self._next(last))
            try:
                while not following.done():
                    yield ()
                    await asyncio.wait({following}, timeout=self._service.timing.heartbeat)
                last = following.result()
            finally:
                following.cancel()
            async with aclosing(self._frames(last, None)) as batches:
                async for batch in batches:
                    yield batch

    def _wanted(self, runs: list[Run]) -> list[Run]:
        """Return the runs that the reader has not read to the end, the oldest first."""
        if self._cursor is None:
            return [run for run in runs[-1:] if run.status == RunStatus.RUNNING]
        # One of no use, or of a run that was deleted, means the start, as "-1" and "0" do.
        named = self._cursor.partition(":")[0]
        at = next((place for place, run in enumerate(runs) if run_name(run.run_id) == named), 0)
        return runs[at:]

    async def _next(self, last: Run | None) -> Run:
        """Return the next run of the thread as soon as there is one."""
        after = None if last is None else f"{last.run_id}:{last.last_seq}"
        async for event in self._journal.afollow_thread(self._thread_id, after):
            if last is None or event.run_id != last.run_id:
                return await self._journal.arun(event.run_id)
        raise RuntimeError("the stream of a thread has ended")  # it never does

    async def _frames(self, run: Run, cursor: str | None) -> AsyncGenerator[Batch, None]:
        request = await self._request_of(run)
        if request is None:
            return

        async def begun() -> Run | None:
            return run

        graph = self._service.graphs[request.graph]
        stream = RunStream(self._service, graph, request, cursor=cursor, modes=None, begun=begun)
        self._stream = stream
        async with aclosing(stream.batches()) as batches:
            async for batch in batches:
                kept = [frame for frame in batch if frame is not END]
                if kept or not batch:
                    yield kept
        done = {"status": "run_done", "run_id": run.run_id}
        yield [Frame(None, "metadata", strict_json.dumps(done))]


def open_stream(service: Service, source: ThreadStream) -> Response:
    """Return the response that sends the stream of a thread. Raise a `Problem` if too many streams are open."""
    check_room(service)
    service.open_streams += 1

    def on_end() -> None:
        service.open_streams -= 1

    # Its clients take a clean end for the end of everything: no lease.
    timing = replace(service.timing, lease=math.inf)
    headers = {"cache-control": "no-store"}
    return EventStream(source, timing, headers=headers, on_end=on_end, on_abandoned=service.recover_soon)
