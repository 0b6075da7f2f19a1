"""Ownership: the identity of this process as an owner of runs, and whether another owner is dead.

A process can look up another process id (pid) only within one place: one boot of one machine, one pid namespace, and one
time namespace. There, it notices a dead process at once. From another place, only the heartbeat tells: an owner is dead when
its heartbeat count has not changed for the length of its lease, measured by the watcher's own monotonic clock. No wall clock
is compared with another clock, or with itself. `journal/process_liveness.py` decides; this module collects the facts.
"""

from __future__ import annotations

import functools
import math
import os
import platform
import sys
import uuid
from pathlib import Path
from typing import Final, Literal

from ..stores import Owner
from .process_liveness import Here, Seen, is_same_place, judge

living: Final[set[str]] = set()
"""The ids of the live owners of this process. An owner with our pid that is not in this set is dead although the process is
alive: its journal was closed, or it belonged to the program that this process ran before an `exec`."""

_LATE: Final = 1.0
"""Seconds by which a heartbeat of the watcher may be late on a busy machine, where a sixth of its lease is less."""
Verdict = Literal["alive", "gone", "unknown"]


def new_owner(lease: float) -> Owner:
    """Return a new identity for a journal of this process."""
    pid = os.getpid()
    owner = Owner(owner_id=uuid.uuid4().hex, place=this_place(), pid=pid, born=look_up(pid).born, lease=lease)
    living.add(owner.owner_id)
    return owner


@functools.cache
def this_place() -> str:
    """Return the name of this boot of this machine and, on Linux, of the namespaces in which pids and times are valid.

    Where these cannot be known (Linux without `/proc`), return a new name for each process: then no other process takes our
    pid for one that it can look up.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.readlink('/proc/self/ns/pid')}/{_time_namespace()}"
    except OSError:
        alone = f"/{uuid.uuid4().hex}" if sys.platform.startswith("linux") else ""
        return f"{platform.node()}/{uuid.getnode():x}{alone}"


def _time_namespace() -> str:
    # The start time of one process reads differently in two time namespaces.
    try:
        return os.readlink("/proc/self/ns/time")
    except OSError:
        return "time"  # Linux before 5.6 has no time namespaces


def sees_itself() -> bool:
    """Return whether `/proc` shows the pid namespace of this process.

    With `unshare --pid`, nsjail or a chroot, it may show the namespace of the surrounding system, where the same pid belongs
    to another process.
    """
    try:
        return os.readlink("/proc/self") == str(os.getpid())
    except OSError:
        return False


def look_up(pid: int) -> Seen:
    """Return what the operating system says about a pid of this namespace."""
    if sys.platform == "win32" or pid <= 0:
        return Seen(there=None)  # `os.kill(pid, 0)` ends the process on Windows; elsewhere, `pid <= 0` is a process group
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return Seen(there=False)
    except PermissionError:
        pass  # the process is there, and belongs to another user
    except (OSError, OverflowError):
        return Seen(there=None)
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace") if sees_itself() else ""
    except OSError:
        return Seen(there=True)  # `/proc` hides the process (`hidepid`), or the process has just ended
    # The name of the process, in parentheses, may hold any character: the other fields come after the last parenthesis.
    fields = stat.rpartition(")")[2].split()
    return Seen(there=True, born=fields[19], zombie=fields[0] in "ZX") if len(fields) > 19 else Seen(there=True)


def certain(owner: Owner) -> Literal["alive", "gone"] | None:
    """Return what the operating system says about an owner; None where only its heartbeat tells."""
    place = this_place()
    if not is_same_place(owner.place, place):
        return None
    here = Here(place=place, pid=os.getpid(), living=owner.owner_id in living)
    return judge(owner.place, owner.pid, owner.born, here, look_up(owner.pid))


def patience_for(owner: Owner, given: float | None) -> float:
    """Return how many seconds to wait until heartbeats tell whether an owner is alive: the `given` ones, or the lease of the
    owner and the time of one heartbeat."""
    return owner.lease * 4 / 3 if given is None else given


class Watch:
    """The heartbeats of other owners, as one journal has seen them.

    While the store is away, no owner can send a heartbeat. So the watcher judges by heartbeats only while it sends its own,
    and after a gap in its own heartbeats, every other owner has a whole lease again.
    """

    def __init__(self, lease: float = math.inf) -> None:
        """Begin to watch. `lease`: the lease of the watcher, which sends three heartbeats in that time."""
        self._seen: dict[str, tuple[int, float]] = {}
        self._gone: dict[str, int] = {}
        self._heard: dict[str, float] = {}
        self._longest_gap = lease / 3 + max(lease / 6, _LATE)
        self._sent: float | None = None

    def sent(self, now: float) -> None:
        """Note that the store has taken a heartbeat of the watcher."""
        if self._is_cut_off(now):
            self._seen.clear()
        self._sent = now

    def _is_cut_off(self, now: float) -> bool:
        return self._sent is not None and now - self._sent > self._longest_gap

    def verdict(self, owner: Owner, now: float) -> Verdict:
        """Return whether the owner is dead. After "unknown", ask again later: one lease after the first call, the answer is
        certain if the watcher has sent its own heartbeats meanwhile."""
        return certain(owner) or self._by_heartbeat(owner, now)

    def _by_heartbeat(self, owner: Owner, now: float) -> Verdict:
        if self._gone.get(owner.owner_id) == owner.beats:
            return "gone"
        if self._is_cut_off(now):
            return "unknown"
        beats, since = self._seen.get(owner.owner_id, (-1, now))
        if owner.beats != beats:
            self._seen[owner.owner_id] = owner.beats, now
            if beats >= 0:
                self._heard[owner.owner_id] = now
            return "alive" if beats >= 0 else "unknown"
        return "gone" if now - since >= owner.lease else "unknown"

    def has_heard(self, owner: Owner, now: float) -> bool:
        """Return whether the last heartbeat of an owner came so lately that the next one is not overdue."""
        heard = self._heard.get(owner.owner_id)
        return heard is not None and now - heard <= owner.lease / 3 + max(owner.lease / 6, _LATE)

    def forget(self, owner_id: str) -> None:
        """Forget a dead owner. For a caller that still has it in a list, it stays dead unless it sends a heartbeat."""
        seen = self._seen.pop(owner_id, None)
        self._heard.pop(owner_id, None)
        if seen is not None:
            self._gone[owner_id] = seen[0]
