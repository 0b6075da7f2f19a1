"""`runjournal list`: the runs, newest first."""

from __future__ import annotations

import time

import click
from rich.table import Table
from rich.text import Text

from ...events import Run, RunStatus
from ...journal.run_journal import RunJournal
from ..options import Command, Settings, common
from ..run_lookup import Ids, ids_of, owner_of
from ..terminal_text import STYLES, ago, one_line, roughly, run_data, standing, to_json, tokens

_EPILOG = """\b
Examples:
  runjournal list
  runjournal list --thread user-42 --all
  runjournal list --status interrupted --json | jq -r .run_id

Marks: "not settled" (its thread may lack what the journal holds), "stopping" (a stop was requested), "dead owner" (its
process ended or lost its lease: see `runjournal recover`), "lost" (events that could not be kept). Tokens: what the models
reported, with a + where a call did not report.
"""
_WIDE, _NARROW = 120, 72


@click.command("list", cls=Command, epilog=_EPILOG, short_help="List the runs, newest first.")
@click.option("--thread", metavar="THREAD", help="Only the runs of this thread.")
@click.option("--status", type=click.Choice([str(status) for status in RunStatus]), help="Only the runs with this status.")
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="The most runs to list.")
@click.option("--all", is_flag=True, help="List all runs.")
@common
@click.pass_obj
def list_runs(settings: Settings, thread: str | None, status: str | None, limit: int, all: bool) -> None:
    """List the runs, newest first, with their status and their tokens."""
    output = settings.output
    with settings.open() as journal:
        runs = journal.runs(thread, status, None if all else limit + 1)
        ids = ids_of(journal)
        shown = runs if all else runs[:limit]
        if output.as_json:
            output.lines([_json(journal, run, ids) for run in shown])
        elif shown:
            output.out.print(_table(journal, shown, ids, output.out.width))
            for run in shown:
                if run.problem is not None:
                    output.note(f"{one_line(ids.short(run.run_id))} is not settled: {one_line(run.problem)}")
    if len(runs) > len(shown):
        output.note(f"there are more: --all lists them, --limit {limit * 2} some of them")
    if not runs:
        output.note("no run matches" if thread is not None or status is not None else "the journal has no run")


def _json(journal: RunJournal, run: Run, ids: Ids) -> str:
    return to_json(run_data(run, ids.short(run.run_id), owner_of(journal, run)))


def _table(journal: RunJournal, runs: list[Run], ids: Ids, room: int) -> Table:
    """Build the table. A narrow one has fewer columns, and the marks below the status."""
    wide, narrow = room >= _WIDE, room < _NARROW
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("run", no_wrap=True, style="bold")
    table.add_column("thread", no_wrap=True, overflow="ellipsis", max_width=28 if wide else 12)
    if wide:
        table.add_column("name", no_wrap=True, overflow="ellipsis", max_width=20)
    table.add_column("status")
    if not narrow:
        table.add_column("begun", no_wrap=True)
        table.add_column("took", no_wrap=True, justify="right")
        table.add_column("events", no_wrap=True, justify="right")
    if wide:
        table.add_column("tokens", no_wrap=True)
        table.add_column("marks")
    now = time.time()
    width = max(len(ids.short(run.run_id)) for run in runs)
    for run in runs:
        took = (run.ended_at or now) - run.started_at
        has_dead_owner = owner_of(journal, run) == "gone"  # how long it ran is unknown
        status = Text(standing(run), style=STYLES[run.status])
        mark = Text(", ".join(marks(journal, run)), style="yellow")
        if mark and not wide:
            status.append("\n").append_text(mark)
        row = [
            Text(one_line(max(ids.short(run.run_id), run.run_id[:width].rstrip("-"), key=len))),
            Text(one_line(run.thread_id or "")),
            *([Text(one_line(run.name or ""))] if wide else []),
            status,
            *(() if narrow else (Text(ago(run.started_at, now)), Text("" if has_dead_owner else roughly(took)))),
            *(() if narrow else (Text(f"{run.last_seq:,}"),)),
            *([Text(tokens(run.usage), style="dim"), mark] if wide else []),
        ]
        table.add_row(*row)
    return table


def marks(journal: RunJournal, run: Run) -> list[str]:
    """List what is unusual about a run."""
    found = []
    if run.ended and not run.settled:
        found.append("not settled")
    if run.stop is not None and not run.ended:
        found.append("stopping")
    if owner_of(journal, run) == "gone":
        found.append("dead owner")
    if run.lost:
        found.append(f"lost {run.lost:,}")
    return found
