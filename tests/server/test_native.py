"""The native dialect: events as they are, and merged."""

from __future__ import annotations

import itertools
import json
from typing import Any

from hypothesis import given

from langchain_runjournal import Event, Run
from langchain_runjournal.events import thaw_events
from langchain_runjournal.server.dialects import DIALECTS
from langchain_runjournal.server.dialects.native import NATIVE, merged
from langchain_runjournal.server.frames import Frame, Payload, number
from tests.support.random_runs import events_of, runs


def numbered(facts: list[Any]) -> list[Event]:
    """Return the events of a run as a journal returns them."""
    found = []
    for seq, event in enumerate(events_of("r", facts), 1):
        found += thaw_events("r", [event.kind], [event.bare], [event.call_id], seq, [seq / 10])
    return found


@given(runs())
def test_a_frame_is_an_event(facts: list[Any]) -> None:
    """On one line, with the id of the event and no name: `EventSource.onmessage` gets it."""
    projector = NATIVE.projector(Run(run_id="r"))
    for event in numbered(facts):
        (frame,) = number("r", event.seq, projector.event(event))
        assert frame == Frame(f"r:{event.seq}", None, frame.data)
        assert json.loads(frame.data) == event.to_dict()
        assert frame.encode().count(b"\n") == 3
        assert b"\r" not in frame.encode()


@given(runs())
def test_merged_events_say_the_same(facts: list[Any]) -> None:
    """Deltas are joined only with the next one of the same call and kind; the id is that of the last."""
    events = numbered(facts)
    found = merged(events)
    assert {event.seq for event in found} <= {event.seq for event in events}
    assert [event for event in found if event.kind != "llm.ai.delta"] == [
        one for one in events if one.kind != "llm.ai.delta"
    ]
    for call in ("c1", "c2", "c3"):
        for key in ("text", "reasoning", "thinking", "args"):
            said = ["".join(str(one.data.get(key, "")) for one in each if one.call_id == call) for each in (events, found)]
            assert said[0] == said[1]
    for one, other in itertools.pairwise(found):
        same = one.call_id == other.call_id and one.data.keys() == other.data.keys()
        assert not (one.kind == other.kind == "llm.ai.delta" and same and one.data.get("index") == other.data.get("index"))


def test_a_client_that_splits_lines_as_python_does_gets_whole_frames() -> None:
    """Python's `splitlines`, and with it `httpx.Response.iter_lines`, takes more characters for line ends than SSE does."""
    ends = "a\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029\r\nb"
    event = thaw_events("r", ["llm.ai.delta"], [ends], ["c"], 1, [0.0])[0]
    (frame,) = number("r", 1, NATIVE.projector(Run(run_id="r")).event(event))
    lines = frame.encode().decode().splitlines()
    assert len(lines) == 3
    assert json.loads(lines[1].removeprefix("data: "))["data"]["text"] == ends


def test_the_ids_of_several_frames() -> None:
    """The last frame of an event has the id of the event, so that a cursor of it means all of them."""
    found = number("r", 7, [Payload("a"), Payload("b", "name"), Payload("c")])
    assert [frame.id for frame in found] == ["r:7.1", "r:7.2", "r:7"]
    assert found[1].encode() == b"id: r:7.2\nevent: name\ndata: b\n\n"
    assert number("r", 7, []) == []


def test_the_dialects() -> None:
    """By name, each with its own."""
    assert {name: dialect.name for name, dialect in DIALECTS.items()} == {name: name for name in DIALECTS}
    assert "native" in DIALECTS
