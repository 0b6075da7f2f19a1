"""The directory of a demonstration or of a chat, and what is said when it cannot be used.

Rule: a file that is not ours is never written to, and what a directory cannot do is known before anything is shown.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final, Literal, TypeAlias

from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from ..errors import RunJournalError, StoreFailed

Kind: TypeAlias = Literal["demo", "chat"]

_NAMES: Final = {
    "demo": ("runs.db", "threads.db", "threads-without.db", "timeline.html", "killed.log"),
    "chat": ("runs.db", "threads.db"),
}
_MARK: Final = ".runjournal-{}"
"""A file by which a directory is known again."""
_CHOOSE: Final = "Choose another --directory."


class DemoFailed(Exception):
    """The demonstration did not go as planned: what happened, for people."""


PROBLEMS: Final = (DemoFailed, RunJournalError, OSError, sqlite3.Error)
"""What is told in a line. `BrokenPipeError` is one of them by its type only: whoever shows something lets it through."""


@contextlib.contextmanager
def demo_directory(given: Path | None) -> Iterator[Path]:
    """The one that was given; or a new one, which is gone again if what is shown does not come to its end."""
    if given is not None:
        yield own(given, "demo")
        return
    try:
        made = Path(tempfile.mkdtemp(prefix="runjournal-demo-"))
    except OSError as problem:
        raise DemoFailed(f"{problem.strerror or problem}. {_CHOOSE}") from problem
    try:
        yield own(made, "demo")
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise


def chat_directory(given: Path | None) -> Path:
    """The one that was given; or `runjournal-chat` among the state of the user."""
    if given is not None:
        return own(given, "chat")
    state = os.environ.get("XDG_STATE_HOME", "")
    home = Path(state) if os.path.isabs(state) else Path("~", ".local", "state")
    # Nobody else has a file there; and a chat of an earlier version has left no mark.
    return _usable(_expanded(home / "runjournal-chat"), "chat")


def own(directory: Path, kind: Kind) -> Path:
    """A directory that can be used, and has no file that we would write over. Raises `DemoFailed`."""
    directory = _expanded(directory)
    # First the names, then the mark: one who begins at the same time makes the mark before any file.
    taken = [name for name in _NAMES[kind] if os.path.lexists(directory / name)]
    if taken and not os.path.lexists(directory / _MARK.format(kind)):
        raise DemoFailed(f"{directory} holds files of something else ({', '.join(taken)}). Nothing was changed. {_CHOOSE}")
    return _usable(directory, kind)


def _expanded(directory: Path) -> Path:
    try:
        return directory.expanduser()
    except RuntimeError as problem:  # there is no such user
        raise DemoFailed(f"{directory} cannot be used: {str(problem).rstrip('.')}. {_CHOOSE}") from problem


def _usable(directory: Path, kind: Kind) -> Path:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=directory).close()  # permissions are but one reason why one cannot
        (directory / _MARK.format(kind)).touch()
    except OSError as problem:
        raise DemoFailed(f"{directory} cannot be used: {problem.strerror or problem}. {_CHOOSE}") from problem
    return directory


@contextlib.asynccontextmanager
async def open_threads(path: Path) -> AsyncIterator[AsyncSqliteSaver]:
    """The threads of a graph, in a file that has been looked at. Raises `DemoFailed`."""
    async with contextlib.AsyncExitStack() as stack:
        try:
            saver = await stack.enter_async_context(AsyncSqliteSaver.from_conn_string(str(path)))
            await saver.setup()
            async with saver.conn.execute("PRAGMA quick_check(1)") as found:
                said = [str(row[0]) async for row in found]
        except sqlite3.Error as problem:
            raise DemoFailed(f"{path}: {problem}. {_CHOOSE}") from problem
        if said != ["ok"]:
            raise DemoFailed(f"{path}: it is damaged ({' '.join(said)}). {_CHOOSE}")
        yield saver


def what_to_do(problem: Exception, directory: Path | None) -> str:
    """One of `PROBLEMS`, as it is told to somebody at a keyboard."""
    where = directory or tempfile.gettempdir()
    match problem:
        case StoreFailed():
            # Its own advice is for a program.
            return (
                f"{problem.path} could not be read or written: {problem.reason}. Try again when no other process holds it"
                " and its disk has room, or choose another --directory."
            )
        case RunJournalError() if "path" in problem.values:
            return f"{problem} Or choose another --directory."
        case sqlite3.Error():
            return f"The threads in {where} cannot be used: {problem}. {_CHOOSE}"
        case OSError(filename=None):
            return f"{problem.strerror or problem}. Free space in {where} and where the output goes, then try again."
        case OSError():
            return f"{problem.filename}: {problem.strerror}. {_CHOOSE}"
    return str(problem)
