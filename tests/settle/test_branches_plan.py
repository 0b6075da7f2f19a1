"""The plan for tasks that ran in parallel: a table of cases, and properties of every fan-out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_runjournal.messages.marks import origin_of
from langchain_runjournal.messages.transcript import Task
from langchain_runjournal.settle.plan import NOTHING_APPLIED, plan
from tests.settle.test_plan import RUN, knows, message, messages, shown
from tests.support.branches import is_answered


def transcribed(text: str) -> tuple[list[Any], dict[int, Task]]:
    """Parse messages as `message` in `test_plan` does. Behind an @ stand the letter of the task and the number of its
    superstep."""
    said, tasks = [], {}
    for place, one in enumerate(text.split()):
        words, _, task = one.partition("@")
        said.append(message(words))
        if task:
            tasks[place] = Task(task, int(task[1:]))
    return said, tasks


ROWS = [
    # name, thread, transcript, real results, the last superstep that was applied, what is added
    (
        "A is there, and B had spoken and worked",
        "U1 A1",
        "U1 A2(c2)@b1 T(c2)@b1 A1@a1 A~3@b1",
        "c2",
        0,
        "A+2(c2) T+(c2) A~3",
    ),
    ("both were cut", "U1", "U1 A1(c1)@a1 A2(c2)@b1", "c1", 0, "A+1(c1) T+(c1) A+2(c2) T*(c2)"),
    ("nothing was stored at all", "", "U1 A1@a1 A2@b1", "", None, "U+1 A+1 A+2"),
    ("what was applied, and is not there, was taken out", "U1 A3", "U1 A1@a1 A2@b1 A3@c2", "", 2, ""),
    ("the superstep behind it is missing all the same", "U1 A3", "U1 A1@a1 A3@c2 A4@d3 A~5@e3", "", 2, "A+4 A~5"),
    ("a finished task that took some of its words out", "U1 A2", "U1 A1(c1)@a1 T(c1)@a1 A2@a1 A3@b1", "c1", 0, "A+3"),
    ("our own message says nothing of its task", "U1 A+1", "U1 A1@a1 A2@a1", "", 0, "A+2"),
    ("other words of the same form say nothing of its task", "U1 A7:yes", "U1 A1:yes@a1 A2@a1", "", 0, "A+2"),
    ("the same words in two tasks are two messages", "U1 A7:yes", "U1 A1:yes@a1 A2:yes@b1", "", 0, "A+2"),
    ("a part of an answer was in no checkpoint", "U1 A2", "U1 A~1@a1 A2@b2", "", 2, "A~1"),
    ("words of no task go by the tail", "U1 A2", "U1 A1 A2@b1 A3", "", 1, "A+3"),
    ("the conversation has gone on", "U1 A1 U2 A9", "U1 A1@a1 A2@b1", "", 0, None),
]


@pytest.mark.parametrize(
    ("thread", "said", "real", "step", "added"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS]
)
def test_what_is_added(thread: str, said: str, real: str, step: int | None, added: str | None) -> None:
    """The plan adds what a row of the table says. A second settlement adds only the rest, wherever the first one was
    killed."""
    transcript, tasks = transcribed(said)
    applied = step is not None
    about: Any = {"run_id": RUN, "applied": applied, "tasks": tasks, "step": step if applied else NOTHING_APPLIED}
    found = plan(messages(thread), transcript, knows(*real.split()), **about)
    assert (None if found.moved_on else shown(found.add)) == added
    for cut in range(len(found.add) + 1):
        rest = plan([*messages(thread), *found.add[:cut]], transcript, knows(*real.split()), **about).add
        assert [one.model_dump() for one in rest] == [one.model_dump() for one in found.add[cut:]]


def test_without_steps_the_tail_counts() -> None:
    """For a run that only a handler recorded, the plan adds the end of the transcript, because nothing says what was
    applied."""
    transcript, tasks = transcribed("U1 A1@a1 A2@b1 A3@c2")
    found = plan(messages("U1 A2"), transcript, knows(), run_id=RUN, applied=True, tasks=tasks, step=None)
    assert shown(found.add) == "A+3"


@dataclass
class Fan:
    """A run of a few supersteps, of which a part was applied."""

    thread: list[Any] = field(default_factory=list)
    transcript: list[Any] = field(default_factory=list)
    tasks: dict[int, Task] = field(default_factory=dict)
    known: set[str] = field(default_factory=set)
    step: int = 0
    taken_out: set[str] = field(default_factory=set)
    missing: list[str] = field(default_factory=list)
    """The ids of the messages that the plan has to add, in order."""


@st.composite
def _fans(draw: st.DrawFn) -> Fan:
    number = iter(range(2, 10_000))
    fan = Fan(thread=messages("U1"), transcript=messages("U1"), step=draw(st.integers(0, 3)))
    steps = fan.step + draw(st.integers(0, 1))
    for step in range(1, steps + 1):
        streams: list[list[tuple[Any, Task]]] = []
        applied: list[list[Any]] = []
        for place in range(draw(st.integers(1, 6))):
            task = Task(f"n{place}:{step}", step)
            is_cut = step > fan.step and draw(st.booleans())
            said = _said(draw, number, fan.known, cut=is_cut)
            streams.append([(one, task) for one in said if one.type != "tool"])
            if is_cut:
                continue
            kept = [one for one in said if one.type == "tool" or draw(st.integers(0, 4))]
            asked = {call["id"] for one in kept for call in getattr(one, "tool_calls", ())}
            kept = [one for one in kept if one.type != "tool" or one.tool_call_id in asked]
            if step > fan.step and not any(one.type == "ai" for one in kept):
                kept = said  # a task without a recognizable message looks like one that was cut off
            fan.taken_out |= {one.id for one in said} - {one.id for one in kept}
            applied.append(kept)
        for said in applied:
            fan.thread += said
        there = {one.id for one in fan.thread}
        while any(streams):
            stream = draw(st.sampled_from([one for one in streams if one]))
            one, task = stream.pop(0)
            fan.tasks[len(fan.transcript)] = task
            fan.transcript.append(one)
            if one.id not in there and one.id not in fan.taken_out:
                fan.missing.append(one.id)
    return fan


def _said(draw: st.DrawFn, number: Any, known: set[str], *, cut: bool) -> list[Any]:
    """Return what one task says: rounds of requests with their results, and a last word; a part of that if the task was cut
    off."""
    said: list[Any] = []
    for _ in range(draw(st.integers(0, 2))):
        calls = [f"c{next(number)}" for _ in range(draw(st.integers(1, 3)))]
        done = calls if not cut else calls[: draw(st.integers(0, len(calls)))]
        known.update(done)
        said.append(message(f"A{next(number)}({','.join(calls)})"))
        said += [message(f"T({call})") for call in done]
        if len(done) < len(calls):
            return said
    if not cut:
        said.append(message(f"A{next(number)}"))
    elif draw(st.booleans()):
        said.append(message(f"A~{next(number)}"))
    return said


@given(_fans())
def test_a_fan_out_is_whole_wherever_it_was_cut(fan: Fan) -> None:
    """The plan adds what is missing, in order, with the real results behind each request, and nothing that the graph
    removed.

    A second settlement adds nothing.
    """
    ask = knows(*fan.known)
    about: Mapping[str, Any] = {"run_id": RUN, "applied": True, "tasks": fan.tasks, "step": fan.step}
    added = plan(fan.thread, fan.transcript, ask, **about).add
    assert [one.id for one in added if one.type != "tool"] == fan.missing
    after = [*fan.thread, *added]
    is_answered(after)
    assert len({one.id for one in after}) == len(after)
    assert not {one.id for one in after} & fan.taken_out
    for one in added:
        if one.type == "tool":
            assert (origin_of(one) == "recovered") == (one.tool_call_id in fan.known)
    assert plan(after, fan.transcript, ask, **about).add == []
