"""Pure: the timeline of a run as an SVG image, for viewers that remove the styles of HTML or show none.

Rule: shapes and colours are attributes, and nothing is a style, a link or a script, so that a viewer that removes those
shows the same image.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Sequence
from typing import Final

from ..common.wording import plural
from ..timeline.calls import ModelCall, ToolCall
from ..timeline.labels import group_text, shortened, text_width
from ..timeline.packing import packed
from ..timeline.rows import Row, calls_of, in_sight, rows
from ..timeline.time_axis import Axis
from ..timeline.timeline import Timeline
from .chart import axis_labels, marks_of, pins
from .chart_rows import flow, rates
from .elements import bidi_isolate, duration, safe
from .phrases import aside_words, headline, row_name, row_tags, sentences

_WIDTH: Final = 1000
_LEFT: Final = 360
"""Where the track begins."""
_TRACK: Final = _WIDTH - _LEFT - 12
_ROW: Final = 22
_TOP: Final = 62
_SIZE: Final = 12.0
_AXIS: Final = 11.0
_INK, _SOFT, _EDGE, _BAD, _GOOD = "#1b1e25", "#565d6b", "#dfe2e8", "#b3261e", "#17663c"
_ACCENT, _WAIT = "#4650c8", "#dfe2fb"
_TOOLS: Final = {"result": "#aeb9ca", "error": "#f2aaa4", "interrupted": "#edc77a", "open": "#dde2ea"}
_FACE: Final = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"


def picture(line: Timeline) -> str:
    """Return the timeline of a run as an SVG document of its own."""
    return _Drawing(line).svg()


def picture_url(line: Timeline) -> str:
    """Return the image as a `data:` URL."""
    return "data:image/svg+xml;base64," + base64.b64encode(picture(line).encode("utf-8", "replace")).decode()


class _Drawing:
    """An image while it is drawn."""

    def __init__(self, line: Timeline) -> None:
        self.line = line
        self.axis: Axis = line.axis
        self.rows = in_sight(rows(line.models, line.tools))
        self.named = Counter(tool.name for tool in line.tools)
        self.models = {call.call_id: call for call in line.models}
        self.highest = max((peak for call in line.models for peak in rates(call, line.axis)), default=0.0)
        self.bottom = _TOP + max(1, len(self.rows)) * _ROW + 6
        self.parts: list[str] = []

    def svg(self) -> str:
        height = self.bottom + 28
        words = safe(headline(self.line.run, self.line))
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" viewBox="0 0 {_WIDTH} {height}"'
            f' font-family="{_FACE}" font-size="{_SIZE:g}"><title>{words}</title>',
            f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        ]
        head = headline(self.line.run, self.line)
        self._text(12, 20, head, _INK, room=460, size=14, more=' font-weight="bold"')
        after = 12 + min(460.0, text_width(head, 14)) + 18
        self._text(after, 20, sentences(self.line), _SOFT, room=_WIDTH - after - 12)
        self._axis()
        for at, row in enumerate(self.rows):
            self._row(row, _TOP + at * _ROW)
        if not self.rows:
            self._text(12, _TOP + 15, "No model and no tool was called", _SOFT, room=_LEFT)
        self._marks()
        return "".join([*self.parts, "</svg>"])

    def _text(
        self,
        x: float,
        y: float,
        text: str,
        colour: str,
        *,
        room: float,
        size: float = _SIZE,
        anchor: str = "",
        more: str = "",
    ) -> float:
        """Draw as much of a text as there is room for. Return its width."""
        shown = shortened(text, size, room)
        if not shown:
            return 0.0
        about = (f' text-anchor="{anchor}"' if anchor else "") + (f' font-size="{size:g}"' if size != _SIZE else "")
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}"{about}{more}>{safe(shown)}</text>')
        return text_width(shown, size)

    def _box(self, x: float, y: float, width: float, height: float, colour: str, more: str = "") -> None:
        self.parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 1.5):.1f}" height="{height:.1f}" fill="{colour}"{more}/>'
        )

    def _line(self, x: float, colour: str, width: float, more: str = "") -> None:
        self.parts.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP - 4}" y2="{self.bottom}" stroke="{colour}"'
            f' stroke-width="{width:g}"{more}/>'
        )

    def _x(self, where: float) -> float:
        return _LEFT + where * _TRACK

    # --- axis and marks -----------------------------------------------------------------------------------------------

    def _axis(self) -> None:
        for one in self.axis.breaks:
            begin, end = self._x(self.axis.place(one.began)), self._x(self.axis.place(one.ended))
            self._box(begin, _TOP - 4, end - begin, self.bottom - _TOP + 4, "#eef0f4")
        for label in axis_labels(self.axis, _TRACK, _AXIS):
            x = self._x(label.where)
            if not label.is_silence and label.where > 0:
                self._line(x, _EDGE, 1)
            anchor = {"left": "", "center": "middle", "right": "end"}[label.side]
            self._text(x, _TOP - 8, label.text, _SOFT, room=200, size=_AXIS, anchor=anchor)
        for y in (_TOP - 4, self.bottom):
            self.parts.append(f'<line x1="0" x2="{_WIDTH}" y1="{y}" y2="{y}" stroke="{_EDGE}"/>')

    def _marks(self) -> None:
        marks = marks_of(self.line)
        for where, numbers in pins(marks, self.axis, _TRACK):
            x, text = self._x(where), group_text(numbers)
            width = text_width(text, _AXIS) + 10
            left = min(x - width / 2, _WIDTH - width - 2)
            colour = _GOOD if any(marks[at - 1].kind == "settled" for at in numbers) else _SOFT
            self._line(x, "#8290a6", 1, ' stroke-dasharray="3 3"')
            self._box(left, self.bottom + 5, width, 16, "#ffffff", f' stroke="{colour}" rx="8"')
            self._text(left + width / 2, self.bottom + 17, text, colour, room=200, size=_AXIS, anchor="middle")
        if self.line.cut is not None:
            x = self._x(self.axis.place(self.line.cut))
            self._line(x, _BAD, 2)
            words = f"cut off: {bidi_isolate(self.line.run.cause or 'error')}"
            anchor = "end" if x > _LEFT + 120 else ""
            self._text(x, _TOP - 22, words, _BAD, room=300, size=_AXIS, anchor=anchor, more=' font-weight="bold"')

    # --- rows ---------------------------------------------------------------------------------------------------------

    def _row(self, row: Row, top: float) -> None:
        call = row.call
        left, ends = 12 + 14 * min(row.depth, 8), _LEFT - 14
        took = "" if call is None else "" if call.lasts is None else duration(call.lasts)
        if call is None and row.children:
            took = duration(row.ended - row.began)
        ends -= int(self._text(ends, top + 15, took, _SOFT, room=90, size=_AXIS, anchor="end")) + 12
        if call is None:
            name, more = row.name, plural(row.calls, "call")
            if not row.children:
                name, more = f"{plural(row.calls, 'call')} left out here", ""
        else:
            name = row_name(call, is_alone=isinstance(call, ModelCall) or self.named[call.name] == 1)
            ended = self.line.run.ended or self.line.is_dead
            tags = [words for _, words in row_tags(call, self.models, ended=ended)]
            more = " · ".join([*([row.name] if row.name else []), *tags])
        is_bad = call is not None and call.outcome in ("error", "partial", "open")
        extra = min(text_width(more, _AXIS) + 8, (ends - left) * 0.55) if more else 0.0
        bold = "" if call is not None else ' font-weight="bold"'
        # A bold face is wider than the others.
        room = (ends - left - extra) * (1.0 if call is not None else 0.88)
        left += int(self._text(left, top + 15, name, _INK, room=room, more=bold) / (1.0 if call is not None else 0.88)) + 8
        self._text(left, top + 15, more, _BAD if is_bad else _SOFT, room=ends - left, size=_AXIS)
        if call is None:
            self._group(row, top)
        elif isinstance(call, ModelCall):
            self._model(call, top)
        else:
            self._tool(call, top)

    def _model(self, call: ModelCall, top: float) -> None:
        begin, end = self._x(self.axis.place(call.began)), self._x(self.axis.place(call.ended))
        faint = ' opacity="0.55"' if aside_words(call) or call.role == "helper" else ""
        self._box(begin, top + 3, end - begin, 16, _WAIT, faint)
        shape = flow(call, self.axis, self.highest)
        if shape and call.first is not None and call.last is not None:
            first, last = self._x(self.axis.place(call.first)), self._x(self.axis.place(call.last))
            long, wide = shape[-1][0], max(last - first, 1.5)
            points = "L".join(f"{first + x / long * wide:.1f},{top + 19 - y * 0.16:.1f}" for x, y in shape)
            path = f"M{first:.1f},{top + 19:.1f}L{points}L{first + wide:.1f},{top + 19:.1f}Z"
            self.parts.append(f'<path d="{path}" fill="{_ACCENT}" fill-opacity="0.6"/>')
        self._box(begin, top + 3, 2, 16, _ACCENT)
        if call.outcome in ("partial", "error"):
            self._box(max(end - 2, begin), top + 3, 2, 16, _BAD)

    def _tool(self, call: ToolCall, top: float) -> None:
        begin, end = self._x(self.axis.place(call.began)), self._x(self.axis.place(call.ended))
        more = ' stroke="#8290a6" stroke-dasharray="3 2"' if call.outcome == "open" else ""
        self._box(begin, top + 4, end - begin, 14, _TOOLS[call.outcome], more)

    def _group(self, row: Row, top: float) -> None:
        begin, end = self._x(self.axis.place(row.began)), self._x(self.axis.place(row.ended))
        if row.is_open or not row.children:
            self._box(begin, top + 10, end - begin, 2, "#8290a6")
            return
        self._packed(calls_of(row), top)

    def _packed(self, calls: Sequence[ModelCall | ToolCall], top: float) -> None:
        found = packed(calls, self.axis)
        wide = _TRACK / max(1, len(found.heights))
        for colour, heights in ((_TOOLS["result"], found.heights), (_TOOLS["error"], found.bad)):
            if any(heights):
                steps = "".join(f"V{top + 19 - 16 * one:.1f}h{wide:.3f}" for one in heights)
                self.parts.append(f'<path d="M{_LEFT},{top + 19:.1f}{steps}V{top + 19:.1f}z" fill="{colour}"/>')
        lane = 16 / max(1, found.lanes)
        for begin, end, at, outcome in found.boxes:
            colour = _TOOLS.get(outcome, _ACCENT if outcome == "complete" else _TOOLS["error"])
            self._box(self._x(begin), top + 3 + at * lane, (end - begin) * _TRACK, lane * 0.85, colour)
