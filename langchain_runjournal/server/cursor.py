"""Pure: cursors, which say what of a stream a reader has applied.

Rule: a cursor is parsed without an exception, whatever it is. A cursor that cannot be used leads to a replay from the start,
never from the end: a reader may get something again, and a `reset` says so first, but it never misses anything.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from .frames import run_name

CursorKind = Literal["absent", "start", "now", "at", "foreign", "bad"]
Reset = Literal["bad", "foreign", "ahead"]
"""Why a stream begins again: the cursor is none, is one of another run, or names an event that the run does not have."""

LONGEST: Final = 2_000
"""Characters of a cursor. The id of a run may have 500 characters, each of which may be three in a cursor."""
_POSITION: Final = re.compile(r"(0|[1-9][0-9]{0,17})(?:\.([1-9][0-9]{0,8}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Cursor:
    """A parsed cursor."""

    kind: CursorKind
    run: str | None = None
    """The run that the cursor names, as in the id of a frame; None if the cursor names no run."""
    seq: int = 0
    frame: int | None = None
    """The number of the last frame of event `seq` that was applied; None if all of them were."""


ABSENT: Final = Cursor("absent")


def parse(text: str | None, run_id: str | None) -> Cursor:
    """Parse the cursor of a run, or of a thread if `run_id` is None. Never raise."""
    if text is None:
        return ABSENT
    if text in ("", "-1", "0"):
        return Cursor("start")
    if text == "now":
        return Cursor("now")
    if len(text) > LONGEST:
        return Cursor("bad")
    run, colon, position = text.rpartition(":")
    found = _POSITION.fullmatch(position)
    if found is None or bool(colon) != bool(run):
        return Cursor("bad")
    seq, frame = int(found[1]), int(found[2]) if found[2] else None
    if seq == 0 and (frame or not run):
        return Cursor("bad")
    if not run:
        # A bare seq means the run of the URL. A thread has many runs, so there it means nothing.
        return Cursor("bad") if run_id is None else Cursor("at", None, seq, frame)
    if run_id is not None and run != run_name(run_id):
        return Cursor("foreign", run, seq, frame)
    return Cursor("at", run, seq, frame)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a stream of a run begins."""

    after: int = 0
    """The last event all of whose frames were applied."""
    frame: int = 0
    """How many frames of the next event were applied."""
    reset: Reset | None = None
    """Why the reader must forget what it has."""
    is_tip: bool = False
    """Whether the reader has everything that there is."""


def place(cursor: Cursor, last_seq: int) -> Place:
    """Return where a cursor stands in a run whose last event is `last_seq`."""
    if cursor.kind == "now":
        return Place(last_seq, is_tip=True)
    if cursor.kind == "foreign" or cursor.kind == "bad":
        return Place(reset=cursor.kind)
    if cursor.kind != "at":
        return Place()
    if cursor.seq > last_seq:
        return Place(reset="ahead")
    if cursor.frame is not None:
        return Place(cursor.seq - 1, cursor.frame)
    return Place(cursor.seq, is_tip=cursor.seq == last_seq)
