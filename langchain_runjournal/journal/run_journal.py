"""`RunJournal`: the durable record of runs, and the twins of its verbs."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from ..common.arguments import Age, count, one_of, positive, seconds, text, thread
from ..common.clock import Clock, SystemClock
from ..common.shared_values import Shared
from ..common.twins import run_async, run_sync
from ..errors import FlushTimeout, RunJournalError
from ..events import Cause, Event, Run, RunStatus
from ..messages import loading as _messages
from ..messages import transcript as _transcript
from ..settle import resume as _resume
from ..stores import Store, Synchronous, open_store
from . import dead_owners as _dead_owners
from . import deletion as _delete
from . import follow as _follow
from . import fork_and_exit as _process
from . import run_display as _looking
from . import stop as _stopping
from .core import JournalCore
from .local_runs import shut_down
from .opening import Opening
from .replay import Replay
from .spool_recovery import SpoolReport

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage
    from langchain_core.runnables import RunnableConfig
    from langgraph.pregel import Pregel
    from typing_extensions import Self

    from ..settle.settler import Settlement

_T = TypeVar("_T")
logger = logging.getLogger("langchain_runjournal")


class RunJournal(Opening, Shared):
    """A durable, ordered record of runs.

    `url` is the path of a SQLite file (made if it is not there), ``sqlite:///absolute/path.db``, ``":memory:"``, or a
    `Store`. Use it as ``with`` or ``async with``, or call `close`. One journal may be used from any number of threads and
    event loops; any number of processes may open the same file.

    `synchronous`: with "normal", what is durable survives a killed process; with "full", the loss of power as well.
    `lease`: seconds without a heartbeat after which a journal on another machine counts as gone (on the same machine a
    dead process is noticed at once). `busy_timeout`: seconds to wait for another process that holds the lock of the
    file. `spool_limit`: bytes on disk that may wait for the store before events are merged, and then dropped with an
    error at the next barrier; in memory it can come to four times as much.
    """

    def __init__(
        self,
        url: str | os.PathLike[str] | Store,
        *,
        synchronous: Synchronous = "normal",
        lease: float = 15.0,
        busy_timeout: float = 5.0,
        spool_limit: int = 32 << 20,
        clock: Clock | None = None,
    ) -> None:
        positive(lease=lease, busy_timeout=busy_timeout, spool_limit=spool_limit)
        store = open_store(url, synchronous=synchronous, busy_timeout=busy_timeout)
        self._core = JournalCore(
            store, clock or SystemClock(), lease=lease, busy_timeout=busy_timeout, spool_limit=int(spool_limit)
        )
        _process.register(self, self._core)

    # --- what it is ---------------------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """The URL of the store."""
        return self._core.store.url

    @property
    def owner_id(self) -> str:
        """What names this journal as the owner of its runs."""
        return self._core.owner.owner_id

    @property
    def recovered(self) -> tuple[SpoolReport, ...]:
        """What this journal has found in the spools of processes that are gone, since it was opened."""
        return tuple(self._core.dead_owners.reports)

    def __repr__(self) -> str:
        return f"RunJournal({self.url!r}{', closed' if self._core.is_closed else ''})"

    # --- writing ------------------------------------------------------------------------------------------------------

    def append(self, event: Event) -> None:
        """Add an event to its run, from any thread, also from a running event loop.

        Does no I/O, does not wait and does not raise. When it returns, a killed process no longer loses the event; it is
        durable in the store some 20 ms later, or when `flush` returns. The first event of a run begins the run, and makes
        this journal its owner. What goes wrong is logged, and raised by the next `flush`.
        """
        self._core.appender.append(event)

    def flush(self, timeout: float | None = None) -> None:
        """Return when everything that was appended before is durable in the store.

        Raises `WriteFailed` when the store cannot be written (nothing is lost by that: it is tried again), `EventsLost`
        for what `append` could not take, `RunFenced` when events were refused because their run belongs to somebody else,
        `FlushTimeout` after `timeout` seconds.
        """
        self._core.check_open()
        barrier = self._core.writer.barrier()
        try:
            barrier.result(seconds("timeout", timeout))
        except concurrent.futures.TimeoutError:
            if barrier.done():
                raise  # it is the barrier's own
            barrier.cancel()
            raise FlushTimeout(url=self.url, timeout=timeout) from None

    async def aflush(self, timeout: float | None = None) -> None:
        """Same as :meth:`flush`, without blocking the loop. Cancelling it harms nobody."""
        self._core.check_open()
        barrier = self._core.writer.barrier()
        try:
            await asyncio.wait_for(asyncio.wrap_future(barrier), seconds("timeout", timeout))
        except (asyncio.TimeoutError, TimeoutError) as exc:
            if isinstance(exc, RunJournalError):
                raise
            raise FlushTimeout(url=self.url, timeout=timeout) from None

    # --- reading ------------------------------------------------------------------------------------------------------

    def run(self, run_id: str) -> Run:
        """The run as it stands now, with all that this process has appended to it. Raises `RunNotFound`."""
        self._core.check_open()
        buffer = self._core.appender.buffers.get(text("run_id", run_id))
        self._core.catch_up(needed=buffer is not None and bool(buffer.pend))
        return _looking.with_sources(self, [_follow.find(self._core, run_id)])[0]

    async def arun(self, run_id: str) -> Run:
        """Same as :meth:`run`, without blocking the loop."""
        return await self._off_loop(partial(self.run, run_id))

    def runs(self, thread_id: str | None = None, status: RunStatus | str | None = None, limit: int | None = 50) -> list[Run]:
        """The runs of a thread, or with a status, or all; newest first. `limit=None` for every one."""
        self._core.check_open()
        if status is not None:
            one_of("status", status, [one.value for one in RunStatus])
        wanted, thread_id = None if status is None else RunStatus(status), thread_id and thread("thread_id", thread_id)
        self._core.catch_up()
        found = self._core.store.runs(thread_id=thread_id, status=wanted, limit=count("limit", limit))
        return _looking.with_sources(self, found)

    async def aruns(
        self, thread_id: str | None = None, status: RunStatus | str | None = None, limit: int | None = 50
    ) -> list[Run]:
        """Same as :meth:`runs`, without blocking the loop."""
        return await self._off_loop(partial(self.runs, thread_id, status, limit))

    def read(self, run_id: str, after: int = 0, limit: int | None = None) -> list[Event]:
        """The events of a run with a larger seq than `after`, in order, at most `limit`. Raises `RunNotFound`."""
        self._core.check_open()
        return _looking.read(self, text("run_id", run_id), count("after", after) or 0, count("limit", limit))

    async def aread(self, run_id: str, after: int = 0, limit: int | None = None) -> list[Event]:
        """Same as :meth:`read`, without blocking the loop."""
        return await self._off_loop(partial(self.read, run_id, after, limit))

    def transcript(self, run_id: str) -> list[BaseMessage]:
        """The messages of a run, from the journal alone: what was put in, the model's answers, the results of its tools.

        A call that was cut off, or is not complete yet, is its partial message (see `is_partial`). What a retry replaced,
        helper calls and subagents are left out. Raises `RunNotFound`.
        """
        return _messages.load(run_id, _transcript.transcript(run_id, self.read(run_id)))

    async def atranscript(self, run_id: str) -> list[BaseMessage]:
        """Same as :meth:`transcript`, without blocking the loop."""
        return await self._off_loop(partial(self.transcript, run_id))

    def follow(self, run_id: str, after: int = 0) -> Iterator[Event]:
        """Every event of a run with a larger seq than `after`: what is there, then live, each once and in order.

        Ends after `run.end`, or at once when the run has ended and nothing is left. Works on runs of other processes. It
        shows nothing that a killed process could still lose, so `after` is a safe place to come back to. A run whose owner
        has died is followed until somebody claims and ends it. Raises `RunNotFound` at the first step.
        """
        self._core.check_open()
        return _follow.follow(self._core, self._replay(run_id, after))

    def afollow(self, run_id: str, after: int = 0) -> AsyncIterator[Event]:
        """Same as :meth:`follow`, for ``async for``."""
        self._core.check_open()
        return _follow.afollow(self._core, self._replay(run_id, after), self._off_loop)

    def _replay(self, run_id: str, after: int) -> Replay:
        return Replay(text("run_id", run_id), count("after", after) or 0, self.url)

    # --- stopping -----------------------------------------------------------------------------------------------------

    def stop(self, run_id: str, cause: Cause = "stop", *, wait: bool = False, timeout: float | None = None) -> Run:
        """Ask the owner of a run to stop it; the request is durable when this returns.

        The owner sees it at once if it is this journal, and some 50 ms later in another process. It cancels the run if that
        was begun by `start_run`; for any other, see `on_stop`. Asking twice is the same as asking once: the first cause
        stays. Returns the run as it stands: one that had ended, or waits for a human, without a request.

        `wait`: return when it has ended and its thread is settled. Raises `StopTimeout` if that takes more than `timeout`
        seconds, and `RunAbandoned` if nobody is there to stop it; the request stays. Raises `RunNotFound`.
        """
        return run_sync(_stopping.stop(self, run_id, cause, wait, timeout))

    async def astop(self, run_id: str, cause: Cause = "stop", *, wait: bool = False, timeout: float | None = None) -> Run:
        """Same as :meth:`stop`, without blocking the loop."""
        return await run_async(_stopping.stop(self, run_id, cause, wait, timeout))

    def stop_requested(self, run_id: str) -> str | None:
        """The cause of a stop request for a run that this journal owns, or None. No I/O: ask as often as you like."""
        return self._core.stops.requested(run_id)

    def on_stop(self, run_id: str, callback: Callable[[str], object]) -> Callable[[], None]:
        """Call `callback(cause)` once when a stop is asked for a run that this journal owns; at once if it was already.

        It is called from whatever thread notices, so it should only set something in motion. Returns what takes it back.
        """
        self._core.check_open()
        return self._core.stops.add(run_id, callback)

    def recover(self, graph: Pregel[Any, Any, Any, Any], *, adopt: bool = False) -> list[Settlement]:
        """Settle what all dead runs of a graph left, thread by thread, oldest first: at start-up, say. One report a run.

        A run that was killed ends as interrupted, cause "crash"; one that could not be settled when it ended is tried
        again. No run is touched that waits for a human, or whose owner lives or may live: behind the latter, newer runs of
        the thread are "held". Any number of processes may do this at once. `graph` has a checkpointer, attached or not.
        `adopt`: settle also what an earlier version of a graph without a name of its own has left, which is reported as
        "held" otherwise (see docs/settling.md, Which graph).
        """
        return _resume.recovery_of(self, graph).now(adopt)

    async def arecover(self, graph: Pregel[Any, Any, Any, Any], *, adopt: bool = False) -> list[Settlement]:
        """Same as :meth:`recover`, without blocking the loop."""
        return await _resume.recovery_of(self, graph).later(adopt)

    def resume_config(self, run_id: str) -> RunnableConfig:
        """The config with which `invoke(None, config)` of the attached graph takes a run up again, where it was cut off.

        Only what had not finished runs again, and what the settlement wrote leaves the thread. Raises `NothingToResume`.
        """
        return _resume.resume_config(self.run(run_id), self.read(run_id))

    async def aresume_config(self, run_id: str) -> RunnableConfig:
        """Same as :meth:`resume_config`, without blocking the loop."""
        return await self._off_loop(partial(self.resume_config, run_id))

    # --- owning, pruning ----------------------------------------------------------------------------------------------

    def claim(self, run_id: str) -> bool:
        """Take over a run whose owner is gone: from now on it can be appended to here, and nowhere else.

        What the owner left in its spool is brought in first. Of several that try, one gets True. False when the owner
        lives, or may live (on another machine, until its lease has run out: ask again), or when the run has ended and is
        settled. True also when it is this journal's already. Raises `RunNotFound`.
        """
        return _dead_owners.claim(self, self._core, run_id)

    async def aclaim(self, run_id: str) -> bool:
        """Same as :meth:`claim`, without blocking the loop."""
        return await self._off_loop(partial(self.claim, run_id))

    def prune(
        self, older_than: Age = None, keep_last: int | None = None, *, dry_run: bool = False, vacuum: bool = False
    ) -> list[str]:
        """Delete whole runs, and return their ids: those that ended more than `older_than` (seconds, or a timedelta) ago
        and, counted by their end, are not among the `keep_last` last ones.

        Runs that are running, paused, or ended but not settled are never deleted. `dry_run`: only say which would go.
        `vacuum`: rewrite the file, so that it gives back the room of what was deleted; alone, only that.
        """
        return _delete.prune(self, older_than, keep_last, dry_run, vacuum)

    async def aprune(
        self, older_than: Age = None, keep_last: int | None = None, *, dry_run: bool = False, vacuum: bool = False
    ) -> list[str]:
        """Same as :meth:`prune`, without blocking the loop."""
        return await self._off_loop(partial(self.prune, older_than, keep_last, dry_run=dry_run, vacuum=vacuum))

    def delete(
        self, *, thread_id: str | None = None, run_id: str | None = None, force: bool = False, timeout: float | None = 60.0
    ) -> list[str]:
        """Delete all runs of a thread, or one run, with their text, also unsettled and paused ones. Returns their ids.

        Raises `RunAtWork` if one of them is running, in any process, and deletes nothing then. `force`: stop such runs
        first, and wait up to `timeout` seconds for each; raises what `stop` raises. The thread's checkpoints stay: they are
        the checkpointer's (see `JournalSaver`, whose `delete_thread` deletes both).
        """
        return run_sync(_delete.delete(self, thread_id, run_id, force, timeout))

    async def adelete(
        self, *, thread_id: str | None = None, run_id: str | None = None, force: bool = False, timeout: float | None = 60.0
    ) -> list[str]:
        """Same as :meth:`delete`, without blocking the loop."""
        return await run_async(_delete.delete(self, thread_id, run_id, force, timeout))

    # --- ending -------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop the runs that `start_run` began here, cause "shutdown"; make everything durable, and release the file.

        The runs take no longer than their grace, and half a minute for settling. Closing twice is fine. It is the last
        barrier, and raises what `flush` would: after a `WriteFailed`, what could not be stored waits for the next open.
        """
        core = self._core
        if core.is_closed:
            return
        if isinstance(core.appender, _process.Asleep):
            # A forked child that has not used it: the thread, the spool and their locks are the parent's.
            core.is_closed = True
            return
        if core.must_not_wait():
            # In a signal handler in the middle of an append, or in a callback of the journal's own thread: to wait here
            # would be to wait for itself. The interpreter waits for this thread before it exits.
            threading.Thread(target=self.close, name="runjournal-close").start()
            return
        run_sync(shut_down(core.local_runs, self.url))
        core.close()

    async def aclose(self) -> None:
        """Same as :meth:`close`, without blocking the loop."""
        await run_async(shut_down(self._core.local_runs, self.url))
        own = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="runjournal-close")
        try:
            await asyncio.get_running_loop().run_in_executor(own, self.close)
        finally:
            own.shutdown(wait=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        await self.aclose()

    async def _off_loop(self, work: Callable[[], _T]) -> _T:
        return await self._core.off_loop(work)
