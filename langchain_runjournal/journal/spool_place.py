"""Where a journal keeps its spool, and where it looks for those of dead owners.

Rule: beside the file of its store, or in the `spool_dir` that it was given. There, a spool is named after the store and not
after its file: stores of one directory never see each other's spools, and a store on another machine has no file.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Final

from ..common import file_access as _access
from ..errors import InvalidArgument, SpoolDirUnusable, StoreExposed
from ..stores import Store

logger = logging.getLogger("langchain_runjournal")

_NO_SPOOL: Final = (
    "no spool is kept for %s, which has no file on this machine: events wait in memory until they are written, up to 70 ms,"
    " and a kill loses those; give RunJournal a spool_dir"
)


def spool_bases(store: Store, spool_dir: str | os.PathLike[str] | None) -> tuple[Path, ...]:
    """Return the paths that the names of spool files begin with: the last one for new files, all for those of dead owners.

    Raises `SpoolDirUnusable` or `StoreExposed` for a directory in which no spool can be kept.
    """
    beside = () if store.path is None else (store.path,)
    if spool_dir is not None:
        return (*beside, _checked(spool_dir) / f"store-{store.store_id.hex()}")
    if not beside and store.url != ":memory:":
        logger.warning(_NO_SPOOL, store.url)
    return beside


def _checked(given: str | os.PathLike[str]) -> Path:
    text = os.fspath(given) if isinstance(given, (str, os.PathLike)) else None
    if not isinstance(text, str) or not text or "\0" in text:
        raise InvalidArgument(name="spool_dir", expected="the path of a directory, or None", value=given)
    path = Path(text)
    if path.exists() and not path.is_dir():
        raise SpoolDirUnusable(path=text, reason="it is a file")
    if not path.is_dir():
        raise SpoolDirUnusable(path=text, reason="it does not exist")
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        raise SpoolDirUnusable(path=text, reason="it is not writable for this user")
    _access.check_links(path)
    # Resolved once: the process may change its directory.
    path = Path(os.path.realpath(path))
    if (reason := _access.exposure(path)) is not None:
        raise StoreExposed(path=str(path), reason=reason)
    return path
