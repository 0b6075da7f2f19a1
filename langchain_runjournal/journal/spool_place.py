"""Where a journal keeps its spool, and where it looks for those of dead owners.

Rule: beside the file of its store, or in the `spool_dir` that it was given. A store without a file has its spool in the
user's state directory. In a directory, a spool is named after the store: stores of one directory never see each other's
spools.

No variable of our own changes the directory: the environment of a program names it for all programs (`XDG_STATE_HOME`), and
the program for itself (`spool_dir`).
"""

from __future__ import annotations

import errno
import logging
import mmap
import os
import sys
from pathlib import Path
from typing import Final
from uuid import uuid4

from ..common import file_access as _file_access
from ..errors import InvalidArgument, SpoolDirUnusable, StoreExposed
from ..stores import Store

logger = logging.getLogger("langchain_runjournal")

_NAME: Final = "langchain-runjournal"
_FULL: Final = {errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)}
_NO_SPOOL: Final = (
    "no spool is kept for %s, which has no file on this machine (%s): events wait in memory until they are stored, up to"
    " 70 ms or for as long as the store is away, and a kill loses those; give RunJournal a spool_dir, or set XDG_STATE_HOME"
)


def spool_bases(store: Store, spool_dir: str | os.PathLike[str] | None) -> tuple[Path, ...]:
    """Return the paths that the names of spool files begin with: the last one for new files, all for those of dead owners.

    Raises `SpoolDirUnusable` or `StoreExposed` for a `spool_dir` in which no spool can be kept. If the state directory is
    such a directory, return no path, with a warning: the program has not asked for a spool.
    """
    beside = () if store.path is None else (store.path,)
    name = f"store-{store.store_id.hex()}"
    if spool_dir is not None:
        return (*beside, _checked(spool_dir) / name)
    if beside or store.url == ":memory:":
        return beside
    try:
        return (_checked(_state_directory()) / name,)
    except (SpoolDirUnusable, StoreExposed) as exc:
        logger.warning(_NO_SPOOL, store.url, f"{exc.path}: {exc.reason}")
        return ()


def places_of(path: Path | None, store_id: bytes | None, spool_dir: str | os.PathLike[str] | None) -> tuple[Path, ...]:
    """Return what the names of the spool files of a store begin with, for each directory that exists. Create none.

    `path`: the file of the store. A store that cannot be read has no known `store_id`: then only spools beside that file
    are found.
    """
    bases = [] if path is None else [path]
    if store_id is not None:
        name = f"store-{store_id.hex()}"
        if spool_dir is not None:
            bases.append(Path(os.path.realpath(spool_dir)) / name)
        elif path is None and (state := _state_path()) is not None:
            bases.append(state / name)
    return tuple(base for base in bases if base.parent.is_dir())


def _state_path() -> Path | None:
    """Return our directory in the user's state directory, whether it exists or not; None if the user has no home."""
    given = os.environ.get("LOCALAPPDATA" if sys.platform == "win32" else "XDG_STATE_HOME", "")
    try:
        home = Path(given) if os.path.isabs(given) else Path.home() / ".local" / "state"
    except RuntimeError:  # HOME is not set, and the user has no entry in the list of users
        return None
    return home / _NAME


def _state_directory() -> Path:
    """Return our directory in the user's state directory. Create it, for this user alone, if it does not exist."""
    path = _state_path()
    if path is None:
        raise SpoolDirUnusable(path="the state directory", reason="this user has no home directory")
    try:
        if not path.is_dir():
            _file_access.make_private(path)
    except OSError as exc:
        raise SpoolDirUnusable(path=str(path), reason=exc.strerror or str(exc)) from exc
    return path


def _checked(given: str | os.PathLike[str]) -> Path:
    text = os.fspath(given) if isinstance(given, (str, os.PathLike)) else None
    if not isinstance(text, str) or not text or "\0" in text:
        raise InvalidArgument(name="spool_dir", expected="the path of a directory, or None", value=given)
    try:
        return _usable(Path(text))
    except OSError as exc:  # the file system answers nothing but an error
        raise SpoolDirUnusable(path=text, reason=exc.strerror or str(exc)) from exc


def _usable(path: Path) -> Path:
    if path.exists() and not path.is_dir():
        raise SpoolDirUnusable(path=str(path), reason="it is a file")
    if not path.is_dir():
        raise SpoolDirUnusable(path=str(path), reason="it does not exist")
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        raise SpoolDirUnusable(path=str(path), reason="it is not writable for this user")
    _file_access.check_links(path)
    # Resolved once: the process may change its directory.
    path = Path(os.path.realpath(path))
    if (reason := _file_access.exposure(path)) is not None:
        raise StoreExposed(path=str(path), reason=reason)
    try:
        _try_out(path)
    except (OSError, ValueError) as exc:
        why = getattr(exc, "strerror", None) or exc
        reason = f"no memory-mapped file can be made there ({why})"
        raise SpoolDirUnusable(path=str(path), reason=reason) from exc
    return path


def _try_out(path: Path) -> None:
    """Make a memory-mapped file, and delete it. Permissions do not tell: root has all, and some file systems take no file.

    A disk that is full now may have room later: a program that is started again then needs its journal all the more.
    """
    file = path / f"{_NAME}-{uuid4().hex}"
    try:
        fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as exc:
        if exc.errno in _FULL:
            return
        raise
    try:
        os.ftruncate(fd, mmap.PAGESIZE)
        mmap.mmap(fd, mmap.PAGESIZE).close()
    except OSError as exc:
        if exc.errno not in _FULL:
            raise
    finally:
        os.close(fd)
        os.unlink(file)
