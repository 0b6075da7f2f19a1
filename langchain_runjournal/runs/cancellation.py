"""Runs in tasks of their own (see `start_run`): how each of them is stopped, and what happens to calls that cannot be
interrupted.

Rule: a run is cancelled once, and again only if it has not ended within its grace. Its calls in threads may continue until
the grace is over; after that, its thread is settled without them. No call of a stopped run begins any more.
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

_MIN_GRACE: Final = 0.1
"""Seconds that LangGraph gets in any case, to end the tasks that let themselves be cancelled."""
_MIN_INTERVAL: Final = 1.0
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
        """The id of the run that it resumes."""
        self.grace = grace
        self._timeout = timeout
        self.task: asyncio.Task[None] | None = None
        self.root: Root | None = None
        """None until the run has begun."""
        self.begun = asyncio.Event()
        self.done: concurrent.futures.Future[Run] = concurrent.futures.Future()
        self.is_known_only_here = False
        """Whether `done` has the run as this process knows it, because the store did not return it."""
        self.thread = threading.get_ident()
        self.is_asked = False
        """Whether the run has been cancelled."""
        self.refuses = False
        self._deadline = 0.0
        self._loop = asyncio.get_running_loop()
        self._disarm: list[Callable[[], object]] = []

    def begin(self, root: Root) -> None:
        """Note that LangChain has reported the run."""
        root.started, self.root = self, root
        self.begun.set()
        self._loop.call_soon(self._arm)  # not before its first event is appended

    def about(self) -> dict[str, str]:
        """Return metadata of the run."""
        return self.graph.to_metadata() | ({CONTINUES: self.continues} if self.continues is not None else {})

    def _arm(self) -> None:
        if not self.done.done():
            self._disarm.append(self._core.stops.add(self.run_id, self._on_stop))
            if self._timeout is not None:
                self._disarm.append(self._loop.call_later(self._timeout, self.ask, "timeout").cancel)

    def disarm(self) -> None:
        """Drop the timeout and the subscription to stop requests: the run is over."""
        for undo in self._disarm:
            undo()

    def ask(self, cause: str) -> None:
        """Ask the run to stop, from any thread. The first cause stays."""
        self._core.stops.deliver(self.run_id, cause)

    def _on_stop(self, cause: str) -> None:
        """Schedule the cancellation on the event loop of the run. Called on any thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed, and nothing runs on it any more
            self._loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        if self.is_asked or self.task is None or self.task.done():
            return
        self.is_asked = True
        self._deadline = time.monotonic() + self.grace
        if not self._is_ending():
            self.task.cancel()
        self._disarm.append(self._loop.call_later(max(self.grace, _MIN_GRACE), self._cancel_again).cancel)

    def _cancel_again(self) -> None:
        """Cancel the task again, because something in it swallows the cancellation. LangGraph abandons such code when it is
        cancelled again, unless the code runs in the very task of the graph: there, every call that it begins is refused, and
        the task is cancelled again and again."""
        if self.task is not None and not self.task.done() and not self._is_ending():
            if not self.refuses:
                logger.warning(
                    "run %s has not ended %.1f s after it was cancelled; cancelling it again", self.run_id, self.grace
                )
            self.refuse_all(list(self.root.open.values()) if self.root is not None else [])
            self.task.cancel()
            self._disarm.append(self._loop.call_later(max(self.grace, _MIN_INTERVAL), self._cancel_again).cancel)

    def refuse_all(self, nodes: Iterable[Node]) -> None:
        """Refuse from now on every call of the run that begins, and the tokens of these calls."""
        self.refuses = True
        for node in nodes:
            # For a call in this table, a token is recorded without a look at the run: see `on_llm_new_token`.
            node.owner.streaming.pop(node.key, None)

    def _is_ending(self) -> bool:
        """Return whether the root has ended and the thread is being settled: nothing is left to cancel."""
        return self.root is not None and self.root.over

    def patience(self) -> float:
        """Return for how many seconds its threads may still work before the thread of the run is settled."""
        return max(0.0, self._deadline - time.monotonic()) if self.is_asked else self.grace
