"""Pure: the clock of a run's events -> the position of each moment in the picture.

Rule: time never goes back, even if the clock was set back. A long silence takes little room, so that the rest stays visible.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_SET_BACK: Final = 2.0
"""Seconds. Concurrent threads record times that differ by less; a clock that was set back jumps by more."""
_SILENT: Final = 20.0
_LONG: Final = 3600.0
_ENOUGH: Final = 0.2
"""Seconds of work. A run with less work shows a silence of less than an hour at its full length."""
_TIMES_AS_LONG: Final = 6
_ROOM: Final = 0.07
_MOST_ROOM: Final = 0.3
_VISIBLE: Final = 0.004


@dataclass(frozen=True, slots=True, kw_only=True)
class Break:
    """A silence that is drawn shorter than it was: from when to when, in seconds since the beginning."""

    began: float
    ended: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """The positions of moments, from 0 to 1."""

    length: float
    breaks: tuple[Break, ...]
    times: tuple[float, ...]
    places: tuple[float, ...]
    """The position of each of the `times`; positions between two of them are linear."""

    def place(self, at: float) -> float:
        """Return the position of the moment that is `at` seconds after the beginning."""
        times, places = self.times, self.places
        right = bisect_right(times, at)
        if right == 0:
            return 0.0
        if right == len(times):
            return places[-1]
        began, ended = times[right - 1], times[right]
        part = (at - began) / (ended - began) if ended > began else 0.0
        return places[right - 1] + part * (places[right] - places[right - 1])

    @property
    def worked(self) -> float:
        """The length in seconds, without the breaks."""
        return self.length - sum(one.ended - one.began for one in self.breaks)


class Clock:
    """A clock that counts seconds since the first event that has a time."""

    def __init__(self) -> None:
        self.began = 0.0
        self.now = 0.0
        self._last = 0.0
        self._silences: list[Break] = []
        self._busy = 0.0

    def tick(self, at: float) -> float:
        """Advance to an event with the wall clock `at`. Return the seconds since the first event."""
        if at <= 0:
            return self.now
        if not self.began:
            self.began = self._last = at
        elif at > self._last:
            passed = at - self._last
            if passed >= _SILENT:
                self._silences.append(Break(began=self.now, ended=self.now + passed))
            else:
                self._busy += passed
            self.now, self._last = self.now + passed, at
        elif self._last - at > _SET_BACK:
            self._last = at
        return self.now

    def axis(self) -> Axis:
        """Return the axis of all events so far."""
        breaks, worked = self._breaks()
        room = min(_ROOM, _MOST_ROOM / len(breaks)) if breaks else 0.0
        if breaks and worked <= 0:
            room = 1 / len(breaks)
        scale = (1 - room * len(breaks)) / worked if worked > 0 else 0.0
        times, places = [0.0], [0.0]
        for one in breaks:
            begin = places[-1] + (one.began - times[-1]) * scale
            times += [one.began, one.ended]
            places += [begin, begin + room]
        times.append(self.now)
        places.append(1.0 if self.now > 0 else 0.0)
        return Axis(length=self.now, breaks=tuple(breaks), times=tuple(times), places=tuple(places))

    def _breaks(self) -> tuple[list[Break], float]:
        """Return the silences that are much longer than all the rest, and the length of the rest."""
        worked = self._busy
        silences = sorted(self._silences, key=lambda one: one.ended - one.began)
        for number, one in enumerate(silences):
            long = one.ended - one.began
            if long > worked * _TIMES_AS_LONG and (worked >= _ENOUGH or long >= _LONG):
                return sorted(silences[number:], key=lambda one: one.began), worked
            worked += long
        return [], worked


def lanes(spans: Sequence[tuple[float, float]], axis: Axis) -> list[int]:
    """Return the lane of each span: the first lane that is free when the span begins."""
    # A span that took no time still takes some room.
    least = min(_VISIBLE, 0.25 / len(spans)) if spans else 0.0
    drawn = [(place := axis.place(began), max(axis.place(ended), place + least)) for began, ended in spans]
    found = [0] * len(spans)
    free: list[int] = []
    busy: list[tuple[float, int]] = []
    count = 0
    for number in sorted(range(len(spans)), key=lambda number: drawn[number][0]):
        began, ended = drawn[number]
        while busy and busy[0][0] <= began:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if free:
            lane = heapq.heappop(free)
        else:
            lane, count = count, count + 1
        found[number] = lane
        heapq.heappush(busy, (ended, lane))
    return found
