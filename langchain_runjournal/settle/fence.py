"""Whether a run may still write its thread: asked of the store before each checkpoint.

Rule: the fence of a run is set by another process, which has taken the run over, so only the store knows it. It is asked in
the batch that makes the journal durable, and once more if the answer has become old before it was heard.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from ..capture.recorder import recorder_of
from ..common.twins import Effects
from ..errors import CheckpointFenced, RunFenced
from ..events import Run
from ..journal.core import core_of
from ..journal.waiting import make_durable, off_loop

if TYPE_CHECKING:
    from ..capture.call_tree import Root
    from ..journal.run_journal import RunJournal
    from .saver import JournalSaver

_TRIES: Final = 3
"""How often the store is asked before one checkpoint, if each answer is old when it is heard."""


def ready_to_write(
    saver: JournalSaver, thread_id: str, config: Mapping[str, Any], tell: Callable[[Exception | None], None]
) -> Effects[None]:
    """Make the journal durable, and raise `CheckpointFenced` if the run that writes has been taken over.

    `tell` hears what has kept the journal from being durable, if anything. A question that the store cannot answer is no
    answer: the checkpoint is written, as it is when the journal cannot be.
    """
    journal = saver.journal
    run_ids = [root.run_id for root in _writing(saver, thread_id, config)]
    question = Question(journal, run_ids) if run_ids else None
    for _ in range(_TRIES):
        problem = yield make_durable(journal, None, question)
        tell(problem)
        if question is None:
            return
        if problem is not None and not core_of(journal).is_closed:
            yield off_loop(journal, question)  # reading waits for no lock that writing waits for
        if question.is_fenced:
            raise CheckpointFenced(thread_id=thread_id, run_ids=run_ids)
        if question.is_fresh:
            return


def why_not_ours(journal: RunJournal, run: Run) -> str | None:
    """Why this journal does not settle a run that it began: it belongs to another one by now. None for any other run."""
    buffer = core_of(journal).appender.buffers.get(run.run_id)
    is_taken = buffer is not None and buffer.seq > 0 and run.owner not in (None, journal.owner_id)
    return "another process has taken it over, and settles it" if is_taken else None


def still_ours(journal: RunJournal, run: Run) -> Effects[None]:
    """Raise `CheckpointFenced` if a run that was this journal's when its settlement began has been taken over since."""
    if run.owner == journal.owner_id:
        question = Question(journal, [run.run_id])
        yield off_loop(journal, question)
        if question.is_fenced:
            raise CheckpointFenced(thread_id=run.thread_id, run_ids=[run.run_id])


class Question:
    """Whether some runs are fenced, for the store. Call it where it may block; it does not raise."""

    def __init__(self, journal: RunJournal, run_ids: list[str]) -> None:
        self._core = core_of(journal)
        self._run_ids = run_ids
        self._asked = float("inf")
        self.is_fenced = False

    def __call__(self) -> None:
        """Ask."""
        self._asked = self._core.clock.monotonic()
        try:
            self.is_fenced = all(self._is_fenced(run_id) for run_id in self._run_ids)
        except Exception:  # noqa: BLE001 - the store cannot be read: the barrier has told of it, or the next one does
            self.is_fenced = False

    @property
    def is_fresh(self) -> bool:
        """Whether nothing has held us up since the answer for so long that it may be wrong: while a process stands still, it
        beats no heart, and after a lease it is taken for gone."""
        return self._core.clock.monotonic() - self._asked < self._core.lease / 3

    def _is_fenced(self, run_id: str) -> bool:
        core = self._core
        buffer = core.appender.buffers.get(run_id)
        if buffer is not None and isinstance(buffer.shut, RunFenced):
            return True
        owner_of = getattr(core.store, "owner_of", None)
        if owner_of is None:
            run = core.store.run(run_id)
            owner = None if run is None else run.owner or core.owner.owner_id
        else:
            owner = owner_of(run_id)
        if owner is None:
            # Deleted, if anything of it has ever been stored: the thread was deleted with it, and must not come back.
            return buffer is not None and buffer.base > 0
        return bool(owner != core.owner.owner_id)


def _writing(saver: JournalSaver, thread_id: str, config: Mapping[str, Any]) -> list[Root]:
    """The run that writes a checkpoint; all that it may be, where that cannot be told.

    LangGraph hands the config of a call on to the checkpointer as it is, and so its callbacks: the very object that its run
    was begun with, or in a graph inside of it those of the task around.
    """
    capture = recorder_of(saver.journal)
    callbacks = config.get("callbacks")
    found = capture.threads.called_with(thread_id, callbacks)
    if found is None:
        around = capture.tracker.find(getattr(callbacks, "parent_run_id", None))
        found = around.root if around is not None else capture.threads.oldest(thread_id, saver)
    return [found] if found is not None else capture.threads.recorded(thread_id)
