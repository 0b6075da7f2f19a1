"""Stopped runs: what still runs of them in threads, and how it is kept from beginning anything.

Rule: `runs/` decides when a run is stopped and when what belongs to it is refused. Here is only what the callbacks need.
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
    """Whether what belongs to it is refused to begin, or to speak."""

    def begin(self, root: Root) -> None:
        """Learn from the recorder that LangChain has reported the run."""

    def about(self) -> dict[str, str]:
        """Return what the metadata of the run says of it."""

    def refuse_all(self, nodes: Iterable[Node]) -> None:
        """Refuse from now on what belongs to the run, and refuse these calls to speak."""

    def patience(self) -> float:
        """Return for how many seconds its threads may still work before it is settled."""


class RunningThreads:
    """The calls of an ended run that still work in other threads, where no program can interrupt them."""

    thread = 0

    def __init__(self, nodes: Iterable[Node], here: int) -> None:
        self._keys = {node.key for node in nodes if node.thread != here}
        self.done: concurrent.futures.Future[None] = concurrent.futures.Future()
        self.closed(0)

    def closed(self, key: int) -> None:
        """Note that one of them has ended. Called under the lock of the tracker."""
        self._keys.discard(key)
        if not self._keys and not self.done.done():
            self.done.set_result(None)


def refuse(node: Node | None) -> None:
    """Raise `CancelledError` in a call of a stopped run that begins or speaks, in whatever thread the call works."""
    if node is not None and node.root.started is not None and node.root.started.refuses:
        raise asyncio.CancelledError(f"run {node.root.run_id} was stopped")
