"""Pure: the dialect of AG-UI: runs as its events, and threads as its messages."""

from __future__ import annotations

from .messages import Names, ui_messages
from .projector import NAMED, AgUi, Opening, ThreadState
from .request import RunRequest, Turn, is_older, parse, turn_of

__all__ = [
    "NAMED",
    "AgUi",
    "Names",
    "Opening",
    "RunRequest",
    "ThreadState",
    "Turn",
    "is_older",
    "parse",
    "turn_of",
    "ui_messages",
]
