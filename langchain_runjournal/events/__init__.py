"""What a journal keeps: events, and the runs that they add up to.

An event is an immutable fact. Everything else (the state of a run, its transcript, what a follower sees) is a fold of
events, so nothing in this room may depend on a clock, a thread or a database.
"""

from __future__ import annotations

from .event import Event, thaw_events, visible_text
from .run import Run, with_events
from .vocabulary import (
    CALLED,
    CAUSES,
    CONTINUES,
    DELTA,
    FINGERPRINT,
    GRAPH,
    KINDS,
    MARKS,
    NO_DATA,
    PROBLEM,
    UNNAMED,
    Cause,
    Kind,
    RunStatus,
)

__all__ = [
    "CALLED",
    "CAUSES",
    "CONTINUES",
    "DELTA",
    "FINGERPRINT",
    "GRAPH",
    "KINDS",
    "MARKS",
    "NO_DATA",
    "PROBLEM",
    "UNNAMED",
    "Cause",
    "Event",
    "Kind",
    "Run",
    "RunStatus",
    "thaw_events",
    "visible_text",
    "with_events",
]
