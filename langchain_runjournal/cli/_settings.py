"""The options that every command has, and what they lead to: a journal, and the two ways out."""

from __future__ import annotations

import logging
import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeVar

import click
from click.core import ParameterSource
from rich.console import Console
from rich.text import Text

from ..common.wording import plural
from ..errors import StoreCorrupt, UnknownStore
from ..journal.run_journal import RunJournal
from ..stores import path_of
from ._words import one_line, to_json

DEFAULT: Final = "runs.db"
_NARROWEST: Final = 40
_F = TypeVar("_F", bound=Callable[..., Any])


class Problem(Exception):
    """What is wrong and what to do, in one line: the command ends with 1."""


class Settings:
    """What was asked for before and after the name of the command."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.is_silent = False
        """Whether nothing is to be said: one is in the middle of a line."""
        self.exit_code = 0
        """1 once something was found that is not as it should be, also where the command goes on."""
        self.damage: list[str] = []
        """What the package has logged of damage: said at the end, unless the command has said itself what is damaged."""
        self.has_told_damage = False

    @property
    def debug(self) -> bool:
        """Whether errors are shown with where they come from."""
        return bool(self.values.get("debug"))

    @property
    def as_json(self) -> bool:
        """Whether the data is for a program: when asked, or when it does not go to a terminal."""
        wanted = self.values.get("json")
        return not self.out.is_terminal if wanted is None else bool(wanted)

    @cached_property
    def out(self) -> Console:
        """Where data goes, when it is for people."""
        return _console(sys.stdout)

    @cached_property
    def talk(self) -> Console:
        """Where everything else goes."""
        return _console(sys.stderr)

    def say(self, text: str, style: str = "") -> None:
        """A line for the person. `text` may hold anything."""
        if self.is_silent:
            return
        self.talk.print(Text(one_line(text), style=style), soft_wrap=True)

    def end_line(self) -> None:
        """Begin a new line behind the ^C that a terminal shows."""
        if self.talk.is_terminal:
            self.talk.print()

    def note(self, text: str) -> None:
        """The same, for what is good to know."""
        self.say(f"runjournal: {text}", "dim")

    def fault(self, text: str) -> None:
        """Something is not as it should be, and the command goes on with the rest: it will end with 1."""
        self.say(f"runjournal: {text}", "red")
        self.exit_code = 1

    def tell_damage(self) -> None:
        """Say what has been logged of damage."""
        for text in () if self.has_told_damage else self.damage:
            self.fault(text)

    def row(self, *cells: str) -> None:
        """A line of data, for people. What is in it may hold anything."""
        self.out.print(Text("  ".join(one_line(cell) for cell in cells if cell)), soft_wrap=True)

    def line(self, value: Any) -> None:
        """A line of data, for a program."""
        self.lines([to_json(value)])

    def lines(self, lines: list[str]) -> None:
        """Lines of data that are JSON already. Written as UTF-8, whatever the terminal speaks, and at once."""
        data = "".join(f"{line}\n" for line in lines).encode()
        sys.stdout.flush()
        write_all(sys.stdout.buffer, data)
        sys.stdout.buffer.flush()

    def spinner(self, text: str) -> AbstractContextManager[object]:
        """Something to look at while one waits, on a terminal."""
        return self.talk.status(Text(one_line(text)), spinner="dots") if self.talk.is_terminal else nullcontext()

    @contextmanager
    def open(self) -> Iterator[RunJournal]:
        """The journal. One that is not there is not made."""
        url = self._url()
        journal = RunJournal(url, busy_timeout=self.values.get("busy_timeout") or 5.0)
        told = 0
        try:
            told = self._tell(journal, told)
            yield journal
        finally:
            journal.close()
            self._tell(journal, told)

    def _tell(self, journal: RunJournal, told: int) -> int:
        """Say what has been brought in that processes had left when they were killed."""
        reports = journal.recovered
        for report in reports[told:]:
            if report.events:
                size = f"{plural(report.events, 'event')} of {plural(len(report.runs), 'run')}"
                self.note(f"brought in {size} that a killed process had left")
            if report.problem:
                damage = f"what a killed process left is damaged: {report.problem}. The file was kept."
                self.say(f"runjournal: {damage}", "yellow")
        return len(reports)

    def _url(self) -> str:
        given = self.values.get("journal")
        url = given or DEFAULT
        if url.strip() == ":memory:":
            raise click.UsageError('":memory:" is a journal that ends with its process: give the path of a file.')
        try:
            path = path_of(url)
        except UnknownStore as exc:
            instead = "Give a path such as runs.db, or a URL such as sqlite:///var/lib/app/runs.db"
            raise click.UsageError(f"{url!r} names no journal: {exc.reason}. {instead}") from exc
        if path.is_dir():
            raise Problem(f"{path} is a directory. Give the path of a journal in it, for example {path / DEFAULT}.")
        what_to_do = "Give the path of one with --journal, or set RUNJOURNAL_URL."
        if not path.exists():
            where = "" if given else f" in {Path.cwd()}"
            raise Problem(f"There is no journal {path}{where}. {what_to_do}")
        if path.is_file() and not path.stat().st_size and not Path(f"{path}-wal").exists():
            raise Problem(f"{path} is an empty file, and no journal yet. {what_to_do}")
        return str(url)


class _Console(Console):
    """One that leaves to the command what becomes of a reader that has gone."""

    def on_broken_pipe(self) -> None:
        """Called where the error is handled."""
        raise


def write_all(file: BinaryIO, data: bytes) -> None:
    """Write it to the end: under PYTHONUNBUFFERED, the standard output is a file that may take a part of it only."""
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]


def _console(stream: Any) -> Console:
    # Said rather than guessed: no variable of the environment may put colours into a pipe.
    is_terminal = bool(stream.isatty())
    width = None if is_terminal or os.environ.get("COLUMNS", "").isdigit() else 160
    options: dict[str, Any] = {"force_terminal": is_terminal, "width": width}
    console = _Console(file=stream, highlight=False, markup=False, emoji=False, **options)
    console.width = max(console.width, _NARROWEST)  # COLUMNS=0, say
    return console


class OneLine(logging.Handler):
    """What the package logs, each in one line among the talk."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(logging.WARNING)
        self._settings = settings

    def emit(self, record: logging.LogRecord) -> None:
        """Say it."""
        text = record.getMessage()
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, StoreCorrupt):
            # Not yet: whatever the command does next may stumble over the same.
            self._settings.damage.append(f"{text}: {error.reason}; see `runjournal check`")
            return
        if error is not None:
            text += f" ({error})"
        self._settings.say(f"runjournal: {record.levelname.lower()}: {text}", "yellow")


def _note(ctx: click.Context, parameter: click.Parameter, value: Any) -> None:
    # Before the command's name or after it: what was typed counts more than what the environment says, and the last more
    # than the first.
    values = ctx.ensure_object(Settings).values
    name = str(parameter.name)
    if name not in values or ctx.get_parameter_source(name) == ParameterSource.COMMANDLINE:
        values[name] = value


def option(*names: str, **more: Any) -> Callable[[_F], _F]:
    """An option whose help shows the variable that sets it, too."""
    return click.option(*names, show_envvar=True, **more)


def _common(*names: str, **more: Any) -> Callable[[_F], _F]:
    return option(*names, callback=_note, expose_value=False, **more)


class Seconds(click.FloatRange):
    """A number of seconds, which NaN is not: it compares with nothing, and so lies in every range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number."""
        number = float(super().convert(value, param, ctx))
        return self.fail(f"{value!r} is not a number.", param, ctx) if math.isnan(number) else number


def timeout_option(help: str) -> Callable[[_F], _F]:
    """`--timeout`, for commands that wait for a run to stop."""
    seconds = Seconds(0, min_open=True)
    return option("--timeout", type=seconds, default=60.0, show_default=True, metavar="SECONDS", help=help)


_COMMON: Final = (
    _common(
        "--journal",
        metavar="PATH_OR_URL",
        envvar="RUNJOURNAL_URL",
        help=f"The journal. Without it: {DEFAULT} in the current directory.",
    ),
    _common(
        "--json/--no-json",
        default=None,
        envvar="RUNJOURNAL_JSON",
        help="JSON lines, or text for people. Without it: JSON lines unless the output is a terminal.",
    ),
    _common(
        "--busy-timeout",
        type=Seconds(0, 1_000_000, min_open=True),
        metavar="SECONDS",
        envvar="RUNJOURNAL_BUSY_TIMEOUT",
        help="How long to wait for another process that has locked the journal. Without it: 5.",
    ),
    _common("--debug", is_flag=True, envvar="RUNJOURNAL_DEBUG", help="Show where an error comes from."),
)


def common(function: _F) -> _F:
    """The options that every command has, and the group as well."""
    for add in reversed(_COMMON):
        function = add(function)
    return function
