"""The group of commands. Turns every error of a command into one line on stderr and an exit code."""

from __future__ import annotations

import errno
import io
import logging
import os
import sys
from collections.abc import Sequence
from typing import Any, Final, NoReturn

import click

from .. import __version__
from ..errors import ForeignDatabase, RunJournalError, StoreCorrupt, StoreFailed, StoreNotWritable
from .commands.check import check
from .commands.delete import delete
from .commands.demo import demo
from .commands.doctor import doctor
from .commands.export import export
from .commands.follow import follow
from .commands.list import list_runs
from .commands.prune import prune
from .commands.recover import recover
from .commands.serve import serve
from .commands.show import show
from .commands.stop import stop
from .commands.transcript import transcript
from .commands.view import view
from .options import CommandFailed, Settings, global_options
from .output import LogLines, Output

_SIGPIPE: Final = 141
_INTERRUPTED: Final = 130
_EPILOG: Final = """\b
Examples:
  runjournal list                         the last runs of runs.db
  runjournal --journal app.db show        the newest run of another journal
  runjournal list --json | jq -r .run_id  JSON lines, for programs
  runjournal follow                       the newest run, as its words arrive

Exit: 0 fine, 1 a problem was found, 2 wrong usage. Docs: docs/cli.md
"""


class Commands(click.Group):
    """Commands whose errors are one line on stderr."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List the commands in the order in which a user needs them."""
        return list(self.commands)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, and return its exit code."""
        settings = ctx.ensure_object(Settings)
        logger, handler = logging.getLogger("langchain_runjournal"), LogLines(settings.output)
        logger.addHandler(handler)
        propagates, logger.propagate = logger.propagate, False
        try:
            code = super().invoke(ctx)
            settings.output.report_damage()
            settings.output.report_outage()
            sys.stdout.flush()
        except BrokenPipeError:
            return _SIGPIPE  # here rather than in main(): click would exit with 1
        except (click.exceptions.Exit, click.Abort, click.ClickException):
            raise
        except Exception as exc:
            if settings.debug:
                raise
            settings.output.has_reported_damage |= isinstance(exc, StoreCorrupt)
            settings.output.report_damage()
            if not isinstance(exc, StoreFailed) and not isinstance(exc.__cause__, StoreFailed):
                settings.output.report_outage()
            return _complain(_text(exc), more=exc.more if isinstance(exc, CommandFailed) else ())
        finally:
            logger.removeHandler(handler)
            logger.propagate = propagates
        return code or settings.output.exit_code

    def main(self, args: Sequence[str] | None = None, prog_name: str | None = None, *_: Any, **options: Any) -> NoReturn:
        """Run the program, and exit with its exit code."""
        for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
            if getattr(sys, name) is None:  # the parent closed it (`>&-`): the next file would get its number
                setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
            elif isinstance(stream := getattr(sys, name), io.TextIOWrapper) and mode == "w":
                stream.reconfigure(errors="replace")  # a terminal that cannot show a character gets a question mark
        options |= {"standalone_mode": False}
        try:
            code = self._main(args, prog_name or "runjournal", options)
        except BrokenPipeError:
            code = _SIGPIPE
        _flush_or_discard()
        sys.exit(code)

    def _main(self, args: Sequence[str] | None, prog_name: str, options: dict[str, Any]) -> int:
        try:
            return int(super().main(args, prog_name, **options) or 0)
        except click.Abort:
            return _INTERRUPTED
        except click.UsageError as exc:
            name = exc.ctx.command_path if exc.ctx is not None else "runjournal"
            said = exc.format_message().rstrip(".")
            return _complain(f"{said}{'' if said.endswith('?') else '.'} See `{name} --help`.", 2)
        except click.ClickException as exc:
            return _complain(exc.format_message(), exc.exit_code)
        except BrokenPipeError:
            raise
        except OSError as exc:  # while click itself writes: the help, the version
            return _complain(_text(exc))


def _text(exc: Exception) -> str:
    if isinstance(exc, (RunJournalError, CommandFailed)):
        return _with_options(exc)
    if isinstance(exc, OSError):
        where = f"{exc.filename}: " if exc.filename else ""
        is_full = exc.errno in (errno.ENOSPC, errno.EDQUOT)
        to_do = "Free space there, or write elsewhere" if is_full else "Look at the path and its permissions"
        return f"{where}{exc.strerror or exc}. {to_do}, then try again."
    return f"{type(exc).__name__}: {exc}. This is a bug: `--debug` shows the traceback."


def _with_options(exc: Exception) -> str:
    """Return the message, with the advice for programs turned into options of the command."""
    said = str(exc).replace("open the journal with a longer busy_timeout", "wait longer with --busy-timeout")
    if isinstance(exc, ForeignDatabase):
        said = said.partition(" Give the journal a file")[0] + " Give the path of a journal with --journal."
    said = said.replace("Give `spool_dir` an", "Give --spool-dir an")
    if isinstance(exc, StoreNotWritable):
        said += " To read a journal that you may not write, copy it with the files whose names begin with its name."
    return said


def _complain(text: str, code: int = 1, more: Sequence[str] = ()) -> int:
    output = Output()
    try:
        output.say(f"runjournal: {text}", "red")
        for line in more:
            output.say(line, indent="  ")
    except BrokenPipeError:
        raise
    except OSError:
        pass  # only the exit code is left to report it
    return code


def _flush_or_discard() -> None:
    """Flush both streams. Discard what cannot be written, so that the interpreter does not fail on it at exit."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, stream.fileno())
            os.close(null)
        except ValueError:
            pass  # the stream is closed


@click.group(
    cls=Commands,
    invoke_without_command=True,
    subcommand_metavar="COMMAND [ARGS]...",
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, "-V", "--version", message="runjournal %(version)s")
@global_options
@click.pass_context
def commands(ctx: click.Context) -> None:
    """Read the runs of a journal, follow and stop them, and maintain the journal.

    RUN is an id, a prefix of an id that only one run has, @last, or @2 for the last but one. show, transcript, follow and
    view take the newest run if none is named.

    The options below may stand before the name of a command or behind it. NO_COLOR=1 turns colours off.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help(), err=True)
        ctx.exit(2)


for _command in (
    list_runs,
    show,
    transcript,
    follow,
    stop,
    recover,
    check,
    doctor,
    delete,
    prune,
    export,
    view,
    serve,
    demo,
):
    commands.add_command(_command)
