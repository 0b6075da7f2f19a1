"""`RunJournal.delete` and `prune`: runs that go, and what this process still held of them in memory and in its spool.

Rule: a run that may still be written is never deleted. Any other is claimed first, so that no process settles it later,
deleted in one transaction, and then forgotten here, so that no late event begins it again.
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
"""Seconds that a deletion waits for a settlement of this process that is at work on the thread."""


def delete(
    journal: RunJournal, thread_id: str | None, run_id: str | None, force: bool, timeout: float | None
) -> Effects[list[str]]:
    """See `RunJournal.delete`."""
    if (thread_id is None) == (run_id is None):
        given = {"thread_id": thread_id, "run_id": run_id}
        raise InvalidArgument(name="thread_id or run_id", expected="given, and not both", value=given)
    timeout = seconds("timeout", timeout)
    look = partial(_find, journal, thread_id, run_id)
    runs, at_work = yield off_loop(journal, look)
    if at_work and force:
        for one in at_work:
            with suppress(RunAbandoned, RunNotFound):  # its process has died, or somebody else has deleted it
                yield from _stopping.stop(journal, one, "stop", True, timeout)
        with suppress(RunNotFound):
            runs, at_work = yield off_loop(journal, look)
    if at_work:
        raise RunAtWork(run_ids=at_work)
    ids = {run.run_id for run in runs}
    core = core_of(journal)
    for started in [one for run_id in ids if (one := core.local_runs.named(run_id)) is not None]:
        yield wait_for(started, _SETTLING)  # it has ended, and its task reads once more how
    for thread in {run.thread_id for run in runs} - {None}:
        for work in core.extensions.at_work_on(str(thread)):
            yield wait_for(work, _SETTLING)
    gone: list[str] = yield off_loop(journal, partial(_delete, journal, runs))
    return gone


def _find(journal: RunJournal, thread_id: str | None, run_id: str | None) -> tuple[list[Run], list[str]]:
    """The runs that are meant, the oldest first, and the ids of those that are at work."""
    # First: what a dead process left in its spool would otherwise come into the store when its run is gone.
    core = core_of(journal)
    core.dead_owners.collect()
    core.extensions.end_idle_runs()
    runs = journal.runs(text("thread_id", thread_id), None, None)[::-1] if thread_id is not None else []
    if run_id is not None:
        runs = [journal.run(run_id)]
    is_free = core.dead_owners.owner_is_gone
    return runs, [run.run_id for run in runs if run.status == RunStatus.RUNNING and not is_free(run)]


def _delete(journal: RunJournal, runs: list[Run]) -> list[str]:
    for run in runs:
        if run.ended and run.settled:
            continue
        with suppress(RunNotFound):
            # From now on no other process can settle it. One that has ended may belong to a journal that lives.
            if not _dead_owners.claim(journal, core_of(journal), run.run_id) and run.status == RunStatus.RUNNING:
                raise RunAtWork(run_ids=[run.run_id])
    return erase(journal, [run.run_id for run in runs])


def erase(journal: RunJournal, run_ids: Collection[str]) -> list[str]:
    """Delete runs that nobody writes, and forget them in this process."""
    core = core_of(journal)
    appender = core.writer.appender
    with appender._lock:
        appender.buried.add(run_ids)  # before: what the writer has in its hands for them is then refused without a complaint
    try:
        gone = core.store.delete(run_ids)
    except BaseException:
        with appender._lock:
            appender.buried.discard(run_ids)
        raise
    appender.bury(run_ids)
    core.extensions.forget(run_ids)
    appender.turn_over()
    # The writer deletes the spool file, once all that the file holds of other runs is in the store.
    problem = make_durable(journal, _SETTLING).now()
    if problem is not None:
        logger.warning("a spool file of %s keeps deleted text until the journal can be written: %s", journal.url, problem)
    return gone


def prune(journal: RunJournal, older_than: Age, keep_last: int | None, dry_run: bool, vacuum: bool) -> list[str]:
    """See `RunJournal.prune`."""
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
