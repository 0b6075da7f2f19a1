"""Pure: many calls in one row of a picture: each in a lane of its own, or how many there were at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from .calls import ModelCall, ToolCall
from .time_axis import Axis, lanes

_MOST_LANES: Final = 6
_BINS: Final = 240
_FAILED: Final = ("error", "partial", "open", "interrupted")


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """Several calls in one row. Places are from 0 to 1."""

    boxes: tuple[tuple[float, float, int, str], ...]
    """Begin, end, lane and outcome of each call; empty if there are too many lanes."""
    lanes: int
    """The most calls at a time."""
    heights: tuple[float, ...]
    """If there are too many lanes: for equal parts of the axis, how many calls there were, as a part of `lanes`."""
    bad: tuple[float, ...]
    """The same of the calls that had no good end."""


def packed(calls: Sequence[ModelCall | ToolCall], axis: Axis) -> Packed:
    """Return calls as they are drawn in one row."""
    taken = lanes([(call.began, call.ended) for call in calls], axis)
    count = max(taken, default=-1) + 1
    if count > _MOST_LANES:
        every, bad = _counts(calls, axis), _counts([call for call in calls if call.outcome in _FAILED], axis)
        most = max(every)
        return Packed(
            boxes=(), lanes=count, heights=tuple(one / most for one in every), bad=tuple(one / most for one in bad)
        )
    boxes = sorted((axis.place(c.began), axis.place(c.ended), lane, c.outcome) for c, lane in zip(calls, taken, strict=True))
    return Packed(boxes=tuple(boxes), lanes=count, heights=(), bad=())


def _counts(calls: Sequence[ModelCall | ToolCall], axis: Axis) -> list[int]:
    changes = [0] * (_BINS + 1)
    for call in calls:
        begin = min(_BINS - 1, int(axis.place(call.began) * _BINS))
        end = min(_BINS - 1, int(axis.place(call.ended) * _BINS))
        changes[begin] += 1
        changes[end + 1] -= 1
    found, now = [], 0
    for change in changes[:_BINS]:
        now += change
        found.append(now)
    return found
