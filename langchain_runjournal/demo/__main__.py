"""`python -m langchain_runjournal.demo`: the same as `runjournal demo`, without the command line."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from rich.console import Console

from . import chat, play


class _Console(Console):
    """One that leaves to us what becomes of a reader that has gone."""

    def on_broken_pipe(self) -> None:
        """Called where the error is handled."""
        raise


def main() -> int:
    """Play, or chat. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m langchain_runjournal.demo", description="See what a journal does.")
    parser.add_argument("--directory", type=Path, help="where what is shown is kept")
    parser.add_argument("--chat", action="store_true", help="an interactive chat")
    parser.add_argument("--model", help="for the chat: a real model, as provider:name")
    parser.add_argument("--new", action="store_true", help="for the chat: begin a new conversation")
    given = parser.parse_args()
    console = _Console()
    if given.chat:
        return chat(console, directory=given.directory, model=given.model, new=given.new)
    return play(console, directory=given.directory)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)  # before it has begun
    except BrokenPipeError:
        # Or the interpreter would flush into the closed pipe once more on its way out.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
