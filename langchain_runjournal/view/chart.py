"""Pure: the timeline of a run as HTML. Positions are percentages, so that the chart fits any width."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

from ..common.wording import plural
from ..timeline.calls import ModelCall, ToolCall
from ..timeline.time_axis import Axis
from ..timeline.timeline import Mark, Timeline
from .elements import Place, badge, bidi_isolate, brief, duration, number, percent, safe, since
from .phrases import OUTCOMES, how_long, mark_words, model_words, report_words, tool_name, tool_words

_MOST_BOXES: Final = 240
"""The chart draws more boxes than that as one shape, without labels."""
_MOST_ROWS: Final = 24
_MOST_LANES: Final = 600
_MOST_MARKS: Final = 30
_MOST_LINES: Final = 300
_MOST_REPORTS: Final = 200
_SHOWN: Final = ("stop", "pause", "lost", "settled", "end")
_NEAR: Final = 0.07
_SEEN: Final = 0.002
_ROOM: Final = 0.14
"""The least distance between two labels of silences."""
_STEPS: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30)
_LONG_STEPS: Final = (60, 120, 300, 600, 1200, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400, 172_800, 604_800)


_Box: TypeAlias = tuple[str, str, str, str]
"""The CSS classes of a box, its label, its title, and the HTML in it."""


def chart(line: Timeline, place: Place) -> str:
    """Return the chart, its legend, and the same in words."""
    axis = line.axis
    marks = [mark for mark in line.marks if mark.kind in _SHOWN][:_MOST_MARKS]
    groups = _groups(marks, axis)
    plot = [
        f'<div class="rj-plot" role="img" aria-label="{safe(_alternative(line))}">',
        _ticks(axis),
        *(
            f'<i class="rj-break" style="left:{percent(begin)};width:{percent(end - begin)}"></i>'
            for begin, end in _gaps(axis)
        ),
        _models(line),
        _tools(line),
        *_lines(line, groups),
        *_reports(line),
        "</div>",
        _pins(groups),
        "</div>",
    ]
    return "".join([*plot, _legend(line), _mark_list(line, marks), _in_words(line, place)])


def _alternative(line: Timeline) -> str:
    finished = sum(tool.outcome == "result" for tool in line.tools)
    parts = [f"Timeline of {duration(line.length)}", plural(len(line.models), "model call")]
    if line.tools:
        parts.append(
            f"{plural(len(line.tools), 'tool call')} in {plural(line.lanes, 'lane')}, {number(finished)} with a result"
        )
    if line.cut is not None:
        parts.append(f"cut off after {duration(line.cut)}: {bidi_isolate(line.run.cause or 'error')}")
    return f"{', '.join(parts)}. The same in words follows below."


# --- the axis ---------------------------------------------------------------------------------------------------------


def _gaps(axis: Axis) -> list[tuple[float, float]]:
    return [(axis.place(one.began), axis.place(one.ended)) for one in axis.breaks]


def _ticks(axis: Axis) -> str:
    """Return labels for round times and for the length of each silence."""
    labels: list[str] = []
    taken: list[float] = []
    for begin, end, silent in _silences(axis):
        labels.append(_tick((begin + end) / 2, duration(silent), "rj-tick rj-gone"))
        taken.append((begin + end) / 2)
    grid = []
    for began, passed in _round_times(axis):
        where = axis.place(began + passed)
        if all(abs(where - other) > 0.11 for other in taken):
            # After a silence, labels count from its end.
            words = f"+{duration(passed)}" if began else duration(passed) if passed else "0 s"
            labels.append(_tick(where, words, "rj-tick"))
            if where > 0:
                grid.append(f'<i class="rj-grid" style="left:{percent(where)}"></i>')
            taken.append(where)
    return f'<div class="rj-ticks">{" ".join(labels)}</div><div class="rj-track">{"".join(grid)}'


def _silences(axis: Axis) -> list[tuple[float, float, float]]:
    """Return begin and end of each silence in the chart, and its length. Silences too near for a label each are merged."""
    found: list[tuple[float, float, float]] = []
    for one, (begin, end) in zip(axis.breaks, _gaps(axis), strict=True):
        silent = one.ended - one.began
        if found and (begin + end) / 2 - sum(found[-1][:2]) / 2 <= _ROOM:
            first, _, before = found.pop()
            begin, silent = first, before + silent
        found.append((begin, end, silent))
    return found


def _round_times(axis: Axis) -> Iterable[tuple[float, float]]:
    """Yield the end of each silence, each time with a round time after it."""
    step = next((step for step in (*_STEPS, *_LONG_STEPS) if axis.worked / step <= 6), max(1.0, axis.worked / 6))
    began = 0.0
    for one in (*axis.breaks, None):
        ended = axis.length if one is None else one.began
        for turn in range(64):
            if began + turn * step > ended:
                break
            yield began, turn * step
        began = ended if one is None else one.ended


def _tick(where: float, words: str, kind: str) -> str:
    side = " rj-left" if where > 0.93 else " rj-right" if where < 0.04 else ""
    return f'<span class="{kind}{side}" style="left:{percent(where)}">{words}</span>'


# --- calls ------------------------------------------------------------------------------------------------------------


def _models(line: Timeline) -> str:
    calls = line.models
    if not calls:
        return '<div class="rj-group"><span class="rj-cap">No model was called</span></div>'
    head = f'<div class="rj-group"><span class="rj-cap">{plural(len(calls), "model call")}</span>'
    if len(calls) > _MOST_BOXES or line.model_lanes > _MOST_ROWS:
        return f"{head}{_dense(calls, line.axis, line.model_lanes)}</div>"
    highest = max((peak for call in calls for peak in _rates(call, line.axis)), default=0.0)
    rows = []
    for lane in range(line.model_lanes):
        row = [call for call in calls if call.lane == lane]
        boxes = [_model_box(call, line.axis, highest) for call in row]
        rows.append(f'<div class="rj-row rj-models">{_slots(row, boxes, line.axis)}</div>')
    return f"{head}{''.join(rows)}</div>"


def _rates(call: ModelCall, axis: Axis) -> list[float]:
    if call.first is None or call.last is None:
        return []
    width = max(axis.place(call.last) - axis.place(call.first), 0.004) / len(call.flow)
    return [tokens / width for tokens in call.flow]


def _model_box(call: ModelCall, axis: Axis, highest: float) -> _Box:
    kind = f"rj-model rj-{call.role if call.role in ('answer', 'helper', 'subagent') else 'answer'} rj-{call.outcome}"
    if call.replaced or call.unused:
        kind += " rj-replaced"
    began, ended = axis.place(call.began), axis.place(call.ended)
    inner, width = "", max(ended - began, 1e-9)
    rates = _rates(call, axis)
    if rates and call.first is not None and call.last is not None:
        start = (axis.place(call.first) - began) / width
        tops = [round(100 - 92 * rate / highest, 1) for rate in rates]
        # Flat at both ends, so that a call of one part is drawn as a box and not as a line.
        points = [f"0,{tops[0]}", *(f"{at + 0.5},{top}" for at, top in enumerate(tops)), f"{len(tops)},{tops[-1]}"]
        shape = f"M0,100L{'L'.join(points)}L{len(tops)},100Z"
        style = f"left:{percent(start)};width:{percent((axis.place(call.last) - axis.place(call.first)) / width)}"
        inner = (
            f'<svg class="rj-flow" style="{style}" viewBox="0 0 {len(tops)} 100" width="60" height="20"'
            f' preserveAspectRatio="none" aria-hidden="true" focusable="false"><path d="{shape}"/></svg>'
        )
    label = [bidi_isolate(brief(call.model)), *([bidi_isolate(brief(call.role))] if call.role != "answer" else [])]
    label += how_long(call)
    label += [OUTCOMES[call.outcome]] if call.outcome != "complete" else []
    return kind, " · ".join(label), model_words(call), inner


def _tools(line: Timeline) -> str:
    tools = line.tools
    if not tools:
        return ""
    beside = f", up to {line.lanes} at once" if line.lanes > 1 else ""
    head = f'<div class="rj-group"><span class="rj-cap">{plural(len(tools), "tool call")}{beside}</span>'
    if len(tools) > _MOST_BOXES or line.lanes > _MOST_ROWS:
        return f"{head}{_dense(tools, line.axis, line.lanes)}</div>"
    counted = Counter(tool.name for tool in tools)
    rows = []
    for lane in range(line.lanes):
        row = [tool for tool in tools if tool.lane == lane]
        boxes = [_tool_box(tool, is_alone=counted[tool.name] == 1) for tool in row]
        rows.append(f'<div class="rj-row rj-tools">{_slots(row, boxes, line.axis)}</div>')
    return f"{head}{''.join(rows)}</div>"


def _tool_box(tool: ToolCall, *, is_alone: bool) -> _Box:
    name = bidi_isolate(brief(tool.name)) if is_alone else tool_name(tool)
    kind = f"rj-tool rj-{tool.outcome}{' rj-late' if tool.late else ''}{' rj-inside' if tool.inside else ''}"
    return kind, " · ".join([name, *how_long(tool)]), tool_words(tool), ""


def _slots(row: Sequence[ModelCall | ToolCall], boxes: Sequence[_Box], axis: Axis) -> str:
    """Return each box with its label in it or beside it, up to the neighbouring boxes."""
    parts = []
    spans = [(axis.place(one.began), axis.place(one.ended)) for one in row]
    for at, (began, ended) in enumerate(spans):
        before = spans[at - 1][1] if at else 0.0
        after = spans[at + 1][0] if at + 1 < len(spans) else 1.0
        left = after - began < 0.22 and ended - before > after - began
        begin, end = (before, ended) if left else (began, after)
        width = max(end - begin, 0.004)
        share = percent(min(1.0, max(ended - began, 0.0) / width))
        kind, words, title, inner = boxes[at]
        box = f'<span class="rj-bar {kind}" title="{safe(title)}" style="width:{share}">{inner}</span>'
        # If the label does not fit, the list of the calls has it.
        ends = f"{' rj-ends' if left else ''}{' rj-tiny' if width < 0.05 else ' rj-tight' if width < 0.13 else ''}"
        where = f"left:{percent(min(begin, 0.996))};width:{percent(width)}"
        parts.append(f'<span class="rj-slot{ends}" style="{where}">{box}<span class="rj-label">{safe(words)}</span></span> ')
    return "".join(parts)


def _dense(calls: Sequence[ModelCall | ToolCall], axis: Axis, lanes: int) -> str:
    """Return very many calls as one shape for each outcome."""
    shown = min(lanes, _MOST_LANES)
    thick = 8 if shown <= 40 else 10  # so thin a lane has no room for gaps
    shapes: dict[str, list[str]] = {}
    last: dict[int, tuple[str, int]] = {}
    for call in calls:
        if call.lane >= shown:
            continue
        began = round(axis.place(call.began) * 1000)
        width = max(1, round(axis.place(call.ended) * 1000) - began)
        if last.get(call.lane) == (call.outcome, began + width):
            continue
        last[call.lane] = (call.outcome, began + width)
        shapes.setdefault(call.outcome, []).append(f"M{began},{call.lane * 10}h{width}v{thick}h-{width}z")
    paths = "".join(f'<path class="rj-{outcome}" d="{"".join(shape)}"/>' for outcome, shape in shapes.items())
    height = max(16, min(shown * 12, 480 if shown > 60 else 260))
    more = f'<p class="rj-note">{number(lanes - shown)} more lanes are not drawn.</p>' if lanes > shown else ""
    return (
        f'<svg class="rj-dense" style="height:{height}px" viewBox="0 0 1000 {shown * 10}" width="600" height="{height}"'
        f' preserveAspectRatio="none" aria-hidden="true" focusable="false">{paths}</svg>{more}'
    )


# --- marks ------------------------------------------------------------------------------------------------------------


def _groups(marks: Sequence[Mark], axis: Axis) -> list[tuple[float, list[int]]]:
    """Group marks that are too near to each other for a number each."""
    groups: list[tuple[float, list[int]]] = []
    for number_, mark in enumerate(marks, 1):
        where = axis.place(mark.at)
        if groups and abs(where - groups[-1][0]) < _NEAR:
            groups[-1][1].append(number_)
        else:
            groups.append((where, [number_]))
    return groups


def _lines(line: Timeline, groups: Sequence[tuple[float, list[int]]]) -> Iterable[str]:
    for where, _ in groups:
        yield f'<i class="rj-line" style="left:{percent(where)}"></i>'
    if line.cut is not None:
        where = line.axis.place(line.cut)
        side = " rj-left" if where > 0.5 else ""
        why = safe(bidi_isolate(line.run.cause or "error"))
        yield f'<i class="rj-line rj-cut{side}" style="left:{percent(where)}"><b>cut off: {why}</b></i>'


def _reports(line: Timeline) -> Iterable[str]:
    """Yield a small mark for each thing that the program reported of itself, if it does not hide the mark before it."""
    last = -1.0
    for mark in line.marks_of("custom")[:_MOST_REPORTS]:
        where = line.axis.place(mark.at)
        if where - last > _SEEN:
            last = where
            yield f'<i class="rj-report" style="left:{percent(where)}" title="{safe(report_words(mark))}"></i>'


def _pins(groups: Sequence[tuple[float, list[int]]]) -> str:
    pins = []
    for where, numbers in groups:
        words = f"{numbers[0]}" if len(numbers) == 1 else f"{numbers[0]}\u2013{numbers[-1]}"
        side = " rj-left" if where > 0.96 else " rj-right" if where < 0.03 else ""
        pins.append(f'<span class="rj-pin{side}" style="left:{percent(where)}">{words}</span> ')
    return f'<div class="rj-pins">{"".join(pins)}</div>'


def _mark_list(line: Timeline, marks: Sequence[Mark]) -> str:
    if not marks:
        return ""
    rows = "".join(
        f'<li><span class="rj-at">{since(mark.at)}</span> <span>{mark_words(mark)}'
        f"{' ' + badge('late', 'late') if mark.late else ''}</span></li>"
        for mark in marks
    )
    left = sum(mark.kind in _SHOWN for mark in line.marks) - len(marks)
    more = (
        f'<p class="rj-note">{plural(left, "more mark")} of this kind: see <code>runjournal export</code>.</p>'
        if left
        else ""
    )
    return f'<ol class="rj-marks">{rows}</ol>{more}'


def _legend(line: Timeline) -> str:
    found = []
    if any(call.flow for call in line.models):
        found.append(("flow", "tokens as they arrived"))
    if any(_waits(call, line.axis) for call in line.models):
        found.append(("wait", "model, waiting for tokens"))
    outcomes = {tool.outcome for tool in line.tools}
    names = {"result": "tool with a result", "error": "tool with an error", "interrupted": "waits for a human"}
    if line.marks_of("custom"):
        found.append(("report", "what the program reported"))
    found += [(outcome, name) for outcome, name in names.items() if outcome in outcomes]
    if "open" in outcomes:
        found.append(("open", "tool that never ended" if line.run.ended else "tool that has not ended"))
    if any(tool.late for tool in line.tools):
        found.append(("late", "ended after the run"))
    if line.axis.breaks:
        found.append(("gap", "a long silence, shortened"))
    items = "".join(f'<li><i class="rj-key rj-k-{kind}"></i>{words}</li>' for kind, words in found)
    return f'<ul class="rj-legend" aria-label="Legend">{items}</ul>' if items else ""


def _waits(call: ModelCall, axis: Axis) -> bool:
    """Return whether the chart shows a wait before the first token of the call or after its last one."""
    if call.first is None or call.last is None:
        return True
    silent = axis.place(call.first) - axis.place(call.began), axis.place(call.ended) - axis.place(call.last)
    return max(silent) > _SEEN


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
