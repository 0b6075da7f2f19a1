"""A look at a store that changes nothing there: for `runjournal doctor`, which also looks at what is broken."""

from __future__ import annotations

from typing import Protocol

from ..common.masked_urls import bare
from ..events import Run, RunStatus
from . import Owner, module_of, options_of


class Look(Protocol):
    """What a store holds, for a reader that writes nothing: no migration, no heartbeat, no file beside the store."""

    url: str
    store_id: bytes
    missed: str | None
    """What this look leaves out, because only a write could make it readable; None if it leaves out nothing."""

    def runs(self, *, thread_id: str | None, status: RunStatus | None, limit: int | None) -> list[Run]:
        """Return the runs that match, newest first."""

    def unsettled(self, *, thread_id: str | None) -> list[Run]:
        """Return the runs that are `running`, or have ended and are neither settled nor given up."""

    def owners(self) -> list[Owner]:
        """Return all owners that were not forgotten."""

    def close(self) -> None:
        """Release everything."""


def look_at(url: str, *, busy_timeout: float | None = None) -> Look:
    """Return a look at the store of a path or a URL. The store must exist. Raises what opening it raises."""
    url = bare(url)
    found: Look = module_of(url).look_at(url, **options_of(None, busy_timeout))
    return found
