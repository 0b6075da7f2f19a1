"""`RunJournal`: the durable record of runs, with a synchronous and an asynchronous form of each method."""

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
from ..errors import FlushTimeout, InvalidArgument, RunJournalError
from ..events import Cause, Event, Run, RunStatus
from ..messages import loading as _loading
from ..messages import transcript as _transcript
from ..redact import Redact
from ..settle import resume as _resume
from ..stores import Store, Synchronous, open_store
from . import dead_owners as _dead_owners
from . import deletion as _deletion
from . import follow as _follow
from . import fork_and_exit as _fork_and_exit
from . import run_reading as _run_reading
from . import stop as _stop
from . import thread_follow as _thread_follow
from .core import JournalCore
from .follow_plan import Replay
from .local_runs import shut_down
from .opening import Opening
from .spool_import import SpoolReport

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

    `url` is the path of a SQLite file (created if it does not exist), ``sqlite:////absolute/path.db``, ``":memory:"``, or a
    `Store`. Use a journal in a ``with`` or ``async with`` statement, or call `close`. Any number of threads and event loops
    may use one journal, and any number of processes may open the same file.

    `synchronous`: with "normal", the default, durable events survive a killed process; with "full", they survive the loss
    of power as well. `busy_timeout`: the seconds to wait for another process that holds the lock of the file (default 5). A
    URL may have both (``sqlite:///runs.db?synchronous=full``); a `Store` has options of its own. `lease`: the seconds
    without a heartbeat after which a journal on another machine counts as a dead owner (on the same machine, other journals
    notice a dead process at once). `spool_dir`: a directory for the spool, which otherwise stands beside the file, or in
    the user's state directory for a store without a file (see docs/stores.md). `spool_limit`: the bytes on disk that may
    wait for the store; beyond that the journal merges events, and then drops events with an error at the next barrier. In
    memory, that can take four times as many bytes. `redact`: returns what is written in place of a text (see
    `langchain_runjournal.redact`).
    """

    def __init__(
        self,
        url: str | os.PathLike[str] | Store,
        *,
        synchronous: Synchronous | None = None,
        lease: float = 15.0,
        busy_timeout: float | None = None,
        spool_dir: str | os.PathLike[str] | None = None,
        spool_limit: int = 32 << 20,
        redact: Redact | None = None,
        clock: Clock | None = None,
    ) -> None:
        positive(lease=lease, spool_limit=spool_limit)
        store = open_store(url, synchronous=synchronous, busy_timeout=busy_timeout)
        self._core = JournalCore(
            store, clock or SystemClock(), lease=lease, spool_dir=spool_dir, spool_limit=int(spool_limit), redact=redact
        )
        _fork_and_exit.register(self, self._core)

    # --- what it is ---------------------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """The URL of the store."""
        return self._core.store.url

    @property
    def owner_id(self) -> str:
        """The id of this journal as the owner of its runs."""
        return self._core.owner.owner_id

    @property
    def recovered(self) -> tuple[SpoolReport, ...]:
        """The reports on all spools of dead owners that this journal has imported since it was opened."""
        return tuple(self._core.dead_owners.reports)

    def __repr__(self) -> str:
        return f"RunJournal({self.url!r}{', closed' if self._core.is_closed else ''})"

    # --- writing ------------------------------------------------------------------------------------------------------

    def append(self, event: Event) -> None:
        """Append an event to its run, from any thread, also on a running event loop.

        This method does no I/O, does not wait and does not raise. When it returns, a killed process no longer loses the
        event. The event is durable in the store some 20 ms later, or when `flush` returns. The first event of a run begins
        the run, and makes this journal its owner. The journal logs errors, and the next `flush` raises them.
        """
        self._core.appender.append(event)

    def flush(self, timeout: float | None = None) -> None:
        """Wait until all events that were appended before are durable in the store.

        Raise `WriteFailed` if the store cannot be written (this loses nothing: the journal tries again), `EventsLost` for
        events that `append` could not take, `RunFenced` if events were refused because another owner has their run, and
        `FlushTimeout` after `timeout` seconds.
        """
        self._core.check_open()
        barrier = self._core.writer.barrier()
        try:
            barrier.result(seconds("timeout", timeout))
        except concurrent.futures.TimeoutError:
            if barrier.done():
                raise  # the barrier itself has failed with this error
            barrier.cancel()
            raise FlushTimeout(url=self.url, timeout=timeout) from None

    async def aflush(self, timeout: float | None = None) -> None:
        """Do what :meth:`flush` does, without blocking the event loop. A cancelled call disturbs no other caller."""
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
        """Return the current state of a run, with all events that this process has appended to it. Raise `RunNotFound`."""
        self._core.check_open()
        buffer = self._core.appender.buffers.get(text("run_id", run_id))
        self._core.catch_up(needed=buffer is not None and bool(buffer.pend))
        return _run_reading.with_sources(self, [_follow.find(self._core, run_id)])[0]

    async def arun(self, run_id: str) -> Run:
        """Do what :meth:`run` does, without blocking the event loop."""
        return await self._off_loop(partial(self.run, run_id))

    def runs(self, thread_id: str | None = None, status: RunStatus | str | None = None, limit: int | None = 50) -> list[Run]:
        """Return the runs of a thread, the runs with a status, or all runs; newest first. `limit=None`: without a limit."""
        self._core.check_open()
        if status is not None:
            one_of("status", status, [one.value for one in RunStatus])
        wanted, thread_id = None if status is None else RunStatus(status), thread_id and thread("thread_id", thread_id)
        self._core.catch_up()
        found = self._core.store.runs(thread_id=thread_id, status=wanted, limit=count("limit", limit))
        return _run_reading.with_sources(self, found)

    async def aruns(
        self, thread_id: str | None = None, status: RunStatus | str | None = None, limit: int | None = 50
    ) -> list[Run]:
        """Do what :meth:`runs` does, without blocking the event loop."""
        return await self._off_loop(partial(self.runs, thread_id, status, limit))

    def read(self, run_id: str, after: int = 0, limit: int | None = None) -> list[Event]:
        """Return the events of a run with a seq larger than `after`, in order, at most `limit`. Raise `RunNotFound`."""
        self._core.check_open()
        return _run_reading.read(self, text("run_id", run_id), count("after", after) or 0, count("limit", limit))

    async def aread(self, run_id: str, after: int = 0, limit: int | None = None) -> list[Event]:
        """Do what :meth:`read` does, without blocking the event loop."""
        return await self._off_loop(partial(self.read, run_id, after, limit))

    def transcript(self, run_id: str) -> list[BaseMessage]:
        """Return the messages of a run, from the journal alone: its input, the model's answers, and the tool results.

        A model call that was cut off, or is not complete yet, appears as a partial message (see `is_partial`). The
        transcript leaves out answers that a retry replaced, helper calls and subagents. Raise `RunNotFound`.
        """
        return _loading.load(run_id, _transcript.transcript(run_id, self.read(run_id)))

    async def atranscript(self, run_id: str) -> list[BaseMessage]:
        """Do what :meth:`transcript` does, without blocking the event loop."""
        return await self._off_loop(partial(self.transcript, run_id))

    def follow(self, run_id: str, after: int = 0) -> Iterator[Event]:
        """Yield every event of a run with a seq larger than `after`: the existing ones, then live ones, once and in order.

        The iterator ends after `run.end`, or at once if the run has ended and no events are left. It can follow runs of
        other processes. It yields no event that a killed process could still lose, so a follower can safely return with the
        last seq as `after`. If the owner of the run is dead, the iterator continues until another process claims the run and
        ends it. Raise `RunNotFound` at the first step.
        """
        self._core.check_open()
        return _follow.follow(self._core, self._replay(run_id, after))

    def afollow(self, run_id: str, after: int = 0) -> AsyncIterator[Event]:
        """Do what :meth:`follow` does, for ``async for``."""
        self._core.check_open()
        return _follow.afollow(self._core, self._replay(run_id, after), self._off_loop)

    def follow_thread(self, thread_id: str, after: tuple[str, int] | str | None = None) -> Iterator[Event]:
        """Yield every event of all runs of a thread, run after run in the order in which they began: those that exist, then
        live ones. The iterator never ends by itself.

        `after`: what the caller has, as ``(run_id, seq)`` or ``"run_id:seq"``: the rest of that run comes first, then every
        later run. A run is followed up to its `run.end`; one that waits for a human, or whose owner is dead, is left when a
        later run has begun to work. Raise `RunNotFound` at the first step if the run in `after` does not exist, and
        `InvalidArgument` if it is a run of another thread.
        """
        self._core.check_open()
        return _thread_follow.follow_thread(self._core, _thread_follow.replay_of(thread_id, after, self.url))

    def afollow_thread(self, thread_id: str, after: tuple[str, int] | str | None = None) -> AsyncIterator[Event]:
        """Do what :meth:`follow_thread` does, for ``async for``."""
        self._core.check_open()
        plan = _thread_follow.replay_of(thread_id, after, self.url)
        return _thread_follow.afollow_thread(self._core, plan, self._off_loop)

    def _replay(self, run_id: str, after: int) -> Replay:
        return Replay(text("run_id", run_id), count("after", after) or 0, self.url)

    # --- stopping -----------------------------------------------------------------------------------------------------

    def stop(self, run_id: str, cause: Cause = "stop", *, wait: bool = False, timeout: float | None = None) -> Run:
        """Ask the owner of a run to stop it. The request is durable when this method returns.

        The owner sees the request at once if it is this journal, and some 50 ms later in another process. The owner cancels
        a run that `start_run` began; for other runs, see `on_stop`. The call is idempotent: the first cause stays. Return
        the current state of the run. A run that has ended, or is paused for a human, gets no request.

        `wait`: wait until the run has ended and its thread is settled. Raise `StopTimeout` if that takes more than `timeout`
        seconds, and `RunAbandoned` if the owner is dead; the request stays. Raise `RunNotFound`.
        """
        return run_sync(_stop.stop(self, run_id, cause, wait, timeout))

    async def astop(self, run_id: str, cause: Cause = "stop", *, wait: bool = False, timeout: float | None = None) -> Run:
        """Do what :meth:`stop` does, without blocking the event loop."""
        return await run_async(_stop.stop(self, run_id, cause, wait, timeout))

    def stop_requested(self, run_id: str) -> str | None:
        """Return the cause of a stop request for a run that this journal owns, or None. This method does no I/O."""
        return self._core.stops.requested(run_id)

    def on_stop(self, run_id: str, callback: Callable[[str], object]) -> Callable[[], None]:
        """Call `callback(cause)` once when a run that this journal owns gets a stop request; at once if it has one.

        The cause is "crash" if another journal has claimed the run, because it took this journal for dead.
        The thread that notices the request calls `callback`, so `callback` should only set something in motion. Return a
        function that removes `callback`.
        """
        self._core.check_open()
        if not callable(callback):
            raise InvalidArgument(name="callback", expected="a function that takes the cause of the stop", value=callback)
        return self._core.stops.add(run_id, callback)

    def recover(self, graph: Pregel[Any, Any, Any, Any], *, adopt: bool = False) -> list[Settlement]:
        """Settle all runs of a graph whose owners are dead, thread by thread, oldest first. Return one report for each run.

        Call this at start-up, for example. A run that was killed ends as interrupted, cause "crash". For a run that has
        ended and could not be settled then, try again. Runs that are paused for a human stay as they are, and so do runs
        whose owner is alive or may be alive: behind such a run, newer runs of the thread are "held". Any number of processes
        may call this at the same time. `graph` must have a checkpointer; it need not be attached.
        `adopt`: also settle the runs of an earlier version of a graph without a name of its own; without `adopt` they are
        reported as "held" (see docs/settling.md, Which graph).
        """
        return _resume.recovery_of(self, graph).now(adopt)

    async def arecover(self, graph: Pregel[Any, Any, Any, Any], *, adopt: bool = False) -> list[Settlement]:
        """Do what :meth:`recover` does, without blocking the event loop."""
        return await _resume.recovery_of(self, graph).later(adopt)

    def resume_config(self, run_id: str) -> RunnableConfig:
        """Return the config with which `invoke(None, config)` of the attached graph resumes a run where it was cut off.

        LangGraph runs only the unfinished tasks again, and the thread loses what the settlement wrote. Raise
        `NothingToResume`.
        """
        return _resume.resume_config(self.run(run_id), self.read(run_id))

    async def aresume_config(self, run_id: str) -> RunnableConfig:
        """Do what :meth:`resume_config` does, without blocking the event loop."""
        return await self._off_loop(partial(self.resume_config, run_id))

    # --- owning, pruning ----------------------------------------------------------------------------------------------

    def claim(self, run_id: str) -> bool:
        """Become the owner of a run whose owner is dead. Only this journal can append to the run then.

        Import the spool of the dead owner first. If several processes try, one of them gets True. Return False if the owner
        is alive or may be alive (on another machine, until its lease has run out: ask again), or if the run has ended and is
        settled. Return True also if this journal already owns the run. Raise `RunNotFound`.
        """
        return _dead_owners.claim(self, self._core, run_id)

    async def aclaim(self, run_id: str) -> bool:
        """Do what :meth:`claim` does, without blocking the event loop."""
        return await self._off_loop(partial(self.claim, run_id))

    def prune(
        self, older_than: Age = None, keep_last: int | None = None, *, dry_run: bool = False, vacuum: bool = False
    ) -> list[str]:
        """Delete whole runs, and return their ids: those that ended more than `older_than` (seconds, or a timedelta) ago
        and, counted by their end, are not among the `keep_last` last ones.

        Runs that are running, paused, or ended but not settled are never deleted. `dry_run`: delete nothing, only return the
        ids. `vacuum`: rewrite the file, which returns the space of deleted runs to the file system; without `older_than` and
        `keep_last`, do only that.
        """
        return _deletion.prune(self, older_than, keep_last, dry_run, vacuum)

    async def aprune(
        self, older_than: Age = None, keep_last: int | None = None, *, dry_run: bool = False, vacuum: bool = False
    ) -> list[str]:
        """Do what :meth:`prune` does, without blocking the event loop."""
        return await self._off_loop(partial(self.prune, older_than, keep_last, dry_run=dry_run, vacuum=vacuum))

    def delete(
        self, *, thread_id: str | None = None, run_id: str | None = None, force: bool = False, timeout: float | None = 60.0
    ) -> list[str]:
        """Delete all runs of a thread, or one run, with their text, also unsettled and paused ones. Return their ids.

        If one of them is running, in any process, raise `RunAtWork` and delete nothing. `force`: stop such runs first, and
        wait up to `timeout` seconds for each; raise what `stop` raises. The checkpoints of the thread stay, because they
        belong to the checkpointer (`JournalSaver.delete_thread` deletes both).
        """
        return run_sync(_deletion.delete(self, thread_id, run_id, force, timeout))

    async def adelete(
        self, *, thread_id: str | None = None, run_id: str | None = None, force: bool = False, timeout: float | None = 60.0
    ) -> list[str]:
        """Do what :meth:`delete` does, without blocking the event loop."""
        return await run_async(_deletion.delete(self, thread_id, run_id, force, timeout))

    # --- ending -------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop the runs that `start_run` began here, cause "shutdown"; make all events durable, and release the file.

        The wait for the runs takes no longer than their grace, and half a minute for settling. Closing twice is harmless.
        `close` is the last barrier, and raises what `flush` would raise. After a `WriteFailed`, the events that could not be
        stored stay in the spool, and the next open imports them.
        """
        core = self._core
        if core.is_closed:
            return
        if isinstance(core.appender, _fork_and_exit.DormantAppender):
            # This is a forked child that has not used the journal: the thread, the spool and their locks are the parent's.
            core.is_closed = True
            return
        if core.must_not_wait():
            # This is a signal handler or a finalizer that interrupts an append, or a callback on the writer thread: to wait
            # here would be a deadlock. So another thread closes the journal, and the interpreter waits for it before exit.
            threading.Thread(target=self.close, name="runjournal-close").start()
            return
        run_sync(shut_down(core.local_runs, self.url))
        core.close()

    async def aclose(self) -> None:
        """Do what :meth:`close` does, without blocking the event loop."""
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
