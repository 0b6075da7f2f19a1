"""Pure: the numbers of the events of a thread, over all of its runs.

Rule: a number follows from the journal alone, so every worker and every connection gives an event the same one, whatever it
shows of the thread. Numbers grow and have gaps. An event that comes late to a run that is over moves the numbers of later
runs up, never down: a client that comes back may get an event again, by whose id it knows it, and misses none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from ....events import Run

ROOM: Final = 1 << 12
"""How many numbers each event of the journal has: one for each of the events of the protocol that it becomes."""


class Start(NamedTuple):
    """Where in a thread a stream begins."""

    behind: str | None
    """The run behind which it begins; None for the first run."""
    base: int
    """The number before the first event of the next run."""


def number_of(base: int, seq: int, at: int) -> int:
    """Return the number of what is said as number `at` (1, 2, 3 ...) of an event of the journal."""
    return base + (seq - 1) * ROOM + min(at, ROOM)


def span_of(run: Run) -> int:
    """Return how many numbers a run takes."""
    return run.last_seq * ROOM


def start_behind(since: int | None, runs: Sequence[Run]) -> Start:
    """Return where a stream begins for a client that has all events up to `since`. `runs`: those of the thread, in order.

    A number that the thread does not have is one of another time, such as before older runs were deleted: the stream begins
    at the start.
    """
    begin = Start(None, 0)
    if not since or since > sum(map(span_of, runs)):
        return begin
    for run in runs:
        base = begin.base + span_of(run)
        if since < base:
            break
        begin = Start(run.run_id, base)
    return begin
