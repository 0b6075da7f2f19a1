"""Whose turn it is on a thread: the runs of attached graphs in this process, until their threads are whole again."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from ..common.twins import Pending

if TYPE_CHECKING:
    from ..settle.saver import JournalSaver
    from ..settle.settler import Settlement
    from ..settle.thread_hold import Hold
    from .call_tree import Root
    from .graph_identity import Identity

_FRESH: Final = 0.5
"""Seconds for which a checkpoint that was read counts as the newest."""
_MOST_OPEN: Final = 10_000
_MOST_LATE: Final = 1_000
"""Threads with late results that are remembered: of the others, the guard looks them up in the journal."""


class ThreadSlot:
    """A run of an attached graph on its thread, until the thread is whole again."""

    __slots__ = (
        "_loop",
        "_read",
        "_task",
        "branches",
        "done",
        "ending",
        "graph",
        "is_told",
        "is_worked_on",
        "key",
        "leaves",
        "mode",
        "resumes",
        "said",
        "thread",
        "thread_id",
        "turns",
        "waits",
    )

    def __init__(self, thread_id: str, graph: Identity, turns: Any, mode: str, key: int) -> None:
        self.thread_id = thread_id
        self.graph = graph
        self.turns = turns
        """What settles its thread."""
        self.mode = mode
        self.key = key
        """Of its root."""
        self.waits = False
        """Whether it has not begun to work, until what was left on the thread is settled."""
        self.resumes = False
        """Whether it takes up another one."""
        self.branches = False
        """Whether it begins at an earlier checkpoint of the thread, and what came after that is left behind."""
        self.leaves = False
        """Whether it was cancelled while it waits: it waits for nothing any more."""
        self.said: set[str] = set()
        """What has been said of its checkpoints."""
        self.ending: dict[str, Any] | None = None
        """How it has ended, until its thread is settled and everybody is told."""
        self.is_worked_on = False
        """Whether somebody settles it."""
        self.is_told = False
        """Whether its end is in the journal."""
        self.done: concurrent.futures.Future[None] = concurrent.futures.Future()
        self.thread = threading.get_ident()
        """Where it began: whoever waits for it there without giving way waits for ever."""
        self._task = _current_task()
        self._loop = _current_loop()
        self._read: tuple[Any, Any, float] | None = None

    def keep_read(self, checkpoint: Any, saver: Any) -> None:
        """Keep the newest checkpoint of the thread for LangGraph, which reads it next: with a long history, reading it twice
        is what looking at it would cost. `saver` has read it."""
        self._read = None if checkpoint is None else (checkpoint, saver, time.monotonic())

    def take_read(self, saver: Any) -> Any:
        """That checkpoint, once. None if handlers of others have kept the run waiting since: it may not be the newest. None
        for another saver: with LANGGRAPH_STRICT_MSGPACK, one may take fewer types out of a checkpoint than another."""
        found, self._read = self._read, None
        is_good = found is not None and found[1] is saver and time.monotonic() - found[2] < _FRESH
        return found[0] if found is not None and is_good else None

    def is_lost(self) -> bool:
        """Whether it can never go on: its event loop is closed."""
        return self._loop is not None and self._loop.is_closed()

    def stands_still(self) -> bool:
        """Whether its event loop does not run now: nothing goes on there, whatever has begun."""
        return _stands_still(self._loop)

    def is_leaving(self) -> bool:
        """Whether it looks as if its end is on its way: it is being cancelled, or the loop that we are on closes a stream
        that somebody has dropped. Which one, nobody can say."""
        task = self._task() if self._task is not None else None
        if task is not None and not task.done() and getattr(task, "cancelling", int)() > 0:
            return True
        try:
            tasks = asyncio.all_tasks()
        except RuntimeError:
            return False  # on no loop
        return any(type(one.get_coro()).__name__ == "async_generator_athrow" for one in tasks)

    def is_settled_at_once(self, ending: dict[str, Any]) -> bool:
        """Whether the end of the run is the moment to settle it. A run that failed may be meant to be taken up again."""
        return self.mode == "always" or (self.mode == "on_stop" and ending["status"] == "interrupted")


def _current_task() -> weakref.ref[asyncio.Task[Any]] | None:
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return None
    return None if task is None else weakref.ref(task)


def _current_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _stands_still(loop: asyncio.AbstractEventLoop | None) -> bool:
    return loop is not None and not loop.is_running()


class Settling(Pending):
    """A settlement at work."""

    def __init__(self, *asked: object) -> None:
        super().__init__()
        self._asked = asked
        self._loop = _current_loop()
        self.result: Settlement | None = None
        """What came of it."""
        self.hold: Hold | None = None
        """That of the store on its thread."""

    def result_for(self, other: Settling) -> Settlement | None:
        """Its result, if the other one was asked for the same."""
        return self.result if self._asked and self._asked == other._asked else None

    @property
    def run_ids(self) -> list[str]:
        """The run that is settled, if it is one, and not a thread without a run."""
        return [one for one in self._asked[1:2] if isinstance(one, str)]

    def stands_still(self) -> bool:
        """Whether the event loop that it began on does not run now."""
        return _stands_still(self._loop)

    def is_lost(self) -> bool:
        """Whether it can never continue: its event loop is closed."""
        return self._loop is not None and self._loop.is_closed()


class ThreadSlots:
    """The turns of all threads. `do` does something under the lock that whoever ends a run holds."""

    def __init__(self, do: Callable[[Callable[[], object]], None]) -> None:
        self._do = do
        self._turns: dict[str, list[Root]] = {}
        self.settling: dict[str, Settling] = {}
        """By thread, the settlement that is at work: there is never more than one."""
        self._in_hand: dict[str, Settling] = {}
        self._passed: dict[str, None] = {}
        # Of a graph on a thread: another one may use the same name for a thread of its own.
        self._open: dict[tuple[str, str], dict[str, None]] = {}
        self._late: dict[tuple[str, str], set[str]] = {}
        self._recorded: dict[str, list[Root]] = {}
        """By thread, the runs that go on there, whatever records them."""

    def enter(self, root: Root, turn: ThreadSlot) -> None:
        """The run takes its turn."""
        root.turn = turn
        self._do(lambda: self._turns.setdefault(turn.thread_id, []).append(root))

    def leave(self, root: Root) -> None:
        """Its turn, if it had one, is over. Under the lock."""
        root.caller = None  # what failed is remembered for a while, and must not keep a graph that nobody uses
        _take_out(self._recorded, root.thread_id, root)
        turn = root.turn
        if turn is None:
            return
        _take_out(self._turns, turn.thread_id, root)
        if not turn.done.done():
            turn.done.set_result(None)

    def others(self, turn: ThreadSlot) -> list[tuple[Root, ThreadSlot]]:
        """The other runs of its graph on its thread that have not ended, or are being settled."""
        found = [(root, root.turn) for root in list(self._turns.get(turn.thread_id, ()))]
        return [(root, one) for root, one in found if one is not None and one is not turn and one.graph.is_same(turn.graph)]

    def is_live(self, thread_id: str, run_id: str) -> bool:
        """Whether a run has its turn on a thread."""
        return any(root.run_id == run_id for root in list(self._turns.get(thread_id, ())))

    def is_idle(self, thread_id: str, run_id: str) -> bool:
        """Whether nobody works on a run any more, and nobody settles it."""
        found = [root for root in list(self._turns.get(thread_id, ())) if root.run_id == run_id]
        turns = [(root.over, root.turn) for root in found if root.turn is not None]
        return any(turn.is_lost() or (over and not turn.is_worked_on) for over, turn in turns)

    def lost(self) -> list[Root]:
        """The runs that can never go on, and nobody has said so."""
        roots = [root for there in list(self._turns.values()) for root in list(there)]
        return [root for root in roots if not root.over and root.turn is not None and root.turn.is_lost()]

    def waits(self, thread_id: str, run_id: str) -> bool:
        """Whether a run waits for the others on its thread, and has not touched it."""
        found = [root.turn for root in list(self._turns.get(thread_id, ())) if root.run_id == run_id]
        return any(turn is not None and turn.waits for turn in found)

    def oldest(self, thread_id: str, saver: JournalSaver) -> Root | None:
        """The run that writes a thread of a saver: a newer one waits for it to end before it reads or writes anything."""
        for root in list(self._turns.get(thread_id, ())):
            if root.caller is not None and root.caller.saver is not None and saver.is_same(root.caller.saver):
                return root
        return None

    @contextmanager
    def hand(self, run_id: str) -> Iterator[Settling | None]:
        """Take in hand an earlier run that is to be claimed and settled. Gives the settlement of this process that has done
        so before, if there is one."""
        mine = Settling()
        other = self._in_hand.setdefault(run_id, mine)
        try:
            yield None if other is mine else other
        finally:
            if other is mine:
                self._in_hand.pop(run_id, None)
                mine.done.set_result(None)

    def passed(self, run_id: str) -> None:
        """Newer runs need not wait for this one any more: nothing is left to do for it, or nothing can be done. The journal
        need not say so: another process owns the run, or the store cannot be written."""
        self._passed[run_id] = None
        while len(self._passed) > _MOST_OPEN:
            self._passed.pop(next(iter(self._passed)))

    def has_passed(self, run_id: str) -> bool:
        """Whether that was said of a run, in this process."""
        return run_id in self._passed

    def record(self, root: Root, thread_id: str | None) -> None:
        """A run begins on a thread, attached or not. Under the lock."""
        if thread_id is not None and not root.muted:
            root.thread_id = thread_id
            self._recorded.setdefault(thread_id, []).append(root)

    def called_with(self, thread_id: str, callbacks: object) -> Root | None:
        """The run of an attached graph that was called with these callbacks: with the very object."""
        for root in list(self._turns.get(thread_id, ())):
            if callbacks is not None and root.caller is not None and root.caller.callbacks is callbacks:
                return root
        return None

    def recorded(self, thread_id: str) -> list[Root]:
        """The runs on a thread that only a handler records."""
        return [root for root in list(self._recorded.get(thread_id, ())) if root.turn is None]

    def left_open(self, turn: ThreadSlot, run_id: str) -> None:
        """A run has ended, and its thread is not settled."""
        self._open.setdefault((turn.graph.key, turn.thread_id), {})[run_id] = None
        while len(self._open) > _MOST_OPEN:
            self._open.pop(next(iter(self._open)))

    def take_open(self, turn: ThreadSlot) -> list[str]:
        """Those, of which the store may not know yet. Forgotten by this: if they stay open, that is said again."""
        return list(self._open.pop((turn.graph.key, turn.thread_id), ()))

    def came_late(self, turn: ThreadSlot, run_id: str) -> None:
        """A run has got a result after its end: a made-up one may stand in its place."""
        self._late.setdefault((turn.graph.key, turn.thread_id), set()).add(run_id)
        while len(self._late) > _MOST_LATE:
            self._late.pop(next(iter(self._late)))

    def take_late(self, turn: ThreadSlot) -> set[str]:
        """Those. Forgotten by this."""
        return self._late.pop((turn.graph.key, turn.thread_id), set())

    def forget(self, run_ids: Collection[str]) -> None:
        """Runs that were deleted: nothing of them is settled, or looked for, any more. Under the lock."""
        for left in list(self._open.values()):
            for run_id in run_ids:
                left.pop(run_id, None)
        for late in list(self._late.values()):
            late.difference_update(run_ids)
        for run_id in run_ids:
            self._passed.pop(run_id, None)

    def clear(self) -> None:
        """In a forked child: all of them are the parent's."""
        for known in (self._turns, self.settling, self._in_hand, self._passed, self._open, self._late, self._recorded):
            known.clear()


def _take_out(known: dict[str, list[Root]], thread_id: str | None, root: Root) -> None:
    there = known.get(thread_id or "", [])
    if root in there:
        there.remove(root)
        if not there:
            known.pop(thread_id or "", None)
