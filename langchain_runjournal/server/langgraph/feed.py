"""The feed of a run for the clients of LangGraph Server: the frames of the modes, from a cursor on, and live.

Rule: live and replay are the same code. The events of the run, in the order of `modes.order`, go through one projector, with
what the checkpointer holds; frames that the reader has are left out. Frames of all modes of the run are numbered, also where
a reader has asked for some of them only: so a cursor means the same on every stream of the run.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final, Protocol

from ...errors import RunNotFound
from ...events import DELTA, Event, Run
from ...events.run_state import advance
from ...journal.follow_pages import afollow_pages
from ..cursor import Place
from ..feed import Batch, Direct, OwnerWatch, portions
from ..frames import Frame, run_name
from ..opening import place_of
from .modes.order import Order
from .modes.place import Payload
from .modes.projector import NOTHING, Projector, Request
from .stored_steps import StoredSteps

if TYPE_CHECKING:
    from ..service import Graph, Service

END: Final = Frame(None, "end", "null")
_PORTION: Final = 256
"""How many events become frames together. Each frame of a word repeats the metadata of its call."""


class StreamRequest(Protocol):
    """What a stream reads of the request for a run; and, if it has them, `input`, `command`, `checkpoint`, `durability` and
    `interrupt_before`."""

    @property
    def run_id(self) -> str:
        """The id of the run in the journal."""
        ...

    @property
    def thread_id(self) -> str:
        """The id of its thread."""
        ...

    @property
    def graph(self) -> str:
        """The name of its graph."""
        ...

    @property
    def assistant_id(self) -> str:
        """The id of the assistant that was asked for."""
        ...

    @property
    def modes(self) -> Collection[str]:
        """The modes that were asked for."""
        ...

    @property
    def subgraphs(self) -> bool:
        """Whether frames say of which graph inside of the graph they are."""
        ...


class RunStream:
    """One run for one reader."""

    def __init__(
        self,
        service: Service,
        graph: Graph,
        request: StreamRequest,
        *,
        cursor: str | None,
        modes: Collection[str] | None,
        begun: Callable[[], Awaitable[Run | None]],
    ) -> None:
        self._journal = service.journal
        self._graph = graph
        self._request = request
        self._cursor = cursor
        self._modes = None if modes is None else frozenset(modes)
        self._begun = begun
        self._tick = service.timing.heartbeat
        self._owner = OwnerWatch(self._journal, self._tick)
        self.direct: Direct | None = None
        self.is_complete = False
        """Whether the reader has got all there is."""

    @property
    def is_abandoned(self) -> bool:
        """Whether the owner of the run is dead, and no process has settled the run yet."""
        return self._owner.is_gone

    async def batches(self) -> AsyncGenerator[Batch, None]:
        """Yield the batches: empty ones while the run waits in line, then its frames, and the end."""
        waiting = asyncio.ensure_future(self._begun())
        try:
            while not waiting.done():
                yield ()
                await asyncio.wait({waiting}, timeout=self._tick)
            run = waiting.result()
        finally:
            waiting.cancel()
        if run is not None:
            try:
                async with aclosing(self._frames(run)) as batches:
                    async for batch in batches:
                        yield batch
            except RunNotFound:
                pass  # deleted meanwhile
        yield [END]
        self.is_complete = True

    async def _frames(self, run: Run) -> AsyncGenerator[Batch, None]:
        run, place = await place_of(self._journal, run, self._cursor)
        frames: _Frames | None = None
        async with aclosing(afollow_pages(self._journal, run.run_id, 0, self._tick)) as pages:
            async for events in pages:
                if not events:
                    yield ()
                    await self._look_for_owner(run.run_id)
                    continue
                if frames is None:
                    run = begun_by(run, events[0])
                    frames = _Frames(self._journal, self._graph, self._request, run, place, self._modes)
                for portion in portions(events):
                    for begin in range(0, len(portion), _PORTION):
                        if found := await frames.of(portion[begin : begin + _PORTION]):
                            yield found
                        if frames.is_over:
                            return

    async def _look_for_owner(self, run_id: str) -> None:
        """Look whether the owner of the run is dead. Say so again with each second look: a recovery may have failed."""
        if self._owner.is_gone:
            self._owner = OwnerWatch(self._journal, self._tick)
        else:
            await self._owner.look(run_id, is_paused=False)


class _Frames:
    """The frames of one run that a reader does not have."""

    def __init__(
        self,
        journal: Any,
        graph: Graph,
        request: StreamRequest,
        run: Run,
        place: Place,
        modes: frozenset[str] | None,
    ) -> None:
        self._name = run_name(run.run_id)
        self._place = place
        self._shown = modes
        self._steps = StoredSteps(journal, graph, run.thread_id)
        self._is_live = not run.ended
        view = view_of(graph, request, run, modes or ())
        stores = self._steps.is_there and getattr(request, "durability", None) != "exit"
        self._order = Order(waits=stores, resumes=view.continues)
        self._projector = Projector(view, run.metadata)

    @property
    def is_over(self) -> bool:
        """Whether the last frame was made."""
        return self._projector.is_over

    async def of(self, events: Collection[Event]) -> list[Frame]:
        """Return the frames of the next events of the run."""
        found: list[Frame] = []
        projector, after = self._projector, self._place.after
        for event in events:
            if projector.is_over:
                break
            payloads: list[Payload] = []
            for one in self._order.next(event):
                if event.seq <= after:
                    projector.skip(one)
                    continue
                want = None if one.kind == DELTA else projector.wants(one)
                if want is None:
                    payloads += projector.show(one, NOTHING)
                else:
                    payloads += projector.show(one, await self._steps.find(want, projector.last, is_live=self._is_live))
            found += self._numbered(event.seq, payloads)
        return found

    def _numbered(self, seq: int, payloads: list[Payload]) -> list[Frame]:
        last = len(payloads)
        has = min(self._place.frame, max(0, last - 1)) if seq == self._place.after + 1 else 0
        return [
            Frame(f"{self._name}:{seq}" if at == last else f"{self._name}:{seq}.{at}", payload.event, payload.data)
            for at, payload in enumerate(payloads, 1)
            if at > has and (self._shown is None or payload.mode in self._shown or payload.mode == "error")
        ]


def begun_by(run: Run, first: Event) -> Run:
    """Return a run as its first event has begun it. A run that has only just begun may have been read before that."""
    return advance(run, first) if first.kind == "run.start" and run.last_seq < first.seq else run


def view_of(graph: Graph, request: StreamRequest, run: Run, modes: Collection[str]) -> Request:
    """Return what decides how the stream of a run looks."""
    asked: Any = request
    known = {
        "graph_id": request.graph,
        "assistant_id": request.assistant_id,
        "thread_id": request.thread_id,
        "run_id": request.run_id,
    }
    command, given = getattr(asked, "command", None), getattr(asked, "input", None)
    checkpoint = getattr(asked, "checkpoint", None)
    place = checkpoint.get("checkpoint_id") if isinstance(checkpoint, Mapping) else None
    continues = run.continues is not None or bool(command) or (place is not None and given is None)
    stops = getattr(asked, "interrupt_before", None) or graph.interrupt_before_nodes
    return Request(
        modes=tuple({**dict.fromkeys(request.modes), **dict.fromkeys(modes)}),
        subgraphs=request.subgraphs,
        known=known,
        graph=request.graph,
        input=given,
        stops=_names(stops),
        stops_after=_names(getattr(asked, "interrupt_after", None) or graph.interrupt_after_nodes),
        begins_at=place if continues else None,
        continues=continues,
    )


def _names(nodes: str | Sequence[str] | None) -> tuple[str, ...]:
    return (nodes,) if isinstance(nodes, str) else tuple(nodes or ())
