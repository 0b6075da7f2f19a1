"""How fast a demonstration is."""

from __future__ import annotations

import os
from typing import Final

from ._place import DemoFailed

PACE: Final = "RUNJOURNAL_DEMO_PACE"


def pace_of(pace: float) -> float:
    """The pace, times the one of the environment. Raises `DemoFailed` if that is no number."""
    given = os.environ.get(PACE, "1")
    try:
        faster = float(given)
        if not 0 <= faster <= 1000:
            raise ValueError
        return pace * faster
    except ValueError:
        raise DemoFailed(f"{PACE} must be a number, such as 0.5 for twice as fast, and is {given!r}.") from None
