"""Pure: the order in which readers get the events of a run.

Rule: a checkpoint is reported when it is stored, which may be after the first words of the next superstep. Readers get the
state first: events of a superstep wait for the checkpoint behind which it runs. The order depends on the events alone, never
on the time at which they came, so a replay has the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

from ....events import Event
from .place import graph_namespace

_MOST: Final = 256
"""How many events wait at most. A run that has more of them stores no checkpoint for now, or a slow one: nothing of it waits
any more."""
_MARKS: Final = frozenset({"run.start", "run.pause", "run.stop", "run.settled", "run.lost", "run.end"})


class Order:
    """The order of the events of one run."""

    def __init__(self, *, waits: bool = True, resumes: bool = False) -> None:
        """Begin. `waits`: whether the run stores each superstep; `resumes`: whether it begins with a step that is stored."""
        self._waits = waits
        self._resumes = resumes
        self._stored: dict[str, int] = {}
        """By the namespace of a graph, its last superstep that is stored."""
        self._held: deque[Event] = deque()

    def next(self, event: Event) -> Iterator[Event]:
        """Yield the events that readers may have, now that there is this one."""
        if not self._waits or (not self._held and isinstance(event.bare, str)):
            yield event
        elif event.kind in _MARKS:
            yield from self._all()
            yield event
        elif _namespace_stored(event) == "":
            self._store(event)
            yield event
            yield from self._released()
        else:
            self._held.append(event)
            yield from self._released()
            if len(self._held) > _MOST:
                self._waits = False
                yield from self._all()

    def _all(self) -> Iterator[Event]:
        while self._held:
            yield self._held.popleft()

    def _released(self) -> Iterator[Event]:
        while self._held:
            missing = self._missing(self._held[0])
            at = 0 if missing is None else self._stored_at(missing)
            if at is None:
                return
            event = self._held[at]
            del self._held[at]
            self._store(event)
            yield event

    def _stored_at(self, namespace: str) -> int | None:
        """Return the place of the first checkpoint of a graph among the events that wait."""
        places = (at for at, event in enumerate(self._held) if _namespace_stored(event) == namespace)
        return next(places, None) if namespace else None

    def _store(self, event: Event) -> None:
        namespace, number = _namespace_stored(event), event.data.get("step")
        if namespace is not None and isinstance(number, int) and (namespace or event.data.get("source") != "input"):
            self._stored[namespace] = number

    def _missing(self, event: Event) -> str | None:
        """Return the namespace of the graph of which a checkpoint is missing that goes before an event."""
        if isinstance(event.bare, str) or event.kind == "run.checkpoint":
            return None
        outer, behind = event.bare.get("task_step"), self._stored.get("")
        if behind is None and self._resumes:
            if isinstance(outer, int):
                self._stored[""] = outer - 1
        elif outer is None:
            if event.kind == "run.custom" and behind is None:
                return ""
        elif isinstance(outer, int) and (behind is None or outer > behind + 1):
            return ""
        place, inner = graph_namespace(str(event.bare.get("checkpoint_ns") or "")), event.bare.get("step")
        # Of a graph that stores nothing, no checkpoint ever comes. So only one that has stored something is waited for.
        if place and place in self._stored and isinstance(inner, int) and inner > self._stored[place] + 1:
            return place
        return None


def _namespace_stored(event: Event) -> str | None:
    """Return the namespace of the graph whose checkpoint an event reports, or None."""
    if event.kind != "run.checkpoint" or "checkpoint_id" not in event.data:
        return None
    return str(event.data.get("checkpoint_ns") or "")
