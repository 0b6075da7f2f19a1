"""`python -m langchain_runjournal.demo`: the same as `runjournal demo`, without the command line."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from rich.console import Console

from . import play


class _Console(Console):
    """A console that leaves a closed pipe to this module: rich itself would exit with 1."""

    def on_broken_pipe(self) -> None:
        """Raise the error that rich is handling."""
        raise


def main() -> int:
    """Play. Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m langchain_runjournal.demo", description="See what a journal does.")
    parser.add_argument("--directory", type=Path, help="where the demonstration writes its files and leaves them")
    given = parser.parse_args()
    return play(_Console(), directory=given.directory)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)  # pressed before the demonstration began
    except BrokenPipeError:
        # Otherwise the interpreter would flush into the closed pipe once more when it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
