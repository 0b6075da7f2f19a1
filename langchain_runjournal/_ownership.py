"""Who may write a run: this process's identity, and whether another one is gone.

A pid can be looked up only within one place (one boot of one machine, one namespace of process numbers); there, a dead
process is noticed at once. From elsewhere only the heartbeat tells: an owner is gone when its count has stood still for
its lease, measured by the watcher's own monotonic clock. No wall clock is compared with another one, or with itself.
"""

from __future__ import annotations

import functools
import os
import platform
import sys
import uuid
from pathlib import Path
from typing import Final, Literal

from .stores import Owner

living: Final[set[str]] = set()
"""Owners of this process. One that is not here has closed, or belonged to the program that this process was before an
`exec`: the process lives, they do not."""

Verdict = Literal["alive", "gone", "unknown"]


def new_owner(lease: float) -> Owner:
    """An identity for a journal of this process."""
    pid = os.getpid()
    owner = Owner(owner_id=uuid.uuid4().hex, place=this_place(), pid=pid, born=born(pid) or "", lease=lease)
    living.add(owner.owner_id)
    return owner


@functools.cache
def this_place() -> str:
    """What names this boot of this machine and, on Linux, the namespace of its process numbers."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return f"{platform.node()}/{uuid.getnode():x}"


def born(pid: int) -> str | None:
    """When the process began, as its system says, or None if there is none. "" where the system does not tell."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        if Path("/proc/self/stat").exists():
            return None
        return _born_elsewhere(pid)
    # The name, in parentheses, may hold anything: what counts comes after the last one.
    fields = stat.rpartition(")")[2].split()
    # A zombie is dead: only its parent has not looked yet.
    return None if fields[0] in "ZX" else fields[19]


def _born_elsewhere(pid: int) -> str | None:
    if sys.platform == "win32":
        return ""  # os.kill(pid, 0) would end it there: leave the verdict to the heartbeat
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        return ""
    return ""


class Watch:
    """What one process has seen of the heartbeats of the others."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, float]] = {}
        self._gone: dict[str, int] = {}

    def verdict(self, owner: Owner, now: float) -> Verdict:
        """Whether the owner is gone; "unknown" means: ask again later, at most one lease from the first time."""
        if owner.place == this_place():
            here = born(owner.pid)
            if here and here == owner.born and owner.pid == os.getpid() and owner.owner_id not in living:
                return "gone"
            if here is None or (here and owner.born and here != owner.born):
                return "gone"
            if here:
                return "alive"
        return self._by_heartbeat(owner, now)

    def _by_heartbeat(self, owner: Owner, now: float) -> Verdict:
        if self._gone.get(owner.owner_id) == owner.beats:
            return "gone"
        beats, since = self._seen.get(owner.owner_id, (-1, now))
        if owner.beats != beats:
            self._seen[owner.owner_id] = owner.beats, now
            return "alive" if beats >= 0 else "unknown"
        return "gone" if now - since >= owner.lease else "unknown"

    def forget(self, owner_id: str) -> None:
        """The owner is no longer of interest. Who still has it in a list finds it gone, unless its heart beats again."""
        seen = self._seen.pop(owner_id, None)
        if seen is not None:
            self._gone[owner_id] = seen[0]
