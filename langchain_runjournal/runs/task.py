"""What a run does in a task of its own, from its first step until it is settled and durable, and who watches it.

Rule: whatever ends it, its end is told: the task cleans up also if it is cancelled while it does, because its loop ends.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import aclosing, suppress
from typing import Any, Final
from uuid import UUID

from langgraph.pregel import Pregel

from ..capture import callback_data as _translate
from ..capture.callback_data import error_text
from ..errors import RunNotFound
from ..events import Event, Run, RunStatus
from ..events import run_state as _fold
from ..journal.core import core_of
from ..settle.attach import handlers_of
from .cancellation import RunControl
from .chunk_pipe import Pipe
from .readers import Reader

logger = logging.getLogger("langchain_runjournal")

_SETTLING: Final = 90.0
"""Seconds that a settlement may take before its run is given back as it stands."""


class Task:
    """What a run does in its task."""

    def __init__(self, graph: Pregel[Any, Any, Any, Any], started: RunControl, pipe: Pipe) -> None:
        self.pipe = pipe
        self._graph = graph
        self._started = started
        self._journal = started.journal
        self._runs = core_of(started.journal).local_runs
        self._error: BaseException | None = None
        self._key = UUID(started.run_id).int
        self._began_at = time.time()

    def register(self) -> bool:
        """Whether it may begin: not on a journal that is being closed."""
        return self._runs.register(self._key, self._started)

    async def run(self, input: Any, config: Any, options: dict[str, Any]) -> None:
        """All of it."""
        try:
            chunks: Any = self._graph.astream(input, config, **options)
            async with aclosing(chunks):
                async for chunk in chunks:
                    await self.pipe.put(chunk)
        except BaseException as exc:  # noqa: BLE001 - whatever ended it, its end is told first
            self._error = exc
        ends_all = self._error if isinstance(self._error, (KeyboardInterrupt, SystemExit)) else None
        await self._finish()
        if ends_all is not None:
            raise ends_all

    async def _finish(self) -> None:
        """The loop may end in the middle of this, and cancel it once more: what is left to do is done all the same."""
        run: Run | None = None
        for step in (self._tell, self._settled, self._durable):
            with suppress(asyncio.CancelledError):
                try:
                    run = await step()
                except Exception:
                    logger.exception("could not record the end of run %s through its callbacks", self._started.run_id)
        self._give_back(run)

    async def _tell(self) -> None:
        """LangChain has told of the end, but for a few ways to end."""
        root, error = self._started.root, self._error or asyncio.CancelledError()
        if root is None:
            self._tell_unbegun()
        elif not root.over:
            run_id = UUID(self._started.run_id)
            for handler in handlers_of(self._graph):
                told = handler.on_chain_error(error, run_id=run_id)
                if told is not None:
                    await told

    def _tell_unbegun(self) -> None:
        ending: dict[str, Any] = {"status": "interrupted", "cause": "shutdown"}
        if isinstance(self._error, Exception):
            ending = {"status": "failed", "error": error_text(self._error)}
        self._journal.append(Event(run_id=self._started.run_id, kind="run.end", data=ending))

    async def _settled(self) -> None:
        root = self._started.root
        if root is None or root.turn is None:
            return
        done = asyncio.wrap_future(root.turn.done)
        give_up = time.monotonic() + _SETTLING
        while not done.done() and time.monotonic() < give_up:
            with suppress(asyncio.CancelledError):
                await asyncio.wait([done], timeout=give_up - time.monotonic())

    async def _durable(self) -> Run:
        try:
            return await self._journal.arun(self._started.run_id)
        except RunNotFound:
            return self._as_it_ended()

    def _as_it_ended(self) -> Run:
        """The run, as far as this process knows it: another one has pruned it as soon as it was over and settled."""
        started = self._started
        about: Any = {"thread_id": started.thread_id, "name": started.graph.name, "metadata": started.about()}
        run = Run(run_id=started.run_id, started_at=self._began_at, **about)
        ending = _translate.ending(self._error, self._journal.stop_requested(started.run_id))
        return _fold.advance(run, Event(run_id=run.run_id, kind="run.end", data=ending, at=time.time()))

    def _give_back(self, run: Run | None) -> None:
        self._runs.remove(self._key)
        self._started.disarm()
        if run is None:
            try:
                run = self._journal.run(self._started.run_id)
            except RunNotFound:
                run = self._as_it_ended()
            except Exception as exc:  # noqa: BLE001 - whoever waits for it has to know
                self._started.done.set_exception(exc)
                self.pipe.close(exc)
                return
        self._started.done.set_result(run)
        self.pipe.close(self._error if run.status == RunStatus.FAILED and isinstance(self._error, Exception) else None)
        if self._started.root is not None:
            self._error = None  # with all the frames that it holds

    def over(self, _: object) -> None:
        """The task is done. Cancelled before its first step, with its loop, it has told nobody."""
        if not self._started.done.done():
            self._tell_unbegun()
            self._give_back(None)

    async def begun(self, guest: Reader) -> None:
        """Return when the run has begun. Raises what has kept it from that."""
        started = self._started
        if started.task is not None:
            waiting = asyncio.ensure_future(started.begun.wait())
            try:
                await asyncio.wait([waiting, started.task], return_when=asyncio.FIRST_COMPLETED)
            except asyncio.CancelledError:
                guest.leave()
                raise
            finally:
                waiting.cancel()
        guest.leave(early=False)
        if started.root is None and self._error is not None:
            raise self._error
