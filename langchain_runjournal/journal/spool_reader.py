"""Reads a spool file of a dead owner: every intact record, also the records behind a damaged place.

Rule: a record is intact if its checksum matches. The reader does not believe what the header says is stored (`drained`),
because one flipped bit there would drop a whole spool. Behind a partly written record, or one whose length is zero, the
reader searches for the next intact record.

A kill leaves no damage: a record without its length was never acknowledged. Damage comes from power loss, from a full or
failing disk, and from files of another program.

A file is read twice: `_survey` checks it and finds out which runs it holds; `records` then yields what the store lacks.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import NoneType
from typing import Final, NamedTuple, TypeAlias

from .spool_format import BODY, CALL, HEADER, MAGIC, NUMBER, OPEN, PREFIX, START, TURN_AT

_SMALLEST: Final = BODY.size + 1
_TYPE_AT: Final = PREFIX.size + BODY.size - 1
_JSON_OF: Final = ((str,), (dict, list), (str, NoneType), (dict,))  # by type of record
_NO_CALL: Final = b"null"
_SOMETHING: Final = re.compile(rb"[^\x00]")
_A_TYPE: Final = re.compile(rb"[\x00-\x03]")  # our JSON never holds these bytes, so a search skips all text


Record: TypeAlias = tuple[int, int, int, int, bytes, bool]
"""One intact record, as it was put: slot, seq, wall clock, type, payload; and whether it follows a damaged place that may
have held records of any kind. A plain tuple, because there can be millions of records."""


class SpoolHeader(NamedTuple):
    """The header of a spool file: its owner, and its position in the order in which the owner used its files."""

    store_id: bytes
    owner_id: bytes
    number: int
    size: int
    turn: int


class _Span(NamedTuple):
    """A series of intact records without a gap.

    `bare`: a single record, whose length is missing. `after_damage`: a damaged place precedes the series, which may have
    held records of any kind.
    """

    start: int
    stop: int
    bare: bool = False
    after_damage: bool = False


class SpoolScan:
    """A scan of one spool file. `problems` describes the damage; `foreign`: the file must not be read at all."""

    def __init__(self, path: Path, *, is_ours: bool = False) -> None:
        """Scan a file. `is_ours`: the file is known to belong to the journal, so do not refuse it for a damaged header."""
        self.path = path
        self.problems: list[str] = []
        self.foreign = False
        self.opens: dict[int, bytes] = {}
        """The payloads of the OPEN records, which name the runs, by slot."""
        self.firsts: dict[int, int] = {}
        self.lasts: dict[int, int] = {}
        """The seq of the first and of the last event, by slot."""
        self.events = 0
        """The number of intact event records."""
        self._spans: list[_Span] = []
        self._is_ours = is_ours
        data = path.read_bytes()
        self.bytes = len(data)
        self.header = self._read_header(data)
        if not self.foreign and self.header is not None:
            self._survey(data)

    def refuse(self, why: str) -> None:
        """Mark the file as foreign, so that nothing of it is imported."""
        self.foreign = True
        self.problems.append(why)

    def records(self, stored: Mapping[int, int]) -> Iterator[Record]:
        """Yield every intact record, in order, except events that the store has. `stored`: the last stored seq, by slot."""
        if all(seq <= stored.get(slot, 0) for slot, seq in self.lasts.items()):
            return
        data = self.path.read_bytes()
        prefix, body, size_of_prefix, before = PREFIX.unpack_from, BODY.unpack_from, PREFIX.size, PREFIX.size + BODY.size
        for start, stop, bare, after_damage in self._spans:
            pos = start
            if after_damage:
                # The damaged place may have held a CALL record of this run, so the call of the next events is unknown.
                slot, seq, at, _ = body(data, pos + size_of_prefix)
                yield slot, seq, at, CALL, _NO_CALL, True
            while pos < stop:
                end = stop if bare else pos + size_of_prefix + prefix(data, pos)[1]
                slot, seq, at, type = body(data, pos + size_of_prefix)
                if type >= CALL or seq > stored.get(slot, 0):
                    yield slot, seq, at, type, data[pos + before : end], False
                pos = end

    # --- the header ---------------------------------------------------------------------------------------------------

    def _read_header(self, data: bytes) -> SpoolHeader | None:
        if data.count(0) == len(data):
            return None  # the process was killed between creating the file and writing its header: the file is empty
        problem = None
        if len(data) < START or data[: len(MAGIC)] != MAGIC:
            problem = "it is not a spool (its first bytes are not ours)"
        head = data[: HEADER.size].ljust(HEADER.size, b"\0")
        _, store_id, owner_id, number, size, crc = HEADER.unpack(head)
        if problem is None and crc != zlib.crc32(head[:-4]):
            problem = "its header is damaged"
        if problem is not None and (not self._is_ours or len(data) < START):
            self.refuse(f"{problem}; to read it all the same, use `runjournal recover --spool`")
            return None
        if problem is not None:
            self.problems.append(problem)
            store_id, size = b"", len(data)
        elif len(data) < size:
            self.problems.append(f"it is truncated: {len(data)} of {size} bytes are there")
        return SpoolHeader(store_id, owner_id, number, size, NUMBER.unpack_from(data, TURN_AT)[0])

    # --- its records --------------------------------------------------------------------------------------------------

    def _survey(self, data: bytes) -> None:
        pos, after_damage = START, False
        while True:
            stop = self._walk(data, pos)
            if stop > pos:
                self._spans.append(_Span(pos, stop, after_damage=after_damage))
            if data.count(0, stop) == len(data) - stop:
                return  # only zeros follow, which is the usual end
            found = self._next_whole(data, stop + 1)
            if self._take_bare(data, stop, found):
                self._spans.append(_Span(stop, found or len(data.rstrip(b"\0")), bare=True))
                after_damage = False
                if found is not None:
                    self.problems.append(
                        f"the length of the record at byte {stop} is missing: the next record shows its end"
                    )
            elif found is not None or not self._was_under_way(data, stop):
                after_damage = found is None or not self._was_one_event(data, stop, found)
                rest = "nothing whole follows" if found is None else f"{found - stop} bytes cannot be read"
                self.problems.append(f"the record at byte {stop} is incomplete, its checksum does not match: {rest}")
            if found is None:
                return
            pos = found

    def _walk(self, data: bytes, pos: int) -> int:
        """Read intact records from `pos` on, and return where they end. This is the hot loop of an import: keep it short."""
        prefix, body, crc32, lasts = PREFIX.unpack_from, BODY.unpack_from, zlib.crc32, self.lasts
        size_of_prefix, last = PREFIX.size, len(data) - PREFIX.size - _SMALLEST
        events = 0
        while pos <= last:
            crc, size = prefix(data, pos)
            start = pos + size_of_prefix
            stop = start + size
            if size < _SMALLEST or crc32(data[start:stop]) != crc or stop > len(data):
                break
            slot, seq, _, type = body(data, start)
            if type < CALL:
                lasts[slot] = seq
                events += 1
            elif type == OPEN:
                self._open(slot, seq, data[start + BODY.size : stop])
            pos = stop
        self.events += events
        return pos

    def _open(self, slot: int, seq: int, about: bytes) -> None:
        self.opens.setdefault(slot, about)
        self.firsts.setdefault(slot, seq + 1)

    def _next_whole(self, data: bytes, pos: int) -> int | None:
        """Return where the next intact record begins. Text cannot look like a record, because JSON has no zero bytes."""
        prefix, body = PREFIX.unpack_from, BODY.unpack_from
        last = len(data) - PREFIX.size - _SMALLEST
        while pos <= last:
            # Skip zeros, and then text: the type of a record is a byte between 0 and 3.
            something = _SOMETHING.search(data, pos)
            if something is None:
                return None
            pos = max(pos, something.start() - PREFIX.size)
            a_type = _A_TYPE.search(data, pos + _TYPE_AT)
            if a_type is None:
                return None
            pos = a_type.start() - _TYPE_AT
            if pos > last:
                return None
            crc, size = prefix(data, pos)
            start = pos + PREFIX.size
            stop = start + size
            if size >= _SMALLEST and stop <= len(data) and body(data, start)[0] and zlib.crc32(data[start:stop]) == crc:
                return pos
            pos += 1
        return None

    def _take_bare(self, data: bytes, pos: int, found: int | None) -> bool:
        """Take an intact record at `pos` whose length is zero. Return whether there is one.

        Either the process was killed in the instant before it wrote the length, or the length was lost. The record is valid
        in both cases.
        """
        body = data[pos + PREFIX.size : found] if found is not None else data[pos + PREFIX.size :].rstrip(b"\0")
        if len(body) < _SMALLEST or PREFIX.unpack_from(data, pos)[1]:
            return False
        crc = PREFIX.unpack_from(data, pos)[0]
        slot, seq, _, type = BODY.unpack_from(body)
        if crc != zlib.crc32(body) and (crc or not self._is_plausible(slot, seq, type, body[BODY.size :])):
            return False
        if type < CALL:
            self.lasts[slot] = seq
            self.events += 1
        elif type == OPEN:
            self._open(slot, seq, body[BODY.size :])
        return True

    def _is_plausible(self, slot: int, seq: int, type: int, payload: bytes) -> bool:
        """Return whether a record without a checksum is what must come next. A partly written payload is not valid JSON."""
        if type > OPEN or (type != OPEN and slot not in self.opens):
            return False
        due = self.lasts.get(slot, self.firsts.get(slot, 1) - 1) + (type < CALL)
        try:
            value = json.loads(payload)
        except ValueError:
            return False
        return seq == due and isinstance(value, _JSON_OF[type])

    def _was_one_event(self, data: bytes, pos: int, found: int) -> bool:
        """Return whether a damaged place clearly held exactly one event, the next one of its run, and nothing else."""
        start = pos + PREFIX.size
        if found < start + _SMALLEST:
            return False
        slot, seq, _, type = BODY.unpack_from(data, start)
        if type >= CALL or slot not in self.opens or seq != self.lasts.get(slot, self.firsts[slot] - 1) + 1:
            return False
        return PREFIX.unpack_from(data, pos)[1] == found - start or _is_json(data[start + BODY.size : found])

    def _was_under_way(self, data: bytes, pos: int) -> bool:
        """Return whether a process may have been killed while it wrote this record: checksum and length are written last."""
        start = pos + PREFIX.size
        return len(data) >= start + 4 and data.count(0, pos, start) == PREFIX.size and data.count(0, start, start + 4) < 4


def _is_json(payload: bytes) -> bool:
    try:
        json.loads(payload)
    except ValueError:
        return False
    return True
