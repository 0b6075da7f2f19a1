"""The order of records in a spool file: each run is introduced once a file, and each change of its call precedes the events.

Rule: the caller holds the lock of the appender. These methods do no I/O, with one exception, `Spool.rotate`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

from .run_buffer import RunBuffer
from .spool import CALL, OPEN, Spool

_FEW: Final = 256


class SpoolRecords:
    """The runs that the current spool file has introduced, and how a record of one of them gets into it."""

    def __init__(self) -> None:
        self._introduced: list[RunBuffer] = []
        self._most = _FEW

    def put(self, spool: Spool, buffer: RunBuffer, call: str | None, record: tuple[int, int, int, bytes]) -> bool:
        """Put a record together with what must precede it: a new file, the record of its run, the record of its call."""
        if buffer.unsafe > buffer.base:
            return False
        before = record[0] - 1
        for attempt in range(2):
            if (
                self._introduce(spool, buffer, before)
                and self._switch(spool, buffer, call)
                and spool.put(buffer.slot, *record)
            ):
                return True
            need = len(record[3]) + len(buffer.run_id) + len(call or "") + 400
            if attempt or not self.rotate(spool, need):
                break
        return False

    def rotate(self, spool: Spool, need: int) -> bool:
        """Switch to another file with `need` bytes of room. Return False if the spool has none."""
        if not spool.rotate(need, self._all_stored()):
            return False
        self._introduced = []
        return True

    def restart(self) -> None:
        """Begin with the first file of a new spool."""
        self._introduced = []

    def _all_stored(self) -> Callable[[], bool]:
        """Return a function that says whether the store has all events of the current spool file."""
        until = [(buffer, buffer.seq) for buffer in self._introduced]
        return lambda: all(buffer.base >= seq or buffer.shut is not None for buffer, seq in until)

    def _introduce(self, spool: Spool, buffer: RunBuffer, seq: int) -> bool:
        if buffer.file is spool.file:
            return True
        about = json.dumps({"run_id": buffer.run_id, "epoch": buffer.epoch}).encode()
        if not spool.put(buffer.slot, seq, buffer.at, OPEN, about):
            return False
        buffer.file, buffer.spool_call = spool.file, None
        self._introduced.append(buffer)
        if len(self._introduced) > self._most:
            # Not those that were packed: the store has all their events, and a later one introduces the run again.
            self._introduced = [one for one in self._introduced if one.file is not None or one.base < one.seq]
            self._most = 2 * len(self._introduced) + _FEW
        return True

    def _switch(self, spool: Spool, buffer: RunBuffer, call: str | None) -> bool:
        if buffer.spool_call == call:
            return True
        if not spool.put(buffer.slot, buffer.seq, buffer.at, CALL, json.dumps(call).encode()):
            return False
        buffer.spool_call = call
        return True
