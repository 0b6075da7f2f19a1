"""Parallel branches: whatever is cut off, no message of a branch and no result of its tools is lost."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, aclosing, closing
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langgraph.checkpoint.memory import InMemorySaver

from langchain_runjournal import RunJournal, attach
from tests.support.branches import KINDS, STEPS, THREAD, Branch, Cut, Cutter, Heard, Program, Shape, check, is_answered
from tests.support.conversations import nothing_is_wrong, open_saver, the_rest

TWO = (Branch((1,)), Branch((2, 1)))
SIX = tuple(Branch((1,) * (place % 3)) for place in range(6))
LONG = (Branch((0, 0)), Branch(()), Branch((0,)))
DURABILITIES = ("sync", "async", "exit")
HOWS = ("stop", "break", "leave")
"""The ways to cut a run: the task is cancelled, the models and tools raise, or the consumer leaves the stream."""


async def run_until_cut(
    program: Program, journal: RunJournal, durability: Any, at: int, how: str
) -> tuple[Any, Heard, bool]:
    """Cut a run off when its journal has received `at` events. Return whether the run came that far."""
    agent, heard = attach(program.graph, journal), Heard()
    config = {**THREAD, "callbacks": [heard]}
    left = asyncio.Event()

    async def run() -> None:
        stream = agent.astream({"messages": [("user", "hi")]}, config, stream_mode="messages", durability=durability)
        async with aclosing(stream):
            async for _ in stream:
                if left.is_set():
                    return

    task = asyncio.ensure_future(run())
    cuts = {"stop": task.cancel, "break": lambda: setattr(program.fuse, "blown", True), "leave": left.set}
    cutter = Cutter(journal, at, cuts[how])
    with contextlib.suppress(asyncio.CancelledError, Cut):
        await task
    reached = cutter.count >= at
    cutter.stop_counting()
    await the_rest()
    return agent, heard, reached


async def asserted(program: Program, agent: Any, heard: Heard, *, ahead: int = 0) -> None:
    """Assert that the thread is valid, that no task is left to run, and that the next requests to the models are
    well-formed."""
    state = await agent.aget_state(THREAD)
    assert (state.next, state.tasks) == ((), ())
    check(state.values["messages"], heard, ahead=ahead)
    program.say_fine()
    await agent.ainvoke({"messages": [("user", "next")]}, THREAD)
    assert program.asked()
    for messages in program.asked():
        is_answered([one for one in messages if one.type != "system"])
    now = (await agent.aget_state(THREAD)).values["messages"]
    check(now, heard, asked=("hi", "next"), ahead=ahead)


async def every_prefix(
    shape: Shape, durability: str, how: str, open_one: Callable[[], AbstractAsyncContextManager[Any]], *, step: int = 1
) -> int:
    """Cut a run at every event that it has. Return how many there are."""
    at = 0
    while True:
        at += step
        async with open_one() as saver:
            program = Program(shape, saver)
            async with RunJournal(":memory:") as journal:
                agent, heard, reached = await run_until_cut(program, journal, durability, at, how)
                if not reached:
                    return at
                try:
                    await asserted(program, agent, heard)
                except AssertionError as exc:
                    raise AssertionError(f"cut at event {at} of {shape} by {how}, {durability}: {exc}") from exc


def in_memory() -> AbstractAsyncContextManager[Any]:
    return open_saver(InMemorySaver(), None)


def on_sqlite() -> AbstractAsyncContextManager[Any]:
    return open_saver(None, ":memory:")


def cut_everywhere(*args: Any, **kwargs: Any) -> None:
    with nothing_is_wrong():
        assert asyncio.run(every_prefix(*args, **kwargs)) > 20


@pytest.mark.guarantee("finished tools")
@pytest.mark.parametrize("durability", DURABILITIES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_stop_at_any_event_loses_nothing(kind: str, durability: str) -> None:
    """With two branches of different length, a stop at any event leaves a valid thread and a valid next request."""
    cut_everywhere(Shape(TWO, kind), durability, "stop", in_memory, step=1 if kind == "agents" else 3)


@pytest.mark.parametrize("how", ["break", "leave"])
@pytest.mark.parametrize("durability", ["async", "exit"])
@pytest.mark.parametrize("kind", ["agents", "sends"])
def test_no_other_ending_loses_anything(kind: str, durability: str, how: str) -> None:
    """An error in any place, or a consumer that leaves, loses nothing either."""
    cut_everywhere(Shape(TWO, kind), durability, how, in_memory, step=4)


@pytest.mark.parametrize("durability", DURABILITIES)
@pytest.mark.parametrize("kind", ["agents", "sends"])
def test_six_branches(kind: str, durability: str) -> None:
    """Six parallel branches lose nothing either."""
    cut_everywhere(Shape(SIX, kind), durability, "stop", in_memory, step=9)


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("durability", DURABILITIES)
def test_branches_of_several_supersteps(durability: str, how: str) -> None:
    """Branches of different length, which continue by `Command(goto)`, and a deferred node that waits for all of them lose
    nothing."""
    with nothing_is_wrong():
        asyncio.run(every_prefix(Shape(LONG, STEPS), durability, how, in_memory, step=2))


@pytest.mark.parametrize("kind", KINDS)
def test_a_stop_at_any_event_on_sqlite(kind: str) -> None:
    """A checkpointer whose writes take time loses nothing."""
    cut_everywhere(Shape(TWO, kind), "async", "stop", on_sqlite, step=5)


def run_here_until_cut(program: Program, journal: RunJournal, durability: Any, at: int, how: str) -> tuple[Any, Heard, bool]:
    """Do the same as `run_until_cut`, without a loop."""
    agent, heard = attach(program.graph, journal), Heard()
    config: Any = {**THREAD, "callbacks": [heard]}
    left = threading.Event()
    cuts = {"break": lambda: setattr(program.fuse, "blown", True), "leave": left.set}
    cutter = Cutter(journal, at, cuts[how])
    stream = agent.stream({"messages": [("user", "hi")]}, config, stream_mode="messages", durability=durability)
    with contextlib.suppress(Cut), closing(stream):
        for _ in stream:
            if left.is_set():
                break
    reached = cutter.count >= at
    cutter.stop_counting()
    return agent, heard, reached


@pytest.mark.parametrize("how", ["break", "leave"])
@pytest.mark.parametrize("durability", DURABILITIES)
@pytest.mark.parametrize("kind", ["agents", "plain", "sends"])
def test_without_a_loop(kind: str, durability: str, how: str) -> None:
    """Branches on threads, which cannot be stopped: the settlement keeps what they say and do until they end."""
    reached, at = True, 1
    with nothing_is_wrong():
        while reached:
            program = Program(Shape(TWO, kind), InMemorySaver(), is_async=False)
            with RunJournal(":memory:") as journal:
                agent, heard, reached = run_here_until_cut(program, journal, durability, at, how)
                state = agent.get_state(THREAD)
                assert (state.next, state.tasks) == ((), ()), at
                check(state.values["messages"], heard)
                program.say_fine()
                agent.invoke({"messages": [("user", "next")]}, THREAD)
                for messages in program.asked():
                    is_answered([one for one in messages if one.type != "system"])
            at += 6
    assert at > 20


@st.composite
def _shapes(draw: st.DrawFn) -> Shape:
    kind = draw(st.sampled_from([*KINDS, STEPS]))
    tools = st.just(0) if kind == STEPS else st.integers(1, 3)
    branch = st.builds(Branch, st.lists(tools, max_size=2).map(tuple), st.integers(1, 3))
    return Shape(tuple(draw(st.lists(branch, min_size=1, max_size=6))), kind)


async def _cut_once(shape: Shape, durability: str, how: str, at: int) -> None:
    program = Program(shape, InMemorySaver())
    async with RunJournal(":memory:") as journal:
        agent, heard, _ = await run_until_cut(program, journal, durability, at, how)
        await asserted(program, agent, heard)


def _any_fan_out(shape: Shape, durability: str, how: str, at: int) -> None:
    with nothing_is_wrong():
        asyncio.run(_cut_once(shape, durability, how, at))


CUTS = (_shapes(), st.sampled_from(DURABILITIES), st.sampled_from(HOWS), st.integers(1, 120))


@settings(max_examples=30, deadline=None)
@given(*CUTS)
def test_any_fan_out(shape: Shape, durability: str, how: str, at: int) -> None:
    """Any number of branches, rounds and tools may be cut anywhere without a loss."""
    _any_fan_out(shape, durability, how, at)


@pytest.mark.storm
@pytest.mark.timeout(1800)
@settings(max_examples=500, deadline=None)
@given(*CUTS)
def test_many_fan_outs(shape: Shape, durability: str, how: str, at: int) -> None:
    """Many more random fan-outs may be cut without a loss."""
    _any_fan_out(shape, durability, how, at)


@pytest.mark.storm
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("saver", [in_memory, on_sqlite], ids=["memory", "sqlite"])
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("durability", DURABILITIES)
@pytest.mark.parametrize("kind", KINDS)
def test_every_end_at_every_event(kind: str, durability: str, how: str, saver: Any) -> None:
    """Every ending at every event loses nothing, and with six branches at every second event."""
    cut_everywhere(Shape(TWO, kind), durability, how, saver)
    cut_everywhere(Shape(SIX, kind), durability, how, saver, step=2)
