"""How the end of a run is recorded: at once for a plain run, after the settlement of its thread for an attached graph.

Rule: the end of each run is recorded exactly once, also if Ctrl-C or the end of an event loop interrupts that; otherwise the
thread would never be free again. A reader that sees `run.end` finds the thread whole, or reads there that it is not.
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
    """Return what the end of a run says of its thread, after a settlement that is final."""
    return {key: settled[key] for key in ("settled", "given_up", "problem") if key in settled}


class RunEndings(Extension):
    """The runs that a journal captures, and the slots that they have on threads."""

    def __init__(self, journal: RunJournal) -> None:
        # Weak references: an unused journal should be garbage-collected at once, and its writer thread should end.
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
        """Whether the journal was garbage-collected. A stream that is collected with the journal is closed only after that,
        and then reports its end, which cannot be written anywhere. The run is left as a killed process leaves it."""
        return self._alive() is None

    def _append_end(self, root: Root, ending: Data) -> None:
        self._put(root, "run.end", {**ending, "usage": root.usage}, late=False)
        if root.turn is not None:
            root.turn.is_recorded = True
            if ending.get("settled") is False:
                self.threads.left_open(root.turn, root.run_id)

    def unsettled(self, key: int) -> Root | None:
        """Return the run with this root, if it has ended and its thread must be settled before `run.end`."""
        return self._unsettled.get(key)

    def conclude(self, key: int, settled: Data | None, problem: str | None) -> None:
        """Append the end of a run whose thread has been settled, or could not be settled for some `problem`."""
        root = self._unsettled.pop(key, None)
        if root is None or root.turn is None:
            return
        ending = root.turn.ending or {"status": "interrupted"}
        try:
            if settled is not None:
                self._put(root, "run.settled", settled, late=False)
                self._append_end(root, {**ending, **standing(settled)})
        finally:
            # Also if Ctrl-C, for example, interrupts this: a run without an end would keep its thread for ever.
            self.give_up(root, problem or "cut off")

    def give_up(self, root: Root, problem: str) -> None:
        """Append the end of a run that no settlement works on, unless it has been appended, and free its thread."""
        if root.turn is not None:
            self._unsettled.pop(root.turn.key, None)
            if not root.turn.is_recorded:
                ending = root.turn.ending or {"status": "interrupted"}
                self._append_end(root, {**ending, "settled": False, "problem": problem})
        self.threads.leave(root)

    def give_up_idle(self) -> None:
        """Append the end of all runs that no settlement works on, and of those that LangChain has forgotten because their
        event loop was closed while they were running."""
        for root in self.threads.lost():
            node = root.open.get(root.turn.key) if root.turn is not None else None
            if node is not None:
                self.tracker.on_unreported_end(node)
        for root in list(self._unsettled.values()):
            if root.turn is not None and not root.turn.is_worked_on:
                self.give_up(root, "cut off")

    def end_idle_runs(self) -> None:
        """Append the end of each run that no task and no settlement works on any more."""
        self.tracker.do(self.give_up_idle)

    def forget(self, run_ids: Collection[str]) -> None:
        """Forget runs that were deleted."""
        self.tracker.do(partial(self.threads.forget, run_ids))

    def after_fork(self) -> None:
        """Drop all runs in a forked child: they belong to the parent, and a thread that does not exist here may hold the
        lock."""
        self.tracker.after_fork()
        self.threads.clear()
        self._unsettled.clear()

    def checkpoint(
        self,
        saver: ThreadSaver,
        thread_id: str,
        word: str,
        checkpoint_id: str | None,
        writer: Root | None = None,
        about: Data | None = None,
    ) -> None:
        """Append what a checkpoint is to the run on its thread, once a run: `base`, behind which the run begins to write;
        `stored`, the first that the run has written; `resumed`, from which it resumes, though it need not be the newest.

        `writer`: the run that has written it, if that is certain. It gets the facts `about` the checkpoint."""
        root = self.threads.oldest(thread_id, saver)
        turn = root.turn if root is not None else None
        is_new = turn is not None and word not in turn.appended
        if root is None or turn is None or not is_new:
            self.superstep(writer, about)
        elif word != "resumed" or (turn.resumes and "base" not in turn.appended):
            self.do(partial(self._append_checkpoint, root, turn, word, checkpoint_id, writer, about))

    def take_read(self, saver: ThreadSaver, thread_id: str) -> Any:
        """Return the newest checkpoint of a thread once, if it was read a moment ago for the run that begins there."""
        root = self.threads.oldest(thread_id, saver)
        turn = root.turn if root is not None else None
        return turn.take_read(saver.saver) if turn is not None and not turn.appended else None

    def applied(
        self,
        saver: ThreadSaver,
        thread_id: str,
        checkpoint_id: str,
        step: int | None,
        writer: Root | None = None,
        about: Data | None = None,
    ) -> None:
        """Append that a checkpoint is stored which holds what the tasks of the outermost graph returned, up to those of
        `step`. The first such checkpoint of a run holds the input of the run."""
        root = self.threads.oldest(thread_id, saver)
        data: Data = {"applied": checkpoint_id, "step": step}
        self.do(partial(self._put_checkpoint, root, data, writer, about))

    def superstep(self, writer: Root | None, about: Data | None) -> None:
        """Append a checkpoint of the run that has written it."""
        self.do(partial(self._put_checkpoint, None, {}, writer, about))

    def _append_checkpoint(
        self, root: Root, turn: ThreadSlot, word: str, checkpoint_id: str | None, writer: Root | None, about: Data | None
    ) -> None:
        is_new = word not in turn.appended
        turn.appended.add(word)
        self._put_checkpoint(root if is_new else None, {word: checkpoint_id}, writer, about)

    def _put_checkpoint(self, root: Root | None, data: Data, writer: Root | None, about: Data | None) -> None:
        """Append one event for the settlement of `root` and one for readers of `writer`: one event if both are one run."""
        if root is not None:
            self._put(root, "run.checkpoint", {**data, **(about or {})} if writer is root else data, late=False)
        if writer is not None and writer is not root and about is not None:
            self._put(writer, "run.checkpoint", about, late=False)

    def do(self, work: Callable[[], object]) -> None:
        """Run `work` under the lock of the tracker, now or as soon as that needs no waiting. Do nothing if the journal was
        garbage-collected."""
        if self.is_orphaned:
            return
        # A finalizer or a signal handler may call this in the middle of an append of this thread: a generator that is closed
        # there reports its end, and writes checkpoints. To wait now for another thread, which may be waiting for that
        # append, would be a deadlock.
        if self._core.appender.is_inside():
            self.tracker.do_later(work)
        else:
            self.tracker.do(work)

    def _put(self, root: Root, kind: Kind, data: Data, call_id: str | None = None, *, late: bool | None = None) -> None:
        if root.over if late is None else late:
            data["late"] = True
        if not root.muted:
            self._journal.append(Event(run_id=root.run_id, kind=kind, data=data, call_id=call_id))
