"""Fakes for tests: clocks turned by hand, and a store that fails on demand."""

from __future__ import annotations

from typing import Any, Literal

from ..stores import Store, patience_of


class FakeClock:
    """A wall clock and a monotonic clock that stand still until a test moves them."""

    def __init__(self, wall: float = 1_700_000_000.0) -> None:
        self._wall = round(wall * 1000)
        self._monotonic = 0.0

    def wall(self) -> int:
        """Return milliseconds since 1970."""
        return self._wall

    def monotonic(self) -> float:
        """Return seconds that never go back."""
        return self._monotonic

    def advance(self, seconds: float) -> None:
        """Let time pass, on both clocks."""
        self._wall += round(seconds * 1000)
        self._monotonic += seconds

    def set_wall(self, seconds: float) -> None:
        """Set the wall clock, back or forth, as an administrator or NTP does. The monotonic clock stays as it is."""
        self._wall = round(seconds * 1000)


class FaultyStore:
    """A store around another one, that fails when `fail` says so. Until then it does what the inner store does.

    `calls` lists the methods that were called, `failed` counts the failures.
    """

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        self.url = inner.url
        self.path = inner.path
        self.store_id = inner.store_id
        self.busy_timeout = patience_of(inner)
        self.calls: list[str] = []
        self.failed = 0
        self._verb = ""
        self._countdown = self._times = 0
        self._when: Literal["before", "after"] = "before"
        self._error: Exception = OSError("out of order")

    def fail(
        self,
        nth: int = 1,
        *,
        verb: str = "append",
        when: Literal["before", "after"] = "before",
        times: int = 1,
        error: Exception | None = None,
    ) -> None:
        """Make `verb` raise `error` on the `nth` call from now, and on the `times` - 1 calls after it.

        `when` says whether the inner store has done its work by then: "before" the inner store is called, or "after" it has
        committed, as when the connection breaks before the answer arrives.
        """
        self._verb, self._countdown, self._when, self._times = verb, nth, when, times
        self._error = error or OSError("out of order")

    def __getattr__(self, name: str) -> Any:
        inner = getattr(self.inner, name)

        def verb(*args: Any, **kwargs: Any) -> Any:
            self.calls.append(name)
            if not self._due(name):
                return inner(*args, **kwargs)
            if self._when == "after":
                inner(*args, **kwargs)
            self.failed += 1
            raise self._error

        return verb

    def _due(self, name: str) -> bool:
        if name != self._verb or self._times == 0:
            return False
        self._countdown -= 1
        if self._countdown > 0:
            return False
        self._times -= 1
        return True
