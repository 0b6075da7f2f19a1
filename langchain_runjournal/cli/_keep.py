"""`runjournal check`, `prune` and `export`: keeping a journal in order."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from ..common.wording import plural
from ..errors import RunNotFound, StoreCorrupt
from ..events import Run
from ..journal.check import Problem
from ..journal.check import check as problems_of
from ..journal.core import core_of
from ..journal.run_journal import RunJournal
from ._find import RunId, events_of, find_all, tell_missing
from ._settings import Problem as Wrong
from ._settings import Settings, common, option, write_all
from ._words import to_json

_CHECK = """\b
Examples:
  runjournal check
  runjournal check --json | jq -r .what

Looks for gaps, runs that are not settled, open pairs of tool calls and results, damage of the file, and files that others
could read.
"""
_PRUNE = """\b
Examples:
  runjournal prune --older-than 30d --dry-run
  runjournal prune --older-than 12h --keep-last 1000
  runjournal prune --vacuum

A run goes when it is older and not among the last ones. Runs that are running, paused or not settled never go.
"""
_EXPORT = """\b
Examples:
  runjournal export @last > run.jsonl
  runjournal export --all -o journal.jsonl

Each line is an event: run_id, seq, kind, at, call_id, data.
"""
_AGE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([smhdw])")
_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


@contextmanager
def bar(settings: Settings, what: str, *, wanted: bool = True) -> Iterator[Callable[[int, int], object]]:
    """A bar on stderr, on a terminal: call what this yields with what is done, and of how much."""
    if not (wanted and settings.talk.is_terminal):  # one that is disabled prints an empty line in some releases of rich
        yield lambda done, total: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=settings.talk, transient=True) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


# --- check ------------------------------------------------------------------------------------------------------------


@click.command(epilog=_CHECK, short_help="Whether the journal is whole.")
@common
@click.pass_obj
def check(settings: Settings) -> int:
    """Whether the journal is whole: a line for each problem, with what to do about it."""
    found: list[Problem] = []
    seen = 0, 0

    def looked_at(done: int, total: int, events: int) -> None:
        nonlocal seen
        seen = done, events
        progress(done, total)

    with settings.open() as journal:
        # On one terminal, the bar and the lines would get into each other.
        is_one_place = settings.talk.is_terminal and settings.out.is_terminal
        with bar(settings, "Checking") as progress:
            for problem in problems_of(journal, looked_at):
                found.append(problem)
                if not is_one_place:
                    _tell(settings, problem)
        for problem in found if is_one_place else ():
            _tell(settings, problem)
        settings.has_told_damage = any(problem.what == "damage" for problem in found)
    size = f"{plural(seen[0], 'run')}, {plural(seen[1], 'event')}"
    if found:
        settings.say(f"runjournal: {plural(len(found), 'problem')} in {size}", "red")
        return 1
    settings.say(f"fine: {size}", "green")
    return 0


def _tell(settings: Settings, problem: Problem) -> None:
    if settings.as_json:
        settings.line({"what": problem.what, "run_id": problem.run_id, "text": problem.text, "hint": problem.hint})
        return
    told = f"{problem.what}: {problem.text.rstrip('.')}. {problem.hint.rstrip('.')}."
    settings.row(problem.run_id or "", told)


# --- prune ------------------------------------------------------------------------------------------------------------


if TYPE_CHECKING:
    _Seconds = click.ParamType[float, Any]
else:
    _Seconds = click.ParamType  # not a generic one in every release of click


class Age(_Seconds):
    """30d, 12h, 90m, 45s: how long ago."""

    name = "age"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Seconds."""
        match = _AGE.fullmatch(str(value).strip())
        if match is None:
            self.fail(f"{value!r} is no age: give a number with s, m, h, d or w, for example 30d.", param, ctx)
        return float(match[1]) * _UNITS[match[2]]


@click.command(epilog=_PRUNE, short_help="Delete old runs that have ended.")
@option("--older-than", type=Age(), metavar="AGE", help="Only runs that ended longer ago: 30d, 12h, 90m, 45s.")
@option("--keep-last", type=click.IntRange(0), metavar="N", help="Not the N runs that ended last.")
@option("--dry-run", is_flag=True, help="Say what would go, and delete nothing.")
@option("--vacuum", is_flag=True, help="Rewrite the file without the room and the remains of what was deleted.")
@common
@click.pass_obj
def prune(settings: Settings, older_than: float | None, keep_last: int | None, dry_run: bool, vacuum: bool) -> None:
    """Delete old runs that have ended and are settled. The ids of what went are the data."""
    if older_than is None and keep_last is None and not vacuum:
        raise click.UsageError("Give --older-than or --keep-last, so that not everything goes, or --vacuum alone.")
    if dry_run and vacuum:
        raise click.UsageError("Give --dry-run or --vacuum: a dry run writes nothing.")
    with settings.open() as journal, settings.spinner("Pruning"):
        gone = journal.prune(older_than, keep_last, dry_run=dry_run, vacuum=vacuum)
    for run_id in gone:
        if settings.as_json:
            settings.line({"run_id": run_id, "deleted": not dry_run})
        else:
            settings.row(run_id)
    settings.note(f"{plural(len(gone), 'run')} {'would go' if dry_run else 'deleted'}")


# --- export -----------------------------------------------------------------------------------------------------------


@click.command(epilog=_EXPORT, short_help="All events of runs, as JSON lines.")
@click.argument("runs", metavar="[RUN]...", nargs=-1, type=RunId())
@option("--all", is_flag=True, help="Every run, the oldest first.")
@option("-o", "--output", metavar="FILE", help="Where to, instead of the standard output.")
@common
@click.pass_obj
def export(settings: Settings, runs: tuple[str, ...], all: bool, output: str | None) -> None:
    """All events of runs, one line of JSON each."""
    if all == bool(runs):
        raise click.UsageError("Give the runs to export, or --all.")
    with settings.open() as journal:
        found = journal.runs(limit=None)[::-1] if all else find_all(journal, runs)
        total = sum(run.last_seq for run in found)
        shown = output is not None or not settings.out.is_terminal
        with target(journal, output) as file, bar(settings, "Exporting", wanted=shown) as progress:
            done = 0
            for lines in _pages(settings, journal, found):
                write_all(file, "".join(f"{line}\n" for line in lines).encode())
                done += len(lines)
                progress(done, total)
    settings.note(f"{plural(done, 'event')} of {plural(len(found), 'run')}")


def _pages(settings: Settings, journal: RunJournal, runs: list[Run]) -> Iterator[list[str]]:
    page: list[str] = []
    for run in runs:
        try:
            for event in events_of(settings, journal, run):
                page.append(to_json(event.to_dict()))
                if len(page) >= 1_000:
                    yield page
                    page = []
        except RunNotFound:
            pass  # pruned in the meantime
        except StoreCorrupt as error:
            tell_missing(settings, run.run_id, f"cannot be read to its end: {error.reason}")
    yield page


@contextmanager
def target(journal: RunJournal, output: str | None) -> Iterator[BinaryIO]:
    """Where to write: the standard output, or a file that is there only when it is complete."""
    if output is None or output == "-":
        sys.stdout.flush()
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    path = Path(output)
    refuse_journal(journal, path)
    if path.exists() and not path.is_file():
        with path.open("wb") as file:  # a device, say
            yield file
        return
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        # As the journal: what users wrote to a model is for its owner.
        with open(part, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            yield file
        part.replace(path)
    except OSError as exc:
        if exc.filename == os.fspath(part):
            exc.filename = os.fspath(path)  # the other one is nobody's but ours
        raise
    finally:
        part.unlink(missing_ok=True)


def refuse_journal(journal: RunJournal, path: Path) -> None:
    """What is written must not take the place of the journal that it comes from."""
    own = core_of(journal).store.path
    if own is None:
        return
    if path.exists() and path.samefile(own):
        raise Wrong(f"{path} is the journal itself. Choose another file.")
    # SQLite's own files beside it, and spools that nobody has brought in yet.
    if path.name.startswith(f"{own.name}-") and path.absolute().parent.resolve() == own.parent:
        raise Wrong(f"{path} has the name of a file that belongs to the journal. Choose another one.")
