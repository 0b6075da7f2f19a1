"""How the end of a run is told: at once, or, of an attached graph, when its thread has been settled.

Rule: each run is told to end exactly once, whatever comes in between, or its thread would never be free again. Whoever sees
`run.end` finds the thread whole, or is told that it is not.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING, Any

from ..events import Event, Kind
from ..journal.core import core_of
from ..journal.extensions import Extension
from ..messages.message_data import Data
from .call_tree import Root, Tracker
from .cut_calls import CutCalls
from .thread_slots import ThreadSlot, ThreadSlots

if TYPE_CHECKING:
    from ..journal.run_journal import RunJournal
    from .thread_slots import ThreadSaver


def standing(settled: Data) -> Data:
    """What the end of a run says of its thread, after a settlement that is final."""
    return {key: settled[key] for key in ("settled", "given_up", "problem") if key in settled}


class RunEndings(Extension):
    """The runs that a journal captures, and the threads that they have their turns on."""

    def __init__(self, journal: RunJournal) -> None:
        # Weakly: a journal that nobody uses any more should go at once, and its thread with it.
        self._journal = weakref.proxy(journal)
        self._core = weakref.proxy(core_of(journal))
        self._alive = weakref.ref(journal)
        self.tracker = Tracker()
        self.threads = ThreadSlots(self.tracker.do)
        self._unsettled: dict[int, Root] = {}
        self.cut_calls = CutCalls()
        """The tool calls of answers that were cut off: an attached graph does not run them."""

    @property
    def is_orphaned(self) -> bool:
        """Whether the journal was garbage-collected. A stream that was collected with it is closed only after that, and then
        reports its end: there is nowhere to write it. The run is left behind, as by a killed process."""
        return self._alive() is None

    def _tell_end(self, root: Root, ending: Data) -> None:
        self._put(root, "run.end", {**ending, "usage": root.usage}, late=False)
        if root.turn is not None:
            root.turn.is_told = True
            if ending.get("settled") is False:
                self.threads.left_open(root.turn, root.run_id)

    def unsettled(self, key: int) -> Root | None:
        """The run whose root this is, if it has ended and its thread is to be settled before that is told."""
        return self._unsettled.get(key)

    def conclude(self, key: int, settled: Data | None, problem: str | None) -> None:
        """Tell the end of a run, now that its thread has been settled, or could not be, for some `problem`."""
        root = self._unsettled.pop(key, None)
        if root is None or root.turn is None:
            return
        ending = root.turn.ending or {"status": "interrupted"}
        try:
            if settled is not None:
                self._put(root, "run.settled", settled, late=False)
                self._tell_end(root, {**ending, **standing(settled)})
        finally:
            # Whatever comes in between, Ctrl-C for one: a run that never ends would keep its thread for ever.
            self.give_up(root, problem or "cut off")

    def give_up(self, root: Root, problem: str) -> None:
        """A run is over, and nobody settles it: if its end has not been told, tell it, and free its thread."""
        if root.turn is not None:
            self._unsettled.pop(root.turn.key, None)
            if not root.turn.is_told:
                ending = root.turn.ending or {"status": "interrupted"}
                self._tell_end(root, {**ending, "settled": False, "problem": problem})
        self.threads.leave(root)

    def give_up_idle(self) -> None:
        """The same for all runs that nobody settles, and for those that LangChain has forgotten when their loop was torn."""
        for root in self.threads.lost():
            node = root.open.get(root.turn.key) if root.turn is not None else None
            if node is not None:
                self.tracker.on_gone(node)
        for root in list(self._unsettled.values()):
            if root.turn is not None and not root.turn.is_worked_on:
                self.give_up(root, "cut off")

    def end_idle_runs(self) -> None:
        """Append the end of each run that no task and no settlement works on any more."""
        self.tracker.do(self.give_up_idle)

    def forget(self, run_ids: Collection[str]) -> None:
        """Runs that were deleted: what is remembered of them goes as well."""
        self.tracker.do(partial(self.threads.forget, run_ids))

    def after_fork(self) -> None:
        """In a child: whatever goes on is the parent's, and a lock may be held by a thread that is not here."""
        self.tracker.after_fork()
        self.threads.clear()
        self._unsettled.clear()

    def checkpoint(self, saver: ThreadSaver, thread_id: str, word: str, checkpoint_id: str | None) -> None:
        """Append what a checkpoint is to the run on its thread, once a run: `base`, behind which the run begins to write;
        `stored`, the first that it has written; `resumed`, from which it goes on, though it need not be the newest."""
        root = self.threads.oldest(thread_id, saver)
        turn = root.turn if root is not None else None
        if root is None or turn is None or word in turn.said:
            return
        if word != "resumed" or (turn.resumes and "base" not in turn.said):
            self.do(partial(self._say, root, turn, word, checkpoint_id))

    def take_read(self, saver: ThreadSaver, thread_id: str) -> Any:
        """The newest checkpoint of a thread, if the run that begins on it was looked at just now; once."""
        root = self.threads.oldest(thread_id, saver)
        turn = root.turn if root is not None else None
        return turn.take_read(saver.saver) if turn is not None and not turn.said else None

    def applied(self, saver: ThreadSaver, thread_id: str, checkpoint_id: str, step: int | None) -> None:
        """Append that a checkpoint is stored which holds what the tasks of the outermost graph gave, up to those of `step`.
        The first one of a run holds what the run was given."""
        root = self.threads.oldest(thread_id, saver)
        if root is not None:
            data: Data = {"applied": checkpoint_id, "step": step}
            self.do(partial(self._put, root, "run.checkpoint", data, late=False))

    def _say(self, root: Root, turn: ThreadSlot, word: str, checkpoint_id: str | None) -> None:
        if word not in turn.said:
            turn.said.add(word)
            self._put(root, "run.checkpoint", {word: checkpoint_id}, late=False)

    def do(self, work: Callable[[], object]) -> None:
        """Do it under the lock of the tracker, now or as soon as that needs no waiting; not for a journal that is gone."""
        if self.is_orphaned:
            return
        # The garbage collector, or a signal, may have brought us here in the middle of an append of this thread: a generator
        # that is closed there reports its end, and writes checkpoints. To wait for another thread now, which may be waiting
        # for that append, would be to wait for ever.
        if self._core.appender.is_inside():
            self.tracker.do_later(work)
        else:
            self.tracker.do(work)

    def _put(self, root: Root, kind: Kind, data: Data, call_id: str | None = None, *, late: bool | None = None) -> None:
        if root.over if late is None else late:
            data["late"] = True
        if not root.muted:
            self._journal.append(Event(run_id=root.run_id, kind=kind, data=data, call_id=call_id))
