"""`runjournal stop`: ask a run to end, also a run in another process."""

from __future__ import annotations

import click

from ...errors import RunAbandoned, StopTimeout
from ...events import CAUSES, Cause, Run, RunStatus
from ...journal.run_journal import RunJournal
from ..options import Command, CommandFailed, Settings, common, timeout_option
from ..output import Output
from ..run_lookup import RunId, find_run, owner_is_dead, owner_of, short_id
from ..terminal_text import run_data, standing

_EPILOG = """\b
Examples:
  runjournal stop @last
  runjournal stop 019a2b --cause shutdown --no-wait

It stops a run that start_run began. Any other run stops if its program listens with RunJournal.on_stop.
"""


@click.command(cls=Command, epilog=_EPILOG, short_help="Ask a run to stop, and wait until it has ended.")
@click.argument("run", type=RunId())
@click.option("--cause", type=click.Choice(CAUSES), default="stop", show_default=True, help="The cause to record.")
@click.option(
    "--wait/--no-wait", default=True, help="Wait until the run has ended and its thread is settled.", show_default=True
)
@timeout_option("How long to wait.")
@common
@click.pass_obj
def stop(settings: Settings, run: str, cause: Cause, wait: bool, timeout: float) -> int:
    """Ask a run to stop, in whatever process it is running, and wait until it has ended and its thread is settled."""
    output = settings.output
    with settings.open() as journal:
        before = find_run(journal, run)
        name = before.run_id
        if before.ended or before.status == RunStatus.PAUSED:
            _print(output, journal, before)
            output.note(f"nothing to stop: {'it has ended already' if before.ended else 'it waits for a human'}")
            return 0
        try:
            with output.spinner(f"Stopping {name}"):
                after = journal.stop(name, cause, wait=wait, timeout=timeout if wait else None)
        except KeyboardInterrupt:
            output.end_line()
            output.note("stopped waiting; the request stays")
            raise
        except RunAbandoned:
            raise CommandFailed(owner_is_dead(before)) from None
        except StopTimeout:
            raise CommandFailed(
                f"Run {name} has not ended within {timeout:g} s of the request. The request stays: wait longer with "
                "--timeout. A run that start_run did not begin must listen with on_stop."
            ) from None
        _print(output, journal, after)
        if not wait:
            output.note("stop requested; `runjournal show` says when the run has ended")
        elif after.ended and not after.settled:
            raise CommandFailed(
                f"Run {name} has ended, but its thread could not be settled. Use `runjournal recover --graph`."
            )
    return 0


def _print(output: Output, journal: RunJournal, run: Run) -> None:
    if output.as_json:
        output.line(run_data(run, short_id(journal, run.run_id), owner_of(journal, run)))
    else:
        output.row(run.run_id, standing(run))
