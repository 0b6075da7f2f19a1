"""`runjournal delete`: delete runs, or all runs of a thread, with their text."""

from __future__ import annotations

import sys

import click

from ...common.wording import plural
from ...errors import RunAtWork, StopTimeout
from ..options import Command, CommandFailed, Settings, common, timeout_option
from ..output import Output
from ..run_lookup import RunId, find_runs
from ..terminal_text import standing

_EPILOG = """\b
Examples:
  runjournal delete --thread thread-1
  runjournal delete 019a2b --yes
  runjournal delete --thread thread-1 --force --yes

It deletes runs from the journal. The checkpoints of a thread are in the program's checkpointer, and stay there.
"""


@click.command(cls=Command, epilog=_EPILOG, short_help="Delete runs, or a thread's runs, with their text.")
@click.argument("runs", metavar="[RUN]...", nargs=-1, type=RunId())
@click.option("--thread", metavar="THREAD", help="Delete all runs of this thread.")
@click.option("--force", is_flag=True, help="Stop runs that are running, then delete them.")
@timeout_option("How long --force waits for a run to stop.")
@click.option("--yes", is_flag=True, help="Do not ask. Required without a terminal.")
@common
@click.pass_obj
def delete(settings: Settings, runs: tuple[str, ...], thread: str | None, force: bool, timeout: float, yes: bool) -> None:
    """Delete runs with their text, even if they are paused or not settled. Print their ids."""
    output = settings.output
    if (thread is None) == (not runs):
        raise click.UsageError("Give the runs to delete, or --thread.")
    if thread == "":
        raise click.UsageError("An empty --thread names no thread.")
    if not yes and not (sys.stdin.isatty() and output.talk.is_terminal):
        raise click.UsageError("Without a terminal the command cannot ask: give --yes to delete.")
    with settings.open() as journal:
        found = journal.runs(thread, limit=None) if thread is not None else find_runs(journal, runs)
        if not yes:
            for run in found:
                output.note(f"{run.run_id}  {standing(run)}")
            if found and not click.confirm(f"Delete {plural(len(found), 'run')} for ever?", err=True):
                output.note("nothing was deleted")
                raise click.Abort
        wanted = [{"thread_id": thread}] if thread is not None else [{"run_id": run.run_id} for run in found]
        deleted = 0
        with output.spinner("Deleting"):
            for one in wanted:
                try:
                    ids = journal.delete(**one, force=force, timeout=timeout)
                except RunAtWork as error:
                    names = ", ".join(error.run_ids)
                    to_do = "Use `runjournal stop`, or --force."
                    raise CommandFailed(f"Not deleted, because it is running: {names}. {to_do}") from None
                except StopTimeout as error:
                    raise CommandFailed(
                        f"Not deleted: run {error.run_id} has not ended within {timeout:g} s of the request to stop. Wait"
                        " longer with --timeout, or end its process."
                    ) from None
                for run_id in ids:
                    _print(output, run_id)
                deleted += len(ids)
    output.note(f"{plural(deleted, 'run')} deleted")


def _print(output: Output, run_id: str) -> None:
    if output.as_json:
        output.line({"run_id": run_id, "deleted": True})
    else:
        output.row(run_id)
