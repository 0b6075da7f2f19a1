"""The order in which the streams of the LangGraph API show the events of a run."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from langchain_runjournal import Event
from langchain_runjournal.server.langgraph.modes.order import Order


def event(kind: Any, seq: int, **data: Any) -> Event:
    return Event(run_id="r", kind=kind, data=data, call_id=data.pop("call", None), seq=seq)


def stored(seq: int, step: int, space: str = "", source: str = "loop") -> Event:
    return event("run.checkpoint", seq, checkpoint_id=f"c{seq}", checkpoint_ns=space, source=source, step=step)


def called(seq: int, step: int, space: str = "", inner: int | None = None) -> Event:
    place = f"{space}|model:{seq}" if space else f"model:{seq}"
    return event("llm.start", seq, task_step=step, step=inner or step, checkpoint_ns=place, model="m", role="answer")


def told(seq: int) -> Event:
    return event("llm.ai.delta", seq, text=f"w{seq} ")


def ordered(events: Sequence[Event], **options: Any) -> list[int]:
    order = Order(**options)
    return [one.seq for given in events for one in order.next(given)]


def test_words_wait_for_the_checkpoint_before_them() -> None:
    """Also the first ones, which wait for the input, and what a program says before any checkpoint is stored."""
    begun = event("run.start", 1, thread_id="t")
    events = [
        begun,
        stored(2, -1, source="input"),
        event("run.custom", 3, value=1, ns=[]),
        called(4, 1),
        told(5),
        stored(6, 0),
    ]
    events += [called(7, 2), told(8), stored(9, 1), told(10), event("run.end", 11)]
    assert ordered(events) == [1, 2, 6, 3, 4, 5, 9, 7, 8, 10, 11]


def test_a_graph_inside_waits_for_its_own_checkpoints() -> None:
    """Once it has stored one. Until then, nothing shows that it stores any."""
    inside = [stored(1, 0), called(2, 1, "sub:1", 1), told(3), stored(4, -1, "sub:1", "input"), stored(5, 0, "sub:1")]
    inside += [called(6, 1, "sub:1", 2), told(7), stored(8, 1, "sub:1"), told(9)]
    assert ordered(inside) == [1, 2, 3, 4, 5, 8, 6, 7, 9]
    never = [stored(1, 0), called(2, 1, "sub:1", 1), told(3), called(4, 1, "sub:1", 2), told(5)]
    assert ordered(never) == [1, 2, 3, 4, 5]


def test_a_run_that_goes_on_does_not_wait_for_what_is_stored() -> None:
    """The first checkpoint behind which it runs was stored by another run."""
    assert ordered([called(1, 4), told(2), called(3, 5), stored(4, 4)], resumes=True) == [1, 2, 4, 3]


def test_nothing_waits_for_ever() -> None:
    """The end of a run shows everything; so does a run that stores too little for too long, from then on."""
    assert ordered([called(1, 1), told(2), event("run.pause", 3)]) == [1, 2, 3]
    many = [called(1, 1), *map(told, range(2, 400))]
    assert ordered(many) == list(range(1, 400))
    assert ordered([called(1, 1), told(2)], waits=False) == [1, 2]


@pytest.mark.parametrize("seed", range(40))
def test_every_event_once_and_the_state_first(seed: int) -> None:
    """Whatever the order in which checkpoints are reported: nothing is lost, nothing that is no checkpoint changes its place
    among the others, and no call comes before the checkpoint behind which it runs."""
    rng = random.Random(seed)
    events: list[Event] = [stored(1, -1, source="input")]
    late: list[Event] = []
    spaces = [""] + [f"sub:{number}" for number in range(rng.randrange(3))]
    for step in range(rng.randrange(1, 6)):
        late.append(stored(0, step))
        for _ in range(rng.randrange(1, 6)):
            space = rng.choice(spaces)
            events += late if rng.random() < 0.4 else []
            late = late if not events or events[-1] not in late else []
            events += [called(0, step + 1, space), told(0)]
        events += late
        late = []
    events = [Event(run_id="r", kind=e.kind, data=e.data, seq=at) for at, e in enumerate([*events, event("run.end", 0)], 1)]
    found = ordered(events)
    assert sorted(found) == [one.seq for one in events]
    by_seq = {one.seq: one for one in events}
    plain = [seq for seq in found if by_seq[seq].kind != "run.checkpoint"]
    assert plain == sorted(plain)
    for at, seq in enumerate(found):
        if by_seq[seq].kind == "llm.start":
            before = [by_seq[one].data.get("step") for one in found[:at] if by_seq[one].kind == "run.checkpoint"]
            assert by_seq[seq].data["task_step"] - 1 in before
