"""The checkpoints that streams show, read from the checkpointer once for all readers.

Rule: a checkpoint never changes, so it is read once. What its tasks have written is complete when the next checkpoint is
stored; LangGraph may store that one a moment earlier, and then it is read again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar
from weakref import WeakKeyDictionary

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.types import Send

from ...events import Event
from ...journal.core import core_of
from ...journal.extensions import Extension
from ...journal.run_reading import read_if_there
from ...settle.attached_graph import without_coercion
from .modes.projector import Found, Want
from .modes.steps import Shape, Step, Task, Written, is_stored

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig

    from ...journal.run_journal import RunJournal
    from ..service import Graph

logger = logging.getLogger("langchain_runjournal")

_T = TypeVar("_T")
Wrote = Literal["ended", "asked"]
_KEPT: Final = 64
"""How many checkpoints, and what the tasks behind them have written, are kept: of some runs, the last steps."""
_LOOKS: Final = 40
_LOOK_AGAIN: Final = 0.025
"""Seconds between two looks for what tasks have written."""
_PUSH: Final = "__pregel_push"
_TASKS: Final = "__pregel_tasks"


class StepCache(Extension):
    """The steps that the streams of one journal have read last, by graph."""

    def __init__(self) -> None:
        self._of_graphs: WeakKeyDictionary[Any, GraphSteps] = WeakKeyDictionary()

    def of(self, graph: Graph) -> GraphSteps:
        """Return the steps of a graph."""
        return self._of_graphs.setdefault(graph, GraphSteps())

    def after_fork(self) -> None:
        """Forget everything: tasks of the parent may have been reading."""
        self._of_graphs.clear()


class GraphSteps:
    """The steps of one graph that were read last."""

    def __init__(self) -> None:
        self._found: OrderedDict[tuple[Any, ...], Any] = OrderedDict()
        self._reading: dict[tuple[Any, ...], asyncio.Future[Any]] = {}
        self.graphs: dict[str, Any] = {}
        """By path: the graph that runs there, or None."""

    async def get(self, key: tuple[Any, ...], read: Callable[[], Awaitable[_T]], keep: Callable[[_T], bool]) -> _T:
        """Return what is kept under a key. Read it if it is not there: once for all that ask at the same time."""
        if key in self._found:
            self._found.move_to_end(key)
            found: _T = self._found[key]
            return found
        mine = (id(asyncio.get_running_loop()), *key)
        reading = self._reading.get(mine)
        if reading is None:
            reading = self._reading[mine] = asyncio.ensure_future(read())
            reading.add_done_callback(lambda _: self._reading.pop(mine, None))
        value: _T = await asyncio.shield(reading)
        if keep(value):
            self._found[key] = value
            while len(self._found) > _KEPT:
                self._found.popitem(last=False)
        return value


class StoredSteps:
    """The steps of one thread of a graph."""

    def __init__(self, journal: RunJournal, graph: Graph, thread_id: str | None) -> None:
        self._journal = journal
        self._graph = graph
        self._reader = without_coercion(graph)
        self._thread_id = thread_id
        self._cache = core_of(journal).extensions.get(StepCache, StepCache).of(graph)
        saver: Any = graph.checkpointer
        self._saver = saver if isinstance(saver, BaseCheckpointSaver) and thread_id is not None else None

    @property
    def is_there(self) -> bool:
        """Whether the graph stores its steps."""
        return self._saver is not None

    async def find(self, want: Want, last: Mapping[str, str], *, is_live: bool) -> Found:
        """Return what is wanted, as far as it is there. `last`: by namespace, the last checkpoint of the run."""
        if self._saver is None:
            return Found()
        if want.answered is not None:
            place = await self._last_of(want.answered)
            found = None if place is None else await self.step("", place)
            return Found() if found is None else Found(step=found, written=await self._read_written(found))
        step = None if want.step is None else await self.step(*want.step)
        space, place = want.ended or ("", None)
        if want.ended is not None and place is None and step is not None:
            place = step.parent
        if want.ended is None or place is None:
            return Found(step=step)
        ended = await self.step(space, place)
        if ended is None:
            return Found(step=step)
        visible = [task for task in ended.tasks if not task.is_hidden]
        if not visible:
            return Found(step=step, ended=ended)
        written = await self._written(ended, visible, want.wrote, is_live=is_live)
        inner = {}
        for task in visible:
            within = task.namespace(space)
            if within in last and (found := await self.step(within, last[within])) is not None:
                inner[task.id] = found
        return Found(step=step, ended=ended, written=written, inner=inner)

    async def step(self, namespace: str, id: str | None) -> Step | None:
        """Return a checkpoint, the newest one without an id; None if the checkpointer does not have it."""
        if id is None:
            return await self._read(namespace, None)
        key = "step", self._thread_id, namespace, id
        return await self._cache.get(key, lambda: self._read(namespace, id), lambda found: found is not None)

    # --- reading ------------------------------------------------------------------------------------------------------

    def _config(self, namespace: str, id: str | None) -> RunnableConfig:
        place = {"thread_id": self._thread_id, "checkpoint_ns": namespace}
        return {"configurable": place if id is None else {**place, "checkpoint_id": id}}

    async def _read(self, namespace: str, id: str | None) -> Step | None:
        graph = self._graph_at(namespace)
        if graph is None:
            return await self._read_bare(namespace, id)
        state = await self._reader.aget_state(self._config(namespace, id))
        if state.created_at is None:
            return None
        about = state.metadata or {}
        parent = None if state.parent_config is None else state.parent_config["configurable"].get("checkpoint_id")
        shape = _shape(graph)
        sent = await self._sent(namespace, state) if any(task.path and task.path[0] == _PUSH for task in state.tasks) else ()
        return Step(
            namespace=namespace,
            id=str(state.config["configurable"]["checkpoint_id"]),
            number=int(about.get("step", -1)),
            source=str(about.get("source") or ""),
            parent=parent,
            values=state.values,
            tasks=tuple(_task(graph, one, state.values, sent) for one in sorted(state.tasks, key=_turn)),
            parents=about.get("parents") or {},
            created_at=str(state.created_at),
            shape=shape,
        )

    async def _read_bare(self, namespace: str, id: str | None) -> Step | None:
        """Read a checkpoint of a graph that LangGraph cannot find by its namespace, since a function calls it."""
        found = None if self._saver is None else await self._saver.aget_tuple(self._config(namespace, id))
        if found is None:
            return None
        channels = found.checkpoint["channel_values"]
        values = {key: value for key, value in channels.items() if not key.startswith(("__", "branch:"))}
        parent = None if found.parent_config is None else found.parent_config["configurable"].get("checkpoint_id")
        about: Mapping[str, Any] = found.metadata
        return Step(
            namespace=namespace,
            id=found.checkpoint["id"],
            number=int(about.get("step", -1)),
            source=str(about.get("source") or ""),
            parent=parent,
            values=values,
            parents=about.get("parents") or {},
            created_at=found.checkpoint["ts"],
        )

    async def _sent(self, namespace: str, state: Any) -> Sequence[Any]:
        if self._saver is None:
            return ()
        found = await self._saver.aget_tuple(self._config(namespace, state.config["configurable"]["checkpoint_id"]))
        sent = None if found is None else found.checkpoint["channel_values"].get(_TASKS)
        return sent if isinstance(sent, (list, tuple)) else ()

    async def _written(self, step: Step, tasks: Sequence[Task], wrote: Wrote | None, *, is_live: bool) -> Written:
        """Return what the tasks behind a step have written. `wrote`: what is known of them."""
        if wrote is None:
            return await self._read_written(step)

        def is_whole(found: Written) -> bool:
            return all(is_stored(found.by_task.get(task.id, ()), wrote) for task in tasks)

        async def read() -> Written:
            for look in range(_LOOKS if is_live else 1):
                if look:
                    await asyncio.sleep(_LOOK_AGAIN)
                found = await self._read_written(step)
                if is_whole(found):
                    break
            return found

        return await self._cache.get((wrote, self._thread_id, step.namespace, step.id), read, is_whole)

    async def _read_written(self, step: Step) -> Written:
        found = None if self._saver is None else await self._saver.aget_tuple(self._config(step.namespace, step.id))
        by_task: dict[str, list[tuple[str, Any]]] = {}
        for task_id, channel, value in (found.pending_writes or ()) if found is not None else ():
            by_task.setdefault(task_id, []).append((channel, value))
        return Written(by_task)

    async def _last_of(self, run_id: str) -> str | None:
        """Return the checkpoint at which a run stands, which another one continues."""
        events: list[Event] = await core_of(self._journal).off_loop(lambda: read_if_there(self._journal, run_id))
        for event in reversed(events):
            data = event.data
            if event.kind == "run.pause" and data.get("checkpoint_id"):
                return str(data["checkpoint_id"])
            if event.kind == "run.settled" and data.get("before"):
                return str(data["before"])
            if event.kind == "run.checkpoint" and not data.get("checkpoint_ns") and data.get("checkpoint_id"):
                return str(data["checkpoint_id"])
        return None

    def _graph_at(self, namespace: str) -> Graph | None:
        """Return the graph that runs in a namespace, if LangGraph knows which one that is."""
        if not namespace:
            return self._graph
        path = "|".join(part.partition(":")[0] for part in namespace.split("|") if not part.isdigit())
        known = self._cache.graphs
        if path not in known:
            found = dict(self._graph.get_subgraphs(namespace=path, recurse=True)).get(path)
            known[path] = found if hasattr(found, "stream_channels_asis") else None
        graph: Graph | None = known[path]
        return graph


def _shape(graph: Graph) -> Shape:
    outputs = graph.stream_channels_asis
    return Shape(outputs=outputs if isinstance(outputs, str) else tuple(outputs))


def _turn(task: Any) -> tuple[bool, str]:
    """Return the place of a task among those of its step: those that were sent, then the nodes by name, as LangGraph runs
    them."""
    is_sent = bool(task.path) and task.path[0] == _PUSH
    return not is_sent, "" if is_sent else task.name


def _task(graph: Graph, task: Any, values: Any, sent: Sequence[Any]) -> Task:
    node = graph.nodes.get(task.name)
    triggers: tuple[str, ...] = ()
    given: Any = None
    if task.path and task.path[0] == _PUSH:
        triggers = (_PUSH,)
        at = task.path[1] if len(task.path) > 1 else None
        packet = sent[at] if isinstance(at, int) and at < len(sent) else None
        given = packet.arg if isinstance(packet, Send) else None
    elif node is not None:
        triggers = tuple(node.triggers)
        channels = node.channels
        if isinstance(channels, str):
            given = values.get(channels) if isinstance(values, Mapping) else values
        elif isinstance(values, Mapping):
            given = {key: values[key] for key in channels if key in values}
    return Task(task.id, task.name, given, triggers, node is not None and bool(node.subgraphs))
