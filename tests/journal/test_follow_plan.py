"""Property: in any interleaving of append, read, end and wake-up, every follower gets each event once and in order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_runjournal import Event
from langchain_runjournal.errors import EventsMissing
from langchain_runjournal.journal.follow_plan import Page, Replay, Step


def event(seq: int, kind: str = "llm.ai.delta") -> Event:
    return Event(run_id="r", kind=kind, seq=seq)


class World:
    """A run, and followers whose sleep ends when an event was appended after they began to listen."""

    def __init__(self, afters: list[int], page: int, knows_last: bool = False) -> None:
        self.knows_last = knows_last
        self.events: list[Event] = []
        self.ended = False
        self.page = page
        self.replays = [Replay("r", after) for after in afters]
        self.afters = afters
        self.signals = [False] * len(afters)
        self.delivered: list[list[int]] = [[] for _ in afters]

    def append(self, kind: str = "llm.ai.delta") -> None:
        self.events.append(event(len(self.events) + 1, kind))
        self.signals = [True] * len(self.signals)

    def end(self) -> None:
        if not self.ended:
            self.append("run.end")
            self.ended = True

    def step(self, n: int, *, nap_over: bool = False) -> bool:
        """Do one step of one follower. Return False if it sleeps or is done."""
        replay = self.replays[n]
        if replay.step is Step.DONE:
            return False
        if replay.step is Step.WAIT:
            if not (self.signals[n] or nap_over):
                return False
            replay.woken()
        self.signals[n] = False  # before the read
        ended = self.ended
        events = self.events[replay.after : replay.after + self.page]
        woken = replay.was_live and not nap_over
        known = None if self.knows_last and (events or woken) else ended
        page = Page(events, known, is_last=self.knows_last and len(events) < self.page)
        self.delivered[n] += [event.seq for event in replay.accept(page)]
        return True


actions = st.one_of(
    st.just(("append", 0)),
    st.just(("end", 0)),
    st.just(("late", 0)),
    st.tuples(st.just("step"), st.integers(0, 3)),
    st.tuples(st.just("nap"), st.integers(0, 3)),
)


@given(st.lists(actions, max_size=60), st.lists(st.integers(0, 6), min_size=1, max_size=4), st.integers(1, 4), st.booleans())
def test_every_follower_gets_each_event_once_in_order(script: list, afters: list[int], page: int, knows_last: bool) -> None:
    """Every follower gets each event once, in any interleaving, and ends when the run has ended."""
    world = World(afters, page, knows_last)
    for action, n in script:
        if action == "append" and not world.ended:
            world.append()
        elif action == "end":
            world.end()
        elif action == "late" and world.ended:
            world.append("llm.tool.result")
        elif action in ("step", "nap") and n < len(afters):
            world.step(n, nap_over=action == "nap")
    world.end()
    for n in range(len(afters)):
        while world.step(n):
            pass
    end = next(event.seq for event in world.events if event.kind == "run.end")
    for after, seqs, replay in zip(afters, world.delivered, world.replays, strict=True):
        if after < end:
            assert seqs == list(range(after + 1, end + 1))
        else:  # it returned after the end, and gets the late events that existed when it read
            assert seqs == list(range(after + 1, len(world.events) + 1))[: len(seqs)]
        assert replay.step is Step.DONE


def test_pages_may_overlap() -> None:
    """A page that begins before the position of the follower delivers nothing twice."""
    replay = Replay("r", 2)
    assert [e.seq for e in replay.accept(Page([event(1), event(2), event(3)], False))] == [3]
    assert replay.accept(Page([event(3)], False)) == []


def test_a_hole_is_an_error() -> None:
    """The follower never skips a gap silently."""
    replay = Replay("r", 0, "sqlite:///x")
    with pytest.raises(EventsMissing) as caught:
        replay.accept(Page([event(1), event(3)], False))
    assert (caught.value.after, caught.value.found) == (1, 3)
