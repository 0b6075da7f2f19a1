"""The queue of each thread: requests that have been stored, and begin when their thread is free.

Rule: what must last stands in the records. A process works on the entries that it has stored itself, and on those of dead
processes, when it opens or is asked about their thread. A run has its id before it begins, so none can begin twice.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from ...common.twins import run_async
from ...errors import JournalClosed, RunAbandoned, RunNotFound, StopTimeout, StoreClosed, ThreadBusy
from ...events import Cause, Run, RunStatus
from ...journal import stop
from .queue_plan import Drop, Entry, Wait, Work, before, next_step
from .queue_records import QueueRecords
from .rollback import roll_back
from .run_records import key_of
from .run_requests import RunRequest
from .run_start import StartRefused, begin_request
from .run_views import graph_named_by, request_of

if TYPE_CHECKING:
    from ..service import Service

_T = TypeVar("_T")
logger = logging.getLogger("langchain_runjournal")

LOOK_EVERY: Final = 0.25
"""Seconds after which a process looks again for what another one may have changed."""
_LONGEST: Final = 3600.0
_RETRY: Final = 1.0
_STOP_LIMIT: Final = 60.0


class Busy(Exception):
    """A run that must not wait was asked for, and its thread has another one."""

    def __init__(self, run_id: str) -> None:
        super().__init__(run_id)
        self.run_id = run_id


class RunQueue:
    """The queues of the threads of one application, in one process."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._journal = service.journal
        self.records = QueueRecords(service.journal)
        self._holding: set[str] = set()
        """The keys of the entries that requests of this process hold."""
        self._workers: dict[str, tuple[asyncio.Task[None], asyncio.Event]] = {}
        self._waiting: dict[str, set[asyncio.Event]] = {}
        """The waits for a run to begin, by run id."""
        self._tasks: set[asyncio.Task[object]] = set()

    # --- what requests ask for ----------------------------------------------------------------------------------------

    async def add(self, request: RunRequest) -> None:
        """Store a request, and begin its run when it is its turn. Return when both can no longer be lost.

        Raise `Busy` if the request asks for that, and `StartRefused` if it must begin at once and cannot.
        """
        if request.multitask == "enqueue":
            await self._off_loop(lambda: self.records.store_in_queue(request, is_held=False))
            self.look_at(request.thread_id)
            return
        alone = self._begin_alone if request.multitask == "reject" else self._replace_others
        # In a task: a client that leaves must not leave an entry that is held.
        await asyncio.shield(self._task(self._held(request, alone)))

    async def begun(self, run_id: str) -> Run | None:
        """Return the run when the journal has it; None if it was cancelled, refused or deleted before it began."""
        news = asyncio.Event()
        self._waiting.setdefault(run_id, set()).add(news)
        try:
            while True:
                news.clear()
                run, is_pending = await self._off_loop(lambda: self.records.find(run_id))
                if run is not None or not is_pending:
                    return run
                with suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(news.wait(), LOOK_EVERY)
        finally:
            waits = self._waiting.get(run_id, set())
            waits.discard(news)
            if not waits:
                self._waiting.pop(run_id, None)

    async def cancel(self, run_id: str, *, cause: Cause = "stop", rollback: bool = False) -> bool:
        """Ask a run to stop, or withdraw it if it has not begun. Return False if it is over, or unknown."""
        entry = await self._off_loop(lambda: self.records.withdraw(run_id, rollback))
        if entry is not None:
            self._news(run_id)
            self.look_at(entry.thread_id)
        try:
            run = await self._journal.arun(run_id)
        except RunNotFound:
            return entry is not None
        if run.status != RunStatus.RUNNING:
            return False
        return await self._stop(run, cause, rollback)

    async def until_rolled_back(self, run_id: str, timeout: float) -> bool:
        """Wait until a run is rolled back. Return whether it is."""
        give_up = time.monotonic() + timeout
        while await self._off_loop(lambda: self.records.entry(key_of("rollback", run_id))) is not None:
            if time.monotonic() >= give_up:
                return False
            await asyncio.sleep(0.02)
        return True

    async def is_waiting(self, thread_id: str) -> bool:
        """Return whether a run of a thread waits to begin."""
        entries = await self._off_loop(lambda: self.records.entries(thread_id))
        if any(entry.owner != self._journal.owner_id for entry in entries):
            self.look_at(thread_id)
        return any(entry.job == "begin" for entry in entries)

    async def withdraw_all(self, thread_id: str) -> None:
        """Withdraw all runs of a thread that have not begun: the thread is about to be deleted."""
        for entry in await self._off_loop(lambda: self.records.entries(thread_id)):
            await self._off_loop(partial(self.records.withdraw, entry.run_id, False))
            self._news(entry.run_id)

    async def forget_all(self, thread_id: str) -> None:
        """Delete the requests of a thread that was deleted."""

        def forget() -> None:
            for one in self.records.requests(thread_id):
                self.records.forget(one.run_id)

        await self._off_loop(forget)

    def look_at(self, thread_id: str) -> None:
        """Work on the queue of a thread, also on what dead processes have left in it."""
        worker = self._workers.get(thread_id)
        if worker is not None and not worker[0].done():
            worker[1].set()
            return
        wake = asyncio.Event()
        task = asyncio.get_running_loop().create_task(self._work_on(thread_id, wake))
        self._workers[thread_id] = task, wake
        task.add_done_callback(lambda done: self._is_idle(thread_id, done))

    async def look_at_all(self) -> None:
        """Work on the queues of all threads. Called when the server begins to serve."""
        for thread_id in {entry.thread_id for entry in await self._off_loop(lambda: self.records.entries(None))}:
            self.look_at(thread_id)

    async def close(self) -> None:
        """Stop working. The entries stay, for the next process."""
        tasks = [worker[0] for worker in self._workers.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- the strategies -----------------------------------------------------------------------------------------------

    async def _held(self, request: RunRequest, work: Callable[[RunRequest], Awaitable[None]]) -> None:
        key = key_of("begin", request.run_id)
        self._holding.add(key)
        try:
            await work(request)
        finally:
            self._holding.discard(key)
            self.look_at(request.thread_id)

    async def _begin_alone(self, request: RunRequest) -> None:
        """Begin a run at once, or not at all."""
        mine, entries = await self._off_loop(lambda: self.records.store_in_queue(request, is_held=True))
        try:
            others = [one for one in entries if one.number < mine.number or one.job == "rollback"]
            if others:
                raise Busy(others[0].run_id)
            if request.not_before > time.time():
                running = await self._running(request)
                if running:
                    raise Busy(running[0].run_id)
                await self._off_loop(lambda: self.records.put(replace(mine, is_held=False)))
                return
            await begin_request(self._service, request, self.records)
        except BaseException as exc:
            await self._off_loop(partial(self.records.drop, mine))
            if isinstance(exc, ThreadBusy):
                raise Busy(exc.run_id) from None
            raise
        await self._has_begun(mine)

    async def _replace_others(self, request: RunRequest) -> None:
        """Stop the run that is running, and withdraw those that wait, in favour of a new one."""
        rollback = request.multitask == "rollback"
        mine, entries = await self._off_loop(lambda: self.records.store_in_queue(request, is_held=True))
        try:
            for one in before(entries, mine.number):
                await self.cancel(one.run_id, cause="superseded", rollback=rollback)
            for run in await self._running(request):
                await self._stop(run, "superseded", rollback)
        except Exception:
            logger.exception("could not stop the runs before run %s, which waits for them now", request.run_id)
        # If this fails, the client hears of it, and the entry is dropped.
        await self._off_loop(lambda: self.records.put(replace(mine, is_held=False)))

    async def _running(self, request: RunRequest) -> list[Run]:
        running = await self._journal.aruns(request.thread_id, RunStatus.RUNNING, None)
        return [run for run in running if run.run_id != request.run_id]

    async def _stop(self, run: Run, cause: Cause, rollback: bool) -> bool:
        run_id = run.run_id
        if rollback:
            # First the entry: no run may begin between the end of this one and its rollback.
            about = request_of(self._service, run)
            await self._off_loop(lambda: self.records.note_rollback(run_id, about, time.time()))
        try:
            run = await self._journal.astop(run_id, cause)
        except RunNotFound:
            return False
        if run.stop is None and rollback:
            await self._off_loop(lambda: self.records.forget_rollback(run_id, about))
        self.look_at(str(run.thread_id))
        return run.stop is not None

    # --- the work on one thread ---------------------------------------------------------------------------------------

    async def _work_on(self, thread_id: str, wake: asyncio.Event) -> None:
        while True:
            wake.clear()
            try:
                entries, may_die = await self._off_loop(lambda: self.records.adopt(thread_id))
                match next_step(entries, self._journal.owner_id, self._holding, time.time()):
                    case None:
                        if not may_die and not wake.is_set():
                            return
                        await _pause(wake, LOOK_EVERY)
                    case Wait(until):
                        await _pause(wake, LOOK_EVERY if until is None else min(until - time.time(), _LONGEST))
                    case Drop(entry):
                        await self._off_loop(partial(self.records.drop, entry))
                    case Work(entry):
                        await (self._begin if entry.job == "begin" else self._roll_back)(entry, wake)
            except (JournalClosed, StoreClosed):
                return  # the entries stay, for the next process
            except Exception:
                logger.exception("could not work on the queue of thread %s; trying again", thread_id)
                await asyncio.sleep(_RETRY)

    def _is_idle(self, thread_id: str, task: asyncio.Task[None]) -> None:
        if self._workers.get(thread_id, (None,))[0] is task:
            del self._workers[thread_id]

    async def _begin(self, entry: Entry, wake: asyncio.Event) -> None:
        request = await self._off_loop(lambda: self.records.request(entry.run_id))
        if request is None or request.over is not None or request.rolled_back is not None:
            await self._off_loop(lambda: self.records.take(entry))
            return
        # Here, and not in `begin_request`: what waits there begins also if it is withdrawn meanwhile.
        running = await self._running(request)
        if running and not await self._is_abandoned(running[0], wake):
            return
        try:
            await begin_request(self._service, request, self.records)
        except ThreadBusy as exc:
            await self._is_abandoned(await self._journal.arun(exc.run_id), wake)
            return
        except StartRefused as exc:
            problem = {"error": type(exc.__cause__ or exc).__name__, "message": str(exc)}
            await self._off_loop(lambda: self.records.end(entry.run_id, status="error", error=problem))
        await self._has_begun(entry)

    async def _has_begun(self, entry: Entry) -> None:
        was_there = await self._off_loop(lambda: self.records.take(entry))
        self._news(entry.run_id)
        if was_there:
            return
        with suppress(RunNotFound):
            # It was withdrawn in the very moment in which it began.
            run = await self._journal.arun(entry.run_id)
            request = await self._off_loop(lambda: self.records.request(entry.run_id))
            await self._stop(run, "stop", rollback=request is None)

    async def _is_abandoned(self, run: Run, wake: asyncio.Event) -> bool:
        """Wait until a run is over, or something has changed in the queue. Return whether the run is abandoned."""
        over: asyncio.Task[Run] = self._task(run_async(stop.until_over(self._journal, run.run_id, None)))
        woken = self._task(wake.wait())
        try:
            # Another process may withdraw the entry meanwhile.
            await asyncio.wait({over, woken}, timeout=_RETRY, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (over, woken):
                task.cancel()
            found, _ = await asyncio.gather(over, woken, return_exceptions=True)
        return isinstance(found, RunAbandoned)

    async def _roll_back(self, entry: Entry, wake: asyncio.Event) -> None:
        try:
            run = await self._journal.astop(entry.run_id, wait=True, timeout=_STOP_LIMIT)
        except RunNotFound:
            await self._off_loop(lambda: self.records.take(entry))
            return
        except RunAbandoned:
            await self._service.recover()
            await _pause(wake, LOOK_EVERY)
            return
        except StopTimeout:
            return
        if run.stop is None and run.cause != "crash":
            await self._off_loop(lambda: self.records.forget_rollback(entry.run_id, request_of(self._service, run)))
            return
        graph = graph_named_by(self._service, run)
        if graph is not None:
            request = await self._off_loop(lambda: self.records.request(run.run_id))
            await roll_back(self._service, graph, run, None if request is None else request.before)
        await self._off_loop(lambda: self.records.take(entry))

    # --- small parts --------------------------------------------------------------------------------------------------

    def _news(self, run_id: str) -> None:
        for one in self._waiting.get(run_id, ()):
            one.set()

    def _task(self, work: Awaitable[_T]) -> asyncio.Task[_T]:
        async def run() -> _T:
            return await work

        task = asyncio.get_running_loop().create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _off_loop(self, work: Callable[[], _T]) -> _T:
        return await self._service.off_loop(work)


async def _pause(wake: asyncio.Event, seconds: float) -> None:
    with suppress(asyncio.TimeoutError):
        await asyncio.wait_for(wake.wait(), max(0.0, seconds))
