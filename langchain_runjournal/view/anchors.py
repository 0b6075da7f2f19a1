"""Pure: what of a page has an anchor, so that bars, calls, messages and marks can link to each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..timeline.calls import ModelCall, ToolCall
from ..timeline.rows import Row, drawn
from ..timeline.timeline import Mark, Timeline
from .elements import Place, number, some


@dataclass(slots=True)
class Anchors:
    """The anchors of one run. Rows and details of a call have its seq as their number; messages and marks count from 1."""

    place: Place
    rows: set[int] = field(default_factory=set)
    details: set[int] = field(default_factory=set)
    messages: set[int] = field(default_factory=set)
    marks: dict[int, int] = field(default_factory=dict)
    """By the seq of a mark, its number."""
    answers: dict[str, int] = field(default_factory=dict)
    """By the id of a model call, the number of its message."""
    results: dict[str, int] = field(default_factory=dict)
    """By the id of a tool request, the number of its last result."""
    models: dict[str, ModelCall] = field(default_factory=dict)
    tools: dict[str, ToolCall] = field(default_factory=dict)
    """By the id of a tool request, the last call of it."""
    written: dict[int, list[int]] = field(default_factory=dict)
    """By the seq of a settlement, the numbers of the messages that it wrote."""

    def id(self, kind: str, at: int) -> str:
        """Return the attribute that makes an element the target of a link; nothing in a notebook."""
        return f' id="{self.place.key}-{kind}-{at}"' if self.place.has_links else ""

    def link(self, kind: str, at: int | None, words: str, css: str = "") -> str:
        """Return words (HTML) that link to a target, or only the words if the page does not have it."""
        known = {"row": self.rows, "call": self.details, "message": self.messages, "mark": set(self.marks.values())}[kind]
        style = f' class="{css}"' if css else ""
        if at is None or at not in known or not self.place.has_links:
            return f"<span{style}>{words}</span>" if css else words
        return f'<a{style} href="#{self.place.key}-{kind}-{at}">{words}</a>'

    def message_links(self, numbers: Sequence[int]) -> str:
        """Return links to messages, a few of them."""
        links = [self.link("message", at, number(at)) for at in numbers[:12]]
        more = f" and {number(len(numbers) - 12)} more" if len(numbers) > 12 else ""
        return ", ".join(links) + more


def anchors(line: Timeline, rows: Sequence[Row], marks: Sequence[Mark], place: Place) -> Anchors:
    """Return the anchors of a run. `marks` are those that the page lists."""
    found = Anchors(place, rows=drawn(rows))
    found.details = {call.seq for _, call in some(line.models)[0]}
    found.details |= {tool.seq for _, tool in some(line.tools)[0]}
    found.messages = {at + 1 for at, _ in some(line.messages)[0]}
    found.marks = {mark.seq: at for at, mark in enumerate(marks, 1)}
    found.models = {call.call_id: call for call in line.models}
    found.tools = {tool.tool_call_id: tool for tool in line.tools if tool.tool_call_id and tool.inside is None}
    for at, one in enumerate(line.messages, 1):
        if one.kind == "ai" and one.call_id:
            found.answers[one.call_id] = at
        elif one.kind == "tool" and one.tool_call_id:
            found.results[one.tool_call_id] = at
        if one.settled_seq is not None:
            found.written.setdefault(one.settled_seq, []).append(at)
    return found
