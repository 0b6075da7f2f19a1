"""Pure: where texts stand on the axis of a picture, so that no two of them overlap.

Rule: a label is placed for the narrowest track that it is shown on. On a wider one it has the same anchor and the same
width, so the distances can only grow.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from .time_axis import Axis

Side: TypeAlias = Literal["left", "center", "right"]

GAP: Final = 8.0
"""Pixels between two labels."""
_STEPS: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30)
_LONG_STEPS: Final = (60, 120, 300, 600, 1200, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400, 172_800, 604_800)


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """A text at a place of the axis. `side`: where of the text the place is: a `left` label begins there."""

    where: float
    text: str
    side: Side
    is_silence: bool = False

    def span(self, track: float, size: float) -> tuple[float, float]:
        """Return from where to where the text stands on a track of so many pixels."""
        return _span(self.where * track, text_width(self.text, size), self.side)


def text_width(text: str, size: float) -> float:
    """Return how many pixels a text takes at most in a common sans-serif face of this size."""
    return size * sum(map(_width, text))


def _width(sign: str) -> float:
    if sign in " \N{NO-BREAK SPACE}.,:;'|!iljt()[]/-·":
        return 0.4
    if sign in "mwMW%@…" or sign.isupper():
        return 1.0
    return 0.64 if sign.isascii() else 1.1 if unicodedata.east_asian_width(sign) in "WF" else 0.85


def shortened(text: str, size: float, room: float) -> str:
    """Return as much of a text as fits into so many pixels."""
    if text_width(text, size) <= room:
        return text
    end = len(text)
    while end and text_width(text[:end], size) > room - size:
        end -= 1
    return text[:end].rstrip() + "…" if end else ""


def placed(candidates: Iterable[tuple[float, str, bool]], track: float, size: float) -> list[Label]:
    """Return those candidates (place, text, whether it is that of a silence) that have room, the first ones first."""
    taken: list[tuple[float, float]] = []
    found = []
    for where, text, is_silence in candidates:
        width = text_width(text, size)
        if width > track:
            continue
        at = where * track
        side: Side = "left" if at < width / 2 else "right" if track - at < width / 2 else "center"
        begin, end = _span(at, width, side)
        if all(end + GAP <= other[0] or other[1] + GAP <= begin for other in taken):
            taken.append((begin, end))
            found.append(Label(where=where, text=text, side=side, is_silence=is_silence))
    return sorted(found, key=lambda label: label.where)


def _span(at: float, width: float, side: Side) -> tuple[float, float]:
    begin = at if side == "left" else at - width if side == "right" else at - width / 2
    return begin, begin + width


def silences(axis: Axis, track: float, size: float, words: str) -> list[tuple[float, float]]:
    """Return the place and the length of each silence of the axis. Those too near for a label each are merged."""
    room = (text_width(words, size) + GAP) / track
    found: list[tuple[float, float, float]] = []
    for one in axis.breaks:
        begin, end, silent = axis.place(one.began), axis.place(one.ended), one.ended - one.began
        if found and (begin + end) / 2 - sum(found[-1][:2]) / 2 <= room:
            first, _, before = found.pop()
            begin, silent = first, before + silent
        found.append((begin, end, silent))
    return [((begin + end) / 2, silent) for begin, end, silent in found]


def round_times(axis: Axis, most: int) -> list[tuple[float, float]]:
    """Return the end of each silence, each time with some `most` round times after it."""
    step = next((step for step in (*_STEPS, *_LONG_STEPS) if axis.worked / step <= most), max(1.0, axis.worked / most))
    found = []
    began = 0.0
    for one in (*axis.breaks, None):
        ended = axis.length if one is None else one.began
        for turn in range(64):
            if began + turn * step > ended:
                break
            found.append((began, turn * step))
        began = ended if one is None else one.ended
    return found


def grouped(places: Sequence[float], track: float, size: float, padding: float) -> list[tuple[float, list[int]]]:
    """Group numbers, counted from 1, that are too near to each other for a label each. The places must ascend."""
    groups: list[tuple[float, list[int]]] = []
    for number, where in enumerate(places, 1):
        groups.append((where, [number]))
        while len(groups) > 1 and not _apart(groups[-2], groups[-1], track, size, padding):
            _, numbers = groups.pop()
            first, before = groups.pop()
            groups.append((first, before + numbers))
    return groups


def group_text(numbers: Sequence[int]) -> str:
    """Return the text of a group of numbers."""
    return f"{numbers[0]}" if len(numbers) == 1 else f"{numbers[0]}\u2013{numbers[-1]}"


def _apart(one: tuple[float, list[int]], other: tuple[float, list[int]], track: float, size: float, padding: float) -> bool:
    widths = [text_width(group_text(numbers), size) + padding for _, numbers in (one, other)]
    return (other[0] - one[0]) * track >= sum(widths) + 4
