"""Pure: consecutive events of a run, packed as one row.

Rule: segments are merged by joining their columns of text, never by parsing them. A row for each token would cost 30 to 60
times as much to write; a segment of any length costs one row, and two neighbouring segments merge by concatenation:

- `body`  the values, as JSON, joined by commas: a string is the text of a delta, ``{...}`` any other delta,
  ``["kind", {...}]`` anything else;
- `calls` flat pairs ``seq,call``: from that seq on, events belong to that call;
- `ats`   for each event but the first, the milliseconds since the event before it (less than 0 when the clock was set
  back); `t0` and `t1` are the wall clock of the first and the last.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain, pairwise, repeat
from typing import Any, Final, NamedTuple, cast

from ..common import strict_json as _json
from .encoding import encode_value
from .event import Event, thaw_events
from .vocabulary import DELTA, MARKS, Kind

_LONG_EVENTS: Final = 2_000
_LONG_BYTES: Final = 256 << 10


class Damaged(ValueError):
    """Segments that cannot be what was written."""


class Segment(NamedTuple):
    """Events `first` to `last` of a run, from the owner that held `epoch`."""

    run_id: str
    epoch: int
    first: int
    last: int
    t0: int
    t1: int
    ats: str
    calls: str
    body: str
    marks: tuple[Event, ...] = ()


def pack(run_id: str, epoch: int, events: Sequence[Event]) -> Segment:
    """Return a segment of events that have their numbers already.

    For stores and tests: the writer builds its own segments, from columns.
    """
    first = events[0].seq
    if [event.seq for event in events] != list(range(first, first + len(events))):
        raise ValueError(f"the events of a segment must be numbered {first}, {first + 1}, ... without gaps")
    moments = [round(event.at * 1000) for event in events]
    calls: list[int | str | None] = []
    for event in events:
        if not calls or calls[-1] != event.call_id:
            calls += (event.seq, event.call_id)
    return Segment(
        run_id,
        epoch,
        first,
        events[-1].seq,
        moments[0],
        moments[-1],
        ",".join(str(b - a) for a, b in pairwise(moments)),
        encode_calls(calls),
        ",".join(encode_value(event.kind, event.bare) for event in events),
        tuple(event for event in events if event.kind in MARKS),
    )


def encode_calls(pairs: Sequence[int | str | None]) -> str:
    """Encode flat pairs of seq and call as the inside of a JSON list."""
    return json.dumps(pairs, separators=(",", ":"))[1:-1]


def unpack(segment: Segment, after: int = 0) -> list[Event]:
    """Return the events of a segment with a larger seq than `after`."""
    try:
        values = _load(segment.body)
    except ValueError as exc:
        raise Damaged(f"segment {segment.first} to {segment.last} of run {segment.run_id} is not JSON") from exc
    ats = [moment / 1000 for moment in accumulate(_load(segment.ats), initial=segment.t0)]
    if len(values) != len(ats) or len(values) != segment.last - segment.first + 1:
        raise Damaged(f"segment {segment.first} to {segment.last} of run {segment.run_id} holds {len(values)} events")
    calls = _spread(_load(segment.calls), segment.first, len(values))
    if len(calls) != len(values):
        raise Damaged(f"segment {segment.first} to {segment.last} of run {segment.run_id} has lost its calls")
    skip = max(0, after + 1 - segment.first)
    if skip:
        values, ats, calls = values[skip:], ats[skip:], calls[skip:]
    first = segment.first + skip
    # Nearly every segment holds nothing but text.
    if set(map(type, values)) <= {str}:
        return thaw_events(segment.run_id, repeat(DELTA), values, calls, first, ats)
    kinds = [value[0] if type(value) is list else DELTA for value in values]
    datas = [value[1] if type(value) is list else value for value in values]
    return thaw_events(segment.run_id, cast("list[Kind]", kinds), datas, calls, first, ats)


def first_events(segments: Iterable[Segment], after: int, limit: int | None) -> list[Event]:
    """Return the events of segments, in order, with a larger seq than `after`, at most `limit`.

    Segments behind the last of these events are not unpacked. A reader that gets a long run in pages would otherwise unpack
    each segment many times.
    """
    found: list[Event] = []
    for segment in segments:
        if limit is not None and len(found) >= limit:
            break
        found += unpack(segment, after)
    return found[:limit]


def last_call(calls: str) -> str:
    """Return the JSON of the call that a segment with these `calls` ends in."""
    return json.dumps(_load(calls)[-1])


def trim(segment: Segment, after: int) -> Segment:
    """Return the part of a segment with a larger seq than `after`; the segment itself where that is all of it."""
    return segment if after < segment.first else pack(segment.run_id, segment.epoch, unpack(segment, after))


def merge(segments: Sequence[Segment]) -> Segment:
    """Return neighbouring segments of a run as one, without parsing them. Drop the marks: the caller has applied them.

    A segment with empty `calls` continues the call of the one before it. All but the first may be plain tuples.
    """
    head = segments[0]
    if len(segments) == 1:
        return head._replace(marks=())
    last, t1 = head.last, head.t1
    ats = [head.ats] if head.ats else []
    calls, bodies = [head.calls], [head.body]
    current = head.calls.rpartition(",")[2]
    for _, _, first, end, start, stop, steps, call, body, _ in segments[1:]:
        if first != last + 1:
            raise Damaged(f"run {head.run_id} has a gap: {last} is followed by {first}")
        ats.append(str(start - t1))
        if steps:
            ats.append(steps)
        # A call that continues from one segment into the next is named once.
        if call and call.partition(",")[2] != current:
            calls.append(call)
            current = call.rpartition(",")[2]
        bodies.append(body)
        last, t1 = end, stop
    epoch = segments[-1][1]
    return Segment(head.run_id, epoch, head.first, last, head.t0, t1, ",".join(ats), ",".join(calls), ",".join(bodies))


def long_segments(parts: Sequence[Segment]) -> Iterator[Segment]:
    """Merge segments of a run, in order, to few and long ones. All but the first may be plain rows of the same shape.

    No merged segment spans a gap.
    """
    pending: list[Segment] = []
    events, size = 0, 0
    for part in parts:
        if pending and (events >= _LONG_EVENTS or size >= _LONG_BYTES or part[2] > pending[-1][3] + 1):
            long = merge(pending)
            yield long
            pending, events, size = [], 0, 0
            part = Segment(*part)
            if not part.calls:  # it has the call of the row before, which is now in another segment
                part = part._replace(calls=f"{part.first},{last_call(long.calls)}")
        pending.append(part)
        events += part[3] - part[2] + 1
        size += len(part[8])
    if pending:
        yield merge(pending)


def gap_in(parts: Sequence[Segment], after: int) -> tuple[int, int] | None:
    """Return the seqs on both sides of the first gap among segments of a run that were read from `after`."""
    for part in parts:
        if part.first > after + 1:
            return after, part.first
        after = max(after, part.last)
    return None


def _load(inside: str) -> list[Any]:
    return cast("list[Any]", _json.loads(f"[{inside}]"))


def _spread(pairs: list[Any], first: int, count: int) -> list[str | None]:
    if len(pairs) == 2:
        return [pairs[1]] * count
    starts = [max(0, seq - first) for seq in pairs[0::2]] + [count]
    spans = zip(pairs[1::2], starts, starts[1:], strict=False)
    return list(chain.from_iterable(repeat(call, end - start) for call, start, end in spans))
