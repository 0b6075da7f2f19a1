"""Cursors: whatever a client sends is parsed without an exception, and nothing that cannot be used leads to the end."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from langchain_runjournal.server.cursor import LONGEST, Cursor, Place, parse, place
from langchain_runjournal.server.frames import run_name

RUN = "6f3a1b9e-0c43-4d0e-9f57-0a9d4f0f7b11"
ODD = ["a:b", "a b", "ü", "%41", "a\nb", "a\x00b", "7", "-1", "now", ":", "a.1"]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (None, "absent"),
        ("", "start"),
        ("-1", "start"),
        ("0", "start"),
        ("now", "now"),
        (f"{RUN}:7", "at"),
        (f"{RUN}:0", "at"),
        (f"{RUN}:7.2", "at"),
        ("7", "at"),
        ("7.2", "at"),
        ("other:7", "foreign"),
        ("other:7.2", "foreign"),
        ("-2", "bad"),
        ("-0", "bad"),
        ("+7", "bad"),
        ("07", "bad"),
        ("7.0", "bad"),
        ("7.", "bad"),
        (".7", "bad"),
        ("0.1", "bad"),
        ("7.1.1", "bad"),
        ("7e3", "bad"),
        (" 7", "bad"),
        ("7\n", "bad"),
        ("7\r\nid: 8", "bad"),
        ("7\x00", "bad"),
        ("\u0667", "bad"),
        ("\uff17", "bad"),
        (f"{RUN}:\u0667", "bad"),
        (f"{RUN}:", "bad"),
        (":7", "bad"),
        ("NOW", "bad"),
        ("null", "bad"),
        ("undefined", "bad"),
        ("NaN", "bad"),
        ("9" * 19, "bad"),
        ("9" * 10_000, "bad"),
        ("x" * 10_000, "bad"),
        (f"{RUN}:7, {RUN}:8", "foreign"),
    ],
)
def test_the_forms_of_a_cursor(text: str | None, kind: str) -> None:
    """S2: absent, start, now, a place, of another run, and everything else."""
    assert parse(text, RUN).kind == kind


@pytest.mark.parametrize("run_id", [RUN, *ODD])
@given(seq=st.integers(1, 10**17), frame=st.one_of(st.none(), st.integers(1, 10**8)))
def test_what_we_send_is_understood(run_id: str, seq: int, frame: int | None) -> None:
    """The id of each frame comes back as it was, in ASCII and on one line, whatever the id of the run."""
    text = f"{run_name(run_id)}:{seq}" + ("" if frame is None else f".{frame}")
    assert text.isascii()
    assert text.isprintable()
    assert parse(text, run_id) == Cursor("at", run_name(run_id), seq, frame)
    assert parse(text, None) == Cursor("at", run_name(run_id), seq, frame)
    assert parse(text, "another").kind == "foreign"


@given(st.one_of(st.text(), st.text(alphabet="0123456789:.-nowNaN\r\n\x00٣ ")), st.one_of(st.none(), st.text()))
@example("\ud800", None)
@example("\ud800:1", "\ud800")
def test_the_parser_is_total(text: str, run_id: str | None) -> None:
    """No text raises, and what is not a place in the run begins at the start: never behind something that was not read."""
    found = parse(text, run_id)
    where = place(found, last_seq=5)
    if found.kind != "at":
        assert where.after == (5 if found.kind == "now" else 0)
    assert where.reset == (found.kind if found.kind in ("bad", "foreign") else "ahead" if found.seq > 5 else None)


def test_a_cursor_is_bounded() -> None:
    """A cursor that is longer than any of ours is not looked at."""
    assert parse("a" * (LONGEST - 2) + ":1", "a" * (LONGEST - 2)).kind == "at"
    assert parse("a" * (LONGEST - 1) + ":1", "a" * (LONGEST - 1)).kind == "bad"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (None, Place()),
        ("0", Place()),
        ("now", Place(after=9, is_tip=True)),
        ("8", Place(after=8)),
        ("9", Place(after=9, is_tip=True)),
        ("9.1", Place(after=8, frame=1)),
        ("1.3", Place(after=0, frame=3)),
        ("10", Place(reset="ahead")),
        ("10.1", Place(reset="ahead")),
        ("x:1", Place(reset="foreign")),
        ("x", Place(reset="bad")),
    ],
)
def test_where_a_cursor_stands_in_a_run(text: str | None, found: Place) -> None:
    """A run of nine events: at the tip there is nothing left, ahead of it the reader begins again."""
    assert place(parse(text, RUN), 9) == found


def test_a_thread_has_no_bare_seq() -> None:
    """Each run of a thread has a seq 7, so a cursor of a thread names its run."""
    assert parse("7", None).kind == "bad"
