"""A run by as little of its id as is enough, and how a run's id is shortened for people."""

from __future__ import annotations

import logging
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, Literal

import click
from click.shell_completion import CompletionItem

from ..common.text import is_utf8
from ..common.wording import plural
from ..errors import RunJournalError, RunNotFound
from ..events import Event, Run, RunStatus
from ..journal.check import GapFinder, read_on
from ..journal.core import core_of
from ..journal.run_journal import RunJournal
from ._settings import Problem, Settings
from ._words import one_line, standing

_SHORTEST: Final = 8
_CANDIDATES: Final = 5
_PAGE: Final = 2_000
Verdict = Literal["alive", "gone", "unknown", "nobody"]


if TYPE_CHECKING:
    _Text = click.ParamType[str, Any]
else:
    _Text = click.ParamType  # not a generic one in every release of click


class RunId(_Text):
    """A run: its id, as much of it as only one run has, @last, or @2 for the last but one."""

    name = "run"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """The ids that begin so, the newest first. Silent about whatever goes wrong: one is in the middle of a line."""
        settings = ctx.ensure_object(Settings)
        settings.is_silent = True
        logging.getLogger("langchain_runjournal").setLevel(logging.CRITICAL)
        try:
            with settings.open() as journal:
                runs = [run for run in journal.runs(limit=None) if run.run_id.startswith(incomplete)]
        except (RunJournalError, OSError, Problem, click.UsageError):
            return []
        # An id that a shell might take for something else is not offered.
        plain = [run for run in runs if run.run_id.isprintable() and " " not in run.run_id]
        return [CompletionItem(run.run_id, help=one_line(f"{run.name or ''} {standing(run)}", 60)) for run in plain[:50]]


class Ids:
    """The ids of all runs of a journal: no events are read for that."""

    def __init__(self, journal: RunJournal) -> None:
        self.newest_first = [run.run_id for run in journal.runs(limit=None)]
        self._sorted = sorted(self.newest_first)

    def short(self, run_id: str) -> str:
        """As much of an id as no other run has."""
        place = bisect_left(self._sorted, run_id)
        least = _SHORTEST
        for other in (*self._sorted[max(place - 1, 0) : place], *self._sorted[place + 1 : place + 2]):
            same = next((at for at, (a, b) in enumerate(zip(run_id, other, strict=False)) if a != b), len(other))
            least = max(least, same + 1)
        while run_id[least - 1 : least] == "-":
            least += 1
        return run_id[:least]

    def beginning_with(self, start: str) -> list[str]:
        """The ids that begin so."""
        first = bisect_left(self._sorted, start)
        last = first
        while last < len(self._sorted) and self._sorted[last].startswith(start):
            last += 1
        return self._sorted[first:last]


def short_id(settings: Settings, journal: RunJournal, run_id: str) -> str:
    """As much of an id as no other run has. That another one is damaged is not said for that."""
    before = len(settings.damage)
    short = Ids(journal).short(run_id)
    del settings.damage[before:]
    return short


def find(journal: RunJournal, name: str) -> Run:
    """The run that is meant."""
    if not name:
        raise Problem("An empty run id names no run. List them with `runjournal list`.")
    if not is_utf8(name):
        raise Problem(f"{name!r} is no run id: it cannot be written as UTF-8. List them with `runjournal list`.")
    try:
        return journal.run(name)
    except RunNotFound:
        pass
    ids = Ids(journal)
    counted = re.fullmatch(r"@(last|[0-9]+)", name)
    if counted:
        place = 1 if counted[1] == "last" else int(counted[1])
        if not 1 <= place <= len(ids.newest_first):
            raise Problem(f"There is no run {name}: the journal holds {plural(len(ids.newest_first), 'run')}.")
        return journal.run(ids.newest_first[place - 1])
    found = ids.beginning_with(name)
    if len(found) == 1:
        return journal.run(found[0])
    if not found:
        raise Problem(f"The journal {journal.url} holds no run {name!r}. List what it holds with `runjournal list --all`.")
    shown = ", ".join(found[:_CANDIDATES]) + (", …" if len(found) > _CANDIDATES else "")
    raise Problem(f"{plural(len(found), 'run')} begin with {name!r}: {shown}. Give more of the id.")


def owner_of(journal: RunJournal, run: Run) -> Verdict:
    """Whether somebody works on a run; "unknown" of another machine, until its lease has run out."""
    return owner_and_process(journal, run)[0]


def owner_and_process(journal: RunJournal, run: Run) -> tuple[Verdict, int | None]:
    """The same, with the number of the process that works on it, or did."""
    if run.ended or run.status == RunStatus.PAUSED:
        return "nobody", None
    owner = next((owner for owner in core_of(journal).store.owners() if owner.owner_id == run.owner), None)
    if owner is None:
        return "gone", None
    return core_of(journal).dead_owners.verdict(owner), owner.pid


def find_all(journal: RunJournal, names: Iterable[str]) -> list[Run]:
    """The runs that are meant, each once."""
    return list({run.run_id: run for run in (find(journal, name) for name in names)}.values())


def events_of(settings: Settings, journal: RunJournal, run: Run) -> Iterator[Event]:
    """The events of a run as they stand, a page at a time. If some are missing, that is said when all have been read."""
    tally = GapFinder(run.run_id)
    while page := read_on(journal, run.run_id, tally.last, _PAGE):
        tally.see(page)
        yield from page
    tell_missing(settings, run.run_id, *tally.take_gaps(), *tally.differences(run))


def tell_missing(settings: Settings, run_id: str, *found: str) -> None:
    """Say what a run lacks: each as its predicate."""
    for said in found:
        settings.fault(f"run {run_id} {said}; see `runjournal check`")
