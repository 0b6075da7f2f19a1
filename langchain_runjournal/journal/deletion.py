"""`RunJournal.delete` and `prune`: delete runs, and what this process holds of them in memory and in its spool.

Rule: a run that a process may still write is never deleted. This module claims any other run first, so that no process
settles it later; then it deletes the run in one transaction, and forgets it in this process, so that no late event begins it
again.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from ..common.arguments import Age, before, count, seconds, text
from ..common.twins import Effects, wait_for
from ..errors import InvalidArgument, RunAbandoned, RunAtWork, RunNotFound
from ..events import Run, RunStatus
from . import dead_owners as _dead_owners
from . import stop as _stopping
from .core import core_of
from .waiting import make_durable, off_loop

if TYPE_CHECKING:
    from .run_journal import RunJournal

logger = logging.getLogger("langchain_runjournal")

_SETTLING: Final = 60.0
"""The seconds that a deletion waits for a settlement that this process is making on the thread."""


def delete(
    journal: RunJournal, thread_id: str | None, run_id: str | None, force: bool, timeout: float | None
) -> Effects[list[str]]:
    """Implement `RunJournal.delete`."""
    if (thread_id is None) == (run_id is None):
        given = {"thread_id": thread_id, "run_id": run_id}
        raise InvalidArgument(name="thread_id or run_id", expected="given, and not both", value=given)
    timeout = seconds("timeout", timeout)
    look = partial(_find, journal, thread_id, run_id)
    runs, at_work = yield off_loop(journal, look)
    if at_work and force:
        for one in at_work:
            with suppress(RunAbandoned, RunNotFound):  # its owner is dead, or another call has deleted it
                yield from _stopping.stop(journal, one, "stop", True, timeout)
        with suppress(RunNotFound):
            runs, at_work = yield off_loop(journal, look)
    if at_work:
        raise RunAtWork(run_ids=at_work)
    ids = {run.run_id for run in runs}
    core = core_of(journal)
    for started in [one for run_id in ids if (one := core.local_runs.named(run_id)) is not None]:
        yield wait_for(started, _SETTLING)  # the run has ended, and its task still reads the status once
    for thread in {run.thread_id for run in runs} - {None}:
        for work in core.extensions.at_work_on(str(thread)):
            yield wait_for(work, _SETTLING)
    gone: list[str] = yield off_loop(journal, partial(_delete, journal, runs))
    return gone


def _find(journal: RunJournal, thread_id: str | None, run_id: str | None) -> tuple[list[Run], list[str]]:
    """Return the runs to delete, the oldest first, and the ids of those that are running."""
    # Import spools first: otherwise a later import could store events of a run that is deleted by then.
    core = core_of(journal)
    core.dead_owners.import_spools()
    core.extensions.end_idle_runs()
    runs = journal.runs(text("thread_id", thread_id), None, None)[::-1] if thread_id is not None else []
    if run_id is not None:
        runs = [journal.run(run_id)]
    is_gone = core.dead_owners.owner_is_gone
    return runs, [run.run_id for run in runs if run.status == RunStatus.RUNNING and not is_gone(run)]


def _delete(journal: RunJournal, runs: list[Run]) -> list[str]:
    for run in runs:
        if run.ended and run.settled:
            continue
        with suppress(RunNotFound):
            # After the claim, no other process can settle the run. The owner of a run that has ended may be alive.
            if not _dead_owners.claim(journal, core_of(journal), run.run_id) and run.status == RunStatus.RUNNING:
                raise RunAtWork(run_ids=[run.run_id])
    return erase(journal, [run.run_id for run in runs])


def erase(journal: RunJournal, run_ids: Collection[str]) -> list[str]:
    """Delete runs that no process writes, and forget them in this process."""
    core = core_of(journal)
    appender = core.writer.appender
    with appender._lock:
        # First, so that events that the writer is storing now are refused without a complaint.
        appender.deleted_runs.add(run_ids)
    try:
        gone = core.store.delete(run_ids)
    except BaseException:
        with appender._lock:
            appender.deleted_runs.discard(run_ids)
        raise
    appender.drop_deleted(run_ids)
    core.extensions.forget(run_ids)
    appender.rotate_spool()
    # The writer deletes the spool file when the store has all events of other runs in that file.
    problem = make_durable(journal, _SETTLING).now()
    if problem is not None:
        logger.warning("a spool file of %s keeps deleted text until the journal can be written: %s", journal.url, problem)
    return gone


def prune(journal: RunJournal, older_than: Age, keep_last: int | None, dry_run: bool, vacuum: bool) -> list[str]:
    """Implement `RunJournal.prune`."""
    core = core_of(journal)
    core.check_open()
    if older_than is None and keep_last is None and not vacuum:
        hint = "Without either, every run that has ended would be deleted"
        raise InvalidArgument(name="older_than or keep_last", expected="given", value=None, hint=hint)
    gone: list[str] = []
    if older_than is not None or keep_last is not None:
        ended_before = before("older_than", older_than, core.clock.wall())
        keep_last = count("keep_last", keep_last)
        core.catch_up()
        gone = core.store.prune(before=ended_before, keep_last=keep_last, dry_run=dry_run)
        core.writer.appender.forget(() if dry_run else gone)
    if vacuum and not dry_run:
        core.store.vacuum()
    return gone
