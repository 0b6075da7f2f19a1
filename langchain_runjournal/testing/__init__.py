"""For tests: of our own stores, of yours, and of programs that use a journal.

- `StoreContract`: one test per promise of `Store`. Subclass it in a test module, say how to open a store, and pytest runs
  them all::

      class TestMyStore(StoreContract):
          def open(self):
              return MyStore(...)

- `FaultyStore`: a store that fails when you say so, before or after it has done what it was asked.
- `FakeClock`: both clocks of a journal, turned by hand.
- `ScriptedChatModel`: a chat model that streams a script as a provider does, made of `Reasoning`, `Call`, `Wait` and texts.
"""

from __future__ import annotations

from ..stores import Owner, Store
from .scripted_model import Answer, Call, Reasoning, Script, ScriptedChatModel, Step, Wait
from .store_contract import StoreContract
from .store_contract.append import events_of, numbered

__all__ = [
    "Answer",
    "Call",
    "FakeClock",
    "FaultyStore",
    "Owner",
    "Reasoning",
    "Script",
    "ScriptedChatModel",
    "Step",
    "Store",
    "StoreContract",
    "Wait",
    "events_of",
    "numbered",
]

from typing import Any, Literal


class FakeClock:
    """A wall clock and a monotonic clock that stand still until they are turned."""

    def __init__(self, wall: float = 1_700_000_000.0) -> None:
        self._wall = round(wall * 1000)
        self._monotonic = 0.0

    def wall(self) -> int:
        """Milliseconds since 1970."""
        return self._wall

    def monotonic(self) -> float:
        """Seconds that never go back."""
        return self._monotonic

    def advance(self, seconds: float) -> None:
        """Let time pass, on both clocks."""
        self._wall += round(seconds * 1000)
        self._monotonic += seconds

    def set_wall(self, seconds: float) -> None:
        """Set the wall clock, back or forth, as an administrator or NTP does. The monotonic one does not notice."""
        self._wall = round(seconds * 1000)


class FaultyStore:
    """A store around another one, whose `verb` fails on the `nth` call from now, and on the `times` - 1 after it.

    `when` says whether the inner store has done its work by then: "before" it was asked, or "after" it had committed, as
    when the connection breaks before the answer comes. `error` is what it raises.
    """

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        self.url = inner.url
        self.path = inner.path
        self.store_id = inner.store_id
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
        """Arm it."""
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
