"""What keeps the journal: the `Store` protocol, and `open_store(url)`.

A store is synchronous and has few verbs. `memory.py` is the readable specification, `testing.StoreContract` proves any
implementation, and `docs/stores.md` says how to write one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, Protocol
from urllib.parse import unquote, urlsplit

from ..common.arguments import choice
from ..errors import InvalidArgument, UnknownStore
from ..events import Event, Run, RunStatus
from ..events.segments import Segment

Synchronous = Literal["normal", "full"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """One journal of one process, and how others can tell that it is gone."""

    owner_id: str
    place: str
    """The machine and its process numbers: only within one place can a pid be looked up."""
    pid: int
    born: str
    """When the process started, as its system says: a pid alone may have been given to another."""
    lease: float
    """Seconds without a heartbeat after which others, who cannot look up the pid, take it for gone."""
    beats: int = 0
    """Heartbeats so far. A counter, not a time: it needs no clock that two machines agree on."""


class StoredRun(NamedTuple):
    """Whose a run is, as the store has it, and its last event."""

    owner: str | None
    epoch: int
    last: int
    gaps: tuple[tuple[int, int], ...] = ()
    """The first and the last event of what is missing before that one."""


class Restoring(Protocol):
    """What a store with a `path` should be able to do besides, so that nothing is lost that a spool still has.

    Without `restore`, what comes behind a gap is refused and its file kept; without `stored`, each run is asked for by
    itself; without `deleted`, a run comes back that was deleted shortly before its owner was killed.
    """

    def restore(self, owner_id: str, segments: Sequence[Segment]) -> None:
        """Same as `Store.append`, for what is left of runs whose earlier events are gone: a gap before a segment stays, and
        is counted in `Run.lost`; a segment that lies in a gap fills it. `Store.read` raises `EventsMissing` at a gap."""

    def stored(self, run_ids: Collection[str]) -> Mapping[str, StoredRun]:
        """What there is of these runs. Those that are not there are left out."""

    def deleted(self, owner_id: str) -> Collection[str]:
        """The runs of `owner_id` that were deleted or pruned while its spool may still hold them: until it is forgotten."""


class Store(Protocol):
    """Where events are kept. Every verb may block, may be called from any thread, and is all or nothing.

    What must hold, whoever implements it: the seq of a run is 1, 2, 3 ... without gaps; a reader never sees n+1 before
    n; what `append` has returned from survives the process; one owner at a time writes a run.
    """

    url: str
    path: Path | None
    """Where files that belong to the store may be put, or None for a store that has no place on this machine's disk."""
    store_id: bytes
    """16 bytes that tell this store from every other one, for as long as it lives."""

    def append(self, owner_id: str, segments: Sequence[Segment]) -> None:
        """Keep the segments, all or none. A run begins with the segment whose `first` is 1, and belongs to `owner_id`.

        What is already there (the retry of an append whose outcome was unknown) is skipped, by seq. Raises `RunFenced`
        when a run belongs to another owner or epoch, `SeqGap` when events before the segment are missing.
        """

    def begin(self, run: Run, besides: Collection[str]) -> list[str]:
        """Begin a run that is `running`, at epoch 1, unless others on its thread are: all or nothing, among all processes.

        Returns the ids of those in the way, which are not counted if they are among `besides`; a run that has this one's id,
        wherever it is, always stands in the way. Nothing in the way: the run is there, without events, and is `run.owner`'s.
        """

    def withdraw(self, run_id: str, owner_id: str) -> bool:
        """Take back a run that has begun, is `owner_id`'s, and has no event yet: it was never there. False if it has."""

    def read(self, run_id: str, after: int, limit: int | None) -> list[Event]:
        """The events with a larger seq than `after`, in order, at most `limit`. Empty for a run that is not there.

        None is skipped: where some are missing, which is damage, it raises `EventsMissing`.
        """

    def run(self, run_id: str) -> Run | None:
        """The run, or None."""

    def runs(self, *, thread_id: str | None, status: RunStatus | None, limit: int | None) -> list[Run]:
        """The runs that fit, newest first: by when they began here, not by any clock. A damaged one is logged, not given."""

    def unsettled(self, *, thread_id: str | None) -> list[Run]:
        """The runs, of one thread or of all, that are `running`, or have ended and are neither settled nor given up: in the
        order in which they began here, the oldest first. The time that this takes depends on how many of them there are, and
        not on how many runs the store holds."""

    def request_stop(self, run_id: str, cause: str) -> Run | None:
        """Note that somebody wants a run that has not ended to stop; the first cause stays. The run as it is then."""

    def stops(self, owner_id: str) -> dict[str, str]:
        """The causes of the stops asked for, by run, of what `owner_id` owns and has not ended."""

    def claim(self, run_id: str, owner_id: str, epoch: int) -> bool:
        """Make `owner_id` the owner at `epoch` + 1, if the run is still at `epoch` and has not ended; or False."""

    def beat(self, owner: Owner) -> None:
        """Note that the owner lives: add it, or replace what is there."""

    def owners(self) -> list[Owner]:
        """All owners that have not been forgotten."""

    def forget(self, owner_id: str) -> None:
        """Drop an owner: it has left, or is gone and needs nothing any more."""

    def prune(self, *, before: int | None, keep_last: int | None, dry_run: bool = False) -> list[str]:
        """Delete whole runs that have ended and are settled: ended before `before` (milliseconds since 1970) and, by when
        they ended, not among the last `keep_last`. Returns their ids, the first to end first. `dry_run`: only that."""

    def delete(self, run_ids: Collection[str]) -> list[str]:
        """Delete these runs with all their events, whatever their state, so that their text cannot be read from the store's
        files any more. Returns the ids that were there, in the order in which they were given."""

    def vacuum(self) -> None:
        """Rewrite the store without the room and the remains of what was deleted. Runs stay as they are."""

    def owner_of(self, run_id: str) -> str | None:
        """The id of the owner that may append to a run, also while the run waits for a human; None if it is not there.

        Asked before each checkpoint: one read by an index. A store without this verb is asked for the whole run instead.
        """

    def learn(self, graph: str, facts: Collection[str]) -> None:
        """Add facts about a graph to those that are there. They belong to no run, and outlive all of them.

        A store without this verb and `learned` is fine: then nothing that was learned survives the process.
        """

    def learned(self, graph: str) -> set[str]:
        """All facts about a graph."""

    def hold(self, thread_id: str, holder: str, instead_of: str | None) -> str:
        """Make `holder` the holder of a thread, if it has none or has `instead_of`. Returns the holder that it has then.

        So that one settlement at a time writes the thread, among all processes. A holder is an id of an owner, a space and a
        number. A store without this verb, `holder` and `release` is fine: then two processes do not exclude each other.
        """

    def holder(self, thread_id: str) -> str | None:
        """The holder of a thread. Asked before each superstep of a settlement, also while the store cannot be written."""

    def release(self, thread_id: str, holder: str) -> None:
        """A thread has no holder any more, if it has this one."""

    def changed(self) -> int:
        """A number that is another one after somebody else has written. Cheap enough to ask 100 times a second."""

    def check(self) -> list[str]:
        """What is wrong with the store itself (damage, a schema that somebody has changed), a sentence for each thing."""

    def tidy(self) -> None:
        """Bring what was written in small pieces into the shape that is small and fast to read."""

    def before_fork(self) -> None:
        """The process is about to fork: come to rest, so that the child does not inherit half of an operation."""

    def after_fork(self, *, child: bool) -> None:
        """The process has forked: go on; in the child, let go first of what belongs to the parent, without closing it."""

    def close(self) -> None:
        """Release everything. A closed store raises `StoreClosed` from every other verb; closing twice is fine."""


_OPTIONAL = ("hold", "holder", "learn", "learned", "owner_of", "release")
_VERBS = tuple(name for name in vars(Store) if not name.startswith("_") and name not in _OPTIONAL)


def open_store(
    target: str | os.PathLike[str] | Store, *, synchronous: Synchronous = "normal", busy_timeout: float = 5.0
) -> Store:
    """The store for a path or URL; a store that is open already is returned as it is."""
    if not isinstance(target, (str, os.PathLike)) and all(hasattr(target, verb) for verb in _VERBS):
        # Not isinstance(): from Python 3.12 on it overlooks verbs that a wrapper passes on by __getattr__.
        return target
    choice("synchronous", synchronous, Synchronous)
    text = _text(target)
    if isinstance(target, str) and text == ":memory:":
        from .memory import MemoryStore

        return MemoryStore()
    from .sqlite import SqliteStore

    path = _sqlite_path(text) if isinstance(target, str) else Path(text)  # a Path is never a URL
    return SqliteStore(path, synchronous=synchronous, busy_timeout=busy_timeout)


def _text(target: object) -> str:
    text = os.fspath(target) if isinstance(target, (str, os.PathLike)) else None
    if not isinstance(text, str) or not text or "\0" in text:
        raise InvalidArgument(name="url", expected='a path, a URL, a Store or ":memory:"', value=target)
    return text


def _sqlite_path(text: str) -> Path:
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]+):", text)  # one letter is a Windows drive
    if scheme is None:
        return Path(text)
    name = scheme[1].lower()
    if name != "sqlite":
        raise UnknownStore(url=text, reason=f"this version has no store for the scheme {name!r}")
    parts = urlsplit(text)
    path = unquote(parts.path)
    if not text.lower().startswith("sqlite:///") or path in ("", "/") or parts.query or parts.fragment:
        raise UnknownStore(url=text, reason="a SQLite URL has three slashes, an absolute path, and nothing more")
    return Path(path)
