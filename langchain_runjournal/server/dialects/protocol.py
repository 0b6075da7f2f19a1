"""Pure: what a dialect is.

Rule: a projector sees all events of its run, from seq 1 on, unless its dialect says that it needs no fold. The frames that a
reader has already are left out afterwards: so a stream that goes on differs in no byte from one that never ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol, runtime_checkable

from ...events import Event, Run
from ..frames import FrameBlock, Payload

__all__ = ["BlockProjector", "Control", "Dialect", "Payload", "Projector", "ThreadProjector"]

Control = Literal["reset", "interrupted", "over", "paused"]
"""What a stream says beside the events: begin again, since the cursor cannot be used; the owner of the run is dead, and no
process has settled the run yet; the run is over; the run waits for a human."""


class Projector(Protocol):
    """Turns the events of one run into frames. Each stream has one projector for each run."""

    def event(self, event: Event) -> Sequence[Payload]:
        """Return the frames of one event, in order."""
        ...

    def control(self, what: Control, detail: str | None = None) -> Sequence[Payload]:
        """Return the frames of a control, which get no ids. `detail`: of a reset, what is wrong with the cursor."""
        ...


@runtime_checkable
class BlockProjector(Projector, Protocol):
    """A projector without a fold, which makes the frames of many events at once."""

    def block(self, events: Sequence[Event], *, merge: bool) -> FrameBlock:
        """Return the frames of events. `merge`: adjacent deltas of a call may become one frame."""
        ...


@runtime_checkable
class ThreadProjector(Projector, Protocol):
    """A projector whose last frames say what the thread holds then."""

    async def before(self, what: Control) -> None:
        """Read what the frames of this control need."""
        ...


class Dialect(Protocol):
    """One kind of client."""

    @property
    def name(self) -> str:
        """The name in `create_app(dialects=...)`."""
        ...

    @property
    def has_ids(self) -> bool:
        """Whether its frames have ids on the wire."""
        ...

    @property
    def folds(self) -> bool:
        """Whether a projector must see all events of its run. If not, a stream may begin at its cursor."""
        ...

    @property
    def holds(self) -> bool:
        """Whether a stream stays open while its run waits for a human. If not, it ends there."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of its streams, beside those that every stream has."""
        ...

    def projector(self, run: Run) -> Projector:
        """Return a projector for one run."""
        ...
