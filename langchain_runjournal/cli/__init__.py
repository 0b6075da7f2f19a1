"""The command `runjournal`: a journal from a terminal or a script. Needs the extra `cli`."""

from __future__ import annotations

import sys

__all__ = ["main"]

_EXTRA = ("click", "rich")


def main() -> None:
    """The command itself: ends the process with 0 (fine), 1 (a problem was found) or 2 (wrong usage)."""
    try:
        from ._app import commands
    except ModuleNotFoundError as exc:
        if (exc.name or "").partition(".")[0] not in _EXTRA:
            raise
        need = 'runjournal: the command line needs the extra "cli". Use `pip install "langchain-runjournal[cli]"`.'
        print(need, file=sys.stderr)  # noqa: T201 - nothing is there yet to say it with
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    commands.main(prog_name="runjournal")
