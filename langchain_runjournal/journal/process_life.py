"""Pure: whether the process behind an owner lives, from what was seen of its process number.

Rule: a process number is believed only in the namespace in which it was given, and `/proc` only where it shows that
namespace. Everything else is left to the heartbeat: a living owner must never be taken for a dead one, and a dead one must
not count as alive because another process happens to have its number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What the system says of one process number."""

    there: bool | None
    """Whether a process has the number, by `kill(pid, 0)`; None where the system does not say."""
    born: str = ""
    """When that process began, by a `/proc` that shows this namespace; "" where there is none, or it cannot be read."""
    zombie: bool = False
    """Whether that process is dead, and its parent has not collected it yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Here:
    """The process that asks."""

    place: str
    pid: int
    living: bool
    """Whether the owner in question is one of its own that has not closed."""


def is_same_place(theirs: str, ours: str) -> bool:
    """Whether a process number of theirs means the same process here.

    A record of a release that did not note the time namespace is taken to be from the same one. Its `born` may be that of
    another process, read from the `/proc` of another namespace: see `is_old`.
    """
    return theirs == ours or (is_old(theirs) and ours.startswith(f"{theirs}/"))


def is_old(place: str) -> bool:
    """Whether a place was recorded by a release that believed any `/proc`."""
    return place.endswith("]") and place.count("/") == 1


def judge(place: str, pid: int, born: str, here: Here, seen: Seen) -> Literal["alive", "gone"] | None:
    """What is certain of an owner with this `place`, `pid` and `born`; None: ask its heartbeat."""
    if not is_same_place(place, here.place):
        return None
    if pid == here.pid:
        # It has closed, or belonged to the program that this process was before an `exec`, or to one that is dead.
        return "alive" if here.living else "gone"
    if seen.there is False:
        return "gone"
    if not born or not seen.born:
        return None
    if seen.born == born:
        return "gone" if seen.zombie else "alive"
    return None if is_old(place) else "gone"
