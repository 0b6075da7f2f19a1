"""Runs in tasks of their own (see `start_run`): how each of them is stopped, and what becomes of what nobody can stop.

Rule: a run is cancelled once, and again only if it has not ended within its grace. What it has running in threads may go on
until the grace is over; after that, its thread is settled without it. Nothing that belongs to a stopped run begins anew.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from ..events import CONTINUES, Run
from ..journal.core import core_of

if TYPE_CHECKING:
    from ..capture.call_tree import Node, Root
    from ..capture.graph_identity import Identity
    from ..journal.run_journal import RunJournal

logger = logging.getLogger("langchain_runjournal")

_TO_LEAVE: Final = 0.1
"""Seconds that LangGraph gets in any case, to end what lets itself be cancelled."""
_AGAIN: Final = 1.0
"""Seconds, at least, between one cancellation and the next."""


class RunControl:
    """A run in a task of its own."""

    def __init__(
        self, journal: RunJournal, run_id: str, graph: Identity, thread_id: str | None, grace: float, timeout: float | None
    ) -> None:
        self.journal = journal
        self._core = core_of(journal)
        self.run_id = run_id
        self.graph = graph
        self.thread_id = thread_id
        self.continues: str | None = None
        """The run that it takes up."""
        self.grace = grace
        self._timeout = timeout
        self.task: asyncio.Task[None] | None = None
        self.root: Root | None = None
        """Not before it has begun."""
        self.begun = asyncio.Event()
        self.done: concurrent.futures.Future[Run] = concurrent.futures.Future()
        self.thread = threading.get_ident()
        self.is_asked = False
        """Whether it has been cancelled."""
        self.refuses = False
        self._deadline = 0.0
        self._loop = asyncio.get_running_loop()
        self._disarm: list[Callable[[], object]] = []

    def begin(self, root: Root) -> None:
        """LangChain has told of it."""
        root.started, self.root = self, root
        self.begun.set()
        self._loop.call_soon(self._arm)  # not before its first event is there

    def about(self) -> dict[str, str]:
        """For its metadata."""
        return self.graph.to_metadata() | ({CONTINUES: self.continues} if self.continues is not None else {})

    def _arm(self) -> None:
        if not self.done.done():
            self._disarm.append(self._core.stops.add(self.run_id, self._on_stop))
            if self._timeout is not None:
                self._disarm.append(self._loop.call_later(self._timeout, self.ask, "timeout").cancel)

    def disarm(self) -> None:
        """It is over: nobody can stop it any more."""
        for undo in self._disarm:
            undo()

    def ask(self, cause: str) -> None:
        """Ask it to stop, from anywhere. The first cause stays."""
        self._core.stops.deliver(self.run_id, cause)

    def _on_stop(self, cause: str) -> None:
        """It has been asked to, on whatever thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed, and nothing runs on it any more
            self._loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        if self.is_asked or self.task is None or self.task.done():
            return
        self.is_asked = True
        self._deadline = time.monotonic() + self.grace
        if not self._is_ending():
            self.task.cancel()
        self._disarm.append(self._loop.call_later(max(self.grace, _TO_LEAVE), self._insist).cancel)

    def _insist(self) -> None:
        """Something in it does not let itself be cancelled. LangGraph leaves it behind when it is cancelled again, unless it
        is at work in the very task of the graph: there, what it begins is refused, and it is cancelled again and again."""
        if self.task is not None and not self.task.done() and not self._is_ending():
            if not self.refuses:
                logger.warning(
                    "run %s has not ended %.1f s after it was cancelled; cancelling it again", self.run_id, self.grace
                )
            self.refuse_all(list(self.root.open.values()) if self.root is not None else [])
            self.task.cancel()
            self._disarm.append(self._loop.call_later(max(self.grace, _AGAIN), self._insist).cancel)

    def refuse_all(self, nodes: Iterable[Node]) -> None:
        """From now on, what belongs to it is refused to begin, and these to speak."""
        self.refuses = True
        for node in nodes:
            # Without this, a token would not be looked at: see `JournalCallbackHandler.on_llm_new_token`.
            node.owner.streaming.pop(node.key, None)

    def _is_ending(self) -> bool:
        """Whether it has come to its end, and is being settled: nothing is left to cancel."""
        return self.root is not None and self.root.over

    def patience(self) -> float:
        """How long its threads may still go on before it is settled, in seconds."""
        return max(0.0, self._deadline - time.monotonic()) if self.is_asked else self.grace
