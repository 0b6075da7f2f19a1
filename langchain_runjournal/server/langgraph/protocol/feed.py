"""The stream of a thread by the protocol: all runs from the start or behind a number, and then what comes live, without an
end."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from ....errors import RunNotFound
from ....events import DELTA, Event, Run
from ....journal.core import core_of
from ....journal.follow_pages import afollow_thread_pages
from ...feed import Batch, Direct, OwnerWatch, portions
from ...frames import Frame
from ..feed import begun_by, view_of
from ..modes.order import Order
from ..modes.projector import NOTHING
from ..modes.steps import json_line
from ..run_records import RunRecords
from ..run_requests import RunRequest
from ..run_views import graph_named_by, request_of
from ..stored_steps import StoredSteps
from .numbers import Start, number_of, span_of, start_behind
from .projector import MODES, ProtocolProjector
from .readers import Reader, ThreadReaders
from .said import Namespace, Said
from .subscription import Subscription

if TYPE_CHECKING:
    from ...service import Service

_MILLI: Final = 1000


class ThreadStream:
    """One thread for one reader."""

    def __init__(
        self, service: Service, records: RunRecords, readers: ThreadReaders, thread_id: str, asked: Subscription
    ) -> None:
        self._service = service
        self._journal = service.journal
        self._records = records
        self._readers = readers
        self._thread_id = thread_id
        self._asked = asked
        self._run: _RunEvents | None = None
        self._opened = time.monotonic()
        self._is_live = False
        """Whether the stream has waited for news: what comes now happens while the client is connected."""
        self._owner = OwnerWatch(self._journal, service.timing.heartbeat)
        self.direct: Direct | None = None

    @property
    def is_abandoned(self) -> bool:
        """Whether the owner of the present run is dead, and no process has settled the run yet."""
        return self._owner.is_gone

    async def batches(self) -> AsyncGenerator[Batch, None]:
        """Yield the batches, without an end."""
        reader = None if self._asked.is_status else self._readers.add(self._thread_id)
        try:
            start = await core_of(self._journal).off_loop(self._start)
            after = None if start.behind is None else (start.behind, 1 << 60)
            pages = afollow_thread_pages(self._journal, self._thread_id, after, self._service.timing.heartbeat)
            base = start.base
            async with aclosing(pages):
                async for events in pages:
                    if not events:
                        self._is_live = True
                        yield ()
                        await self._look()
                        continue
                    if self._run is None or events[0].run_id != self._run.run_id:
                        if self._run is not None:
                            base = self._run.base + await self._span(self._run.run_id)
                        self._run = await self._enter(events[0], base)
                    async for batch in self._of(self._run, events, reader):
                        yield batch
        finally:
            if reader is not None:
                self._readers.remove(self._thread_id, reader)

    async def _of(self, run: _RunEvents, events: Sequence[Event], reader: Reader | None) -> AsyncGenerator[Batch, None]:
        if self._is_live and events[0].seq == 1:
            await self._readers.until_answered(run.run_id, self._opened)
        for portion in portions(events):
            place = run.run_id, portion[-1].seq
            if reader is None and self._is_live:
                await self._readers.until_passed(self._thread_id, place)
            if found := await run.frames(portion, self._asked):
                yield found
            if reader is not None:
                self._readers.passed(self._thread_id, reader, place)

    def _start(self) -> Start:
        """Return where the stream begins. Blocks."""
        if not self._asked.since:
            return Start(None, 0)
        runs = self._journal.runs(self._thread_id, None, None)[::-1]
        start = start_behind(self._asked.since, runs)
        if start.base == 0 and self._asked.since > sum(map(span_of, runs)):
            self._asked = replace(self._asked, since=None)
        return start

    async def _span(self, run_id: str) -> int:
        try:
            return span_of(await self._journal.arun(run_id))
        except RunNotFound:  # deleted meanwhile
            return 0 if self._run is None else self._run.span

    async def _enter(self, first: Event, base: int) -> _RunEvents:
        run_id = first.run_id
        self._owner = OwnerWatch(self._journal, self._service.timing.heartbeat)
        try:
            run = begun_by(await self._journal.arun(run_id), first)
        except RunNotFound:
            run = begun_by(Run(run_id=run_id, thread_id=self._thread_id), first)
        stored = await core_of(self._journal).off_loop(partial(self._records.request, run_id))
        request = request_of(self._service, run) if stored is None else stored
        is_hidden = stored is not None and stored.rolled_back is not None
        return _RunEvents(self._service, run, request, base, is_hidden=is_hidden)

    async def _look(self) -> None:
        run = self._run
        if run is not None and not run.is_over:
            await self._owner.look(run.run_id, is_paused=False)


class _RunEvents:
    """The events of one run of the thread."""

    def __init__(self, service: Service, run: Run, request: RunRequest, base: int, *, is_hidden: bool) -> None:
        graph = graph_named_by(service, run)
        self.run_id = run.run_id
        self.base = base
        self.span = 0
        self._id = f'{{"type":"event","event_id":{json_line(run.run_id)[:-1]}:'
        self._heads: dict[tuple[str, Namespace, str | None], str] = {}
        """By what they have in common: how the JSON of events goes on."""
        self._is_live = not run.ended
        self._is_hidden = is_hidden or graph is None
        if graph is not None:
            self._steps = StoredSteps(service.journal, graph, run.thread_id)
            view = replace(view_of(graph, request, run, ()), modes=MODES, subgraphs=True)
            stores = self._steps.is_there and request.durability != "exit"
            self._order = Order(waits=stores, resumes=view.continues)
            self._projector = ProtocolProjector(view, run.metadata)

    @property
    def is_over(self) -> bool:
        """Whether the run is over, or nothing of it is shown."""
        return self._is_hidden or self._projector.is_over

    async def frames(self, events: Sequence[Event], asked: Subscription) -> list[Frame]:
        """Return the frames of the next events of the run."""
        found: list[Frame] = []
        self.span = max(self.span, number_of(0, events[-1].seq + 1, 0))
        if self._is_hidden:
            return found
        for event in events:
            if self._projector.is_over:
                break
            spoken: list[Said] = []
            for one in self._order.next(event):
                spoken += await self._say(one)
            for at, what in enumerate(spoken, 1):
                number = number_of(self.base, event.seq, at)
                if asked.shows(what) and (asked.since is None or number > asked.since):
                    found.append(self._frame(what, number, f"{event.seq}.{at}", event.at))
        return found

    async def _say(self, event: Event) -> list[Said]:
        want = None if event.kind == DELTA else self._projector.wants(event)
        if want is None:
            return self._projector.say(event, NOTHING)
        return self._projector.say(event, await self._steps.find(want, self._projector.last, is_live=self._is_live))

    def _frame(self, what: Said, number: int, place: str, at: float) -> Frame:
        key = what.method, what.namespace, what.node
        if key not in self._heads:
            node = {} if what.node is None else {"node": what.node}
            params = json_line({"namespace": list(what.namespace), **node})
            self._heads[key] = f'"method":"{what.method}","params":{params[:-1]},"timestamp":'
        # The data is JSON already: it goes in as the last member.
        data = f'{self._id}{place}","seq":{number},{self._heads[key]}{int(at * _MILLI)},"data":{what.data}}}}}'
        return Frame(str(number), what.method, data)
