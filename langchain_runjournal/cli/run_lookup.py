"""Find a run by a prefix of its id, read its events, and tell the state of its owner."""

from __future__ import annotations

import logging
import re
import time
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

import click
from click.shell_completion import CompletionItem

from ..common.text import is_utf8
from ..common.wording import plural
from ..errors import RunJournalError, RunNotFound
from ..events import Event, Run, RunStatus
from ..journal.check import GapFinder, how_to_end, read_on
from ..journal.core import core_of
from ..journal.run_journal import RunJournal
from .options import CommandFailed, Settings
from .output import Output
from .terminal_text import ago, one_line, standing

_SHORTEST: Final = 8
_CANDIDATES: Final = 5
_PAGE: Final = 2_000
_IDS: Final = 10_000
OwnerState = Literal["alive", "gone", "unknown", "nobody"]
"""The values of `owner_state`. "gone": a dead owner. "unknown": on another machine, with a lease that has not run out."""


if TYPE_CHECKING:
    _Text = click.ParamType[str, Any]
else:
    _Text = click.ParamType  # not generic in every release of click


class RunId(_Text):
    """A run on the command line: an id, a prefix that only one run has, @last, or @2 for the last but one."""

    name = "run"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Offer the ids with this prefix, the newest first. Print nothing, whatever fails."""
        settings = ctx.ensure_object(Settings)
        settings.output.is_silent = True
        logging.getLogger("langchain_runjournal").setLevel(logging.CRITICAL)
        try:
            with settings.open() as journal:
                runs = [run for run in journal.runs(limit=None) if run.run_id.startswith(incomplete)]
        except (RunJournalError, OSError, CommandFailed, click.UsageError):
            return []
        # An id with characters that a shell interprets is not offered.
        plain = [run for run in runs if run.run_id.isprintable() and " " not in run.run_id]
        return [CompletionItem(run.run_id, help=one_line(f"{run.name or ''} {standing(run)}", 60)) for run in plain[:50]]


class Ids:
    """The ids of the runs of a journal, sorted. `beginning`: lists those with a prefix, at most so many, or all."""

    def __init__(self, beginning: Callable[[str, int | None], list[str]]) -> None:
        self._beginning = beginning

    def short(self, run_id: str) -> str:
        """Return the shortest prefix of an id that no other run has, of at least 8 characters."""
        least, most = _SHORTEST, len(run_id)
        while least < most:
            middle = (least + most) // 2
            if all(other == run_id for other in self._beginning(run_id[:middle], 2)):
                most = middle
            else:
                least = middle + 1
        while run_id[least - 1 : least] == "-":
            least += 1
        return run_id[:least]

    def beginning_with(self, start: str) -> list[str]:
        """List the ids with a prefix."""
        return self._beginning(start, None)


def ids_of(journal: RunJournal) -> Ids:
    """Return the ids of the runs of a journal. No run is read for that."""
    core = core_of(journal)
    core.catch_up()
    beginning = getattr(core.store, "ids", None)
    if beginning is not None:
        return Ids(beginning)
    known: list[str] = []
    after = 0
    while page := core.store.began(after, thread_id=None, limit=_IDS):
        known += [one.run_id for one in page]
        after = page[-1].number
    return Ids(partial(_beginning, sorted(known)))


def _beginning(known: list[str], start: str, limit: int | None) -> list[str]:
    first = last = bisect_left(known, start)
    most = len(known) if limit is None else first + limit
    while last < min(most, len(known)) and known[last].startswith(start):
        last += 1
    return known[first:last]


def short_id(journal: RunJournal, run_id: str) -> str:
    """Return the shortest unique prefix of an id."""
    return ids_of(journal).short(run_id)


def find_run(journal: RunJournal, name: str | None) -> Run:
    """Return the run that a user has named, or the newest one. Raise `CommandFailed` if no run or several match."""
    if name is None:
        newest = journal.runs(limit=1)
        if not newest:
            raise CommandFailed(f"The journal {journal.url} holds no run yet.")
        return newest[0]
    if not name:
        raise CommandFailed("An empty run id names no run. List them with `runjournal list`.")
    if not is_utf8(name):
        raise CommandFailed(f"{name!r} is not a run id: UTF-8 cannot encode it. List them with `runjournal list`.")
    try:
        return journal.run(name)
    except RunNotFound:
        pass
    counted = re.fullmatch(r"@(last|[0-9]+)", name)
    if counted:
        place = 1 if counted[1] == "last" else int(counted[1])
        runs = journal.runs(limit=place)
        if len(runs) < place or place < 1:
            runs = journal.runs(limit=None)  # a damaged run is left out, also by a limit
        if not 1 <= place <= len(runs):
            raise CommandFailed(f"{name} names no run: the journal holds {plural(len(runs), 'run')}.")
        return runs[place - 1]
    found = ids_of(journal).beginning_with(name)
    if len(found) == 1:
        return journal.run(found[0])
    if not found:
        held = "List what it holds with `runjournal list --all`."
        raise CommandFailed(f"The journal {journal.url} holds no run {name!r}. {held}")
    raise CommandFailed(
        f"{plural(len(found), 'run')} begin with {name!r}. Give more of the id:", *_candidates(journal, found)
    )


def _candidates(journal: RunJournal, found: Collection[str]) -> Iterator[str]:
    """Yield a line for each of the newest runs among `found`: its id, its thread and its age."""
    now = time.time()
    newest = [run for run in journal.runs(limit=None) if run.run_id in found]
    for run in newest[:_CANDIDATES]:
        thread = "no thread" if run.thread_id is None else f"thread {one_line(run.thread_id, 40)}"
        yield f"{run.run_id}, {thread}, {standing(run)}, begun {ago(run.started_at, now)}"
    if len(newest) > _CANDIDATES:
        yield f"and {plural(len(newest) - _CANDIDATES, 'older run')}"


def find_runs(journal: RunJournal, names: Iterable[str | None]) -> list[Run]:
    """Return the runs that a user has named, each once."""
    return list({run.run_id: run for run in (find_run(journal, name) for name in names)}.values())


def owner_of(journal: RunJournal, run: Run) -> OwnerState:
    """Return the state of a run's owner; `"nobody"` for a run that has ended or waits for a human."""
    return owner_and_process(journal, run)[0]


def owner_and_process(journal: RunJournal, run: Run) -> tuple[OwnerState, int | None]:
    """Return the state of a run's owner, and the number of its process."""
    if run.ended or run.status == RunStatus.PAUSED:
        return "nobody", None
    dead_owners = core_of(journal).dead_owners
    owner = dead_owners.owner(run.owner)
    return ("gone", None) if owner is None else (dead_owners.verdict(owner), owner.pid)


def owner_is_dead(run: Run, more: str = "") -> str:
    """Return that the owner of a run is dead, and what ends the run. `more`: sentences in between."""
    return f"The owner of run {run.run_id} is dead: its process ended, or lost its lease.{more} {how_to_end(run)}."


def events_of(output: Output, journal: RunJournal, run: Run) -> Iterator[Event]:
    """Yield the events of a run, read a page at a time. Report missing events after the last one."""
    gap_finder = GapFinder(run.run_id)
    while page := read_on(journal, run.run_id, gap_finder.last, _PAGE):
        gap_finder.see(page)
        yield from page
    report_missing(output, run.run_id, *gap_finder.take_gaps(), *gap_finder.differences(run))


def report_missing(output: Output, run_id: str, *found: str) -> None:
    """Report what a run lacks; each of `found` is a predicate, such as "has a gap: 3 is followed by 7"."""
    for said in found:
        output.fault(f"run {run_id} {said}; see `runjournal check`")
