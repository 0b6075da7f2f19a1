"""Alarms: many of one delay are few timers of the loop; they ring never early, and not after they were cancelled."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

from langchain_runjournal.common.alarms import _OF_LOOPS, Alarms, alarms


class Loop:
    """The part of an event loop that alarms use, with a clock that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0
        self.timers: list[tuple[float, Any, Any]] = []
        self.failed: list[BaseException] = []

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, ring: Any, alarm: Any) -> None:
        self.timers.append((when, ring, alarm))

    def call_exception_handler(self, context: Any) -> None:
        self.failed.append(context["exception"])

    def move(self, now: float) -> None:
        self.now = now
        due = [timer for timer in self.timers if timer[0] <= now]
        self.timers = [timer for timer in self.timers if timer[0] > now]
        for _, ring, alarm in due:
            ring(alarm)


def test_a_thousand_alarms_are_a_few_timers() -> None:
    loop: Any = Loop()
    found, rung = Alarms(loop), []
    for at in range(1_000):
        loop.now = 100.0 + at / 1_000  # a second of connections
        found.set(5.0, lambda at=at: rung.append((at, loop.now)))  # type: ignore[misc]
    assert len(loop.timers) <= 3
    for step in range(1, 200):
        loop.move(101.0 + step / 10)
    assert sorted(at for at, _ in rung) == list(range(1_000))
    for at, moment in rung:
        assert 5.0 <= moment - (100.0 + at / 1_000) <= 6.1 + 0.1


def test_a_cancelled_alarm_does_not_ring() -> None:
    loop: Any = Loop()
    found, rung = Alarms(loop), []
    one, other = (lambda: rung.append("one")), (lambda: rung.append("other"))
    alarm = found.set(1.0, one)
    found.set(1.0, other)
    found.cancel(alarm, one)
    loop.move(110.0)
    found.cancel(alarm, one)  # after it has rung, that changes nothing
    assert rung == ["other"]


def test_an_alarm_that_fails_does_not_keep_the_others_from_ringing() -> None:
    loop: Any = Loop()
    found, rung = Alarms(loop), []
    found.set(1.0, lambda: rung.append("one"))
    found.set(1.0, lambda: rung.append(1 // 0))
    found.set(1.0, lambda: rung.append("other"))
    loop.move(110.0)
    assert sorted(rung) == ["one", "other"]
    assert [type(one) for one in loop.failed] == [ZeroDivisionError]


def test_each_loop_has_its_own() -> None:
    """A loop that is over is not kept."""

    async def here() -> Alarms:
        assert alarms() is alarms()
        rung = asyncio.Event()
        alarms().set(0.01, rung.set)
        await rung.wait()
        return alarms()

    before = len(_OF_LOOPS)
    assert asyncio.run(here()) is not asyncio.run(here())
    gc.collect()
    assert len(_OF_LOOPS) == before
