"""Demonstrate in the terminal, in fifteen seconds, what a journal does. Needs the extra `cli`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["play"]


def play(console: Console, *, directory: Path | None = None, pace: float = 1.0) -> int:
    """Cut an agent off three times, with a journal and without one, and show what is left: fifteen seconds at pace 1.

    Everything shown is read from the threads and the journal of these runs. The demonstration writes the threads, the
    journal and a timeline into `directory`, by default a new temporary directory, and leaves them there. The environment
    variable RUNJOURNAL_DEMO_PACE multiplies `pace`: 0.1 is ten times as fast. Return the exit code: 0; 1 if the journal
    lost something or an error occurred; 130 after Ctrl-C.
    """
    from .scenes import play

    return play(console, directory, pace)
