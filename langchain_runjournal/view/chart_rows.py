"""Pure: the rows of a timeline as HTML: names, tokens, durations, bars, and groups that fold without a script."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from ..common.wording import plural
from ..timeline.calls import ModelCall, ToolCall
from ..timeline.packing import Packed, packed
from ..timeline.rows import Row, calls_of
from ..timeline.time_axis import Axis
from ..timeline.timeline import Timeline
from .anchors import Anchors
from .elements import bidi_isolate, brief, duration, number, percent, safe
from .phrases import aside_words, model_words, row_name, row_tags, token_counts, token_sum, tool_words

_SEEN: Final = 0.002
_LEAST: Final = 0.004
_DEEPEST: Final = 8


class RowDrawer:
    """What the rows of one run have in common."""

    def __init__(self, line: Timeline, anchors: Anchors) -> None:
        self.line = line
        self.axis = line.axis
        self.anchors = anchors
        self.has_tokens = any(token_counts(call.usage) for call in line.models)
        self.highest = max((peak for call in line.models for peak in rates(call, line.axis)), default=0.0)
        self.named = Counter(tool.name for tool in line.tools)
        self.models = {call.call_id: call for call in line.models}

    def rows(self, rows: Sequence[Row]) -> str:
        """Return rows and the rows inside of them."""
        return "".join(map(self._row, rows))

    def _row(self, row: Row) -> str:
        if row.call is None and not row.children:
            words = f"{plural(row.calls, 'call')} left out here"
            return f'<div class="rj-row rj-none"><span class="rj-call-cell">{self._name(row, words)}</span></div>'
        title, cells = self._group(row) if row.call is None else self._call(row, row.call)
        about = f'{self._id(row)} title="{safe(title)}"'
        if not row.children:
            return f'<div class="rj-row"{about}>{cells}</div>'
        state = " open" if row.is_open else ""
        tall = " rj-tall" if row.call is None and packed(calls_of(row), self.axis).lanes > 2 else ""
        return (
            f'<details class="rj-fold"{state}><summary class="rj-row{tall}"{about}>{cells}</summary>'
            f"{self.rows(row.children)}</details>"
        )

    def _id(self, row: Row) -> str:
        return "" if row.call is None else self.anchors.id("row", row.call.seq)

    # --- the left column ----------------------------------------------------------------------------------------------

    def _name(self, row: Row, words: str, more: str = "") -> str:
        deep = f' style="--deep:{min(row.depth, _DEEPEST)}"' if row.depth else ""
        return f'<span class="rj-name"{deep}>{words}{more}</span>'

    def _cells(self, name: str, counts: str, took: str) -> str:
        used = f'<span class="rj-used">{counts}</span> ' if self.has_tokens else ""
        return f'<span class="rj-call-cell">{name} {used}<span class="rj-took">{took}</span></span>'

    def _call(self, row: Row, call: ModelCall | ToolCall) -> tuple[str, str]:
        title = model_words(call) if isinstance(call, ModelCall) else tool_words(call)
        alone = isinstance(call, ModelCall) or self.named[call.name] == 1
        words = self.anchors.link("call", call.seq, safe(row_name(call, is_alone=alone)), "rj-called")
        more = f' <span class="rj-node">{safe(bidi_isolate(brief(row.name)))}</span>' if row.name else ""
        ended = self.line.run.ended or self.line.is_dead
        tags = row_tags(call, self.models, ended=ended)
        for at, (kind, tag) in enumerate(tags, 1):
            first = "" if at == len(tags) else " rj-first"  # a narrow layout has room for the last one
            more += f' <span class="rj-tag rj-t-{kind}{first}">{tag}</span>'
        counts = token_counts(call.usage) if isinstance(call, ModelCall) else ""
        took = "" if call.lasts is None else duration(call.lasts)
        bar = self._model_bar(call) if isinstance(call, ModelCall) else self._tool_bar(call)
        return title, f'{self._cells(self._name(row, words, more), counts, took)} <span class="rj-track">{bar}</span>'

    def _group(self, row: Row) -> tuple[str, str]:
        calls = calls_of(row)
        found = packed(calls, self.axis)
        beside = f", up to {number(found.lanes)} at once" if found.lanes > 1 else ""
        words = f"{row.name} · {plural(row.calls, 'call')}{beside}"
        name = f'<span class="rj-called rj-grouped">{safe(bidi_isolate(brief(row.name)))}</span>'
        more = f' <span class="rj-node">{plural(row.calls, "call")}</span>'
        failed = sum(call.outcome == "error" for call in calls)
        if failed:
            more += f' <span class="rj-tag rj-t-bad">{plural(failed, "error")}</span>'
        begin, end = self.axis.place(row.began), self.axis.place(row.ended)
        span = f'<span class="rj-span" style="{_at(begin, end)}"></span>'
        counts = token_counts(token_sum(calls))
        cells = self._cells(self._name(row, name, more), counts, duration(row.ended - row.began))
        return words, f'{cells} <span class="rj-track">{span}{_packed(found)}</span>'

    # --- bars ---------------------------------------------------------------------------------------------------------

    def _model_bar(self, call: ModelCall) -> str:
        role = call.role if call.role in ("answer", "helper", "subagent") else "answer"
        kind = f"rj-bar rj-model rj-{role} rj-{call.outcome}"
        if aside_words(call):
            kind += " rj-replaced"
        begin, end = self.axis.place(call.began), self.axis.place(call.ended)
        inner, shape = "", flow(call, self.axis, self.highest)
        if shape and call.first is not None and call.last is not None:
            width = max(end - begin, 1e-9)
            first, last = self.axis.place(call.first), self.axis.place(call.last)
            style = f"left:{percent((first - begin) / width)};width:{percent((last - first) / width)}"
            points = "L".join(f"{x:g},{100 - y:g}" for x, y in shape)
            long = shape[-1][0]
            inner = (
                f'<svg class="rj-flow" style="{style}" viewBox="0 0 {long:g} 100" width="60" height="20" fill="#8290a6"'
                ' preserveAspectRatio="none" aria-hidden="true" focusable="false">'
                f'<path d="M0,100L{points}L{long:g},100Z"/></svg>'
            )
        return f'<span class="{kind}" style="{_at(begin, end)}">{inner}</span>'

    def _tool_bar(self, call: ToolCall) -> str:
        kind = f"rj-bar rj-tool rj-{call.outcome}{' rj-late' if call.late else ''}"
        where = _at(self.axis.place(call.began), self.axis.place(call.ended))
        return f'<span class="{kind}" style="{where}"></span>'


def rates(call: ModelCall, axis: Axis) -> list[float]:
    """Return how dense the tokens of a call are in the picture, for each part of its flow."""
    if call.first is None or call.last is None:
        return []
    width = max(axis.place(call.last) - axis.place(call.first), _LEAST) / len(call.flow)
    return [tokens / width for tokens in call.flow]


def flow(call: ModelCall, axis: Axis, highest: float) -> list[tuple[float, float]]:
    """Return the outline of the token flow of a call: x from 0 to the number of its parts, y from 0 to 92 of 100."""
    tops = [round(92 * rate / highest, 1) for rate in rates(call, axis)]
    if not tops:
        return []
    # Flat at both ends, so that a call of one part is drawn as a box and not as a line.
    return [(0.0, tops[0]), *((at + 0.5, top) for at, top in enumerate(tops)), (float(len(tops)), tops[-1])]


def waits(call: ModelCall, axis: Axis) -> bool:
    """Return whether the chart shows a wait before the first token of the call or after its last one."""
    if call.first is None or call.last is None:
        return True
    silent = axis.place(call.first) - axis.place(call.began), axis.place(call.ended) - axis.place(call.last)
    return max(silent) > _SEEN


def _at(begin: float, end: float) -> str:
    begin = min(begin, 0.995)
    return f"left:{percent(begin)};width:{percent(max(0.0, end - begin))}"


def _packed(found: Packed) -> str:
    """Return the calls of a group as one shape for each outcome; it is shown while the group is closed."""
    paths: list[str] = []
    if found.heights:
        height = 100.0
        for kind, heights in (("result", found.heights), ("error", found.bad)):
            if any(heights):
                steps = "".join(f"V{100 - 100 * one:.0f}h1" for one in heights)
                paths.append(f'<path class="rj-{kind}" d="M0,100{steps}V100z"/>')
        wide = float(len(found.heights))
    else:
        height, wide = found.lanes * 10.0, 1000.0
        shapes: dict[str, list[str]] = {}
        for begin, end, lane, outcome in found.boxes:
            at, width = round(begin * 1000), max(2, round((end - begin) * 1000))
            shapes.setdefault(outcome, []).append(f"M{min(at, 998)},{lane * 10}h{width}v8h-{width}z")
        paths = [f'<path class="rj-{outcome}" d="{"".join(shape)}"/>' for outcome, shape in shapes.items()]
    return (
        f'<svg class="rj-packed" viewBox="0 0 {wide:g} {height:g}" width="600" height="18" fill="#8290a6"'
        f' preserveAspectRatio="none" aria-hidden="true" focusable="false">{"".join(paths)}</svg>'
    )
