"""The chat below its surface: an event loop in a thread of its own, and the agent that answers there."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import queue
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig

from ..events import Run
from ..journal.run_journal import RunJournal
from ..runs.start import RunHandle, start_run
from ..settle.attach import attach
from ..settle.settler import Settlement
from ._agent import graph_of
from ._place import open_threads

_T = TypeVar("_T")


@dataclass
class Over:
    """The last that an answer has to say: its run, or what kept anybody from knowing it."""

    run: Run | Exception


class Engine:
    """Answers in a thread of its own. All of its methods are called from the one that reads the keyboard."""

    def __init__(self, directory: Path, model: Any, tools: list[Any], ring: Callable[[], None]) -> None:
        self._directory = directory
        self._graph = graph_of(model, tools)
        self._ring = ring
        self._thread = threading.Thread(target=self._work, name="chat", daemon=True)
        self._ready: concurrent.futures.Future[None] = concurrent.futures.Future()
        self.chunks: queue.SimpleQueue[Any] = queue.SimpleQueue()
        """What comes of the answer: chunks, and `Over` at the end."""
        self.recovered: list[Settlement] = []
        """What was left behind by processes that were killed."""
        self._problem: Exception | None = None
        self._pump: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Open everything, and make whole what was left behind. Raises what goes wrong."""
        self._thread.start()
        self._ready.result()

    def close(self) -> Exception | None:
        """Stop what is going on, and release the files. Gives what went wrong with that."""
        if self._problem is None:
            self._loop.call_soon_threadsafe(self._leave.set)
        self._thread.join()
        return self._problem

    def _work(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception as problem:  # noqa: BLE001 - told to whoever waits, in the other thread
            self._problem = problem
            if not self._ready.done():
                self._ready.set_exception(problem)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._leave = asyncio.Event()
        async with (
            open_threads(self._directory / "threads.db") as saver,
            RunJournal(self._directory / "runs.db") as self.journal,
        ):
            self._agent = attach(self._graph.compile(checkpointer=saver, name="chat"), self.journal)
            self.recovered = await self.journal.arecover(self._agent)
            self._ready.set_result(None)
            await self._leave.wait()

    def _do(self, work: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def last_thread(self) -> str | None:
        """The conversation that a kill has cut off, or else the one that was spoken in last."""
        killed = {one.thread_id for one in self.recovered if one.outcome in ("settled", "whole")}
        spoken = [run.thread_id for run in self.journal.runs(limit=None)]
        return next((one for one in spoken if one in killed), next(iter(spoken), None))

    def threads(self) -> dict[str, str]:
        """The conversations by their numbers, which stay what they are: the oldest is 1, and the first."""
        runs = reversed(self.journal.runs(limit=None))
        threads = dict.fromkeys(run.thread_id for run in runs if run.thread_id is not None)
        return {str(number): thread_id for number, thread_id in enumerate(threads, 1)}

    def new_thread(self) -> str:
        """One in which nobody has spoken."""
        return f"chat-{uuid4().hex[:8]}"

    def messages(self, thread_id: str) -> list[BaseMessage]:
        """The conversation, as it stands."""
        state = self._do(self._agent.aget_state(_config(thread_id)))
        return list(state.values.get("messages", []))

    def send(self, thread_id: str, words: str) -> str:
        """Begin an answer, and return its run. Raises `ThreadBusy`."""
        return self._do(self._begin(thread_id, words))

    async def _begin(self, thread_id: str, words: str) -> str:
        asked = {"messages": [("user", words)]}
        handle = await start_run(self._agent, asked, _config(thread_id), stream_mode="messages")
        self._pump = asyncio.create_task(self._listen(handle))
        return handle.run_id

    async def _listen(self, handle: RunHandle) -> None:
        with contextlib.suppress(Exception):  # what the graph raises is in the run as well
            async for chunk, _ in handle.stream():
                self._put(chunk)
        try:
            self._put(Over(await handle.wait()))
        except Exception as problem:  # noqa: BLE001 - whoever waits at the keyboard must not wait for ever
            self._put(Over(problem))

    def _put(self, chunk: Any) -> None:
        self.chunks.put(chunk)
        self._ring()

    def ask_to_stop(self, run_id: str) -> None:
        """Stop an answer. Its `Over` comes when the thread is whole."""
        self.journal.stop(run_id)


def _config(thread_id: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread_id}}
