"""The two clocks, as a port, so that tests can turn them."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Where a journal takes the time from."""

    def wall(self) -> int:
        """Milliseconds since 1970. May jump in both directions: it stamps events and never orders them."""

    def monotonic(self) -> float:
        """Seconds that never go back: for leases and timeouts."""


class SystemClock:
    """The clocks of the machine."""

    def wall(self) -> int:
        """Milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Seconds that never go back."""
        return time.monotonic()
