"""`runjournal export`: all events of runs, as JSON lines."""

from __future__ import annotations

from collections.abc import Iterator

import click

from ...common.wording import plural
from ...errors import RunNotFound, StoreCorrupt
from ...events import Run
from ...journal.run_journal import RunJournal
from ..options import Command, Settings, common
from ..output import Output, write_all
from ..output_file import open_output
from ..run_lookup import RunId, events_of, find_runs, report_missing
from ..terminal_text import to_json

_EPILOG = """\b
Examples:
  runjournal export @last > run.jsonl
  runjournal export --all -o journal.jsonl

Each line is an event: run_id, seq, kind, at, call_id, data.
"""


@click.command(cls=Command, epilog=_EPILOG, short_help="Export all events of runs as JSON lines.")
@click.argument("runs", metavar="[RUN]...", nargs=-1, type=RunId())
@click.option("--all", is_flag=True, help="Export every run, the oldest first.")
@click.option("-o", "--output", metavar="FILE", help="Write to this file instead of stdout.")
@common
@click.pass_obj
def export(settings: Settings, runs: tuple[str, ...], all: bool, output: str | None) -> None:
    """Export all events of runs, one line of JSON each."""
    if all == bool(runs):
        raise click.UsageError("Give the runs to export, or --all.")
    streams = settings.output
    with settings.open() as journal:
        found = journal.runs(limit=None)[::-1] if all else find_runs(journal, runs)
        total = sum(run.last_seq for run in found)
        shown = output is not None or not streams.out.is_terminal
        with open_output(journal, output) as file, streams.progress_bar("Exporting", wanted=shown) as progress:
            done = 0
            for lines in _pages(streams, journal, found):
                write_all(file, "".join(f"{line}\n" for line in lines).encode())
                done += len(lines)
                progress(done, total)
    streams.note(f"{plural(done, 'event')} of {plural(len(found), 'run')}")


def _pages(streams: Output, journal: RunJournal, runs: list[Run]) -> Iterator[list[str]]:
    page: list[str] = []
    for run in runs:
        try:
            for event in events_of(streams, journal, run):
                page.append(to_json(event.to_dict()))
                if len(page) >= 1_000:
                    yield page
                    page = []
        except RunNotFound:
            pass  # another process has pruned it since
        except StoreCorrupt as error:
            report_missing(streams, run.run_id, f"cannot be read to its end: {error.reason}")
    yield page
