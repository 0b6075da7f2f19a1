"""The overflow: events that wait in memory while the spool is full. They are in order, not numbered yet, and limited.

Rule: lose as little as possible, and lose nothing without a record of it. Adjacent deltas of a call are merged, which loses
nothing. Beyond the limit, events are dropped and counted for each run. Marks, the events that decide the state of a run, are
dropped last.
"""

from __future__ import annotations

import json
from collections import deque
from typing import Final, NamedTuple

from ..events import MARKS, Kind
from .spool import TEXT, VALUE

_MOST: Final = 8 << 20
_MOST_MARKS: Final = 32 << 20
_COST: Final = 200  # the bytes that an event in the overflow takes besides its text
_LARGE: Final = 1 << 20  # the most bytes that one event counts for: a huge one must not cause the loss of all later events


class Entry(NamedTuple):
    """One event that has no number yet."""

    run_id: str
    kind: Kind
    call: str | None
    at: int
    type: int
    json: str


class Overflow:
    """The events that wait in memory, and the number of dropped events of each run."""

    def __init__(self) -> None:
        self.entries: deque[tuple[Entry, list[str]]] = deque()
        self._last_of: dict[str, tuple[Entry, list[str]]] = {}
        self._lost: dict[str, int] = {}
        self.bytes = 0

    def __bool__(self) -> bool:
        return bool(self.entries or self._lost)

    def add(self, entry: Entry) -> bool:
        """Keep an event, or return False and count it as lost. Marks have a larger limit: they are few, and decide most."""
        most = _MOST_MARKS if entry.kind in MARKS else _MOST
        if self.bytes > most or (self._lost and most == _MOST):
            self._lost[entry.run_id] = self._lost.get(entry.run_id, 0) + 1
            return False
        before = self._last_of.get(entry.run_id)
        if before and entry.type == before[0].type == TEXT and entry.call == before[0].call:
            # Two JSON strings are joined to one. The text stays the same; only the boundary between the deltas is lost.
            before[1].append(entry.json[1:-1])
            self.bytes += min(len(entry.json), _LARGE)
            return True
        kept = (entry, [entry.json[1:-1]] if entry.type == TEXT else [])
        self.entries.append(kept)
        self._last_of[entry.run_id] = kept
        self.bytes += min(len(entry.json), _LARGE) + _COST
        return True

    def first(self, at: int) -> Entry | None:
        """Return the oldest entry, and leave it in place. After the last entry come `run.lost` events, one for each run."""
        if self.entries:
            entry, texts = self.entries[0]
            return entry._replace(json='"' + "".join(texts) + '"') if texts else entry
        for run_id, lost in self._lost.items():
            return Entry(run_id, "run.lost", None, at, VALUE, json.dumps(["run.lost", {"events": lost}]))
        return None

    def drop_first(self) -> None:
        """Remove the oldest entry, which has its number now."""
        if self.entries:
            kept = self.entries.popleft()
            if not self.entries:
                self.bytes = 0
            else:
                merged = sum(min(len(text) + 2, _LARGE) for text in kept[1][1:])
                self.bytes -= min(len(kept[0].json), _LARGE) + _COST + merged
            if self._last_of.get(kept[0].run_id) is kept:
                del self._last_of[kept[0].run_id]
        else:
            del self._lost[next(iter(self._lost))]
