"""What a run does in a task of its own, from its first step until it is settled and durable.

Rule: the end of the run is recorded, whatever ends it. The task cleans up also if it is cancelled while it does so, because
its event loop ends.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import aclosing, suppress
from typing import Any, Final
from uuid import UUID

from langgraph.pregel import Pregel

from ..capture import callback_data
from ..capture.callback_data import error_text
from ..errors import RunNotFound, StoreFailed
from ..events import Event, Run, RunStatus, run_state
from ..journal.core import core_of
from ..journal.follow import as_appended
from ..settle.attach import handlers_of
from .cancellation import RunControl
from .chunk_pipe import Pipe
from .readers import Reader

logger = logging.getLogger("langchain_runjournal")

_SETTLE_LIMIT: Final = 90.0
"""Seconds that a settlement may take before the handle gets the run as it stands."""


class RunTask:
    """The work of a run in its task."""

    def __init__(self, graph: Pregel[Any, Any, Any, Any], control: RunControl, pipe: Pipe) -> None:
        self.pipe = pipe
        self._graph = graph
        self._control = control
        self._journal = control.journal
        self._runs = core_of(control.journal).local_runs
        self._error: BaseException | None = None
        self._key = UUID(control.run_id).int
        self._began_at = time.time()

    def register(self) -> bool:
        """Register the run. Return False if it may not begin, since the journal is being closed."""
        return self._runs.register(self._key, self._control)

    async def run(self, input: Any, config: Any, options: dict[str, Any]) -> None:
        """Run the graph, and record the end of the run."""
        try:
            chunks: Any = self._graph.astream(input, config, **options)
            async with aclosing(chunks):
                async for chunk in chunks:
                    await self.pipe.put(chunk)
        except BaseException as exc:  # noqa: BLE001 - whatever ended it, its end is recorded first
            self._error = exc
        ends_all = self._error if isinstance(self._error, (KeyboardInterrupt, SystemExit)) else None
        await self._finish()
        if ends_all is not None:
            raise ends_all

    async def _finish(self) -> None:
        """Record the end of the run, and wait until it is settled and durable. The event loop may end meanwhile and cancel
        the task once more: the steps that are left are done all the same."""
        run: Run | None = None
        for step in (self._report_end, self._wait_until_settled, self._read_durable):
            with suppress(asyncio.CancelledError):
                try:
                    run = await step()
                except Exception:
                    logger.exception("could not record the end of run %s through its callbacks", self._control.run_id)
        self._resolve(run)

    async def _report_end(self) -> None:
        """Report the end to the handlers of the graph, in the few cases in which LangChain has not reported it."""
        root, error = self._control.root, self._error or asyncio.CancelledError()
        if root is None:
            self._append_end()
        elif not root.over:
            run_id = UUID(self._control.run_id)
            for handler in handlers_of(self._graph):
                reported = handler.on_chain_error(error, run_id=run_id)
                if reported is not None:
                    await reported

    def _append_end(self) -> None:
        ending: dict[str, Any] = {"status": "interrupted", "cause": "shutdown"}
        if isinstance(self._error, Exception):
            ending = {"status": "failed", "error": error_text(self._error)}
        self._journal.append(Event(run_id=self._control.run_id, kind="run.end", data=ending))

    async def _wait_until_settled(self) -> None:
        root = self._control.root
        if root is None or root.turn is None:
            return
        done = asyncio.wrap_future(root.turn.done)
        deadline = time.monotonic() + _SETTLE_LIMIT
        while not done.done() and time.monotonic() < deadline:
            with suppress(asyncio.CancelledError):
                await asyncio.wait([done], timeout=deadline - time.monotonic())

    async def _read_durable(self) -> Run:
        try:
            return await self._journal.arun(self._control.run_id)
        except (RunNotFound, StoreFailed) as exc:
            return self._as_it_ended(exc)

    def _as_it_ended(self, why: Exception) -> Run:
        """Return the run as far as this process knows it.

        `why`: `RunNotFound`, because another process has pruned the run as soon as it was over and settled; or that the
        store cannot be asked. Then nothing is known of a settlement whose end the store has taken before.
        """
        control = self._control
        control.is_known_only_here = True
        about: Any = {"thread_id": control.thread_id, "name": control.graph.name, "metadata": control.about()}
        run = as_appended(core_of(self._journal), Run(run_id=control.run_id, started_at=self._began_at, **about))
        if run.ended or run.status == RunStatus.PAUSED:
            return run
        ending = callback_data.ending(self._error, self._journal.stop_requested(control.run_id))
        if isinstance(why, StoreFailed) and ending["status"] != RunStatus.COMPLETED:
            ending = {**ending, "settled": False, "problem": str(why)}
        return run_state.advance(run, Event(run_id=run.run_id, kind="run.end", data=ending, at=time.time()))

    def _resolve(self, run: Run | None) -> None:
        self._runs.remove(self._key)
        self._control.disarm()
        if run is None:
            try:
                run = self._journal.run(self._control.run_id)
            except (RunNotFound, StoreFailed) as exc:
                run = self._as_it_ended(exc)
            except Exception as exc:  # noqa: BLE001 - the code that waits for the run gets it
                self._control.done.set_exception(exc)
                self.pipe.close(exc)
                return
        self._control.done.set_result(run)
        self.pipe.close(self._error if run.status == RunStatus.FAILED and isinstance(self._error, Exception) else None)
        if self._control.root is not None:
            self._error = None  # and so all the frames that it holds

    def on_done(self, _: object) -> None:
        """Clean up after a task that was cancelled before its first step, with its event loop: it has recorded nothing."""
        if not self._control.done.done():
            self._append_end()
            self._resolve(None)

    async def wait_until_begun(self, reader: Reader) -> None:
        """Return when the run has begun. Raise the error that has prevented it."""
        control = self._control
        if control.task is not None:
            waiting = asyncio.ensure_future(control.begun.wait())
            try:
                await asyncio.wait([waiting, control.task], return_when=asyncio.FIRST_COMPLETED)
            except asyncio.CancelledError:
                reader.leave()
                raise
            finally:
                waiting.cancel()
        reader.leave(early=False)
        if control.root is None and self._error is not None:
            raise self._error
