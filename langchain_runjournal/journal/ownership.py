"""Who may write a run: this process's identity, and whether another one is gone.

A process number can be looked up only within one place: one boot of one machine, one namespace of process numbers, one of
time. There, a dead process is noticed at once. From elsewhere only the heartbeat tells: an owner is gone when its count has
stood still for its lease, measured by the watcher's own monotonic clock. No wall clock is compared with another one, or with
itself. `journal/process_life.py` decides; this module looks.
"""

from __future__ import annotations

import functools
import os
import platform
import sys
import uuid
from pathlib import Path
from typing import Final, Literal

from ..stores import Owner
from .process_life import Here, Seen, is_same_place, judge

living: Final[set[str]] = set()
"""Owners of this process. One that is not here has closed, or belonged to the program that this process was before an
`exec`: the process lives, they do not."""

Verdict = Literal["alive", "gone", "unknown"]


def new_owner(lease: float) -> Owner:
    """An identity for a journal of this process."""
    pid = os.getpid()
    owner = Owner(owner_id=uuid.uuid4().hex, place=this_place(), pid=pid, born=look_up(pid).born, lease=lease)
    living.add(owner.owner_id)
    return owner


@functools.cache
def this_place() -> str:
    """What names this boot of this machine and, on Linux, the namespaces that give process numbers and times their meaning.

    A new name for each process where they cannot be known (Linux without `/proc`): its number means nothing to others then.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.readlink('/proc/self/ns/pid')}/{_time_namespace()}"
    except OSError:
        alone = f"/{uuid.uuid4().hex}" if sys.platform.startswith("linux") else ""
        return f"{platform.node()}/{uuid.getnode():x}{alone}"


def _time_namespace() -> str:
    # The start of one process reads differently in two of them.
    try:
        return os.readlink("/proc/self/ns/time")
    except OSError:
        return "time"  # Linux before 5.6 has none


def sees_itself() -> bool:
    """Whether `/proc` shows this process's own namespace of process numbers. With `unshare --pid`, nsjail or a chroot it may
    be that of the system around, where the same number is another process."""
    try:
        return os.readlink("/proc/self") == str(os.getpid())
    except OSError:
        return False


def look_up(pid: int) -> Seen:
    """What the system says of a process number of this namespace."""
    if sys.platform == "win32" or pid <= 0:
        return Seen(there=None)  # os.kill(pid, 0) would end it on Windows, and mean a group of processes elsewhere
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return Seen(there=False)
    except PermissionError:
        pass  # it is there, and another user's
    except (OSError, OverflowError):
        return Seen(there=None)
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace") if sees_itself() else ""
    except OSError:
        return Seen(there=True)  # hidden (`hidepid`), or it has ended in this instant
    # The name, in parentheses, may hold anything: what counts comes after the last one.
    fields = stat.rpartition(")")[2].split()
    return Seen(there=True, born=fields[19], zombie=fields[0] in "ZX") if len(fields) > 19 else Seen(there=True)


def certain(owner: Owner) -> Literal["alive", "gone"] | None:
    """What the system says of an owner; None where only its heartbeat tells."""
    place = this_place()
    if not is_same_place(owner.place, place):
        return None
    here = Here(place=place, pid=os.getpid(), living=owner.owner_id in living)
    return judge(owner.place, owner.pid, owner.born, here, look_up(owner.pid))


class Watch:
    """What one process has seen of the heartbeats of the others."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, float]] = {}
        self._gone: dict[str, int] = {}

    def verdict(self, owner: Owner, now: float) -> Verdict:
        """Whether the owner is gone; "unknown" means: ask again later, at most one lease from the first time."""
        return certain(owner) or self._by_heartbeat(owner, now)

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
