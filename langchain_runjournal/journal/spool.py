"""The spool: a queue of events in memory-mapped files on a disk of this machine, which survives a killed process.

Rule: a record is valid from the moment its length is written, and the length is written last. A store into shared memory
survives `kill -9` without a system call, and so without releasing the GIL. This makes an append cheap beside a busy thread.
The writer thread allocates and touches files ahead of time, because the first touch of a page that a full disk cannot back
kills the process (SIGBUS).

A spool is a series of numbered files of one size. The writer thread deletes a file when the store has all of its events.
`journal/spool_format.py` describes the content of a file, and `journal/spool_reader.py` reads the files of a dead owner.
"""

from __future__ import annotations

import errno
import itertools
import logging
import mmap
import os
import re
import struct
import threading
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Final

from ..common.file_access import lend, lock
from .spool_format import BODY as _BODY
from .spool_format import CALL as CALL
from .spool_format import DRAINED_AT as _DRAINED_AT
from .spool_format import HEADER as _HEADER
from .spool_format import MAGIC as _MAGIC
from .spool_format import NUMBER as _NUMBER
from .spool_format import OPEN as OPEN
from .spool_format import PREFIX as _PREFIX
from .spool_format import START as _START
from .spool_format import TEXT as TEXT
from .spool_format import TURN_AT as _TURN_AT
from .spool_format import VALUE as VALUE

logger = logging.getLogger("langchain_runjournal")

FILE_SIZE: Final = 4 << 20
_CRC_STEP: Final = 4096
_OURS: Final = 0o600
_PAGE: Final = mmap.PAGESIZE
_POPULATE_WRITE: Final = 23  # MADV_POPULATE_WRITE, Linux 5.14: the `mmap` module does not have the constant yet

_pack_prefix, _pack_body, _crc32 = _PREFIX.pack_into, _BODY.pack, zlib.crc32


class SpoolFile:
    """One memory-mapped file of a spool that this process writes."""

    def __init__(self, path: Path, store_id: bytes, owner_id: bytes, number: int, size: int, base: Path) -> None:
        """Create the file. `base`: what its name begins with, which is the database if the file lies beside one."""
        self.path = path
        self.number = number
        self.size = size
        self.pos = _START
        self.is_done: Callable[[], bool] = lambda: False
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), _OURS)
        try:
            lend(fd, base)
            _allocate(fd, size)
            lock(fd)
            self.map = mmap.mmap(fd, size)  # keeps the lock until it is closed: it has the same open file description
        except BaseException:
            os.unlink(path)
            raise
        finally:
            os.close(fd)
        _touch(self.map)
        head = _HEADER.pack(_MAGIC, store_id, owner_id, number, size, 0)
        self._head = head[:-4] + struct.pack("<I", zlib.crc32(head[:-4]))
        self.map[: len(head)] = self._head
        self.mark_drained(_START)
        self._identity = _identity(path)

    def begin(self, turn: int) -> None:
        """Note in the header that this is the file number `turn` in the order of use.

        This order differs from the numbers of the files, since a file for a large record is made while a spare file is
        ready.
        """
        _NUMBER.pack_into(self.map, _TURN_AT, turn)

    def mark_drained(self, pos: int) -> None:
        """Note in the header that the store has all records before `pos`."""
        if not self.map.closed:  # a closed map belongs to a deleted file
            _NUMBER.pack_into(self.map, _DRAINED_AT, pos)

    def is_there(self) -> bool:
        """Return whether the path still names this file, so that another process would find it."""
        return self._identity is not None and _identity(self.path) == self._identity

    def delete(self) -> None:
        """Delete the file, with all records that the store does not have."""
        self.map.close()
        if self.is_there() or self._is_copied():
            self.path.unlink(missing_ok=True)

    def _is_copied(self) -> bool:
        # The directory may have been replaced by a copy of itself. An import would read the copy, which is out of date.
        try:
            with self.path.open("rb") as file:
                return file.read(len(self._head)) == self._head
        except OSError:
            return False


class Spool:
    """The writing end of a spool. It is not thread-safe: an append holds the lock of the appender.

    `put` returns False, and writes nothing, if the record does not fit into the current file.
    """

    def __init__(
        self,
        base: Path,
        store_id: bytes,
        owner_id: bytes,
        *,
        limit: int,
        size: int = FILE_SIZE,
        after: Spool | None = None,
    ) -> None:
        self.base = base
        """The path that the names of the files begin with."""
        self._ids = store_id, owner_id
        self._size = size
        self._limit = max(limit, 2 * size)
        # One owner uses no file name twice, because a file of an earlier spool may still, or again, exist.
        self._numbers: itertools.count[int] = itertools.count(1) if after is None else after._numbers
        self._counting = threading.Lock()
        self.allocated = 0
        """The bytes on disk that the spool takes now; a file for one large record counts like any other. The spool counts
        them itself, since both appends and the writer thread make files."""
        self._full: list[SpoolFile] = []
        self._spares: list[SpoolFile] = []
        self._blocked = False
        self._turn: int = 1 if after is None else after._turn + 1
        self.file = self._make_file(size)
        self.file.begin(self._turn)

    def put(self, slot: int, seq: int, at: int, type: int, payload: bytes) -> bool:
        """Add a record. When this method returns True, a killed process no longer loses the record."""
        body = _pack_body(slot, seq, at, type) + payload
        size = len(body)
        file = self.file
        pos = file.pos
        end = pos + size + 8
        if end > file.size:
            return False
        file.map[pos + 8 : end] = body
        crc = _crc32(body) if size <= _CRC_STEP else _crc_of(body)
        # The checksum is written first and the length last, because the length makes the record valid.
        _pack_prefix(file.map, pos, crc, size)
        file.pos = end
        return True

    def rotate(self, need: int, is_done: Callable[[], bool]) -> bool:
        """Switch to another file, with room for a record of `need` payload bytes. Return False if the limit forbids it.

        `is_done`: a function that says whether the store has all events of the file that was current before.
        """
        need += _START + _BODY.size + _PREFIX.size
        fresh = self._spares.pop() if self._spares else None  # a single operation, because the writer thread may pop as well
        if fresh is not None and fresh.size < need:
            self._spares.append(fresh)
            fresh = None
        if fresh is None:
            # The writer thread keeps a spare file ready. This branch is for bursts that outrun it, and for records larger
            # than a file. It costs the caller a millisecond, which is better than the loss of the event by a kill.
            size = -(-max(need, self._size) // _PAGE) * _PAGE
            # One record that is larger than a file may exceed the limit, because in no other place it survives a kill.
            alone = size > self._size and not any(file.size > self._size for file in [*self._full, self.file])
            if self._blocked or (not alone and self.allocated + size > self._limit):
                return False
            try:
                fresh = self._make_file(size)
            except OSError as exc:
                # Appends do not try again. The writer thread tries until it succeeds.
                self._blocked = True
                logger.warning("no room for a spool file %s: %s", place_of(self.base), exc)
                return False
        self.file.is_done = is_done
        self._full.append(self.file)
        self._turn += 1
        fresh.begin(self._turn)
        self.file = fresh
        return True

    @property
    def is_used(self) -> bool:
        """Whether the current file holds a record."""
        return self.file.pos > _START

    @property
    def is_ready(self) -> bool:
        """Whether a spare file is ready."""
        return bool(self._spares)

    def prepare(self) -> None:
        """Make a spare file, so that no append has to make one. The writer thread calls this method, without the lock."""
        if not self._spares and self.allocated + self._size <= self._limit:
            try:
                self._spares.append(self._make_file(self._size))
                self._blocked = False
            except OSError as exc:
                if not self._blocked:
                    logger.warning("no room for a spool file %s: %s", place_of(self.base), exc)
                self._blocked = True

    def missing(self) -> list[Path]:
        """Return the files that another program has deleted or replaced.

        Only the writer thread calls this method, because it is the only thread of this process that deletes spool files.
        """
        return [file.path for file in [*self._full, *self._spares, self.file] if not file.is_there()]

    def successor(self) -> Spool:
        """Return a new, empty spool of the same owner, whose files come after those of this one."""
        return Spool(self.base, *self._ids, limit=self._limit, size=self._size, after=self)

    def release(self) -> None:
        """Delete the files whose events are all in the store, oldest first. An import relies on a series without gaps."""
        while self._full and self._full[0].is_done():
            self._delete(self._full.pop(0))

    def drop_spares(self) -> None:
        """Delete the spare files, because the store needs the disk space more."""
        while self._spares:
            self._delete(self._spares.pop())

    def close(self, *, keep: bool) -> list[Path]:
        """Stop writing, and delete all files. With `keep`, leave files with records to the next journal, and return them."""
        files = [*self._full, self.file] if keep else []
        for file in self._spares if keep else [*self._full, *self._spares, self.file]:
            self._delete(file)
        self._full, self._spares = [], []
        return [file.path for file in files]

    def _make_file(self, size: int) -> SpoolFile:
        number = next(self._numbers)
        path = self.base.with_name(f"{self.base.name}-spool-{self._ids[1].hex()}-{number:06d}")
        file = SpoolFile(path, *self._ids, number, size, self.base)
        with self._counting:
            self.allocated += min(size, self._size)
        return file

    def abandon(self) -> None:
        """Unmap the parent's files in a forked child, without deleting them."""
        for file in [*self._full, *self._spares, self.file]:
            file.map.close()

    def _delete(self, file: SpoolFile) -> None:
        try:
            file.delete()
        except OSError as exc:
            # The store has all of its events. The next import finds that out, and tries again to delete the file.
            logger.warning("could not delete a spool file whose events are all stored: %s", exc)
        with self._counting:
            self.allocated -= min(file.size, self._size)


def open_spool(base: Path, store_id: bytes, owner_id: bytes, *, limit: int) -> Spool | None:
    """Return a spool whose files begin with `base`; None, with a warning, if no spool can be created there."""
    try:
        return Spool(base, store_id, owner_id, limit=limit)
    except (OSError, ValueError) as exc:
        logger.warning(
            "could not create a spool %s (%s): events wait in memory until they are stored, up to 70 ms or for as long as"
            " the store is away, and a kill loses them",
            place_of(base),
            exc,
        )
        return None


def place_of(base: Path) -> str:
    """Return where the spool files lie whose names begin with `base`, for a message."""
    return f"beside {base}" if base.exists() else f"in {base.parent}"


def _identity(path: Path) -> tuple[int, int] | None:
    """Return the device and the inode of a file; None if it does not exist."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _crc_of(body: bytes) -> int:
    # In steps: for more than 5 kB at once, zlib releases the GIL, and then has to wait for a busy thread to release it.
    crc = 0
    for start in range(0, len(body), _CRC_STEP):
        crc = _crc32(body[start : start + _CRC_STEP], crc)
    return crc


def _allocate(fd: int, size: int) -> None:
    """Allocate all blocks of a file: a write to a page of a sparse file on a full disk would kill the process (SIGBUS)."""
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(fd, 0, size)
            return
        except OSError as exc:
            if exc.errno not in (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS):
                raise
    zeros = bytes(1 << 16)
    for start in range(0, size, len(zeros)):
        os.write(fd, zeros[: min(len(zeros), size - start)])


def _touch(map: mmap.mmap) -> None:
    """Cause the page faults of a map now, so that no append does."""
    try:
        map.madvise(_POPULATE_WRITE)
    except (AttributeError, OSError, ValueError):
        for start in range(0, len(map), _PAGE):
            map[start] = 0


def spool_files(base: Path) -> dict[str, list[Path]]:
    """Return the spool files whose names begin with `base`, in order, by the id of their owner."""
    found: dict[str, list[Path]] = {}
    name = re.compile(rf"{re.escape(base.name)}-spool-([0-9a-f]{{32}})-[0-9]{{6}}")
    with os.scandir(base.parent) as entries:
        for entry in entries:
            match = name.fullmatch(entry.name)
            if match and entry.is_file(follow_symlinks=False):
                found.setdefault(match[1], []).append(base.with_name(entry.name))
    return {owner_id: sorted(paths) for owner_id, paths in found.items()}
