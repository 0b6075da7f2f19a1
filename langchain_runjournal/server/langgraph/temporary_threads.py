"""The threads of runs without a thread: each is deleted some time after its run.

Rule: the list of them stands in the records, so a restart forgets none. A thread stays for a while after the end of its run,
because a client whose connection was lost comes back for the rest.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ...errors import JournalClosed, RunAtWork, RunNotFound, StoreClosed
from ...events import RunStatus
from ...journal.records import records_of

if TYPE_CHECKING:
    from ..service import Service
    from .run_requests import RunRequest

logger = logging.getLogger("langchain_runjournal")

_SPACE: Final = "langgraph.temporary"
_STAYS: Final = 300.0
"""Seconds for which a thread stays after the end of its run."""
_AT_ONCE: Final = 100


class TemporaryThreads:
    """The threads of one journal that are deleted after their run."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._records = records_of(service.journal)
        self.task: asyncio.Task[None] | None = None

    async def add(self, asked: RunRequest) -> None:
        """Note that a thread is to be deleted after a run."""
        value: dict[str, Any] = {"run_id": asked.run_id, "due": max(time.time(), asked.not_before) + _STAYS}
        await self._service.off_loop(partial(self._records.put, _SPACE, asked.thread_id, value, version=None))
        self.look()

    def look(self) -> None:
        """Delete what is due, now and later on."""
        if self.task is None or self.task.done():
            self.task = asyncio.get_running_loop().create_task(self._delete_all())

    async def close(self) -> None:
        """Stop deleting."""
        if self.task is not None:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)

    async def _delete_all(self) -> None:
        while True:
            try:
                found = await self._service.off_loop(partial(self._records.list, _SPACE, limit=_AT_ONCE))
                if not found:
                    return
                for one in found:
                    if one.value["due"] <= time.time():
                        await self._delete(one.key, one.value["run_id"])
                first = min((one.value["due"] for one in found if one.value["due"] > time.time()), default=0.0)
            except (JournalClosed, StoreClosed):
                return
            except Exception:
                logger.exception("could not delete the threads of runs without a thread; trying again")
                first = time.time() + _STAYS
            await asyncio.sleep(max(0.0, first - time.time()))

    async def _delete(self, thread_id: str, run_id: str) -> None:
        ended_at = None
        with suppress(RunNotFound):
            run = await self._service.journal.arun(run_id)
            ended_at = time.time() if run.status == RunStatus.RUNNING else run.ended_at
        if ended_at is not None and ended_at + _STAYS > time.time():
            value: dict[str, Any] = {"run_id": run_id, "due": ended_at + _STAYS}
            await self._service.off_loop(partial(self._records.put, _SPACE, thread_id, value, version=None))
            return
        with suppress(RunAtWork):
            await self._service.delete_thread(thread_id, force=False)
        await self._service.off_loop(partial(self._records.put, _SPACE, thread_id, None, version=None))
