"""Property: in any interleaving of what happens on a thread, a follower gets each run in its turn, and is never stuck."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_runjournal import Event, Run, RunStatus
from langchain_runjournal.events import Kind
from langchain_runjournal.events.run_state import advance, begin
from langchain_runjournal.journal.follow_plan import Page
from langchain_runjournal.journal.thread_follow_plan import (
    Cursor,
    Leave,
    ThreadReplay,
    ThreadStep,
    is_past_beginning,
    may_leave,
    was_over,
)
from langchain_runjournal.stores import Begun

KINDS: tuple[Kind, ...] = ("llm.start", "llm.ai.delta", "run.pause", "run.end", "llm.tool.result")


@dataclass
class Told:
    """A run of the thread, as the store has it."""

    number: int
    run: Run
    events: list[Event] = field(default_factory=list)
    owner_is_gone: bool = False
    is_deleted: bool = False

    @property
    def id(self) -> str:
        return self.run.run_id

    def append(self, kind: Kind) -> None:
        seq = len(self.events) + 1
        data = {"late": True} if self.run.ended else {}
        self.events.append(Event(run_id=self.id, kind=kind, data=data, seq=seq))
        self.run = advance(self.run, self.events[-1])

    @property
    def is_past_beginning(self) -> bool:
        return is_past_beginning(self.run, self.events, owner_is_gone=self.owner_is_gone)

    @property
    def shown(self) -> list[int]:
        """What a follower of the run gets."""
        ends = [event.seq for event in self.events if event.kind == "run.end"]
        return list(range(1, (ends[0] if ends else len(self.events)) + 1))


class World:
    """A thread and its follower. `drain` does what the shells do until the follower waits."""

    def __init__(self, page: int = 2, after: Cursor | None = None) -> None:
        self.runs: list[Told] = []
        self.page = page
        self.plan = ThreadReplay("t", after)
        self.got: list[tuple[str, int]] = []
        self.left: list[str] = []

    def begin(self, *kinds: Kind) -> Told:
        made = Told(len(self.runs) + 1, begin(f"r{len(self.runs) + 1}", 0.0, "me"))
        self.runs.append(made)
        for kind in kinds:
            made.append(kind)
        return made

    def drain(self, *, in_doubt: bool = True) -> None:
        self.plan.woken(in_doubt=in_doubt)
        for _ in range(1_000):
            if self.plan.step is ThreadStep.WAIT:
                return
            self.step()
        raise AssertionError("the follower does not come to rest")

    def step(self) -> None:
        plan = self.plan
        if plan.after is not None:
            told = next(one for one in self.runs if one.id == plan.after.run_id)
            seq = plan.after.seq
            last_seen = told.events[seq - 1] if 0 < seq <= len(told.events) else None
            is_paused = told.run.status == RunStatus.PAUSED
            plan.begin(told.number, is_over=was_over(told.run, last_seen, seq), is_paused=is_paused)
            return
        if plan.replay is None:
            plan.take([Begun(one.number, one.id, "t") for one in self.later()][:2])
            return
        told = self.runs[plan.number - 1]
        if told.is_deleted:
            plan.leave()
        elif plan.step is ThreadStep.CHECK:
            later = self.later()
            leave = may_leave(told.run, (one.is_past_beginning for one in later), owner_is_gone=told.owner_is_gone)
            leave = leave if later else Leave.NOT_YET
            if leave is Leave.NOW:
                assert told.run.status == RunStatus.PAUSED or told.owner_is_gone
                self.left.append(told.id)
            plan.checked(leave)
        else:
            events = told.events[plan.replay.after : plan.replay.after + self.page]
            is_last = plan.replay.after + len(events) == len(told.events)
            is_ours = not (told.run.ended or told.owner_is_gone or told.run.status == RunStatus.PAUSED)
            page = Page(events, ended=told.run.ended, is_last=is_last)
            self.got += [(event.run_id, event.seq) for event in plan.accept(page, is_ours=is_ours)]

    def later(self) -> list[Told]:
        return [one for one in self.runs if one.number > self.plan.number and not one.is_deleted]


OPERATIONS = st.one_of(
    st.tuples(st.just("begin"), st.booleans()),
    st.tuples(st.just("append"), st.integers(0, 5), st.sampled_from(KINDS)),
    st.tuples(st.just("die"), st.integers(0, 5)),
    st.tuples(st.just("delete"), st.integers(0, 5)),
    st.tuples(st.just("drain"), st.booleans()),
)


@given(st.lists(OPERATIONS, max_size=40), st.integers(1, 4))
def test_each_run_in_its_turn_and_never_stuck(operations: list[tuple[object, ...]], page: int) -> None:
    """Runs come in the order of their numbers, each without a gap, and whole unless it was left or deleted. At the end, the
    follower has all of the last run, or stays at one that is at work."""
    world = World(page)
    for name, *about in operations:
        told = (
            world.runs[-1 - int(str(about[0])) % len(world.runs)] if world.runs and name not in ("begin", "drain") else None
        )
        if name == "begin":
            world.begin("run.start", *(["llm.start"] if about[0] else []))  # type: ignore[list-item]
        elif name == "drain":
            world.drain(in_doubt=bool(about[0]))
        elif told is not None and name == "append":
            told.append(about[1])  # type: ignore[arg-type]
        elif told is not None and name == "die":
            told.owner_is_gone = not told.run.ended
        elif told is not None:
            told.is_deleted = True
    world.drain()
    order = [int(run_id[1:]) for run_id, _ in world.got]
    assert order == sorted(order)
    stays = world.plan.replay.run_id if world.plan.replay is not None else None
    for told in world.runs:
        seqs = [seq for run_id, seq in world.got if run_id == told.id]
        assert seqs == told.shown[: len(seqs)]
        is_behind = stays is not None and told.number > world.plan.number
        if not (told.is_deleted or told.id in world.left or is_behind):
            assert seqs == told.shown
    if stays is not None:
        told = world.runs[world.plan.number - 1]
        at_work = told.run.status == RunStatus.RUNNING and not told.owner_is_gone
        assert at_work or not any(one.is_past_beginning for one in world.later())


@given(st.data())
def test_a_reader_that_comes_back_sees_what_it_would_have_seen(data: st.DataObject) -> None:
    """For every cursor: what a reader has, and what it gets behind it, is what one that stays gets."""
    world = World()
    for _ in range(data.draw(st.integers(1, 4))):
        told = world.begin("run.start", "llm.start")
        for _ in range(data.draw(st.integers(0, 3))):
            told.append("llm.ai.delta")
        told.append("run.end")
        for _ in range(data.draw(st.integers(0, 2))):
            told.append("llm.tool.result")
    world.drain()
    for at, (run_id, seq) in enumerate(world.got, 1):
        other = World(after=Cursor(run_id, seq))
        other.runs = world.runs
        other.drain()
        assert world.got[:at] + other.got == world.got


@pytest.mark.parametrize(
    ("kinds", "status_of_later", "expected"),
    [
        (("run.pause",), ("run.start",), Leave.SOON),
        (("run.pause",), ("run.start", "llm.human.input", "run.checkpoint", "run.stop"), Leave.SOON),
        (("run.pause",), ("run.start", "run.custom"), Leave.NOW),
        (("run.pause",), ("run.start", "run.pause"), Leave.NOW),
        (("run.pause",), ("run.start", "run.end"), Leave.NOW),
        ((), ("run.start", "llm.start"), Leave.NOT_YET),
        (("run.end",), ("run.start", "llm.start"), Leave.NOT_YET),
    ],
)
def test_when_a_run_is_left(kinds: tuple[Kind, ...], status_of_later: tuple[Kind, ...], expected: Leave) -> None:
    """A run that waits, when a later one is past its beginning; one at work, or one that is over, is read to its end."""
    world = World()
    told, later = world.begin("run.start", *kinds), world.begin(*status_of_later)
    assert may_leave(told.run, [later.is_past_beginning], owner_is_gone=False) is expected


def test_a_paused_run_is_asked_about_seldom() -> None:
    """The shells sleep for long at a pause, and for a short time while a later run begins. They ask once for each wake-up
    that may be one of the thread."""
    world = World()
    told = world.begin("run.start", "run.pause")
    world.drain()
    assert (world.plan.is_paused, world.plan.is_held, world.plan.step) == (True, False, ThreadStep.WAIT)
    later = world.begin("run.start")
    world.drain(in_doubt=False)
    assert not world.plan.is_held
    world.drain(in_doubt=True)
    assert world.plan.is_held
    told.append("llm.ai.delta")
    world.drain(in_doubt=False)
    assert (world.plan.is_paused, world.got[-1]) == (False, ("r1", 3))
    told.append("run.pause")
    later.append("llm.start")
    world.drain(in_doubt=False)
    assert world.got[-2:] == [("r2", 1), ("r2", 2)]
