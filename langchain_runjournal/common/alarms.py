"""Alarms: timers of an event loop that may ring a little late, so that a thousand of them are a few timers of the loop."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from weakref import WeakKeyDictionary, ref

Alarm = tuple[float, int]
"""A delay, and the number of the time slot in which it ends."""

_PARTS = 5
"""An alarm rings up to this part of its delay late."""


class Alarms:
    """The alarms of one event loop. Only its thread calls these methods."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = ref(loop)  # the registry below must not keep a loop that is over
        self._found: dict[Alarm, set[Callable[[], object]]] = {}

    def set(self, delay: float, ring: Callable[[], object]) -> Alarm:
        """Have a function called after `delay` seconds, or up to a fifth later. Return what `cancel` takes."""
        loop, slot = self._loop(), delay / _PARTS
        if loop is None:
            raise RuntimeError("the event loop of these alarms was dropped: call alarms() on the loop that runs")
        alarm = delay, math.ceil((loop.time() + delay) / slot)
        found = self._found.get(alarm)
        if found is None:
            found = self._found[alarm] = set()
            loop.call_at(alarm[1] * slot, self._ring, alarm)
        found.add(ring)
        return alarm

    def cancel(self, alarm: Alarm, ring: Callable[[], object]) -> None:
        """Have a function not called. The timer of the loop stays: the next alarm needs one too."""
        found = self._found.get(alarm)
        if found is not None:
            found.discard(ring)

    def _ring(self, alarm: Alarm) -> None:
        for ring in self._found.pop(alarm):
            try:
                ring()
            except Exception as exc:  # noqa: BLE001 - the others that wait for this moment must not miss it
                if (loop := self._loop()) is not None:
                    loop.call_exception_handler({"message": "an alarm has failed", "exception": exc})


_OF_LOOPS: WeakKeyDictionary[asyncio.AbstractEventLoop, Alarms] = WeakKeyDictionary()


def alarms() -> Alarms:
    """Return the alarms of the running event loop."""
    loop = asyncio.get_running_loop()
    found = _OF_LOOPS.get(loop)
    if found is None:
        found = _OF_LOOPS[loop] = Alarms(loop)
    return found
