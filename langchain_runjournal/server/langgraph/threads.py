"""Threads: what a request may see of a thread, and the state behind it.

Rule: a thread exists if it has a row, a run or a checkpoint. Each dialect, and the program itself, may have begun it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from langgraph.checkpoint.base import BaseCheckpointSaver

from ...capture.graph_identity import identity, identity_of
from ...errors import InvalidArgument
from ...events import Run, RunStatus
from ...journal.core import core_of
from ...journal.records import records_of
from ...settle.graph_thread import GraphThreads
from ...settle.inapplicable_step import state_of
from ..feed import owner_is_gone
from ..problems import Problem, not_found
from .asked import uuid_of
from .assistant_ids import assistant_id_of, graph_of_assistant
from .plain import values_json
from .states import has_checkpoint, interrupts_json
from .thread_rows import ThreadRows
from .thread_status import KnownThread, ThreadRow, thread_json

if TYPE_CHECKING:
    from langgraph.types import StateSnapshot
    from starlette.requests import Request

    from ..access import Action
    from ..service import Service

NO_SAVER = "This graph keeps no state: it has no checkpointer. Read the streams of its runs."


async def _never(thread_id: str) -> bool:
    return False


class Threads:
    """The threads of one application."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.journal = service.journal
        clock = core_of(service.journal).clock
        self.now: Callable[[], float] = lambda: clock.wall() / 1000
        self.rows = ThreadRows(records_of(service.journal), self.now)
        self.is_waiting: Callable[[str], Awaitable[bool]] = _never
        """Returns whether a run of a thread waits to begin. The queue of the runs sets it."""
        self.all_waiting: Callable[[], Collection[str]] = tuple
        """Returns the threads on which a run waits to begin. Blocks. The queue of the runs sets it."""
        self._identities = {name: identity(graph) for name, graph in service.graphs.items()}
        self._readers: dict[str, tuple[Any, GraphThreads]] = {}

    # --- which thread -------------------------------------------------------------------------------------------------

    async def named(self, request: Request, action: Action) -> KnownThread:
        """Return the thread that the URL names, if it exists and the request may do that. Raise a `Problem`."""
        thread_id = uuid_of(request.path_params["thread"], "thread")
        await self.service.access.check(request, action, thread_id)
        found = await self.find(thread_id)
        if found is None:
            raise not_found()
        return found

    async def find(self, thread_id: str) -> KnownThread | None:
        """Return a thread, without asking who may see it; None if it does not exist."""
        row, newest = await self.service.off_loop(partial(self._read, thread_id))
        if row is None and newest is None and not await self._has_checkpoint(thread_id):
            return None
        known = self.known(thread_id, row, newest, await self.is_waiting(thread_id))
        if await self.is_abandoned(known):
            self.service.recover_soon()
        return known

    async def is_abandoned(self, known: KnownThread) -> bool:
        """Return whether the newest run of a thread is running by the store, and its owner is dead."""
        newest = known.newest
        if newest is None or newest.status != RunStatus.RUNNING:
            return False
        return await self.service.off_loop(partial(owner_is_gone, self.journal, newest.run_id))

    def _read(self, thread_id: str) -> tuple[ThreadRow | None, Run | None]:
        newest = self.journal.runs(thread_id, None, 1)
        return self.rows.get(thread_id), (newest[0] if newest else None)

    def known(self, thread_id: str, row: ThreadRow | None, newest: Run | None, is_waiting: bool) -> KnownThread:
        """Return what is known of a thread, from its row and its newest run."""
        metadata = dict(row.metadata) if row is not None else {}
        graph = self._graph_name(newest, metadata)
        if newest is not None and graph is not None:
            # Clients look for the threads of a graph by these, whichever dialect began them.
            metadata = {"graph_id": graph, "assistant_id": assistant_id_of(graph), **metadata}
        return KnownThread(
            thread_id=thread_id, row=row, newest=newest, graph=graph, is_waiting=is_waiting, metadata=metadata
        )

    def _graph_name(self, newest: Run | None, metadata: Mapping[str, Any]) -> str | None:
        if newest is not None:
            mine = identity_of(newest)
            found = next((name for name, one in self._identities.items() if one.is_same(mine)), None)
            if found is not None:
                return found
        named = graph_of_assistant(metadata.get("graph_id"), self.service.graphs)
        return named if named is not None or len(self.service.graphs) > 1 else next(iter(self.service.graphs))

    async def _has_checkpoint(self, thread_id: str) -> bool:
        for name in self.service.graphs:
            if self.has_saver(name) and has_checkpoint(await self.state(name, {"thread_id": thread_id})):
                return True
        return False

    # --- states -------------------------------------------------------------------------------------------------------

    def has_saver(self, name: str) -> bool:
        """Return whether a graph keeps the states of its threads."""
        return isinstance(self.service.graphs[name].checkpointer, BaseCheckpointSaver)

    def reader(self, name: str) -> GraphThreads:
        """Return the threads of a graph, to be read and written without callbacks of the program."""
        graph = self.service.graphs[name]
        saver, found = self._readers.get(name, (None, None))
        if found is None or saver is not graph.checkpointer:
            # A program may set the checkpointer at any time.
            found = GraphThreads(graph)
            self._readers[name] = (graph.checkpointer, found)
        return found

    def graph_for(self, known: KnownThread) -> str:
        """Return the graph of a thread. Raise a `Problem` if nothing says which one it is, or if it keeps no state."""
        if known.graph is None:
            names = ", ".join(sorted(self.service.graphs))
            raise Problem(
                422, f'The thread has no graph yet. Start a run on it, or set its metadata "graph_id" to one of: {names}.'
            )
        if not self.has_saver(known.graph):
            raise Problem(422, NO_SAVER)
        return known.graph

    async def state(self, name: str, place: Mapping[str, Any], *, subgraphs: bool = False) -> StateSnapshot:
        """Return the state of a graph at a place, which has at least the thread. It may have no checkpoint."""
        graph: Any = self.reader(name).graph
        config = {"configurable": dict(place)}
        if subgraphs:
            return await graph.aget_state(config, subgraphs=True)  # type: ignore[no-any-return]
        found: StateSnapshot = await state_of(graph, config).later()
        return found

    async def newest_state(self, known: KnownThread) -> StateSnapshot | None:
        """Return the state of a thread as it stands, also while a run works on it; None if no graph keeps one."""
        names = [known.graph] if known.graph is not None else list(self.service.graphs)
        for name in filter(self.has_saver, names):
            found = await self.state(name, {"thread_id": known.thread_id})
            if has_checkpoint(found):
                return found
        return None

    async def json(self, known: KnownThread) -> dict[str, Any]:
        """Return a thread with its values, as clients read it."""
        state = await self.newest_state(known)
        if state is None:
            return thread_json(known, None, {})
        interrupts = {task.id: interrupts_json(task.interrupts) for task in state.tasks if task.interrupts}
        return thread_json(known, values_json(state.values), interrupts)

    # --- rows ---------------------------------------------------------------------------------------------------------

    async def write(self, work: Callable[[ThreadRows], Any]) -> Any:
        """Write a row. Raise a `Problem` if a client has given it more than a row can hold."""
        try:
            return await self.service.off_loop(lambda: work(self.rows))
        except InvalidArgument as exc:
            raise Problem(422, "The metadata of a thread must be an object of less than 1 MiB of JSON. Store less.") from exc

    async def forget(self, thread_id: str) -> None:
        """Delete the row of a thread that was deleted."""
        await self.service.off_loop(partial(self.rows.delete, thread_id))
