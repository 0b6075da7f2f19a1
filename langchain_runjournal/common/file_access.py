"""Which other users may read or replace the files of a journal: the package repairs what it can, and refuses the rest.

Rule: only one user of the machine may read what users wrote to a model. The package removes the permissions that others have
on a file of its own, with a warning. A directory with the setgid bit (`chmod g+s`) says that its group shares it on purpose,
as the volumes of Kubernetes do with `fsGroup`: there, the package leaves group permissions and the files of other members as
they are.

Nothing here opens a file: closing it again would release the locks that SQLite holds in this process.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

if sys.platform != "win32":
    import fcntl

from ..errors import StoreExposed

logger = logging.getLogger("langchain_runjournal")

_warned: set[str] = set()

_SIDES: Final = ("-wal", "-shm", "-journal")
_MOST_LINKS: Final = 40
_HAS_OWNERS: Final = hasattr(os, "geteuid")


def check_links(path: Path) -> None:
    """Raise `StoreExposed` for a path that another user can redirect.

    Such a path leads through a symbolic link in a directory that every user may write to.
    """
    if not _HAS_OWNERS:
        return
    rest, here = list(reversed(Path(os.path.abspath(path)).parts)), Path()
    links = 0
    while rest:
        here = here / rest.pop()
        if not here.is_symlink():
            continue
        links += 1
        if links > _MOST_LINKS:
            return  # opening the path raises for too many links
        if _others_can_replace(here):
            reason = f"{here} is a symbolic link that another user may have made, or may replace"
            raise StoreExposed(path=str(path), reason=reason)
        target = Path(os.path.normpath(here.parent / os.readlink(here)))
        rest += reversed(target.parts)
        here = Path()


def check(path: Path) -> None:
    """Raise `StoreExposed` for a database that another user can control.

    The same holds for the files beside it that SQLite would use.
    """
    if not _HAS_OWNERS:
        return
    me, shared = os.geteuid(), is_shared(path)
    for one in (path, *_beside(path)):
        try:
            found = one.lstat()
        except FileNotFoundError:
            continue
        if stat.S_ISLNK(found.st_mode):
            raise StoreExposed(path=str(one), reason="it is a symbolic link, and SQLite does not create one there")
        if me in (0, found.st_uid):
            continue
        if found.st_uid != 0 and not shared:
            raise StoreExposed(path=str(one), reason=f"it belongs to another user (uid {found.st_uid})")
        if wide := _wide(found, shared):
            reason = f"it belongs to another user, and others have permissions on it (mode {wide:03o})"
            raise StoreExposed(path=str(one), reason=reason)


def exposure(directory: Path) -> str | None:
    """Return why files of ours are not safe in a directory: another user can put others in their place."""
    if not _HAS_OWNERS:
        return None
    found = directory.stat()
    if found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
        return "every user may replace files in it (change that with `chmod o-w`)"
    if found.st_mode & stat.S_ISGID or os.geteuid() in (0, found.st_uid) or found.st_uid == 0:
        return None
    return f"it belongs to another user (uid {found.st_uid})"


def remove_permissions(path: Path) -> list[str]:
    """Remove the permissions that others have on our files.

    Return a sentence for each permission that this call has removed, or could not remove.
    """
    if not _HAS_OWNERS:
        return []
    shared = is_shared(path)
    wide = {one: bits for one in (path, *_beside(path), *_spools(path)) if (bits := _bits(one, shared))}
    kept = [one for one, bits in wide.items() if not _take_away(one, bits)]
    found = []
    if taken := [one.name for one in wide if one not in kept]:
        on_purpose = (
            "; for a group that is to share them, use `chmod g+s` on their directory"
            if any(bits & 0o070 for bits in wide.values())
            else ""
        )
        found.append(
            f"other users had permissions on {', '.join(taken)} in {path.parent}, which were taken away{on_purpose}"
        )
    if kept:
        names = ", ".join(one.name for one in kept)
        found.append(f"other users have permissions on {names} in {path.parent}, which could not be taken away")
    directory = path.parent.stat().st_mode
    if directory & stat.S_IWOTH and not directory & stat.S_ISVTX:
        found.append(f"every user may replace files in {path.parent}: change that with `chmod o-w`")
    for sentence in found:
        # a volume of a container, for one, would get the warning at each opening, and nothing can be changed there
        if sentence not in _warned:
            logger.warning("%s", sentence)
    _warned.update(found)
    return found


def is_shared(path: Path) -> bool:
    """Return whether a group shares the directory of a file on purpose."""
    return bool(path.parent.stat().st_mode & stat.S_ISGID)


def is_trusted(path: Path, base: Path) -> bool:
    """Return whether the owner of a file is one whose content we trust: this user, root, or the owner of the database.

    Where no database is at `base`, the owner of its directory counts, unless every user may write to that directory.
    """
    if not _HAS_OWNERS or is_shared(base):
        return True
    trusted = {os.geteuid(), 0}
    anchor = base if base.exists() else base.parent
    if anchor == base or not anchor.stat().st_mode & stat.S_IWOTH:
        trusted.add(anchor.stat().st_uid)
    return path.lstat().st_uid in trusted


def lend(fd: int, base: Path) -> None:
    """Give a file that we have just created beside a database to the users of that database.

    The file gets the group of the database where a group shares the directory, and its owner where this process is root.
    SQLite does the same with its -wal and -shm. Where no database is at `base`, its directory says whose the file is.
    """
    if not _HAS_OWNERS:
        return
    found = (base if base.exists() else base.parent).stat()
    if group := found.st_mode & 0o060 if is_shared(base) else 0:
        os.fchmod(fd, 0o600 | group)
    if os.geteuid() == 0 and found.st_uid != 0:
        with suppress(OSError):  # root of a user namespace that has no number for that user
            os.fchown(fd, found.st_uid, found.st_gid)


def make_private(path: Path) -> None:
    """Create a directory, and those above it that are missing, for this user alone.

    Root creates none in a directory of another user, who would not be able to use it. Raises `OSError`.
    """
    missing = [one for one in (path, *path.parents) if not one.exists()]
    if missing and _HAS_OWNERS and os.geteuid() == 0 and missing[-1].parent.stat().st_uid != 0:
        raise PermissionError(errno.EPERM, f"root creates no directory in {missing[-1].parent}, which is another user's")
    for one in reversed(missing):
        one.mkdir(mode=0o700, exist_ok=True)


def lock(fd: int) -> None:
    """Mark a file as one that this process uses, until the last descriptor of the same open file is closed."""
    if sys.platform != "win32":
        with suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)


def is_locked(path: Path) -> bool:
    """Return whether a process uses a file, as far as the file system says that."""
    if sys.platform == "win32":
        return False
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(fd)
    return False


def _beside(path: Path) -> list[Path]:
    return [Path(f"{path}{side}") for side in _SIDES]


def _spools(path: Path) -> list[Path]:
    with os.scandir(path.parent) as entries:
        return sorted(Path(one.path) for one in entries if one.name.startswith(f"{path.name}-spool-"))


def _wide(found: os.stat_result, shared: bool) -> int:
    """Return the permissions that others have on a file, without those of a group that shares it on purpose."""
    return stat.S_IMODE(found.st_mode) & (0o007 if shared else 0o077)


def _bits(path: Path, shared: bool) -> int:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return 0
    return _wide(found, shared) if stat.S_ISREG(found.st_mode) else 0


def _take_away(path: Path, bits: int) -> bool:
    try:
        path.chmod(stat.S_IMODE(path.lstat().st_mode) & ~bits)
        return not stat.S_IMODE(path.lstat().st_mode) & bits
    except FileNotFoundError:
        return True
    except OSError:
        return False


def _others_can_replace(link: Path) -> bool:
    directory, owner = link.parent.stat(), link.lstat().st_uid
    if not directory.st_mode & stat.S_IWOTH:
        return False
    # In a sticky directory such as /tmp, only the owner of a link can replace it, and Linux itself follows no links of other
    # users there.
    return not directory.st_mode & stat.S_ISVTX or owner not in {os.geteuid(), 0, directory.st_uid}
