"""The two streams of a command: data on stdout, everything else on stderr."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property
from typing import Any, BinaryIO, Final

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.text import Text

from ..errors import StoreCorrupt, StoreFailed
from .terminal_text import one_line, to_json

_NARROWEST: Final = 40


class Output:
    """What a command prints, and the exit code that follows from it. Every text may hold control characters."""

    def __init__(self) -> None:
        self.as_json = False
        """Whether data is JSON. Only `--json` or its variable says so: a pipe changes no format."""
        self.is_silent = False
        """Whether :meth:`say` prints nothing: during shell completion, the user is in the middle of a line."""
        self.exit_code = 0
        """1 once a problem was found, even if the command continues."""
        self.damage: list[str] = []
        """Logged damage of the journal, printed at the end unless the command has reported it itself."""
        self.has_reported_damage = False
        self.outage: list[str] = []
        """Logged failures of the store, printed at the end unless the command fails because of them."""

    @cached_property
    def out(self) -> Console:
        """The console for data, if a person reads it."""
        return _console(sys.stdout)

    @cached_property
    def talk(self) -> Console:
        """The console for everything else."""
        return _console(sys.stderr)

    def say(self, text: str, style: str = "", *, indent: str = "") -> None:
        """Print one line to stderr."""
        if self.is_silent:
            return
        try:
            self.talk.print(Text(indent + one_line(text), style=style), soft_wrap=True)
        except BrokenPipeError:
            raise
        except OSError:
            pass  # only stderr is full: the data and the exit code are not

    def end_line(self) -> None:
        """Start a new line after the ^C that a terminal shows."""
        if self.talk.is_terminal:
            self.talk.print()

    def note(self, text: str) -> None:
        """Print a note to stderr."""
        self.say(f"runjournal: {text}", "dim")

    def warn(self, text: str) -> None:
        """Print a warning to stderr."""
        self.say(f"runjournal: {text}", "yellow")

    def fault(self, text: str) -> None:
        """Print a problem to stderr. The command continues, and exits with 1."""
        self.say(f"runjournal: {text}", "red")
        self.exit_code = 1

    def report_damage(self) -> None:
        """Print the damage that was logged, unless the command has reported it itself."""
        for text in () if self.has_reported_damage else self.damage:
            self.fault(text)

    def report_outage(self) -> None:
        """Print the failures of the store that were logged."""
        while self.outage:
            self.warn(self.outage.pop(0))

    def row(self, *cells: str) -> None:
        """Print a line of data for people."""
        self.out.print(Text("  ".join(one_line(cell) for cell in cells if cell)), soft_wrap=True)

    def line(self, value: Any) -> None:
        """Print a line of data as JSON."""
        self.lines([to_json(value)])

    def lines(self, lines: list[str]) -> None:
        """Print lines that are JSON already, as UTF-8 whatever the encoding of the terminal is, and flush them."""
        data = "".join(f"{line}\n" for line in lines).encode()
        sys.stdout.flush()
        write_all(sys.stdout.buffer, data)
        sys.stdout.buffer.flush()

    def spinner(self, text: str) -> AbstractContextManager[object]:
        """Show a spinner on stderr while the body runs, if stderr is a terminal."""
        return self.talk.status(Text(one_line(text)), spinner="dots") if self.talk.is_terminal else nullcontext()

    @contextmanager
    def progress_bar(self, what: str, *, wanted: bool = True) -> Iterator[Callable[[int, int], object]]:
        """Show a bar on stderr, if that is a terminal. Yield a function of two counts: done, and total."""
        if not (wanted and self.talk.is_terminal):  # a disabled bar prints an empty line in some releases of rich
            yield lambda done, total: None
            return
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        with Progress(*columns, console=self.talk, transient=True) as progress:
            task = progress.add_task(what, total=None)
            yield lambda done, total: progress.update(task, completed=done, total=total)


class LogLines(logging.Handler):
    """A log handler that prints each warning of the package as one line on stderr; a failure of the store at the end.

    A warning about the store itself (`record.of_the_store`) is true for every command: only `runjournal check` prints it.
    """

    def __init__(self, output: Output) -> None:
        super().__init__(logging.WARNING)
        self._output = output

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record; keep one about damage for the end of the command."""
        if getattr(record, "of_the_store", False) and click.get_current_context().info_name != "check":
            return
        text = record.getMessage()
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, StoreCorrupt):
            # Not yet: the command may raise the same damage itself.
            self._output.damage.append(f"{text}: {error.reason}; see `runjournal check`")
            return
        if error is not None:
            text += f" ({error})"
        text = f"{record.levelname.lower()}: {text}"
        values = record.args if isinstance(record.args, tuple) else ()
        if any(isinstance(value, StoreFailed) for value in (error, *values)):
            self._output.outage.append(text)  # not yet: the command may raise the same error itself
        else:
            self._output.warn(text)


class _Console(Console):
    """A console that leaves a closed pipe to the command: rich itself would exit with 1."""

    def on_broken_pipe(self) -> None:
        """Raise the error that rich is handling."""
        raise


def write_all(file: BinaryIO, data: bytes) -> None:
    """Write all of `data`: under PYTHONUNBUFFERED, one `write` to stdout may write only a part."""
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]


def _console(stream: Any) -> Console:
    # Set rather than detected by rich: no environment variable may put colours into a pipe.
    is_terminal = bool(stream.isatty())
    width = None if is_terminal or os.environ.get("COLUMNS", "").isdigit() else 160
    options: dict[str, Any] = {"force_terminal": is_terminal, "width": width}
    console = _Console(file=stream, highlight=False, markup=False, emoji=False, **options)
    console.width = max(console.width, _NARROWEST)  # COLUMNS may be 0
    return console
