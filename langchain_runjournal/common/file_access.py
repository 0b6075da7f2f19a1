"""Who else may read a journal's files, or put others in their place: mended where that is ours to do, refused otherwise.

Rule: what users wrote to a model is for one user of the machine. A file of our own loses the permissions that others have on
it, with a warning. A directory with the setgid bit (`chmod g+s`) says that its group shares it on purpose, as the volumes of
Kubernetes do with `fsGroup`: there, group permissions and files of other members are left as they are.

Nothing here opens a file: closing it again would take SQLite's locks from this process.
"""

from __future__ import annotations

import logging
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

from ..errors import StoreExposed

logger = logging.getLogger("langchain_runjournal")

_said: set[str] = set()

_SIDES: Final = ("-wal", "-shm", "-journal")
_MOST_LINKS: Final = 40
_HAS_OWNERS: Final = hasattr(os, "geteuid")


def check_links(path: Path) -> None:
    """Refuse a path that another user can lead elsewhere: by a symbolic link in a directory that everybody may write to."""
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
            return  # opening it says so
        if _others_can_replace(here):
            reason = f"{here} is a symbolic link that another user may have made, or may replace"
            raise StoreExposed(path=str(path), reason=reason)
        target = Path(os.path.normpath(here.parent / os.readlink(here)))
        rest += reversed(target.parts)
        here = Path()


def check(path: Path) -> None:
    """Refuse a database, or a file beside it that SQLite would use, with which another user can do as he likes."""
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


def mend(path: Path) -> list[str]:
    """Take from others the permissions that they have on our files. Returns a sentence for each thing that was mended, or
    that cannot be."""
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
    for said in found:
        if said not in _said:  # what cannot be changed, such as a volume of a container, would be said at each opening
            logger.warning("%s", said)
    _said.update(found)
    return found


def is_shared(path: Path) -> bool:
    """Whether a group shares the directory of a file on purpose."""
    return bool(path.parent.stat().st_mode & stat.S_ISGID)


def is_trusted(path: Path, base: Path) -> bool:
    """Whether the owner of a file is one from whom we take what stands in it: ourselves, root, the owner of the database."""
    if not _HAS_OWNERS or is_shared(base):
        return True
    return path.lstat().st_uid in {os.geteuid(), 0, base.stat().st_uid}


def lend(fd: int, base: Path) -> None:
    """Give a file that we have just made beside a database to those who use that one: its group, where it is shared, and its
    owner, where we are root. SQLite does the same with its -wal and -shm."""
    if not _HAS_OWNERS or not base.exists():
        return
    found = base.stat()
    if group := found.st_mode & 0o060 if is_shared(base) else 0:
        os.fchmod(fd, 0o600 | group)
    if os.geteuid() == 0 and found.st_uid != 0:
        with suppress(OSError):  # root of a namespace that has no number for that user
            os.fchown(fd, found.st_uid, found.st_gid)


def _beside(path: Path) -> list[Path]:
    return [Path(f"{path}{side}") for side in _SIDES]


def _spools(path: Path) -> list[Path]:
    with os.scandir(path.parent) as entries:
        return sorted(Path(one.path) for one in entries if one.name.startswith(f"{path.name}-spool-"))


def _wide(found: os.stat_result, shared: bool) -> int:
    """The permissions that others have on a file, but for those of a group that shares it on purpose."""
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
    # In a directory such as /tmp, only its owner can replace a link; Linux itself follows no others there.
    return not directory.st_mode & stat.S_ISVTX or owner not in {os.geteuid(), 0, directory.st_uid}
