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
        self._behind: int | None = None
        """The last superstep of the outermost graph that is stored."""
        self._held: deque[Event] = deque()

    def next(self, event: Event) -> Iterator[Event]:
        """Yield the events that readers may have, now that there is this one."""
        kind = event.kind
        if not self._waits:
            yield event
        elif kind in _MARKS:
            yield from self._held
            self._held.clear()
            yield event
        elif kind == "run.checkpoint" and event.data.get("checkpoint_ns") == "" and "checkpoint_id" in event.data:
            number = event.data.get("step")
            if event.data.get("source") != "input" and isinstance(number, int):
                self._behind = number
            yield event
            while self._held and not self._is_ahead(self._held[0]):
                yield self._held.popleft()
        elif self._held or self._is_ahead(event):
            self._held.append(event)
            if len(self._held) > _MOST:
                self._waits = False
                yield from self._held
                self._held.clear()
        else:
            yield event

    def _is_ahead(self, event: Event) -> bool:
        if isinstance(event.bare, str):
            return False
        step = event.bare.get("task_step")
        if self._behind is None and self._resumes:
            self._behind = step - 1 if isinstance(step, int) else None
            return False
        if step is None:
            return event.kind == "run.custom" and self._behind is None
        return isinstance(step, int) and (self._behind is None or step > self._behind + 1)
