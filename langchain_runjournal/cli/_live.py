"""`runjournal follow` and `runjournal stop`: runs that are at work, maybe in another process."""

from __future__ import annotations

import click

from ..errors import RunAbandoned, StopTimeout
from ..events import CAUSES, Cause, Run, RunStatus
from ..journal.run_journal import RunJournal
from ._find import RunId, find, owner_of, short_id, tell_missing
from ._following import Following, JsonLines, People
from ._settings import Problem, Settings, common, option, timeout_option
from ._words import run_data, standing

_FOLLOW = """\b
Examples:
  runjournal follow @last
  runjournal follow 019a2b --after 41
  runjournal follow 019a2b --json | jq -r 'select(.kind == "llm.ai.delta").data.text'

It ends with the run: 0. With 1 if nobody is left who could go on with it, because its process was killed.
Ctrl-C ends the following, and not the run: 130.
"""
_STOP = """\b
Examples:
  runjournal stop @last
  runjournal stop 019a2b --cause shutdown --no-wait

It stops runs that were begun by start_run. Any other is told, and stops if its program listens (RunJournal.on_stop).
"""


@click.command(epilog=_FOLLOW, short_help="What a run says, as it comes.")
@click.argument("run", type=RunId())
@option("--after", type=click.IntRange(0), default=0, metavar="SEQ", help="Begin behind this event.")
@common
@click.pass_obj
def follow(settings: Settings, run: str, after: int) -> int:
    """What a run says, as it comes; also one that is at work in another process."""
    with settings.open() as journal:
        found = find(journal, run)
        following = Following(journal, found, after)
        shower = JsonLines(settings) if settings.as_json else People(settings, found, following.seen)
        again = f"runjournal follow {found.run_id} --after"
        try:
            for events in following:
                if gaps := following.tally.take_gaps():
                    shower.end_line()
                    tell_missing(settings, found.run_id, *gaps)
                shower.show(events)
        except KeyboardInterrupt:
            shower.close()
            settings.end_line()
            settings.note(f"not followed any more, and the run goes on. Go on with: {again} {following.after}")
            return 130
        shower.close()
        tell_missing(settings, found.run_id, *following.tally.take_gaps(), *following.tally.differences(following.run))
        match following.outcome:
            case "paused":
                settings.note(f"run {found.run_id} waits for a human. Go on when it has been answered, in a new run.")
            case "abandoned":
                last = following.run.last_seq
                beyond = f" It ends at {last}, and has nothing behind {after}." if after > last else ""
                raise Problem(
                    f"Nobody works on run {found.run_id} any more: its process was killed.{beyond} End it with `runjournal "
                    f"recover`, and go on with: {again} {min(following.after, last)}"
                )
            case _:
                pass
    return 0


@click.command(epilog=_STOP, short_help="Ask a run to stop, and wait until it has.")
@click.argument("run", type=RunId())
@option("--cause", type=click.Choice(CAUSES), default="stop", show_default=True, help="What is written down as the cause.")
@option("--wait/--no-wait", default=True, help="Wait until it is over and its thread whole.", show_default=True)
@timeout_option("How long to wait.")
@common
@click.pass_obj
def stop(settings: Settings, run: str, cause: Cause, wait: bool, timeout: float) -> int:
    """Ask a run to stop, wherever it is at work, and wait until it is over and its thread whole."""
    with settings.open() as journal:
        before = find(journal, run)
        name = before.run_id
        if before.ended or before.status == RunStatus.PAUSED:
            _tell(settings, journal, before)
            settings.note(f"nothing to stop: {'it has ended already' if before.ended else 'it waits for a human'}")
            return 0
        try:
            with settings.spinner(f"Stopping {name}"):
                after = journal.stop(name, cause, wait=wait, timeout=timeout if wait else None)
        except KeyboardInterrupt:
            settings.end_line()
            settings.note("not waited for any more; the request stays")
            raise
        except RunAbandoned:
            raise Problem(f"Run {name} has no owner any more: its process was killed. Use `runjournal recover`.") from None
        except StopTimeout:
            raise Problem(
                f"Run {name} was asked to stop, and has not ended within {timeout:g} s. The request stays: wait longer with "
                "--timeout. A run that start_run did not begin has to listen with on_stop."
            ) from None
        _tell(settings, journal, after)
        if not wait:
            settings.note("asked to stop; `runjournal show` says when it has")
        elif after.ended and not after.settled:
            raise Problem(f"Run {name} has ended, and its thread could not be settled. Use `runjournal recover --graph`.")
    return 0


def _tell(settings: Settings, journal: RunJournal, run: Run) -> None:
    if settings.as_json:
        settings.line(run_data(run, short_id(settings, journal, run.run_id), owner_of(journal, run)))
    else:
        settings.row(run.run_id, standing(run))
