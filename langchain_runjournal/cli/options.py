"""The options that every command has, and the journal that they name."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

import click
from click.core import ParameterSource

from ..common.masked_urls import masked
from ..common.wording import plural
from ..errors import UnknownStore
from ..journal.run_journal import RunJournal
from ..stores import exists, is_on_server, path_of
from .output import Output

DEFAULT: Final = "runs.db"
_F = TypeVar("_F", bound=Callable[..., Any])


class CommandFailed(Exception):
    """What went wrong and what to do, in one line. The command exits with 1."""

    def __init__(self, text: str, *more: str) -> None:
        """`more`: lines that stand below it, such as the runs to choose from."""
        super().__init__(text)
        self.more = more


class Settings:
    """The values of the common options, wherever they were given, and the output that they configure."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.output = Output()

    @property
    def debug(self) -> bool:
        """Whether errors are shown with their traceback."""
        return bool(self.values.get("debug"))

    def set(self, name: str, value: Any) -> None:
        """Set the value of an option."""
        self.values[name] = value
        if name == "json":
            self.output.as_json = bool(value)

    @contextmanager
    def open(self) -> Iterator[RunJournal]:
        """Open the journal. Never create one that does not exist."""
        url = self._url()
        journal = RunJournal(url, busy_timeout=self.values.get("busy_timeout"), spool_dir=self.values.get("spool_dir"))
        reported = 0
        try:
            reported = self._report_imports(journal, reported)
            yield journal
        finally:
            journal.close()
            self._report_imports(journal, reported)

    def _report_imports(self, journal: RunJournal, reported: int) -> int:
        """Print what the journal has imported from spools since the first `reported` reports."""
        reports = journal.recovered
        for report in reports[reported:]:
            if report.events:
                size = f"{plural(report.events, 'event')} of {plural(len(report.runs), 'run')}"
                self.output.note(f"imported {size} from the spool of a dead owner")
            if report.problem:
                self.output.warn(f"the spool of a dead owner is damaged: {report.problem}. The file was kept.")
        return len(reports)

    @property
    def url(self) -> str:
        """The path or the URL of the journal, which need not exist."""
        url = str(self.values.get("journal") or DEFAULT)
        if url.strip() == ":memory:":
            raise click.UsageError('":memory:" is a journal that ends with its process: give the path of a file.')
        return url

    def _url(self) -> str:
        given, url = self.values.get("journal"), self.url
        what_to_do = "Give the path or the URL of one with --journal, or set RUNJOURNAL_URL."
        with wrong_urls():
            if is_on_server(url):
                if not exists(url, busy_timeout=self.values.get("busy_timeout")):
                    restore = "If it held one before, restore that from a backup."
                    raise CommandFailed(f"{masked(url)} holds no journal. {what_to_do} {restore}")
                return url
            path = path_of(url)
        if path.is_dir():
            raise CommandFailed(f"{path} is a directory. Give the path of a journal in it, for example {path / DEFAULT}.")
        if not path.exists():
            where = "" if given else f" in {Path.cwd()}"
            raise CommandFailed(f"The journal {path} does not exist{where}. {what_to_do}")
        if path.is_file() and not path.stat().st_size and not Path(f"{path}-wal").exists():
            raise CommandFailed(f"{path} is an empty file, and not yet a journal. {what_to_do}")
        return url


@contextmanager
def wrong_urls() -> Iterator[None]:
    """Turn the error about a URL that names no journal into wrong usage."""
    try:
        yield
    except UnknownStore as exc:
        instead = "Give a path such as runs.db, or a URL such as sqlite:////var/lib/app/runs.db or postgresql://host/db"
        raise click.UsageError(f"{exc.url!r} names no journal: {exc.reason}. {instead}") from exc


class Seconds(click.FloatRange):
    """A number of seconds. NaN is refused: it compares with nothing, so click finds it in every range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Convert a value to a number, or fail."""
        number = float(super().convert(value, param, ctx))
        return self.fail(f"{value!r} is not a number.", param, ctx) if math.isnan(number) else number


def timeout_option(help: str) -> Callable[[_F], _F]:
    """Define `--timeout`, for commands that wait for a run to stop."""
    seconds = Seconds(0, min_open=True)
    return click.option("--timeout", type=seconds, default=60.0, show_default=True, metavar="SECONDS", help=help)


def _keep(ctx: click.Context, parameter: click.Parameter, value: Any) -> None:
    # An option may stand before the name of the command or after it. The command line overrides the environment, and the
    # last occurrence overrides the first.
    settings = ctx.ensure_object(Settings)
    name = str(parameter.name)
    if name not in settings.values or ctx.get_parameter_source(name) == ParameterSource.COMMANDLINE:
        settings.set(name, value)


_Option: TypeAlias = tuple[str, dict[str, Any]]
_GLOBAL: Final[tuple[_Option, ...]] = (
    (
        "--journal",
        {
            "metavar": "PATH_OR_URL",
            "envvar": "RUNJOURNAL_URL",
            "show_envvar": True,
            "help": f"The journal. Without it: {DEFAULT} in the current directory. Give a URL with a password in the"
            " variable, because other users see the command line.",
        },
    ),
    (
        "--json/--no-json",
        {
            "default": None,
            "envvar": "RUNJOURNAL_JSON",
            "show_envvar": True,
            "help": "Print JSON lines instead of text, on a terminal and in a pipe.",
        },
    ),
    (
        "--busy-timeout",
        {
            "type": Seconds(0, 1_000_000, min_open=True),
            "metavar": "SECONDS",
            "help": "How long to wait for another process that has locked the journal. Without it: 5.",
        },
    ),
    (
        "--spool-dir",
        {
            "metavar": "DIRECTORY",
            "envvar": "RUNJOURNAL_SPOOL_DIR",
            "show_envvar": True,
            "help": "The `spool_dir` of the program, if it has one: spools of dead owners are imported from there as well.",
        },
    ),
    ("--debug", {"is_flag": True, "help": "Show the traceback of an error."}),
)


def _with_global(function: _F, *, hidden: bool) -> _F:
    for name, about in reversed(_GLOBAL):
        function = click.option(name, callback=_keep, expose_value=False, hidden=hidden, **about)(function)
    return function


def global_options(function: _F) -> _F:
    """Add the options that every command has to the group, whose help shows them."""
    return _with_global(function, hidden=False)


class Command(click.Command):
    """A command. Its help names the help of the group, which has the options of all commands."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options of this command alone."""
        super().format_options(ctx, formatter)
        formatter.write_paragraph()
        formatter.write_text(f"Options of every command ({', '.join(_NAMES)}): see `runjournal --help`.")


_NAMES: Final = tuple(name.partition("/")[0] for name, _ in _GLOBAL)


def common(function: _F) -> _F:
    """Let a command take the options that every command has, also behind its name. Its help leaves them out."""
    return _with_global(function, hidden=True)
