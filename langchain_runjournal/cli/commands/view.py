"""`runjournal view`: runs as one HTML page."""

from __future__ import annotations

import webbrowser
from pathlib import Path

import click

from ..options import Command, CommandFailed, Settings, common
from ..output import write_all
from ..output_file import open_output
from ..run_lookup import RunId, events_of, find_runs, owner_of, short_id

_EPILOG = """\b
Examples:
  runjournal view --open
  runjournal view 019a2b 019a2c -o runs.html

The page is one file that needs no network. Without -o it is run-<id>.html in the current directory.
"""
_GENERATOR = b'<meta name="generator" content="langchain-runjournal">'


@click.command(cls=Command, epilog=_EPILOG, short_help="Write runs as one HTML page.")
@click.argument("runs", metavar="[RUN]...", nargs=-1, type=RunId())
@click.option("-o", "--output", metavar="FILE", help="Write to FILE instead of run-<id>.html; - is stdout.")
@click.option("--open", is_flag=True, help="Open the page in the browser.")
@click.option("--force", is_flag=True, help="Overwrite a file even if this command did not write it.")
@common
@click.pass_obj
def view(settings: Settings, runs: tuple[str, ...], output: str | None, open: bool, force: bool) -> None:
    """Write runs, or the newest one, as one HTML page: their timeline, messages, tool calls, cut-offs and settlements."""
    from ...view import page

    streams = settings.output
    with settings.open() as journal:
        found = find_runs(journal, runs or (None,))
        name = output or f"run-{_file_name(short_id(journal, found[0].run_id))}.html"
        path = Path(name)
        if name != "-" and path.is_file() and not force and not _is_page(path):
            raise CommandFailed(f"{path} exists, and this command did not write it. Choose another file, or use --force.")
        with open_output(journal, name) as file:
            gone = {run.run_id for run in found if owner_of(journal, run) == "gone"}
            html = page(((run, events_of(streams, journal, run)) for run in found), gone=gone)
            write_all(file, html.encode("utf-8", "replace"))
    if name == "-":
        return
    if streams.as_json:
        streams.line({"path": str(path), "runs": [run.run_id for run in found]})
    else:
        streams.row(str(path))
    if open:
        webbrowser.open(path.resolve().as_uri())


def _file_name(short: str) -> str:
    """Turn an id, which may be any text, into a part of a file name."""
    return "".join(sign if sign.isalnum() or sign in "-_" else "-" for sign in short)[:60]


def _is_page(path: Path) -> bool:
    with path.open("rb") as file:
        return _GENERATOR in file.read(4_096)
