"""Events, runs, and how they are packed: the pure parts."""

from __future__ import annotations

import pickle
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_runjournal import Event, Run, RunStatus
from langchain_runjournal.errors import InvalidArgument
from langchain_runjournal.events import KINDS, MARKS
from langchain_runjournal.events.encoding import encode_value
from langchain_runjournal.events.run_state import advance, begin
from langchain_runjournal.events.segments import Damaged, first_events, merge, pack, trim, unpack
from langchain_runjournal.journal.run_buffer import RunBuffer

texts = st.text() | st.text(alphabet=st.characters(codec=None, categories=["Cs", "Ll"]))
jsons = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
facts = st.one_of(
    st.tuples(st.just("llm.ai.delta"), st.fixed_dictionaries({"text": texts})),
    st.tuples(st.sampled_from(sorted(KINDS - {"run.end"})), st.dictionaries(texts, jsons, max_size=3)),
)
drafts = st.lists(
    st.tuples(facts, st.none() | st.sampled_from(["c1", "c2", 'c"3,']), st.integers(0, 2_000_000_000_000)),
    min_size=1,
    max_size=12,
)


def joined(value: object) -> object:
    """What JSON makes of two halves of a surrogate pair that follow each other: the character."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    if isinstance(value, dict):
        return {joined(key): joined(item) for key, item in value.items()}
    if isinstance(value, list):
        return [joined(item) for item in value]
    return value


def events_from(draft: list) -> list[Event]:
    return [
        Event(run_id="r", kind=kind, data=joined(data), call_id=call, seq=seq, at=at / 1000)
        for seq, ((kind, data), call, at) in enumerate(draft, 1)
    ]


@given(drafts, st.integers(0, 13))
def test_packing_loses_nothing(draft: list, after: int) -> None:
    """Whatever JSON can hold comes back from a segment, from any seq on."""
    events = events_from(draft)
    segment = pack("r", 1, events)
    assert unpack(segment, after) == events[after:]
    segment.body.encode()  # always valid UTF-8


@given(drafts, st.sets(st.integers(1, 11)), st.integers(0, 10))
def test_merging_is_the_same_as_packing_at_once(draft: list, cuts: set[int], after: int) -> None:
    """Wherever the seams were, and whatever was trimmed away before."""
    events = events_from(draft)
    bounds = sorted({0, len(events), *(cut for cut in cuts if cut < len(events))})
    parts = [pack("r", 1, events[a:b]) for a, b in pairwise(bounds)]
    assert unpack(merge(parts)) == events
    trimmed = [trim(part, after) for part in parts if part.last > after]
    if trimmed:
        assert unpack(merge(trimmed)) == events[after:]


@given(drafts, st.lists(st.integers(0, 12), max_size=4))
def test_a_lane_gives_what_it_was_given(draft: list, stored: list[int]) -> None:
    """Rows for the store and pages for followers agree, whatever part has been stored in the meantime."""
    events = events_from(draft)
    buffer = RunBuffer("r", 1)
    base = 0
    for event in events:
        buffer.add(round(event.at * 1000), event.call_id, event.kind, encode_value(event.kind, event.bare))
    for seq in sorted(stored):
        if base < seq <= len(events):
            buffer.stored(seq, round(events[seq - 1].at * 1000))
            base = seq
        rows = buffer.take()
        assert [event for row in rows for event in unpack(row)] == events[base:]
        marks = [(mark.seq, mark.kind, mark.data, mark.at) for row in rows for mark in row.marks]
        assert marks == [(e.seq, e.kind, e.data, e.at) for e in events[base:] if e.kind in MARKS]
        assert buffer.tail(base, 100) == events[base:]
        assert base == 0 or buffer.tail(base - 1, 100) is None


def test_a_gap_is_never_merged() -> None:
    """Two segments that are no neighbours are refused."""
    events = events_from([(("llm.ai.delta", {"text": "x"}), None, 0)] * 5)
    with pytest.raises(ValueError, match="gap"):
        merge([pack("r", 1, events[:2]), pack("r", 1, events[3:])])
    with pytest.raises(ValueError, match="without gaps"):
        pack("r", 1, [events[0], events[2]])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("run_id", ""),
        ("run_id", 7),
        ("kind", "llm.ai.token"),
        ("data", "text"),
        ("call_id", 7),
        ("seq", -1),
        ("seq", True),
        ("at", -1.0),
        ("at", "now"),
        ("at", 1_700_000_000_000),  # milliseconds
    ],
)
def test_an_event_says_what_is_wrong_with_it(field: str, value: object) -> None:
    """Bad input fails where it is made, and names the field."""
    fields = {"run_id": "r", "kind": "llm.ai.delta", field: value}
    with pytest.raises(InvalidArgument, match=f"Event.{field}"):
        Event(**fields)


def test_an_end_has_a_status_that_is_one() -> None:
    """A run cannot end as running."""
    with pytest.raises(InvalidArgument, match="status"):
        Event(run_id="r", kind="run.end", data={"status": "running"})


def test_an_event_cannot_be_changed() -> None:
    """Not by accident, whether it was made or read."""
    made = Event(run_id="r", kind="llm.ai.delta", data={"text": "x"}, seq=1)
    for event in (made, *unpack(pack("r", 1, [made]))):
        with pytest.raises(AttributeError, match="cannot be changed"):
            event.seq = 2
        with pytest.raises(AttributeError, match="cannot be changed"):
            del event.seq
        with pytest.raises(AttributeError):
            event.more = 2
        assert pickle.loads(pickle.dumps(event)) == event
        assert hash(event) == hash(made)
        assert event.to_dict()["data"] == {"text": "x"}
        assert "text" in repr(event)


def test_odd_data_is_kept_as_its_repr() -> None:
    """What JSON cannot hold is no reason to lose the rest of the event."""

    class Odd:
        def __repr__(self) -> str:
            return "<odd>"

    loop: list = []
    loop.append(loop)
    deep: dict = {}
    for _ in range(100_000):
        deep = {"d": deep}
    for data in ({"a": Odd(), "b": {1: {2, 3}}}, {"a": loop}, {"a": deep}, {"a": float("nan")}, {("k",): b"\xff"}):
        text = encode_value("tool.start", data)
        text.encode()
        assert text.startswith('["tool.start",{')
    assert '"<odd>"' in encode_value("tool.start", {"a": Odd()})


def test_the_fold_of_a_run() -> None:
    """A run that was stopped, in the order of its marks."""
    run = begin("r", 1.0, "me")
    steps = [
        ("run.start", {"thread_id": "t"}, {"thread_id": "t", "status": RunStatus.RUNNING}),
        ("run.pause", {}, {"status": RunStatus.PAUSED, "ended": False}),
        ("run.start", {}, {"status": RunStatus.RUNNING, "thread_id": "t"}),
        ("run.stop", {"cause": "timeout"}, {"stop": "timeout", "status": RunStatus.RUNNING}),
        ("run.stop", {"cause": "stop"}, {"stop": "timeout"}),
        ("run.lost", {"events": 3}, {"lost": 3}),
        ("run.lost", {"events": 2}, {"lost": 5}),
        ("run.end", {"status": "interrupted", "settled": False}, {"status": "interrupted", "settled": False, "ended": True}),
        ("run.pause", {"late": True}, {"status": "interrupted"}),
        ("run.end", {"status": "failed"}, {"status": "interrupted"}),
        ("run.settled", {}, {"settled": True, "status": "interrupted"}),
    ]
    for seq, (kind, data, expected) in enumerate(steps, 1):
        run = advance(run, Event(run_id="r", kind=kind, data=data, seq=seq, at=float(seq)))
        for name, value in expected.items():
            assert getattr(run, name) == value, (seq, kind, name)
    assert run.ended_at == 8.0


def test_only_marks_change_a_run() -> None:
    """What the stores rely on when they look at marks only."""
    run = Run(run_id="r")
    for kind in KINDS - MARKS:
        assert advance(run, Event(run_id="r", kind=kind)) is run


def test_a_page_of_events_unpacks_no_segment_behind_it() -> None:
    """A page has at most as many events as it was asked for, and a segment behind it, which is damaged here, is not read."""
    whole = [pack("r", 1, [Event(run_id="r", kind="llm.ai.delta", seq=n, at=1.0) for n in (at, at + 1)]) for at in (1, 3)]
    segments = [*whole, whole[0]._replace(first=5, last=6, body="[")]
    for after, limit, seqs in ((0, 1, [1]), (0, 2, [1, 2]), (1, 2, [2, 3]), (0, 4, [1, 2, 3, 4]), (0, 0, [])):
        assert [event.seq for event in first_events(segments, after, limit)] == seqs
    for limit in (5, None):
        with pytest.raises(Damaged):
            first_events(segments, 0, limit)
