"""Pure: the timeline of a run as HTML: a row for each call, its name at the left and its bar at the right.

Positions are percentages of the track, so that the chart fits any width. `timeline/rows` decides which rows there are, and
`timeline/labels` which texts have room on the axis.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from ..common.wording import plural
from ..timeline.labels import Label, group_text, grouped, placed, round_times, silences
from ..timeline.rows import Row
from ..timeline.time_axis import Axis
from ..timeline.timeline import Mark, Timeline
from .anchors import Anchors
from .chart_rows import RowDrawer, waits
from .elements import Place, badge, bidi_isolate, duration, number, percent, safe, since
from .phrases import aside_words, mark_words, model_words, report_words, tool_words

WIDE: Final = 340.0
"""Pixels of the narrowest track in the wide layout. The style sheet switches to the narrow one before it gets narrower."""
NARROW: Final = 120.0
SMALL: Final = 11.0
"""The size of the texts on the axis, in pixels."""
PIN: Final = 16.0
"""Pixels of a pin that are not its number."""
SHOWN: Final = ("stop", "pause", "lost", "settled", "end")
_MOST_MARKS: Final = 30
_MOST_LINES: Final = 300
_MOST_REPORTS: Final = 200
_SEEN: Final = 0.002


@dataclass(frozen=True, slots=True)
class _Layout:
    """The texts on the axis, for one width of the track."""

    ticks: list[Label]
    pins: list[tuple[float, list[int]]]


def marks_of(line: Timeline) -> list[Mark]:
    """Return the marks that the chart numbers and lists."""
    return [mark for mark in line.marks if mark.kind in SHOWN][:_MOST_MARKS]


def chart(line: Timeline, rows: Sequence[Row], marks: Sequence[Mark], anchors: Anchors, place: Place) -> str:
    """Return the chart, its legend, and the same in words."""
    axis = line.axis
    wide, narrow = (_Layout(axis_labels(axis, track), pins(marks, axis, track)) for track in (WIDE, NARROW))
    drawer = RowDrawer(line, anchors)
    parts = [
        f'<figure class="rj-plot{" rj-counts" if drawer.has_tokens else ""}" aria-label="{safe(_alternative(line))}">',
        _head(line, wide, narrow, has_tokens=drawer.has_tokens),
        f'<div class="rj-body"><div class="rj-under" aria-hidden="true">{_under(axis, wide)}</div>',
        drawer.rows(rows) if rows else '<p class="rj-row rj-none">No model and no tool was called</p>',
        _reports(line),
        f'<div class="rj-over" aria-hidden="true">{"".join(_lines(line, wide.pins))}</div></div>',
        _pins(wide, narrow, marks, anchors),
        "</figure>",
        _legend(line, rows),
        _mark_list(line, marks, anchors),
        _in_words(line, place),
    ]
    return "".join(parts)


def _alternative(line: Timeline) -> str:
    finished = sum(tool.outcome == "result" for tool in line.tools)
    parts = [f"Timeline of {duration(line.length)}", plural(len(line.models), "model call")]
    if line.tools:
        beside = f", up to {number(line.lanes)} at once" if line.lanes > 1 else ""
        parts.append(f"{plural(len(line.tools), 'tool call')}{beside}, {number(finished)} with a result")
    if line.cut is not None:
        parts.append(f"cut off after {duration(line.cut)}: {bidi_isolate(line.run.cause or 'error')}")
    return f"{', '.join(parts)}. The same in words follows below."


# --- the axis ---------------------------------------------------------------------------------------------------------


def axis_labels(axis: Axis, track: float, size: float = SMALL) -> list[Label]:
    """Return the labels of the axis on a track of so many pixels: lengths of silences, and round times."""
    silent = [(where, duration(length), True) for where, length in silences(axis, track, size, "00 min 00 s")]
    times = []
    for began, passed in round_times(axis, 6 if track > 200 else 3):
        # After a silence, labels count from its end.
        words = f"+{duration(passed)}" if began else duration(passed) if passed else "0\N{NO-BREAK SPACE}s"
        times.append((axis.place(began + passed), words, False))
    return placed([*silent, *times], track, size)


def pins(marks: Sequence[Mark], axis: Axis, track: float) -> list[tuple[float, list[int]]]:
    """Return the numbers of marks under the chart, grouped where they would overlap."""
    return grouped([axis.place(mark.at) for mark in marks], track, SMALL, PIN)


def _both(wide: Sequence[str], narrow: Sequence[str]) -> str:
    """Return elements of both layouts, each with the class of the layouts that show it. `@` is the place of the class."""
    found = []
    for html in dict.fromkeys((*wide, *narrow)):
        kind = "" if html in wide and html in narrow else " rj-wide" if html in wide else " rj-narrow"
        found.append(html.replace("@", kind, 1))
    return " ".join(found)


def _head(line: Timeline, wide: _Layout, narrow: _Layout, *, has_tokens: bool) -> str:
    cut = ""
    if line.cut is not None:
        where = line.axis.place(line.cut)
        side, at = ("right", 1 - where) if where > 0.25 else ("left", where)
        why = safe(bidi_isolate(line.run.cause or "error"))
        cut = f'<div class="rj-flag"><b style="{side}:{percent(at)}">cut off: {why}</b></div>'
    counts = '<span class="rj-used">tokens in / out</span> ' if has_tokens else ""
    names = f'<span class="rj-name">call</span> {counts}<span class="rj-took">time</span>'
    both = _both([_tick(one) for one in wide.ticks], [_tick(one) for one in narrow.ticks])
    return (
        f'<div class="rj-axis" aria-hidden="true">{cut}'
        f'<div class="rj-row"><span class="rj-call-cell">{names}</span> <span class="rj-ticks">{both}</span></div></div>'
    )


def _tick(label: Label) -> str:
    kind = f"rj-tick rj-{label.side}{' rj-gone' if label.is_silence else ''}"
    return f'<span class="{kind}@" style="left:{percent(label.where)}">{label.text}</span>'


def _under(axis: Axis, layout: _Layout) -> str:
    gaps = [(axis.place(one.began), axis.place(one.ended)) for one in axis.breaks]
    found = [f'<i class="rj-break" style="left:{percent(a)};width:{percent(b - a)}"></i>' for a, b in gaps]
    grid = [label.where for label in layout.ticks if not label.is_silence and label.where > 0]
    return "".join(found) + "".join(f'<i class="rj-grid" style="left:{percent(where)}"></i>' for where in grid)


# --- marks ------------------------------------------------------------------------------------------------------------


def _lines(line: Timeline, groups: Sequence[tuple[float, list[int]]]) -> Iterable[str]:
    cut = None if line.cut is None else line.axis.place(line.cut)
    for where, _ in groups:
        if cut is None or abs(where - cut) > _SEEN:
            yield f'<i class="rj-line" style="left:{percent(where)}"></i>'
    if cut is not None:
        yield f'<i class="rj-line rj-cut" style="left:{percent(cut)}"></i>'


def _reports(line: Timeline) -> str:
    """Return a row with a small dot for each thing that the program reported, if it does not hide the dot before it."""
    reports = line.marks_of("custom")
    if not reports:
        return ""
    dots = []
    last = -1.0
    for mark in reports[:_MOST_REPORTS]:
        where = line.axis.place(mark.at)
        if where - last > _SEEN:
            last = where
            dots.append(f'<i class="rj-report" style="left:{percent(where)}" title="{safe(report_words(mark))}"></i>')
    words = f'<span class="rj-name rj-soft">{plural(len(reports), "report")} of the program</span>'
    return (
        f'<div class="rj-row"><span class="rj-call-cell">{words}</span><span class="rj-track">{"".join(dots)}</span></div>'
    )


def _pins(wide: _Layout, narrow: _Layout, marks: Sequence[Mark], anchors: Anchors) -> str:
    if not marks:
        return ""
    shown = ([_pin(where, numbers, marks, anchors) for where, numbers in layout.pins] for layout in (wide, narrow))
    return f'<div class="rj-pins">{_both(*shown)}</div>'


def _pin(where: float, numbers: Sequence[int], marks: Sequence[Mark], anchors: Anchors) -> str:
    is_settled = any(marks[at - 1].kind == "settled" for at in numbers)
    words = anchors.link("mark", numbers[0], group_text(numbers))
    side = " rj-right" if where > 0.9 else " rj-left" if where < 0.05 else ""
    kind = f"rj-pin{' rj-settles' if is_settled else ''}{side}"
    return f'<span class="{kind}@" style="left:{percent(where)}">{words}</span>'


def _mark_list(line: Timeline, marks: Sequence[Mark], anchors: Anchors) -> str:
    if not marks:
        return ""
    rows = "".join(_mark(mark, at, anchors) for at, mark in enumerate(marks, 1))
    left = sum(mark.kind in SHOWN for mark in line.marks) - len(marks)
    more = (
        f'<p class="rj-note">{plural(left, "more mark")} of this kind: see <code>runjournal export</code>.</p>'
        if left
        else ""
    )
    return f'<ol class="rj-marks">{rows}</ol>{more}'


def _mark(mark: Mark, at: int, anchors: Anchors) -> str:
    written = anchors.written.get(mark.seq, ())
    links = ""
    if written and anchors.place.has_links:
        noun = "message" if len(written) == 1 else "messages"
        links = f' <span class="rj-of">({noun} {anchors.message_links(written)})</span>'
    late = f" {badge('late', 'late')}" if mark.late else ""
    kind = ' class="rj-settles"' if mark.kind == "settled" else ""
    when = f'<span class="rj-at">{since(mark.at)}</span>'
    return f"<li{kind}{anchors.id('mark', at)}>{when} <span>{mark_words(mark)}{links}{late}</span></li>"


# --- words ------------------------------------------------------------------------------------------------------------


def _legend(line: Timeline, rows: Sequence[Row]) -> str:
    found = []
    models, tools = line.models, line.tools
    if any(call.flow for call in models):
        found.append(("flow", "tokens as they arrived"))
    if any(waits(call, line.axis) for call in models):
        found.append(("wait", "model, waiting for tokens"))
    if any(call.role == "helper" for call in models):
        found.append(("aside", "helper call"))
    if any(map(aside_words, models)):
        found.append(("replaced", "answer that was not used"))
    outcomes = {tool.outcome for tool in tools}
    names = {"result": "tool with a result", "error": "tool with an error", "interrupted": "waits for a human"}
    if line.marks_of("custom"):
        found.append(("report", "what the program reported"))
    found += [(outcome, name) for outcome, name in names.items() if outcome in outcomes]
    if "open" in outcomes:
        found.append(("open", "tool that never ended" if line.run.ended else "tool that has not ended"))
    if any(tool.late for tool in tools):
        found.append(("late", "ended after the run"))
    if any(row.call is None and row.is_open for row in rows):
        found.append(("group", "node with several calls"))
    if line.axis.breaks:
        found.append(("gap", "a long silence, shortened"))
    items = "".join(f'<li><i class="rj-key rj-k-{kind}"></i>{words}</li>' for kind, words in found)
    return f'<ul class="rj-legend" aria-label="Legend">{items}</ul>' if items else ""


def _in_words(line: Timeline, place: Place) -> str:
    """Return the chart as a list, for readers who cannot see it."""
    rows = [(call.began, model_words(call)) for call in line.models[:_MOST_LINES]]
    rows += [(tool.began, tool_words(tool)) for tool in line.tools[:_MOST_LINES]]
    reports = line.marks_of("custom")
    rows += [(mark.at, report_words(mark)) for mark in reports[:_MOST_LINES]]
    rows.sort(key=lambda row: row[0])
    items = "".join(f'<li><span class="rj-at">{since(at)}</span> {place.text(words, 200)}</li>' for at, words in rows)
    left = len(line.models) + len(line.tools) + len(reports) - len(rows)
    missing = plural(left, "more line" if reports else "more call")
    more = f'<p class="rj-note">{missing}: see <code>runjournal export</code>.</p>' if left else ""
    if not rows:
        return ""
    return f'<details class="rj-words"><summary>The timeline in words</summary><ol>{items}</ol>{more}</details>'
