"""`runjournal follow`: the events of a run as they arrive, also of a run in another process."""

from __future__ import annotations

import click

from ...errors import StoreFailed
from ..event_printer import EventPrinter, JsonPrinter, TextPrinter
from ..options import Command, CommandFailed, Settings, common
from ..run_follower import RunFollower
from ..run_lookup import RunId, find_run, owner_is_dead, report_missing

_EPILOG = """\b
Examples:
  runjournal follow
  runjournal follow 019a2b --after 41
  runjournal follow 019a2b --json | jq -r 'select(.kind == "llm.ai.delta").data.text'

It ends when the run ends, and exits with 0; with 1 if the owner of the run is dead, so that it will not continue.
Ctrl-C ends only the command, not the run, and exits with 130.
"""


@click.command(cls=Command, epilog=_EPILOG, short_help="Follow a run: its events as they arrive.")
@click.argument("run", metavar="[RUN]", required=False, type=RunId())
@click.option("--after", type=click.IntRange(0), default=0, metavar="SEQ", help="Begin after this event.")
@common
@click.pass_obj
def follow(settings: Settings, run: str | None, after: int) -> int:
    """Print what a run, or the newest one, says as it arrives, also of a run in another process. With --json: its events."""
    output = settings.output
    with settings.open() as journal:
        found = find_run(journal, run)
        follower = RunFollower(journal, found, after)
        printer: EventPrinter = JsonPrinter(output) if output.as_json else TextPrinter(output, found, follower.seen)
        again = f"runjournal follow {found.run_id} --after"
        try:
            for events in follower:
                if gaps := follower.gap_finder.take_gaps():
                    printer.end_line()
                    report_missing(output, found.run_id, *gaps)
                printer.show(events)
        except KeyboardInterrupt:
            printer.close()
            output.end_line()
            output.note(f"stopped following; the run continues. Follow it again with: {again} {follower.after}")
            return 130
        except StoreFailed as exc:
            printer.close()
            raise CommandFailed(f"{exc} Follow the run again with: {again} {follower.after}") from exc
        printer.close()
        report_missing(output, found.run_id, *follower.missing())
        match follower.outcome:
            case "paused":
                output.note(f"run {found.run_id} waits for a human. A new run resumes it when the human has answered.")
            case "abandoned":
                last = follower.run.last_seq
                beyond = f" It ends at {last}, and has nothing after {after}." if after > last else ""
                to_do = owner_is_dead(follower.run, beyond)
                raise CommandFailed(f"{to_do} Then follow it with: {again} {min(follower.after, last)}")
            case _:
                if after > (last := follower.run.last_seq):
                    output.note(f"run {found.run_id} has ended with event {last}; nothing follows event {after}")
    return 0
