"""The group of commands, and what becomes of what goes wrong in them: one line on stderr, and a number."""

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
from ..errors import ForeignDatabase, RunJournalError, StoreCorrupt, StoreNotWritable
from ._delete import delete
from ._keep import check, export, prune
from ._list import list_runs
from ._live import follow, stop
from ._page import demo, view
from ._recover import recover
from ._settings import OneLine, Problem, Settings, common
from ._show import show
from ._transcript import transcript

_SIGPIPE: Final = 141
_INTERRUPTED: Final = 130
_EPILOG: Final = """\b
Examples:
  runjournal list                         the last runs of runs.db
  runjournal --journal app.db show @last  the newest run of another journal
  runjournal list --status failed | jq .  JSON lines, since it is piped
  runjournal follow 019a                  its tokens as they come

Exit: 0 fine, 1 a problem was found, 2 wrong usage. Docs: docs/cli.md
"""


class Commands(click.Group):
    """Commands whose errors are one line on stderr."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order in which one needs them."""
        return list(self.commands)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, and give back its exit code."""
        settings = ctx.ensure_object(Settings)
        logger, handler = logging.getLogger("langchain_runjournal"), OneLine(settings)
        logger.addHandler(handler)
        propagates, logger.propagate = logger.propagate, False
        try:
            code = super().invoke(ctx)
            settings.tell_damage()
            sys.stdout.flush()
        except BrokenPipeError:
            return _SIGPIPE  # here rather than in main(): click would end with 1
        except (click.exceptions.Exit, click.Abort, click.ClickException):
            raise
        except Exception as exc:
            if settings.debug:
                raise
            settings.has_told_damage |= isinstance(exc, StoreCorrupt)
            settings.tell_damage()
            return _complain(_text(exc))
        finally:
            logger.removeHandler(handler)
            logger.propagate = propagates
        return code or settings.exit_code

    def main(self, args: Sequence[str] | None = None, prog_name: str | None = None, *_: Any, **options: Any) -> NoReturn:
        """The whole program: ends it with the exit code."""
        for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
            if getattr(sys, name) is None:  # closed by whoever started us (`>&-`): else its number would go to the next file
                setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
            elif isinstance(stream := getattr(sys, name), io.TextIOWrapper) and mode == "w":
                stream.reconfigure(errors="replace")  # a terminal that cannot show a sign gets a question mark
        options |= {"standalone_mode": False, "auto_envvar_prefix": "RUNJOURNAL"}
        try:
            code = self._main(args, prog_name or "runjournal", options)
        except BrokenPipeError:
            code = _SIGPIPE
        _let_go()
        sys.exit(code)

    def _main(self, args: Sequence[str] | None, prog_name: str, options: dict[str, Any]) -> int:
        try:
            return int(super().main(args, prog_name, **options) or 0)
        except click.Abort:
            return _INTERRUPTED
        except click.UsageError as exc:
            name = exc.ctx.command_path if exc.ctx is not None else "runjournal"
            return _complain(f"{exc.format_message().rstrip('.')}. See `{name} --help`.", 2)
        except click.ClickException as exc:
            return _complain(exc.format_message(), exc.exit_code)
        except BrokenPipeError:
            raise
        except OSError as exc:  # of what click itself writes: the help, the version
            return _complain(_text(exc))


def _text(exc: Exception) -> str:
    if isinstance(exc, (RunJournalError, Problem)):
        return _in_options(exc)
    if isinstance(exc, OSError):
        where = f"{exc.filename}: " if exc.filename else ""
        is_full = exc.errno in (errno.ENOSPC, errno.EDQUOT)
        to_do = "Free space there, or write elsewhere" if is_full else "Look at the path and its permissions"
        return f"{where}{exc.strerror or exc}. {to_do}, then try again."
    return f"{type(exc).__name__}: {exc}. That should not happen: `--debug` shows where it comes from."


def _in_options(exc: Exception) -> str:
    """What it says, with what one does in a program as what one does here."""
    said = str(exc).replace("open the journal with a longer busy_timeout", "wait longer with --busy-timeout")
    if isinstance(exc, ForeignDatabase):
        said = said.partition(" Give the journal a file")[0] + " Give the path of a journal with --journal."
    if isinstance(exc, StoreNotWritable):
        said += " To look at a journal that is not yours, copy it and the files whose names begin with its name."
    return said


def _complain(text: str, code: int = 1) -> int:
    try:
        Settings().say(f"runjournal: {text}", "red")
    except BrokenPipeError:
        raise
    except OSError:
        pass  # the exit code says it
    return code


def _let_go() -> None:
    """Keep the interpreter from writing once more, on its way out, what nobody reads or nothing has room for."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, stream.fileno())
            os.close(null)
        except ValueError:
            pass  # closed


@click.group(
    cls=Commands,
    invoke_without_command=True,
    subcommand_metavar="COMMAND [ARGS]...",
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, message="runjournal %(version)s", allow_from_autoenv=False)
@common
@click.pass_context
def commands(ctx: click.Context) -> None:
    """Look at the runs of a journal, follow and stop them, and keep it in order.

    A RUN is given by its id, by as much of it as only one run has, as @last, or as @2 for the last but one.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help(), err=True)
        ctx.exit(2)


for _command in (list_runs, show, transcript, follow, stop, recover, check, delete, prune, export, view, demo):
    commands.add_command(_command)
