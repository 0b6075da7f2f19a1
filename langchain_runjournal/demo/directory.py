"""The directory into which the demonstration writes, and what it says when it cannot write there."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ..errors import RunJournalError

_NAMES: Final = ("runs.db", "threads.db", "threads-without.db", "timeline.html", "victim.log")
_MARK: Final = ".runjournal-demo"
"""The file by which the demonstration knows a directory as its own."""
_CHOOSE: Final = "Choose another --directory."


class DemoFailed(Exception):
    """The demonstration did not go as planned; the message says what happened."""


PROBLEMS: Final = (DemoFailed, RunJournalError, OSError, sqlite3.Error)
"""What the demonstration reports in one line. `BrokenPipeError` is an `OSError`: re-raise it before catching these."""


@contextlib.contextmanager
def demo_directory(given: Path | None) -> Iterator[Path]:
    """Yield the directory `given`; or a new temporary one, which is deleted if the body raises.

    Raise `DemoFailed` for a directory that holds files of another program under the names that the demonstration uses.
    """
    if given is not None:
        yield _own(given)
        return
    made = Path(tempfile.mkdtemp(prefix="runjournal-demo-"))
    try:
        yield made
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise


def _own(given: Path) -> Path:
    try:
        directory = given.expanduser()
        # The names first, then the mark: another demonstration that starts at the same time makes the mark before any file.
        taken = [name for name in _NAMES if os.path.lexists(directory / name)]
        if taken and not os.path.lexists(directory / _MARK):
            raise DemoFailed(
                f"{directory} holds files of something else ({', '.join(taken)}). Nothing was changed. {_CHOOSE}"
            )
        directory.mkdir(parents=True, exist_ok=True)
        (directory / _MARK).touch()
    except OSError as problem:
        raise DemoFailed(f"{given} cannot be used: {problem.strerror or problem}. {_CHOOSE}") from problem
    except RuntimeError as problem:  # "~user", and no such user exists
        raise DemoFailed(f"{given} cannot be used: {str(problem).rstrip('.')}. {_CHOOSE}") from problem
    return directory


def advice(problem: Exception, directory: Path | None) -> str:
    """Return one of `PROBLEMS` in words, with what a person at a keyboard can do about it."""
    where = directory or tempfile.gettempdir()
    match problem:
        case RunJournalError():
            return f"{problem} Or choose another --directory."
        case sqlite3.Error():
            return f"The threads in {where} cannot be used: {problem}. {_CHOOSE}"
        case OSError(filename=None):
            return f"{problem.strerror or problem}. Free space in {where} and where the output goes, then try again."
        case OSError():
            return f"{problem.filename}: {problem.strerror}. {_CHOOSE}"
    return str(problem)
