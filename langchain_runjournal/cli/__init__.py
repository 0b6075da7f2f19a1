"""The command `runjournal`: read, follow, stop and maintain the runs of a journal. Needs the extra `cli`."""

from __future__ import annotations

import sys

__all__ = ["main"]

_EXTRA = ("click", "rich")


def main() -> None:
    """Run the command, and exit with 0 (fine), 1 (a problem was found) or 2 (wrong usage)."""
    try:
        from .app import commands
    except ModuleNotFoundError as exc:
        if (exc.name or "").partition(".")[0] not in _EXTRA:
            raise
        need = 'runjournal: the command line needs the extra "cli". Use `pip install "langchain-runjournal[cli]"`.'
        print(need, file=sys.stderr)  # noqa: T201 - rich, which prints everything else, may be what is missing
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    commands.main(prog_name="runjournal")
