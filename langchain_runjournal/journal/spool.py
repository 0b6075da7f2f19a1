"""The queue that a killed process leaves behind: memory-mapped files beside the database.

Rule: a record counts from the moment its length is written, and the length is written last. A store into shared memory
survives `kill -9` without a system call, and so without giving up the GIL, which is what makes an append cheap beside a
busy thread. Files are allocated and touched ahead by the writer thread, because the first touch of a page that a full
disk cannot back kills the process (SIGBUS).

A spool is a row of numbered files of one size. When all that a file holds is in the store, the file is deleted.
`journal/spool_format.py` says what stands in a file, and `journal/spool_reader.py` reads what a killed process left.
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

from ..common.file_access import lend
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
_POPULATE_WRITE: Final = 23  # MADV_POPULATE_WRITE, Linux 5.14: not a constant of the mmap module yet

_pack_prefix, _pack_body, _crc32 = _PREFIX.pack_into, _BODY.pack, zlib.crc32


class SpoolFile:
    """One mapped file of a spool that this process writes."""

    def __init__(self, path: Path, store_id: bytes, owner_id: bytes, number: int, size: int, base: Path) -> None:
        """`base`: the database beside which it is made."""
        self.path = path
        self.number = number
        self.size = size
        self.pos = _START
        self.is_done: Callable[[], bool] = lambda: False
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), _OURS)
        try:
            lend(fd, base)
            _allocate(fd, size)
            self.map = mmap.mmap(fd, size)
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
        """From now on this is the file that records are put into: the nth one. Files are not used as they are numbered,
        since one for a large record is made while a spare lies ready."""
        _NUMBER.pack_into(self.map, _TURN_AT, turn)

    def mark_drained(self, pos: int) -> None:
        """Everything before `pos` is in the store."""
        if not self.map.closed:  # deleted: done with altogether
            _NUMBER.pack_into(self.map, _DRAINED_AT, pos)

    def is_there(self) -> bool:
        """Whether a recovery would find this very file."""
        return self._identity is not None and _identity(self.path) == self._identity

    def delete(self) -> None:
        """Let the file go. What is not in the store is lost with it."""
        self.map.close()
        if self.is_there() or self._is_copied():
            self.path.unlink(missing_ok=True)

    def _is_copied(self) -> bool:
        # A directory that was copied and put in its own place: a recovery would read the copy, which has become old.
        try:
            with self.path.open("rb") as file:
                return file.read(len(self._head)) == self._head
        except OSError:
            return False


class Spool:
    """The writing end. Not thread-safe: whoever appends holds the lock of the intake.

    `put` returns False when the record does not fit and no room can be had within the limit; nothing is written then.
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
        self._base = base
        self._ids = store_id, owner_id
        self._size = size
        self._limit = max(limit, 2 * size)
        # One owner uses no name twice: a file of an earlier spool may still, or again, be there.
        self._numbers: itertools.count[int] = itertools.count(1) if after is None else after._numbers
        self._counting = threading.Lock()
        self.allocated = 0
        """Bytes on disk that the spool takes now; a file for one large record counts like any other. Kept by hand, since
        whoever appends and the writer both make files."""
        self._full: list[SpoolFile] = []
        self._spares: list[SpoolFile] = []
        self._blocked = False
        self._turn: int = 1 if after is None else after._turn + 1
        self.file = self._make_file(size)
        self.file.begin(self._turn)

    def put(self, slot: int, seq: int, at: int, type: int, payload: bytes) -> bool:
        """Add a record. When this returns True, a killed process no longer loses it."""
        body = _pack_body(slot, seq, at, type) + payload
        size = len(body)
        file = self.file
        pos = file.pos
        end = pos + size + 8
        if end > file.size:
            return False
        file.map[pos + 8 : end] = body
        crc = _crc32(body) if size <= _CRC_STEP else _crc_of(body)
        # Checksum first, length last: the length is what makes the record count.
        _pack_prefix(file.map, pos, crc, size)
        file.pos = end
        return True

    def rotate(self, need: int, is_done: Callable[[], bool]) -> bool:
        """Go on in the next file, with room for a record of `need` payload bytes. False when the limit forbids it.

        `is_done` says, from then on, whether all that the file before holds is in the store.
        """
        need += _START + _BODY.size + _PREFIX.size
        fresh = self._spares.pop() if self._spares else None  # one operation: the writer takes from here as well
        if fresh is not None and fresh.size < need:
            self._spares.append(fresh)
            fresh = None
        if fresh is None:
            # The writer keeps a spare ready; this is for bursts that outrun it and for records larger than a file.
            # It costs the caller a millisecond, which is less than losing the event to a kill.
            size = -(-max(need, self._size) // _PAGE) * _PAGE
            # One record that is larger than a file may go beyond the limit: there is no other place where a kill
            # would not take it.
            alone = size > self._size and not any(file.size > self._size for file in [*self._full, self.file])
            if self._blocked or (not alone and self.allocated + size > self._limit):
                return False
            try:
                fresh = self._make_file(size)
            except OSError as exc:
                # Not tried again by an append: the writer does, until it succeeds.
                self._blocked = True
                logger.warning("no room for a spool file beside %s: %s", self._base, exc)
                return False
        self.file.is_done = is_done
        self._full.append(self.file)
        self._turn += 1
        fresh.begin(self._turn)
        self.file = fresh
        return True

    @property
    def is_used(self) -> bool:
        """Whether the file at hand holds any record."""
        return self.file.pos > _START

    @property
    def is_ready(self) -> bool:
        """Whether a spare file lies ready."""
        return bool(self._spares)

    def prepare(self) -> None:
        """Have a spare file ready, so that no append has to make one. For the writer thread, without the lock."""
        if not self._spares and self.allocated + self._size <= self._limit:
            try:
                self._spares.append(self._make_file(self._size))
                self._blocked = False
            except OSError as exc:
                if not self._blocked:
                    logger.warning("no room for a spool file beside %s: %s", self._base, exc)
                self._blocked = True

    def missing(self) -> list[Path]:
        """The files that were deleted or replaced by somebody else. For the writer thread, which alone deletes any."""
        return [file.path for file in [*self._full, *self._spares, self.file] if not file.is_there()]

    def again(self) -> Spool:
        """Another spool of the same owner, which comes after this one and holds nothing yet."""
        return Spool(self._base, *self._ids, limit=self._limit, size=self._size, after=self)

    def release(self) -> None:
        """Delete the files that are done with, oldest first: recovery relies on there being no hole."""
        while self._full and self._full[0].is_done():
            self._delete(self._full.pop(0))

    def drop_spares(self) -> None:
        """Give the disk back what is not needed at once: the store needs it more."""
        while self._spares:
            self._delete(self._spares.pop())

    def close(self, *, keep: bool) -> list[Path]:
        """Stop writing. With `keep`, what is not drained stays for the next journal to find; its files are returned."""
        files = [*self._full, self.file] if keep else []
        for file in self._spares if keep else [*self._full, *self._spares, self.file]:
            self._delete(file)
        self._full, self._spares = [], []
        return [file.path for file in files]

    def _make_file(self, size: int) -> SpoolFile:
        number = next(self._numbers)
        path = self._base.with_name(f"{self._base.name}-spool-{self._ids[1].hex()}-{number:06d}")
        file = SpoolFile(path, *self._ids, number, size, self._base)
        with self._counting:
            self.allocated += min(size, self._size)
        return file

    def abandon(self) -> None:
        """In a forked child: let go of the parent's files, without deleting them."""
        for file in [*self._full, *self._spares, self.file]:
            file.map.close()

    def _delete(self, file: SpoolFile) -> None:
        try:
            file.delete()
        except OSError as exc:
            # What it holds is stored; the next recovery finds that out, and tries again to delete it.
            logger.warning("could not delete a spool file whose events are all stored: %s", exc)
        with self._counting:
            self.allocated -= min(file.size, self._size)


def open_spool(base: Path, store_id: bytes, owner_id: bytes, *, limit: int) -> Spool | None:
    """A spool beside a database; None, with a warning, where there is no place for one."""
    try:
        return Spool(base, store_id, owner_id, limit=limit)
    except (OSError, ValueError) as exc:
        logger.warning(
            "could not create a spool beside %s (%s): events wait in memory until they are stored, up to 70 ms, and a"
            " kill loses them",
            base,
            exc,
        )
        return None


def _identity(path: Path) -> tuple[int, int] | None:
    """What names the file itself, whatever its path; None if it is not there."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _crc_of(body: bytes) -> int:
    # In steps: zlib gives up the GIL for more than 5 kB at once, and has to win it back from whoever is busy.
    crc = 0
    for start in range(0, len(body), _CRC_STEP):
        crc = _crc32(body[start : start + _CRC_STEP], crc)
    return crc


def _allocate(fd: int, size: int) -> None:
    """Really allocate, since a page of a sparse file that a full disk cannot back kills with SIGBUS."""
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
    """Take the page faults now, not in an append."""
    try:
        map.madvise(_POPULATE_WRITE)
    except (AttributeError, OSError, ValueError):
        for start in range(0, len(map), _PAGE):
            map[start] = 0


def spool_files(base: Path) -> dict[str, list[Path]]:
    """The spool files beside a database, in order, by the id of their owner."""
    found: dict[str, list[Path]] = {}
    name = re.compile(rf"{re.escape(base.name)}-spool-([0-9a-f]{{32}})-[0-9]{{6}}")
    with os.scandir(base.parent) as entries:
        for entry in entries:
            match = name.fullmatch(entry.name)
            if match and entry.is_file(follow_symlinks=False):
                found.setdefault(match[1], []).append(base.with_name(entry.name))
    return {owner_id: sorted(paths) for owner_id, paths in found.items()}
