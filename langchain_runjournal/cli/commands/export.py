"""`runjournal export`: all events of runs, as JSON lines; or runs as OpenTelemetry spans."""

from __future__ import annotations

from collections.abc import Iterator

import click

from ...common.wording import plural
from ...errors import RunNotFound, StoreCorrupt
from ...events import Run
from ...journal.run_journal import RunJournal
from ...otel import export_run, http_exporter, otlp_lines, spans_of
from ..options import Command, Settings, common
from ..output import Output, write_all
from ..output_file import open_output
from ..run_lookup import RunId, events_of, find_runs, report_missing
from ..terminal_text import to_json

_EPILOG = """\b
Examples:
  runjournal export @last > run.jsonl
  runjournal export --all -o journal.jsonl
  runjournal export @last --otlp http://localhost:4318
  runjournal export @last --otlp spans.jsonl --content

Each line is an event: run_id, seq, kind, at, call_id, data. With --otlp, runs are
exported as OpenTelemetry spans.
"""


@click.command(cls=Command, epilog=_EPILOG, short_help="Export all events of runs as JSON lines.")
@click.argument("runs", metavar="[RUN]...", nargs=-1, type=RunId())
@click.option("--all", is_flag=True, help="Export every run, the oldest first.")
@click.option("-o", "--output", metavar="FILE", help="Write to this file instead of stdout.")
@click.option("--otlp", metavar="TARGET", help="Send spans to this URL (OTLP over HTTP), or write them to this file.")
@click.option("--content", is_flag=True, help="With --otlp: include messages, and what tools got and returned.")
@common
@click.pass_obj
def export(
    settings: Settings, runs: tuple[str, ...], all: bool, output: str | None, otlp: str | None, content: bool
) -> None:
    """Export all events of runs, one line of JSON each."""
    if all == bool(runs):
        raise click.UsageError("Give the runs to export, or --all.")
    if otlp is not None and output is not None:
        raise click.UsageError("Give --otlp or --output, not both: --otlp names its own file.")
    if content and otlp is None:
        raise click.UsageError("--content belongs to --otlp. Events are exported with their content.")
    if otlp is not None:
        _export_spans(settings, runs, otlp, content=content)
        return
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


def _export_spans(settings: Settings, runs: tuple[str, ...], target: str, *, content: bool) -> None:
    streams = settings.output
    with settings.open() as journal:
        found = find_runs(journal, runs) if runs else journal.runs(limit=None)[::-1]
        sent = 0
        if "://" in target:
            exporter = http_exporter(target)
            for run in found:
                sent += export_run(journal, run.run_id, exporter, content=content)
            exporter.shutdown()
        else:
            with open_output(journal, target) as file:
                for run in found:
                    spans = spans_of(run.run_id, events_of(streams, journal, run), content=content)
                    write_all(file, otlp_lines(spans).encode())
                    sent += len(spans)
    streams.note(f"{plural(sent, 'span')} of {plural(len(found), 'run')}")


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
