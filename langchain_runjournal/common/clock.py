"""The two clocks as a port, so that tests can set them."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """The source of the time of a journal."""

    def wall(self) -> int:
        """Return milliseconds since 1970. They may jump in both directions: they stamp events and never order them."""

    def monotonic(self) -> float:
        """Return seconds that never go back, for leases and timeouts."""


class SystemClock:
    """The clocks of the machine."""

    def wall(self) -> int:
        """Return milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Return seconds that never go back."""
        return time.monotonic()
