"""The creation of a journal: whole under another name, then linked to its path, so that no process ever sees half a journal.

A process can be killed at any moment of that. Before the link the path has no journal, and the next process creates one. The
files that a killed process left beside it are removed when they are a minute old.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import sqlite3
import time
import uuid
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

logger = logging.getLogger("langchain_runjournal")

_OLD: Final = 60.0
_SIDES: Final = ("", "-journal", "-wal", "-shm")
_NO_LINKS: Final = {errno.EPERM, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.EACCES, errno.EXDEV}
_ATTEMPTS: Final = 3


def make(path: Path, fill: Callable[[sqlite3.Connection], None]) -> None:
    """Create a database at `path`, unless another process was faster: then keep that one. May raise `OSError`."""
    if Path(f"{path}-wal").exists():
        # It belongs to a database that was deleted. SQLite would replay it into ours. Beside an empty file SQLite deletes
        # it, under its own locks; we could not do that safely.
        logger.warning("deleting %s-wal: its database was deleted before", path)
        return _in_place(path, fill)
    for attempt in range(_ATTEMPTS):
        fresh = path.with_name(f"{path.name}-new-{uuid.uuid4().hex}")
        # Only the user of the process may read the messages in it. SQLite gives its -wal and -shm files the same mode.
        os.close(os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        try:
            with closing(sqlite3.connect(fresh, isolation_level=None)) as con:
                # No journal file on disk: no process would look for one of the temporary name.
                con.execute("PRAGMA journal_mode = MEMORY").fetchone()
                fill(con)
            os.link(fresh, path)
            return None
        except FileExistsError:
            return None
        except FileNotFoundError:
            if attempt + 1 == _ATTEMPTS:  # before that: it took a minute, and another process has removed the file
                raise
        except OSError as exc:
            if exc.errno not in _NO_LINKS:
                raise
            # A file system without hard links. There a killed process leaves an empty file, or a journal file that SQLite
            # rolls back: the next process can use both.
            logger.info("creating %s in place, because its file system has no hard links", path)
            return _in_place(path, fill)
        finally:
            _remove(fresh)
    return None


def sweep(path: Path) -> None:
    """Remove the files of processes that were killed while they created a journal here."""
    name = re.compile(rf"({re.escape(path.name)}-new-[0-9a-f]{{32}})(-journal|-wal|-shm)?")
    for found in [match for one in os.listdir(path.parent) if (match := name.fullmatch(one))]:
        with suppress(OSError):  # another process has removed it
            if time.time() - path.with_name(found[0]).lstat().st_mtime > _OLD:
                _remove(path.with_name(found[1]))


def _in_place(path: Path, fill: Callable[[sqlite3.Connection], None]) -> None:
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        return
    with closing(sqlite3.connect(path, isolation_level=None)) as con:
        fill(con)


def _remove(fresh: Path) -> None:
    for side in _SIDES:
        with suppress(OSError):
            Path(f"{fresh}{side}").unlink()
