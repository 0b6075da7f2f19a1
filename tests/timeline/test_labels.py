"""The numbers of the layout: no two labels on the axis overlap, on the narrowest track and on any wider one."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_runjournal.timeline.labels import group_text, shortened, text_width
from langchain_runjournal.timeline.timeline import Mark
from langchain_runjournal.view.chart import NARROW, PIN, SMALL, WIDE, axis_labels, pins
from tests.timeline.test_timeline import DAY, Story

WAITS = st.lists(
    st.one_of(st.floats(0.001, 3.0), st.floats(10.0, 100.0), st.sampled_from([3600.0, DAY, 40 * DAY])),
    min_size=1,
    max_size=14,
)
TRACKS = st.sampled_from([(NARROW, 1.0), (NARROW, 2.3), (WIDE, 1.0), (WIDE, 2.5)])


@given(WAITS, TRACKS)
def test_labels_of_the_axis_never_overlap(waits: list[float], track: tuple[float, float]) -> None:
    """Whatever the length of the run and of its silences: there is a gap between any two, and none leaves the track."""
    story = Story().begin()
    for wait in waits:
        story.add("run.custom", {"value": 1}, wait=wait)
    found = axis_labels(story.line.axis, track[0])
    wide = track[0] * track[1]
    spans = [label.span(wide, SMALL) for label in found]
    assert all(one[1] + 4 <= other[0] for one, other in itertools.pairwise(spans))
    assert all(begin >= -0.01 and end <= wide + 0.01 for begin, end in spans)
    assert found


@given(st.lists(st.floats(0, 20), min_size=1, max_size=30), TRACKS)
def test_pins_of_marks_never_overlap(times: list[float], track: tuple[float, float]) -> None:
    """Those that are too near share one; each number is in one."""
    axis = Story().begin().ends(wait=21.0).line.axis
    marks = [Mark(kind="stop", at=at, seq=seq, data={}, late=False) for seq, at in enumerate(sorted(times))]
    found = pins(marks, axis, track[0])
    assert [number for _, numbers in found for number in numbers] == list(range(1, len(times) + 1))
    wide = track[0] * track[1]
    for (one, numbers), (other, others) in itertools.pairwise(found):
        # Whichever way each of the two is aligned at its place.
        widths = [text_width(group_text(each), SMALL) + PIN for each in (numbers, others)]
        assert (other - one) * wide >= sum(widths)


@given(st.text(max_size=60), st.floats(0, 300))
def test_a_shortened_text_fits(text: str, room: float) -> None:
    """Or nothing is left of it; a text that fits stays as it is."""
    found = shortened(text, 12.0, room)
    assert text_width(found, 12.0) <= room or not found
    assert found == text or found in ("", "…") or found.endswith("…")


@pytest.mark.parametrize("text", ["search_trains", "W" * 10, "東京行き", "12 min 33 s"])
def test_a_text_is_never_taken_for_half_as_wide_as_it_is(text: str) -> None:
    """At least half of its size a character, and a whole one for wide writing."""
    assert text_width(text, 10.0) >= len(text) * (10.0 if ord(text[0]) > 0x3000 else 4.0)
