"""`runjournal delete`: runs, or all runs of a thread, with their text."""

from __future__ import annotations

import sys

import click

from ..common.wording import plural
from ..errors import RunAtWork, StopTimeout
from ._find import RunId, find_all
from ._settings import Problem, Settings, common, option, timeout_option
from ._words import standing

_DELETE = """\b
Examples:
  runjournal delete --thread thread-1
  runjournal delete 019a2b --yes
  runjournal delete --thread thread-1 --force --yes

It deletes runs from the journal. The checkpoints of a thread are in the program's checkpointer, and stay there.
"""


@click.command(epilog=_DELETE, short_help="Delete runs, or a thread's, with their text.")
@click.argument("runs", metavar="[RUN]...", nargs=-1, type=RunId())
@option("--thread", metavar="THREAD", help="All runs of this thread.")
@option("--force", is_flag=True, help="Stop runs that are running, and delete them then.")
@timeout_option("How long --force waits for a run to stop.")
@option("--yes", is_flag=True, help="Do not ask. Required without a terminal.")
@common
@click.pass_obj
def delete(settings: Settings, runs: tuple[str, ...], thread: str | None, force: bool, timeout: float, yes: bool) -> None:
    """Delete runs with their text, also paused ones and such that are not settled. The ids of what went are the data."""
    if (thread is None) == (not runs):
        raise click.UsageError("Give the runs to delete, or --thread.")
    if thread == "":
        raise click.UsageError("An empty --thread names no thread.")
    if not yes and not (sys.stdin.isatty() and settings.talk.is_terminal):
        raise click.UsageError("Without a terminal nobody can be asked: give --yes to delete.")
    with settings.open() as journal:
        found = journal.runs(thread, limit=None) if thread is not None else find_all(journal, runs)
        if not yes:
            for run in found:
                settings.note(f"{run.run_id}  {standing(run)}")
            if found and not click.confirm(f"Delete {plural(len(found), 'run')} for ever?", err=True):
                settings.note("nothing was deleted")
                raise click.Abort
        wanted = [{"thread_id": thread}] if thread is not None else [{"run_id": run.run_id} for run in found]
        gone = 0
        with settings.spinner("Deleting"):
            for one in wanted:
                try:
                    ids = journal.delete(**one, force=force, timeout=timeout)
                except RunAtWork as error:
                    names = ", ".join(error.run_ids)
                    raise Problem(f"Not deleted, for it is running: {names}. Use `runjournal stop`, or --force.") from None
                except StopTimeout as error:
                    raise Problem(
                        f"Not deleted: run {error.run_id} was asked to stop, and has not ended within {timeout:g} s. Wait"
                        " longer with --timeout, or end its process."
                    ) from None
                for run_id in ids:
                    _tell(settings, run_id)
                gone += len(ids)
    settings.note(f"{plural(gone, 'run')} deleted")


def _tell(settings: Settings, run_id: str) -> None:
    if settings.as_json:
        settings.line({"run_id": run_id, "deleted": True})
    else:
        settings.row(run_id)
