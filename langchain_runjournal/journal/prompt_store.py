"""A store on another machine, whose callers wait for it once in an outage, and not at each call.

Rule: while the server does not answer, only the heartbeats and the batches of the writer thread wait for it. Any other call
gets the error of the outage at once, also one that the writer thread makes for another caller. So a turn of an agent, which
asks the store some ten times, takes one timeout longer, and not ten.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from ..errors import StoreUnreachable
from ..stores import Store

_SLOW: Final = 0.5
"""The seconds from which on a failing call counts as a wait. A server that refuses connections is asked each time."""
_WITHOUT_SERVER: Final = {"listen", "before_fork", "after_fork", "close"}
"""The methods that do no I/O, or must do theirs. `changed` does none where the store reports writes."""
_TRIES: Final = {"beat", "append", "restore", "run"}
"""The methods with which the writer thread sends a heartbeat or stores a batch, and finds out that the server is back."""


class PromptStore:
    """A store around another one. It has the methods and the attributes of that one."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self._unguarded = _WITHOUT_SERVER | ({"changed"} if hasattr(inner, "listen") else set())
        self.outage: StoreUnreachable | None = None
        """The error of the last call that was made, if that call has waited for the server in vain."""
        self._answered = 0.0
        """When the server has answered last. A call that began before and fails later says nothing new."""
        self.may_wait: Callable[[], bool] = lambda: True
        """Returns whether the calling thread is the one that waits for the server in an outage."""
        self.on_outage: Callable[[], None] = lambda: None
        """Called by the thread that finds an outage."""

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        return found if name in self._unguarded or not callable(found) else partial(self._call, name, found)

    def _call(self, name: str, verb: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        outage = self.outage
        if outage is not None and not (name in _TRIES and self.may_wait()):
            raise StoreUnreachable(**outage.values)
        began = time.monotonic()
        try:
            found = verb(*args, **kwargs)
        except StoreUnreachable as exc:
            if time.monotonic() - began >= _SLOW and began > self._answered:
                self.outage = StoreUnreachable(**exc.values)
                if outage is None:
                    self.on_outage()
            raise
        self._answered = time.monotonic()
        self.outage = None
        return found
