"""Service: what the routes of one application share. No module of this room has globals.

Rule: the journal and the checkpointer have all that lasts. What stands here can be lost at any time.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from langgraph.checkpoint.base import BaseCheckpointSaver
from starlette.responses import Response

from ..capture.graph_identity import identity, identity_of
from ..errors import InvalidArgument, RunAbandoned, RunNotFound, StopTimeout
from ..events import Run
from ..journal.core import core_of
from ..settle.attach import attach, check_graph, handlers_of
from .access import Access, Action
from .dialects import Dialect
from .feed import Blocks, RunFeed, View
from .opening import open_run, open_thread
from .problems import Problem, not_found
from .requests import Limits, identifier
from .thread_feed import ThreadFeed
from .transport import EventStream, Timing

if TYPE_CHECKING:
    from langgraph.pregel import Pregel
    from starlette.requests import Request

    from ..journal.run_journal import RunJournal

    Graph = Pregel[Any, Any, Any, Any]

_T = TypeVar("_T")
logger = logging.getLogger("langchain_runjournal")

_RECOVER_EVERY: Final = 1.0
"""Seconds, at least, between two recoveries: many readers may notice one dead owner."""
_KEPT: Final = 5_000
_STOP_LIMIT: Final = 30.0
"""Seconds in which a run must have stopped: to be reported as stopped, or for its thread to be deleted."""


class Cache:
    """The last few thousand values that were computed. Each can be computed again."""

    def __init__(self) -> None:
        self._found: OrderedDict[Any, Any] = OrderedDict()

    def get(self, key: Any, make: Callable[[], Any]) -> Any:
        """Return the value of a key. Compute it if it is not there."""
        if key not in self._found:
            self._found[key] = make()
            if len(self._found) > _KEPT:
                self._found.popitem(last=False)
        return self._found[key]

    def drop(self, key: Any) -> None:
        """Forget a value."""
        self._found.pop(key, None)


class Service:
    """The graphs, the journal and the bounds of one application."""

    def __init__(
        self,
        graphs: Mapping[str, Graph] | Graph,
        journal: RunJournal,
        access: Access,
        *,
        limits: Limits,
        timing: Timing,
        configurable: Collection[str] = (),
        recover: bool = True,
        cancel_after: float | None = None,
    ) -> None:
        self.journal = journal
        self.graphs = _attached(graphs, journal)
        self.access = access
        self.limits = limits
        self.timing = timing
        self.configurable = frozenset(configurable)
        self.titles = Cache()
        self.origins = Cache()
        self.blocks = Blocks()
        self.open_streams = 0
        self.cancel_after = cancel_after
        self.at_open: list[Callable[[], Awaitable[None]]] = []
        """What is called when the server begins to serve."""
        self.at_close: list[Callable[[], Awaitable[None]]] = []
        """What is called when the server ends."""
        self.when_deleting: list[Callable[[str], Awaitable[None]]] = []
        """What is called with a thread before its runs are deleted, so that no other one begins."""
        self.when_deleted: list[Callable[[str], Awaitable[None]]] = []
        """What is called with a thread when its runs and checkpoints are deleted."""
        self.starting: dict[str, asyncio.Future[None]] = {}
        """The starts that are under way, by the run id that the client chose."""
        self._recovers = recover
        self._recovery: asyncio.Task[None] | None = None
        self._not_before = 0.0

    # --- what a request names -----------------------------------------------------------------------------------------

    async def run_of(self, request: Request, action: Action) -> Run:
        """Return the run that the URL names, if the request may do that. Raise a `Problem`."""
        run_id = identifier(request.path_params["run"], self.limits)
        try:
            run = await self.journal.arun(run_id)
        except RunNotFound:
            await self.access.check(request, action, None)
            if self.access.authorize is None and await core_of(self.journal).off_loop(partial(self.was_deleted, run_id)):
                raise Problem(410, "This run was deleted. Read the messages of its thread.") from None
            raise not_found() from None
        await self.access.check(request, action, run.thread_id)
        return run

    async def thread_of(self, request: Request, action: Action) -> str:
        """Return the id of the thread that the URL names, if the request may do that. Raise a `Problem`."""
        thread_id = identifier(request.path_params["thread"], self.limits)
        await self.access.check(request, action, thread_id)
        return thread_id

    async def delete_thread(self, thread_id: str, *, force: bool) -> None:
        """Delete the runs and the checkpoints of a thread, and what a dialect keeps of it. `force`: stop its runs first."""
        for forget in self.when_deleting:
            await forget(thread_id)
        await self.journal.adelete(thread_id=thread_id, force=force, timeout=_STOP_LIMIT)
        for graph in self.graphs.values():
            saver: Any = graph.checkpointer
            if isinstance(saver, BaseCheckpointSaver):
                try:
                    await saver.adelete_thread(thread_id)
                except NotImplementedError:
                    logger.warning("%s cannot delete threads: the checkpoints of thread %s stay", saver, thread_id)
        for forget in self.when_deleted:
            await forget(thread_id)
        self.titles.drop(thread_id)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Do what the dialects do in the background, as long as the server serves."""
        for work in self.at_open:
            await work()
        try:
            yield
        finally:
            for work in self.at_close:
                await work()

    async def off_loop(self, work: Callable[[], _T]) -> _T:
        """Return what `work` returns, which may block."""
        return await core_of(self.journal).off_loop(work)

    def was_deleted(self, run_id: str) -> bool:
        """Return whether the journal still knows that a run was deleted. Block for as long as the store takes."""
        core = core_of(self.journal)
        if run_id in getattr(core.appender, "deleted_runs", ()):
            return True
        store: Any = core.store
        deleted = getattr(store, "deleted", None)
        return deleted is not None and any(run_id in deleted(owner.owner_id) for owner in store.owners())

    # --- runs ---------------------------------------------------------------------------------------------------------

    async def newest_run(self, thread_id: str) -> Run | None:
        """Return the newest run of a thread, or None."""
        found = await self.journal.aruns(thread_id, limit=1)
        return found[0] if found else None

    async def stop(self, run_id: str, *, wait: bool) -> Run:
        """Ask a run to stop, and return it as it stands then. `wait`: at most until its thread is settled."""
        try:
            return await self.journal.astop(run_id, wait=wait, timeout=_STOP_LIMIT)
        except StopTimeout:
            return await self.journal.arun(run_id)
        except RunAbandoned:
            # Its process was killed: it is settled here.
            await self.recover()
            return await self.journal.arun(run_id)

    # --- graphs -------------------------------------------------------------------------------------------------------

    def graph_named(self, name: object) -> Graph:
        """Return the graph that a client names; the only one if it names none. Raise a `Problem`."""
        if name is None and len(self.graphs) == 1:
            return next(iter(self.graphs.values()))
        if isinstance(name, str) and name in self.graphs:
            return self.graphs[name]
        raise Problem(422, f'"graph" must be one of: {", ".join(sorted(self.graphs))}.')

    async def graph_of(self, thread_id: str) -> Graph:
        """Return the graph whose run is the newest of a thread; the first graph if there is none."""
        if len(self.graphs) > 1:
            for run in await self.journal.aruns(thread_id, limit=1):
                for graph in self.graphs.values():
                    if identity(graph).is_same(identity_of(run)):
                        return graph
        return next(iter(self.graphs.values()))

    async def recover(self) -> None:
        """Settle what dead owners left of all graphs. Log what fails: the next message of a thread tries again."""
        for name, graph in self.graphs.items():
            try:
                await self.journal.arecover(graph)
            except Exception as exc:  # noqa: BLE001 - a graph that cannot be recovered must not keep the others from it
                logger.warning("could not recover the runs of graph %r: %s", name, exc)

    def recover_soon(self) -> None:
        """Settle what dead owners left, in the background: a reader has noticed one."""
        now = time.monotonic()
        if not self._recovers or now < self._not_before or (self._recovery is not None and not self._recovery.done()):
            return
        self._not_before = now + _RECOVER_EVERY
        self._recovery = asyncio.get_running_loop().create_task(self.recover())

    async def settle_abandoned(self) -> None:
        """Settle what dead owners left, and wait for a recovery that is under way."""
        if self._recovery is not None:
            await asyncio.wait([self._recovery])
        await self.recover()

    # --- streams ------------------------------------------------------------------------------------------------------

    async def stream_run(
        self,
        run: Run,
        cursor: str | None,
        dialect: Dialect,
        *,
        merge: bool = False,
    ) -> Response:
        """Return the response that sends a run; 204 if it is over and the reader has all of it."""
        return await self._stream(open_run(self.journal, run, cursor, self._view(dialect, merge)), dialect)

    async def stream_thread(self, thread_id: str, cursor: str | None, dialect: Dialect, *, merge: bool = False) -> Response:
        """Return the response that sends a thread."""
        return await self._stream(open_thread(self.journal, thread_id, cursor, self._view(dialect, merge)), dialect)

    def _view(self, dialect: Dialect, merge: bool) -> View:
        return View(dialect=dialect, merge=merge, tick=self.timing.heartbeat, blocks=self.blocks)

    async def _stream(self, opening: Awaitable[RunFeed | ThreadFeed | None], dialect: Dialect) -> Response:
        if self.open_streams >= self.limits.streams:
            closed: Any = opening
            closed.close()
            raise Problem(503, "Too many streams are open. Close one, or come back in a moment.", retry_after=5)
        self.open_streams += 1
        try:
            source = await opening
        except BaseException:
            self.open_streams -= 1
            raise
        return EventStream(
            source,
            self.timing.of(dialect),
            ids=dialect.has_ids,
            headers=dict(dialect.headers),
            on_end=self._on_stream_end,
            on_abandoned=self.recover_soon,
        )

    def _on_stream_end(self) -> None:
        self.open_streams -= 1


def _attached(graphs: Mapping[str, Graph] | Graph, journal: RunJournal) -> dict[str, Graph]:
    """Return the graphs by name, each attached to the journal."""
    named = dict(graphs) if isinstance(graphs, Mapping) else {"": graphs}
    if not named or isinstance(graphs, (list, tuple, set, frozenset)):
        raise InvalidArgument(name="graphs", expected="a graph, or a mapping of names to graphs", value=graphs)
    found: dict[str, Graph] = {}
    for name, graph in named.items():
        check_graph(graph)
        journals = [handler.journal for handler in handlers_of(graph)]
        if journals and journal not in journals:
            expected = f"{journals[-1]!r}, to which the graph is attached"
            raise InvalidArgument(name="journal", expected=expected, value=journal)
        found[name or str(graph.get_name())] = graph if journals else attach(graph, journal)
    return found
