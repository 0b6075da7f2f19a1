"""The slots of threads: the runs of attached graphs in this process, each on its thread until the thread is whole again."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import time
import weakref
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from ..journal.run_journal import RunJournal
    from .call_tree import Root
    from .graph_identity import Identity

_FRESH_FOR: Final = 0.5
"""Seconds for which a checkpoint that was read counts as the newest."""
_MAX_OPEN: Final = 10_000
_MAX_LATE: Final = 1_000
"""How many threads with late results are remembered; for other threads, the guard looks the results up in the journal."""


class ThreadSaver(Protocol):
    """A checkpointer that writes to a journal what it stores. `settle/` implements this."""

    journal: RunJournal
    saver: Any
    """The checkpointer of the program, which this one wraps."""

    def is_same(self, other: object) -> bool:
        """Return whether both are one checkpointer to their users: LangGraph makes copies of its own."""


class ThreadSlot:
    """A run of an attached graph on its thread, until the thread is whole again."""

    __slots__ = (
        "_loop",
        "_read",
        "_task",
        "appended",
        "branches",
        "done",
        "ending",
        "graph",
        "is_recorded",
        "is_worked_on",
        "key",
        "leaves",
        "mode",
        "resumes",
        "thread",
        "thread_id",
        "turns",
        "waits",
    )

    def __init__(self, thread_id: str, graph: Identity, turns: Any, mode: str, key: int) -> None:
        self.thread_id = thread_id
        self.graph = graph
        self.turns = turns
        """The schedule that settles the thread."""
        self.mode = mode
        self.key = key
        """The key of the root of the run."""
        self.waits = False
        """Whether the run waits to begin until what earlier runs left on the thread is settled."""
        self.resumes = False
        """Whether the run resumes another one."""
        self.branches = False
        """Whether the run begins at an earlier checkpoint of the thread, and leaves behind what came after that."""
        self.leaves = False
        """Whether the run was cancelled while it waited, and so waits for nothing any more."""
        self.appended: set[str] = set()
        """Which facts about its checkpoints are in the journal: `base`, `stored`, `resumed`."""
        self.ending: dict[str, Any] | None = None
        """How the run has ended, until its thread is settled and `run.end` is appended."""
        self.is_worked_on = False
        """Whether a settlement works on it."""
        self.is_recorded = False
        """Whether its end is in the journal."""
        self.done: concurrent.futures.Future[None] = concurrent.futures.Future()
        self.thread = threading.get_ident()
        """The thread of the process on which the run began: a caller that blocks it until the run ends waits for ever."""
        self._task = _current_task()
        self._loop = current_loop()
        self._read: tuple[Any, Any, float] | None = None

    def keep_read(self, checkpoint: Any, saver: Any) -> None:
        """Keep the newest checkpoint of the thread for LangGraph, which reads it next. With a long history, a second read
        would be the main cost of looking at the thread. `saver` has read the checkpoint."""
        self._read = None if checkpoint is None else (checkpoint, saver, time.monotonic())

    def take_read(self, saver: Any) -> Any:
        """Return the checkpoint that `keep_read` has kept, once. Return None if other handlers have kept the run waiting
        since: the checkpoint may not be the newest. Return None for another saver: with LANGGRAPH_STRICT_MSGPACK, one saver
        may read fewer types from a checkpoint than another."""
        found, self._read = self._read, None
        is_good = found is not None and found[1] is saver and time.monotonic() - found[2] < _FRESH_FOR
        return found[0] if found is not None and is_good else None

    def is_lost(self) -> bool:
        """Return whether the run can never continue: its event loop is closed."""
        return self._loop is not None and self._loop.is_closed()

    def stands_still(self) -> bool:
        """Return whether the event loop of the run is not running now: no task continues there, whatever it has begun."""
        return stands_still(self._loop)

    def is_leaving(self) -> bool:
        """Return whether the run is about to end. This is a heuristic: True while its task is being cancelled, or while the
        loop of this thread closes any dropped async generator (its run is unknown)."""
        task = self._task() if self._task is not None else None
        if task is not None and not task.done() and getattr(task, "cancelling", int)() > 0:
            return True
        try:
            tasks = asyncio.all_tasks()
        except RuntimeError:
            return False  # on no loop
        return any(type(one.get_coro()).__name__ == "async_generator_athrow" for one in tasks)

    def is_settled_at_once(self, ending: dict[str, Any]) -> bool:
        """Return whether the run is settled as soon as it ends. The program may mean to resume a run that failed."""
        return self.mode == "always" or (self.mode == "on_stop" and ending["status"] == "interrupted")


def _current_task() -> weakref.ref[asyncio.Task[Any]] | None:
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return None
    return None if task is None else weakref.ref(task)


def current_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop that runs on this thread, or None."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def stands_still(loop: asyncio.AbstractEventLoop | None) -> bool:
    """Return whether there is an event loop that does not run now."""
    return loop is not None and not loop.is_running()


class ThreadSlots:
    """The slots of all threads. `do` runs a function under the lock that the code which ends a run holds."""

    def __init__(self, do: Callable[[Callable[[], object]], None]) -> None:
        self._do = do
        self._turns: dict[str, list[Root]] = {}
        # By graph and thread: another graph may use the same name for a thread of its own.
        self._open: dict[tuple[str, str], dict[str, None]] = {}
        self._late: dict[tuple[str, str], set[str]] = {}
        self._recorded: dict[str, list[Root]] = {}
        """By thread, the runs that are running there, attached or not."""

    def enter(self, root: Root, turn: ThreadSlot) -> None:
        """Give a run its slot."""
        root.turn = turn
        self._do(lambda: self._turns.setdefault(turn.thread_id, []).append(root))

    def leave(self, root: Root) -> None:
        """Free the slot of a run, if it has one. Called under the lock."""
        root.caller = None  # the tracker keeps failed calls for a while, and these must not keep an unused graph alive
        _take_out(self._recorded, root.thread_id, root)
        turn = root.turn
        if turn is None:
            return
        _take_out(self._turns, turn.thread_id, root)
        if not turn.done.done():
            turn.done.set_result(None)

    def others(self, turn: ThreadSlot) -> list[tuple[Root, ThreadSlot]]:
        """Return the other runs of its graph on its thread that have not ended, or are being settled."""
        found = [(root, root.turn) for root in list(self._turns.get(turn.thread_id, ()))]
        return [(root, one) for root, one in found if one is not None and one is not turn and one.graph.is_same(turn.graph)]

    def is_live(self, thread_id: str, run_id: str) -> bool:
        """Return whether a run has a slot on a thread."""
        return any(root.run_id == run_id for root in list(self._turns.get(thread_id, ())))

    def is_idle(self, thread_id: str, run_id: str) -> bool:
        """Return whether no task and no settlement works on a run any more."""
        found = [root for root in list(self._turns.get(thread_id, ())) if root.run_id == run_id]
        turns = [(root.over, root.turn) for root in found if root.turn is not None]
        return any(turn.is_lost() or (over and not turn.is_worked_on) for over, turn in turns)

    def lost(self) -> list[Root]:
        """Return the runs that can never continue, and whose end LangChain has not reported."""
        roots = [root for there in list(self._turns.values()) for root in list(there)]
        return [root for root in roots if not root.over and root.turn is not None and root.turn.is_lost()]

    def waits(self, thread_id: str, run_id: str) -> bool:
        """Return whether a run waits for the others on its thread, and has not touched the thread."""
        found = [root.turn for root in list(self._turns.get(thread_id, ())) if root.run_id == run_id]
        return any(turn is not None and turn.waits for turn in found)

    def oldest(self, thread_id: str, saver: ThreadSaver) -> Root | None:
        """Return the run that writes a thread of a saver: a newer run waits for it to end before it reads or writes
        anything."""
        for root in list(self._turns.get(thread_id, ())):
            if root.caller is not None and root.caller.saver is not None and saver.is_same(root.caller.saver):
                return root
        return None

    def record(self, root: Root, thread_id: str | None) -> None:
        """Remember a run that begins on a thread, attached or not. Called under the lock."""
        if thread_id is not None and not root.muted:
            root.thread_id = thread_id
            self._recorded.setdefault(thread_id, []).append(root)

    def called_with(self, thread_id: str, callbacks: object) -> Root | None:
        """Return the run of an attached graph that was called with these callbacks: with the very object."""
        for root in list(self._turns.get(thread_id, ())):
            if callbacks is not None and root.caller is not None and root.caller.callbacks is callbacks:
                return root
        return None

    def recorded(self, thread_id: str) -> list[Root]:
        """Return the runs on a thread that only a handler records."""
        return [root for root in list(self._recorded.get(thread_id, ())) if root.turn is None]

    def left_open(self, turn: ThreadSlot, run_id: str) -> None:
        """Remember a run that has ended and whose thread is not settled."""
        self._open.setdefault((turn.graph.key, turn.thread_id), {})[run_id] = None
        while len(self._open) > _MAX_OPEN:
            self._open.pop(next(iter(self._open)))

    def take_open(self, turn: ThreadSlot) -> list[str]:
        """Return and forget the runs that `left_open` has remembered: the store may not know of them yet. `left_open` is
        called again for a run that stays open."""
        return list(self._open.pop((turn.graph.key, turn.thread_id), ()))

    def came_late(self, turn: ThreadSlot, run_id: str) -> None:
        """Remember a run that has got a result after its end: a synthetic result may stand in its place."""
        self._late.setdefault((turn.graph.key, turn.thread_id), set()).add(run_id)
        while len(self._late) > _MAX_LATE:
            self._late.pop(next(iter(self._late)))

    def take_late(self, turn: ThreadSlot) -> set[str]:
        """Return and forget the runs that `came_late` has remembered."""
        return self._late.pop((turn.graph.key, turn.thread_id), set())

    def forget(self, run_ids: Collection[str]) -> None:
        """Forget runs that were deleted: they are neither settled nor looked for any more. Called under the lock."""
        for left in list(self._open.values()):
            for run_id in run_ids:
                left.pop(run_id, None)
        for late in list(self._late.values()):
            late.difference_update(run_ids)

    def clear(self) -> None:
        """Forget all runs in a forked child: they belong to the parent."""
        for known in (self._turns, self._open, self._late, self._recorded):
            known.clear()


def _take_out(known: dict[str, list[Root]], thread_id: str | None, root: Root) -> None:
    there = known.get(thread_id or "", [])
    if root in there:
        there.remove(root)
        if not there:
            known.pop(thread_id or "", None)
