"""Pure: the native dialect. A frame is an event, as `Event.to_dict` returns it, without an SSE event name: so
`EventSource.onmessage` gets it.

Controls have the event names `reset` and `interrupted`, and no id.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ...common import strict_json
from ...events import Event, Run
from ..frames import Payload
from .protocol import Control


class NativeProjector:
    """Turns each event into one frame."""

    def __init__(self, run: Run) -> None:
        self._run_id = run.run_id

    def event(self, event: Event) -> Sequence[Payload]:
        """Return the event as a frame."""
        return (Payload(strict_json.dumps(event.to_dict())),)

    def control(self, what: Control, detail: str | None = None) -> Sequence[Payload]:
        """Return a frame for what no event says. That a run is over, or waits for a human, its events say."""
        if what == "over" or what == "paused":
            return ()
        about = {"run_id": self._run_id} if detail is None else {"run_id": self._run_id, "reason": detail}
        return (Payload(strict_json.dumps(about), what),)


@dataclass(frozen=True, slots=True)
class Native:
    """The dialect of `EventSource`, `fetch`, curl and httpx-sse."""

    name: str = "native"
    has_ids: bool = True
    folds: bool = False

    def projector(self, run: Run) -> NativeProjector:
        """Return a projector for one run."""
        return NativeProjector(run)


NATIVE: Final = Native()
