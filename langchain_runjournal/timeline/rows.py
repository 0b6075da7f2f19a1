"""Pure: the calls of a run -> the rows of its picture, nested under nodes and under the tools that called them.

Rule: a picture never has many more than `MOST` rows in sight. A larger one begins with folded groups, the largest first; if
that is not enough, all calls of a node become one group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from .calls import ModelCall, ToolCall

MOST: Final = 60
_DEEPEST: Final = 12
_DRAWN: Final = 600
"""Rows in a picture, those in closed groups included. A group of a larger run shows its first and its last ones."""
_FEWEST: Final = 6

Call: TypeAlias = ModelCall | ToolCall


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row: a call, with the calls inside of it, or a group of calls; or, with neither, the calls that are left out."""

    name: str
    """Of a group: its node, or the nodes of the graphs around it, the outermost first. Of a call: its node if no group has
    that name, or an empty text."""
    call: Call | None
    children: tuple[Row, ...]
    began: float
    ended: float
    calls: int
    """The number of calls in it, itself included."""
    depth: int = 0
    is_open: bool = True

    @property
    def key(self) -> str:
        """What distinguishes it from other groups when all calls of a node become one group."""
        return self.name or (_own_name(self.call) if self.call is not None else "")


def rows(models: Sequence[ModelCall], tools: Sequence[ToolCall]) -> tuple[Row, ...]:
    """Return the rows of a run in the order in which they began."""
    found: Sequence[Row] = _Nesting(models, tools).rows()
    if _in_sight(found) > MOST:
        found = _folded(found)
    if _in_sight(found) > MOST:
        found = _by_node(found)
    return _placed(found, 0, len(_every(found)))


def in_sight(found: Iterable[Row]) -> list[Row]:
    """Return the rows that a reader sees before anything is opened or closed, from top to bottom."""
    seen = []
    for row in found:
        seen.append(row)
        if row.is_open:
            seen += in_sight(row.children)
    return seen


def drawn(found: Iterable[Row]) -> set[int]:
    """Return the seqs of the calls that have a row, in sight or in a closed group."""
    return {row.call.seq for row in _every(found) if row.call is not None}


def calls_of(row: Row) -> list[Call]:
    """Return all calls in a row, itself included."""
    own = [] if row.call is None else [row.call]
    return own + [call for child in row.children for call in calls_of(child)]


# --- nesting ----------------------------------------------------------------------------------------------------------

_Segment: TypeAlias = tuple[str, object]
"""One level of the graphs around a call: the name of a node, and what distinguishes this visit of it."""


class _Group:
    """A node while its rows are collected."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.items: list[_Group | Call] = []
        self.open: dict[_Segment, _Group] = {}


class _Nesting:
    """Which call is inside of which other one, and of which node."""

    def __init__(self, models: Sequence[ModelCall], tools: Sequence[ToolCall]) -> None:
        self.every: list[Call] = sorted((*models, *tools), key=lambda call: (call.began, call.seq))
        self.by_id: dict[str, list[ToolCall]] = {}
        for tool in tools:
            for id in {tool.tool_call_id, tool.call_id} - {None, "None"}:
                self.by_id.setdefault(str(id), []).append(tool)
        self.inner: dict[int, list[Call]] = {}
        """By the seq of a tool call, the calls inside of it."""

    def rows(self) -> list[Row]:
        top: list[Call] = []
        parents: dict[int, ToolCall] = {}
        for call in self.every:
            parent = self._parent(call)
            if parent is None:
                top.append(call)
            else:
                parents[call.seq] = parent
                self.inner.setdefault(parent.seq, []).append(call)
        return self._rows(top, "", 0)

    def _parent(self, call: Call) -> ToolCall | None:
        """Return the tool call inside of which a call runs: the latest of that id that was there before, and of several
        the one in whose graph it runs."""
        before = [one for one in self.by_id.get(call.inside or "", ()) if one.seq < call.seq and one.ran]
        around = [one for one in before if one.namespace and (call.namespace or "").startswith(f"{one.namespace}|")]
        return max(around or before, key=lambda one: one.seq, default=None)

    def _rows(self, calls: Sequence[Call], around: str, depth: int) -> list[Row]:
        root = _Group("")
        for call in calls:
            group = root
            for segment in _path(call, around):
                inner = group.open.get(segment)
                if inner is None:
                    inner = group.open[segment] = _Group(segment[0])
                    # Without a superstep, only calls that follow each other are one visit of a node.
                    group.open = {key: one for key, one in group.open.items() if key[1] is not None or key == segment}
                    group.items.append(inner)
                group = inner
            group.items.append(call)
        return [self._row(item, depth) for item in root.items]

    def _row(self, item: _Group | Call, depth: int) -> Row:
        if not isinstance(item, _Group):
            inside = self.inner.get(item.seq, ()) if isinstance(item, ToolCall) else ()
            around = item.namespace or "" if isinstance(item, ToolCall) else ""
            deep = depth >= _DEEPEST  # calls of calls of calls stay in one list
            children = [] if deep else self._rows(inside, around, depth + 1)
            if deep and inside:
                children = [_leaf(call) for call in self._all_inside(item)]
            return _with_children("", item, children)
        children = [self._row(one, depth) for one in item.items]
        if len(children) == 1:
            only = children[0]
            return replace(only, name=" / ".join(filter(None, (item.name, only.name))))
        return _with_children(item.name, None, children)

    def _all_inside(self, call: Call) -> list[Call]:
        found, left = [], list(self.inner.get(call.seq, ()))
        while left:
            found.append(left.pop(0))
            left += self.inner.get(found[-1].seq, ()) if isinstance(found[-1], ToolCall) else ()
        return found


def _path(call: Call, around: str) -> list[_Segment]:
    """Return the nodes around a call, from below the graph `around` on."""
    namespace = call.namespace or ""
    if around and namespace.startswith(f"{around}|"):
        namespace = namespace[len(around) + 1 :]
    elif around:
        namespace = ""  # it runs in a graph that is not the one of the tool
    parts = [part for part in namespace.split("|") if part and not part.isdigit()][:_DEEPEST]
    path: list[_Segment] = [(part.partition(":")[0], part) for part in parts[:-1]]
    last = call.node or (parts[-1].partition(":")[0] if parts else None)
    # Tasks of one superstep run side by side: the tools of one answer are one visit of their node.
    return [*path, (last, call.step)] if last else path


def _leaf(call: Call) -> Row:
    return Row(name="", call=call, children=(), began=call.began, ended=call.ended, calls=1)


def _with_children(name: str, call: Call | None, children: Sequence[Row]) -> Row:
    spans = [(row.began, row.ended) for row in children]
    if call is not None:
        spans = [(call.began, call.ended)]
    return Row(
        name=name,
        call=call,
        children=tuple(children),
        began=min(began for began, _ in spans),
        ended=max(ended for _, ended in spans),
        calls=sum(row.calls for row in children) + (call is not None),
    )


def _own_name(call: Call) -> str:
    return call.model if isinstance(call, ModelCall) else call.name


# --- folding ----------------------------------------------------------------------------------------------------------


def _in_sight(found: Iterable[Row]) -> int:
    return len(in_sight(found))


def _changed(found: Sequence[Row], change: Callable[[Row], Row]) -> list[Row]:
    return [change(replace(row, children=tuple(_changed(row.children, change)))) for row in found]


def _folded(found: Sequence[Row]) -> list[Row]:
    """Close groups, the largest first, until few enough rows are in sight."""
    sizes = sorted({len(row.children) for row in _every(found) if row.children}, reverse=True)
    for size in sizes:
        closed = _changed(found, lambda row: replace(row, is_open=len(row.children) < size))  # noqa: B023
        if _in_sight(closed) <= MOST:
            return closed
    return _changed(found, lambda row: replace(row, is_open=not row.children))


def _every(found: Iterable[Row]) -> list[Row]:
    return [one for row in found for one in (row, *_every(row.children))]


def _by_node(found: Sequence[Row]) -> list[Row]:
    """Make one closed group of all rows of a node. If there are too many nodes, those with the fewest calls share one."""
    groups: dict[str, list[Row]] = {}
    for row in found:
        inner = row.children if row.call is None else (replace(row, name=""),)
        groups.setdefault(row.key, []).extend(inner)
    names = sorted(groups, key=lambda name: sum(row.calls for row in groups[name]), reverse=True)
    if len(names) > MOST:
        others = names[MOST - 1 :]
        kept = set(names[: MOST - 1])
        rest = sorted((row for name in others for row in groups[name]), key=lambda row: row.began)
        groups = {name: inner for name, inner in groups.items() if name in kept}
        groups[f"{len(others)} others"] = rest
    made = []
    for name, inside in groups.items():
        only = inside[0]
        if len(inside) == 1 and only.call is not None:
            named = name if name != _own_name(only.call) else ""
            made.append(replace(only, name=named, is_open=not only.children))
        else:
            made.append(replace(_with_children(name, None, inside), is_open=False))
    return made


def _placed(found: Sequence[Row], depth: int, total: int) -> tuple[Row, ...]:
    """Return the rows with their depths. Of a large run, leave out rows in the middle of each list."""
    most = len(found) if total <= _DRAWN else max(_FEWEST, _DRAWN * len(found) // total)
    kept = list(found)
    if len(found) > most:
        head = most // 2
        left = found[head : len(found) - (most - head)]
        note = replace(_with_children("", None, left), children=())
        kept = [*found[:head], note, *found[len(found) - (most - head) :]]
    return tuple(replace(row, depth=depth, children=_placed(row.children, depth + 1, total)) for row in kept)
