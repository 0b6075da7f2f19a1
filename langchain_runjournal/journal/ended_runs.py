"""What the appender keeps of runs that have ended: a few fields of each, instead of its run buffer.

Rule: a run may get late events, so its slot, its epoch and its last seq stay. Only a buffer that holds no event is packed,
under the lock of the appender. Another thread may still have that buffer, and then sees the run as it was: over.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple

from ..errors import RunJournalError
from .run_buffer import RunBuffer

_NOT_PACKED: Final = 64
"""How many runs that ended last keep their buffers: late events and followers come soon after the end."""
_AT_ONCE: Final = 16
"""An append that ends a run packs so many: each takes a microsecond."""


class _Ended(NamedTuple):
    slot: int
    epoch: int
    seq: int
    at: int
    call: str | None
    paused: int
    stop: str | None
    shut: RunJournalError | None


class EndedRuns:
    """The runs of one appender that have ended, the oldest first."""

    def __init__(self) -> None:
        self._packed: dict[str, _Ended] = {}
        self._recent: deque[RunBuffer] = deque()

    def __len__(self) -> int:
        return len(self._packed)

    def __iter__(self) -> Iterator[str]:
        return iter(self._packed)

    def __contains__(self, run_id: str) -> bool:
        return run_id in self._packed

    def add(self, buffer: RunBuffer) -> None:
        """Note that the run of a buffer has ended."""
        self._recent.append(buffer)

    def to_pack(self) -> Iterator[RunBuffer]:
        """Yield the buffers that are to be packed, at most a few, and forget them."""
        for _ in range(min(_AT_ONCE, len(self._recent) - _NOT_PACKED)):
            oldest = self._recent[0]
            if oldest.pend or oldest.dirty:
                return  # the store does not have all of it yet: the next run that ends tries again
            self._recent.popleft()
            if oldest.waiters:
                self._recent.append(oldest)
                return
            yield oldest

    def pack(self, buffer: RunBuffer) -> None:
        """Keep a run without its buffer."""
        fields = buffer.slot, buffer.epoch, buffer.seq, buffer.at, buffer.call, buffer.paused, buffer.stop, buffer.shut
        self._packed[buffer.run_id] = _Ended(*fields)

    def take(self, run_id: str) -> RunBuffer | None:
        """Return a buffer for a packed run, which is not packed any more; None for any other run."""
        ended = self._packed.pop(run_id, None)
        if ended is None:
            return None
        buffer = RunBuffer(run_id, ended.slot, epoch=ended.epoch, seq=ended.seq)
        buffer.at = buffer.base_at = ended.at
        buffer.call = ended.call
        buffer.calls = [0, json.dumps(ended.call)]
        buffer.paused, buffer.stop, buffer.shut = ended.paused, ended.stop, ended.shut
        buffer.ended = buffer.tried = True
        self.add(buffer)
        return buffer

    def drop_oldest(self) -> None:
        """Forget the packed run that ended first."""
        del self._packed[next(iter(self._packed))]
