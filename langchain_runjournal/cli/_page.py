"""`runjournal view` and `runjournal demo`: to look at a run, and at what all of this is about."""

from __future__ import annotations

import webbrowser
from pathlib import Path

import click

from ._find import RunId, events_of, find_all, owner_of, short_id
from ._keep import target
from ._settings import Problem, Settings, common, option, write_all

_VIEW = """\b
Examples:
  runjournal view @last --open
  runjournal view 019a2b 019a2c -o runs.html

The page is one file that needs no network. Without -o it is run-<id>.html in the current directory.
"""
_DEMO = """\b
Examples:
  runjournal demo
  runjournal demo --directory demo

It takes fifteen seconds, and needs no key and no network.
"""
_OURS = b'<meta name="generator" content="langchain-runjournal">'


@click.command(epilog=_VIEW, short_help="Runs as one HTML page.")
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, type=RunId())
@option("-o", "--output", metavar="FILE", help="Where to, instead of run-<id>.html; - for the standard output.")
@option("--open", is_flag=True, help="Open it in the browser.")
@option("--force", is_flag=True, help="Write over a file that is no such page.")
@common
@click.pass_obj
def view(settings: Settings, runs: tuple[str, ...], output: str | None, open: bool, force: bool) -> None:
    """Runs as one HTML page: their time line, what was said and called, where they were cut, what was settled."""
    from ..view import page

    with settings.open() as journal:
        found = find_all(journal, runs)
        name = output or f"run-{_file_name(short_id(settings, journal, found[0].run_id))}.html"
        path = Path(name)
        if name != "-" and path.is_file() and not force and not _is_page(path):
            raise Problem(f"{path} exists and is no page of this command. Choose another file, or use --force.")
        with target(journal, name) as file:
            gone = {run.run_id for run in found if owner_of(journal, run) == "gone"}
            html = page(((run, events_of(settings, journal, run)) for run in found), gone=gone)
            write_all(file, html.encode("utf-8", "replace"))
    if name == "-":
        return
    if settings.as_json:
        settings.line({"path": str(path), "runs": [run.run_id for run in found]})
    else:
        settings.row(str(path))
    if open:
        webbrowser.open(path.resolve().as_uri())


def _file_name(short: str) -> str:
    """An id is any text; a name of a file is not."""
    return "".join(sign if sign.isalnum() or sign in "-_" else "-" for sign in short)[:60]


def _is_page(path: Path) -> bool:
    with path.open("rb") as file:
        begin = file.read(4_096)
    return _OURS in begin


@click.command(epilog=_DEMO, short_help="See what a journal does.")
@option("--directory", type=click.Path(file_okay=False, path_type=Path), help="Where its files go, instead of a new one.")
@common
@click.pass_obj
def demo(settings: Settings, directory: Path | None) -> int:
    """An agent that is stopped and killed, with and without a journal."""
    from ..demo import play

    return play(settings.out, directory=directory)
