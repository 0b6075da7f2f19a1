"""Stopped runs: which of their calls are still running in threads, and how those are kept from beginning anything.

Rule: `runs/` decides when a run is stopped and when its calls are refused. This module has only what the callbacks need.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from .call_tree import Node, Root


class StartedRun(Protocol):
    """A run in a task of its own, as the recorder sees it. `runs/` implements this."""

    thread: int
    """The thread of its event loop."""
    is_asked: bool
    """Whether it has been cancelled."""
    refuses: bool
    """Whether the calls of the run may neither begin nor report tokens any more."""

    def begin(self, root: Root) -> None:
        """Note that LangChain has reported the run."""

    def about(self) -> dict[str, str]:
        """Return metadata of the run."""

    def refuse_all(self, nodes: Iterable[Node]) -> None:
        """Refuse from now on every call of the run that begins, and the tokens of these calls."""

    def patience(self) -> float:
        """Return for how many seconds its threads may still work before the thread of the run is settled."""


class RunningThreads:
    """The calls of an ended run that are still running in other threads, where no program can interrupt them."""

    thread = 0

    def __init__(self, nodes: Iterable[Node], here: int) -> None:
        self._keys = {node.key for node in nodes if node.thread != here}
        self.done: concurrent.futures.Future[None] = concurrent.futures.Future()
        self.closed(0)

    def closed(self, key: int) -> None:
        """Note that one of the calls has ended. Called under the lock of the tracker."""
        self._keys.discard(key)
        if not self._keys and not self.done.done():
            self.done.set_result(None)


def refuse(node: Node | None) -> None:
    """Raise `CancelledError` if the call of a stopped run begins or reports a token, on whatever thread it runs."""
    if node is not None and node.root.started is not None and node.root.started.refuses:
        raise asyncio.CancelledError(f"run {node.root.run_id} was stopped")
