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

from ..common.twins import Effects, run_async, run_sync, wait_for
from ..events import CONTINUES, Run

if TYPE_CHECKING:
    from ..capture.call_tree import Node, Root
    from ..capture.graph_identity import Identity
    from ..journal.run_journal import RunJournal

logger = logging.getLogger("langchain_runjournal")

_SETTLING: Final = 30.0
"""Seconds that a shutdown gives to settlements, once the grace of all runs is over."""
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
            self._disarm.append(self.journal._stops.add(self.run_id, self._on_stop))
            if self._timeout is not None:
                self._disarm.append(self._loop.call_later(self._timeout, self.ask, "timeout").cancel)

    def disarm(self) -> None:
        """It is over: nobody can stop it any more."""
        for undo in self._disarm:
            undo()

    def ask(self, cause: str) -> None:
        """Ask it to stop, from anywhere. The first cause stays."""
        self.journal._stops.deliver(self.run_id, cause)

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


class RunningThreads:
    """What still goes on in other threads when a run has ended: nobody can interrupt it there."""

    thread = 0

    def __init__(self, nodes: Iterable[Node], here: int) -> None:
        self._keys = {node.key for node in nodes if node.thread != here}
        self.done: concurrent.futures.Future[None] = concurrent.futures.Future()
        self.closed(0)

    def closed(self, key: int) -> None:
        """One of them has come to its end. Under the lock of the tracker."""
        self._keys.discard(key)
        if not self._keys and not self.done.done():
            self.done.set_result(None)


def _shut_down(journal: RunJournal) -> Effects[None]:
    going: list[RunControl] = []

    def no_more() -> None:
        journal._capture.is_closing = True
        going.extend(journal._capture.started.values())

    journal._capture.tracker.do(no_more)
    for one in going:
        one.ask("shutdown")
    give_up = time.monotonic() + max((one.grace for one in going), default=0.0) + _SETTLING
    for one in going:
        if not (yield wait_for(one, max(0.0, give_up - time.monotonic()))):
            logger.error(
                "closing the journal %s while run %s is still running: the next message of its thread settles the run, or"
                " RunJournal.recover. Await aclose() on the event loop of the run, before that loop ends",
                journal.url,
                one.run_id,
            )


def shut_down(journal: RunJournal) -> None:
    """Stop all runs that this process has started, and wait until they are settled."""
    run_sync(_shut_down(journal))


async def ashut_down(journal: RunJournal) -> None:
    """Same as `shut_down`, without blocking the loop."""
    await run_async(_shut_down(journal))


def refuse(node: Node | None) -> None:
    """Nothing of a stopped run goes on: what begins in it, or speaks, is cancelled there, in whatever thread it is."""
    if node is not None and node.root.started is not None and node.root.started.refuses:
        raise asyncio.CancelledError(f"run {node.root.run_id} was stopped")
