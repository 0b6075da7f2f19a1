"""Pure: decides whether the process of an owner is alive, from what the operating system says about its process id (pid).

Rule: believe a pid only in the namespace in which it was given, and `/proc` only where it shows that namespace. The
heartbeat decides everything else: a live owner must never be taken for a dead one, and a dead one must not count as alive
because another process happens to have its pid.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The answers of the operating system about one pid."""

    there: bool | None
    """Whether a process has the pid, by `kill(pid, 0)`; None where the system does not say."""
    born: str = ""
    """The start time of that process, from a `/proc` that shows this namespace; "" if there is none or it is unreadable."""
    zombie: bool = False
    """Whether that process is dead, and its parent has not waited for it yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Here:
    """The process that asks."""

    place: str
    pid: int
    living: bool
    """Whether the owner in question belongs to the asking process, and its journal is not closed."""


def is_same_place(theirs: str, ours: str) -> bool:
    """Return whether a pid that was given in the place `theirs` means the same process in the place `ours`.

    An old release did not record the time namespace. A place recorded by it counts as one of the same time namespace. Its
    `born` may be that of another process, read from the `/proc` of another namespace: see `is_old`.
    """
    return theirs == ours or (is_old(theirs) and ours.startswith(f"{theirs}/"))


def is_old(place: str) -> bool:
    """Return whether a place was recorded by an old release, which believed any `/proc`."""
    return place.endswith("]") and place.count("/") == 1


def judge(place: str, pid: int, born: str, here: Here, seen: Seen) -> Literal["alive", "gone"] | None:
    """Return what is certain about an owner with this `place`, `pid` and `born`; None if only its heartbeat tells."""
    if not is_same_place(place, here.place):
        return None
    if pid == here.pid:
        # If not alive: its journal was closed, or it belonged to the program that this process ran before an `exec`, or to a
        # dead process that had the same pid.
        return "alive" if here.living else "gone"
    if seen.there is False:
        return "gone"
    if not born or not seen.born:
        return None
    if seen.born == born:
        return "gone" if seen.zombie else "alive"
    return None if is_old(place) else "gone"
