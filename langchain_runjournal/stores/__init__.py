"""The stores of a journal: the `Store` protocol, and `open_store(url)`.

A store is synchronous and has few methods. `memory` is the readable specification, `testing.StoreContract` proves any
implementation, and `docs/stores.md` says how to write one.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Literal, NamedTuple, Protocol

from ..common.arguments import choice, positive
from ..common.masked_urls import MASK, bare, has_unseen, masked
from ..errors import InvalidArgument, UnknownStore
from ..events import Event, Run, RunStatus
from ..events.run import Begun
from ..events.run_state import advance, shown
from ..events.run_state import begin as new_run
from ..events.segments import Segment, unpack
from .recording import Listening, Recording, StoredRecord

__all__ = [
    "Begun",
    "Listening",
    "Owner",
    "Recording",
    "Restoring",
    "Segment",
    "Store",
    "StoredRecord",
    "StoredRun",
    "Synchronous",
    "advance",
    "exists",
    "is_on_server",
    "new_run",
    "open_store",
    "path_of",
    "patience_of",
    "shown",
    "unpack",
]

Synchronous = Literal["normal", "full"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """One journal of one process, and what other processes need to find out that it is dead."""

    owner_id: str
    place: str
    """The machine and its namespace of process ids: a pid has a meaning only within one place."""
    pid: int
    born: str
    """When the process started, as its system reports it: the system may give its pid to a later process."""
    lease: float
    """Seconds without a heartbeat after which processes of other places, which cannot look up the pid, regard it as dead."""
    beats: int = 0
    """The number of heartbeats so far. With a counter instead of a time, the clocks of two machines need not agree."""


class StoredRun(NamedTuple):
    """The owner of a run, as the store has it, and its last event."""

    owner: str | None
    epoch: int
    last: int
    gaps: tuple[tuple[int, int], ...] = ()
    """The first and the last seq of each gap before the last event."""


class Restoring(Protocol):
    """Further methods of a store with a `path`, so that no event is lost that a spool still has.

    Without `restore`, the journal leaves the events after a gap in the spool file; without `stored`, it asks for each run
    separately; without `deleted`, a run comes back if it was deleted shortly before its owner was killed.
    """

    def restore(self, owner_id: str, segments: Sequence[Segment]) -> None:
        """Append what is left of runs whose earlier events are lost, as `Store.append` does, but with gaps.

        A gap before a segment stays, and `Run.lost` counts its events; a segment that lies in a gap fills it. `Store.read`
        raises `EventsMissing` at a gap."""

    def stored(self, run_ids: Collection[str]) -> Mapping[str, StoredRun]:
        """Return what the store has of these runs. Runs that do not exist are left out."""

    def deleted(self, owner_id: str) -> Collection[str]:
        """Return the deleted or pruned runs of `owner_id` that its spool may still hold, until the owner is forgotten."""


class Store(Protocol):
    """A place for events. Each method may block, may be called from any thread, and is all or nothing.

    Every implementation guarantees: the seq of a run is 1, 2, 3 ... without gaps; a reader never sees n+1 before n; after
    `append` has returned, its events survive the process; one owner at a time writes a run.
    """

    url: str
    path: Path | None
    """The file of the store, or None for a store that has no file on this machine's disk. A journal keeps its spool beside
    it, or in its `spool_dir`; without a file and a `spool_dir`, in the user's state directory."""
    store_id: bytes
    """16 bytes that identify this store among all stores, for its whole life."""

    def append(self, owner_id: str, segments: Sequence[Segment]) -> None:
        """Store the segments, all or none. A run begins with the segment whose `first` is 1, and belongs to `owner_id`.

        `append` skips, by seq, events that the store already has: the caller retries an append whose outcome is unknown.
        Raises `RunFenced` if a run belongs to another owner or epoch, `SeqGap` if events before the segment are missing.
        """

    def begin(self, run: Run, besides: Collection[str]) -> list[str]:
        """Begin a run that is `running`, at epoch 1, unless another run of its thread is: atomically, for all processes.

        Returns the ids of the runs in the way. Runs among `besides` are not in the way; a run with the same id always is, on
        any thread. If no run is in the way, the run exists, has no events, and belongs to `run.owner`.
        """

    def withdraw(self, run_id: str, owner_id: str) -> bool:
        """Undo `begin` for a run of `owner_id` that has no event yet. Return False if the run has one."""

    def read(self, run_id: str, after: int, limit: int | None) -> list[Event]:
        """Return the events with a larger seq than `after`, in order, at most `limit`; none for a run that does not exist.

        `read` skips no event: at a gap, which is damage, it raises `EventsMissing`.
        """

    def run(self, run_id: str) -> Run | None:
        """Return the run, or None."""

    def runs(self, *, thread_id: str | None, status: RunStatus | None, limit: int | None) -> list[Run]:
        """Return the runs that match, newest first, in the order in which they began in this store, not by a clock.

        A damaged run is logged and left out.
        """

    def ids(self, start: str, limit: int | None) -> list[str]:
        """Return the ids of the runs that begin with `start`, sorted, at most `limit`.

        The time that this takes depends on the number of ids that are returned, and not on the number of all runs. A store
        may lack `ids`: then the command line lists all runs for a short id.
        """

    def began(self, after: int | None, *, thread_id: str | None, limit: int | None) -> list[Begun]:
        """Return the runs, of one thread or of all, that began after the one with the number `after`, oldest first.

        At most `limit`. The first run has a number above 0. With None as `after`, return only the newest run. The number of
        a run never changes, and no later run of the store gets it. A caller that goes on from the largest number that it has
        seen of a thread misses no run that has been on that thread from its first event on. The time that this takes depends
        on the number of runs that are returned. A damaged run is left out.
        """

    def unsettled(self, *, thread_id: str | None) -> list[Run]:
        """Return the runs, of one thread or of all, that are `running`, or have ended and are neither settled nor given up.

        The order is that in which they began in this store, oldest first. The time that this takes depends on the number of
        these runs, and not on the number of all runs in the store.
        """

    def request_stop(self, run_id: str, cause: str) -> Run | None:
        """Note the request to stop a run that has not ended; the first cause stays. Return the run after that."""

    def stops(self, owner_id: str) -> dict[str, str]:
        """Return the pending stop requests for the live runs of `owner_id`: `{run_id: cause}`."""

    def claim(self, run_id: str, owner_id: str, epoch: int) -> bool:
        """Make `owner_id` the owner at `epoch` + 1, if the run is at `epoch` and not done. Return whether it did."""

    def beat(self, owner: Owner) -> None:
        """Note that the owner is alive: add it, or replace its entry."""

    def owners(self) -> list[Owner]:
        """Return all owners that were not forgotten."""

    def forget(self, owner_id: str) -> None:
        """Remove an owner: it has closed, or it is dead and its spool is imported."""

    def prune(self, *, before: int | None, keep_last: int | None, dry_run: bool = False) -> list[str]:
        """Delete whole runs that have ended and are settled.

        They ended before `before` (milliseconds since 1970) and are not among the last `keep_last` runs to end. Returns
        their ids, the first to end first. `dry_run`: only return the ids.
        """

    def delete(self, run_ids: Collection[str]) -> list[str]:
        """Delete these runs with all their events, in any state, so that none of their text is left in the store's files.

        Returns the ids of the runs that existed, in the given order.
        """

    def vacuum(self) -> None:
        """Rewrite the store without free space and without remains of deleted runs. Runs stay as they are."""

    def owner_of(self, run_id: str) -> str | None:
        """Return the id of the owner that may append to a run, also while the run waits for a human; None without a run.

        The journal calls it before each checkpoint: it should be one read by an index. If a store lacks it, the journal
        reads the whole run instead.
        """

    def learn(self, graph: str, facts: Collection[str]) -> None:
        """Add facts about a graph. They belong to no run, and outlive all runs.

        A store may lack `learn` and `learned`: then the facts do not survive the process.
        """

    def learned(self, graph: str) -> set[str]:
        """Return all facts about a graph."""

    def hold(self, thread_id: str, holder: str, instead_of: str | None) -> str:
        """Make `holder` the holder of a thread, if it has none or `instead_of`. Return its holder.

        With it, one settlement at a time writes a thread, among all processes. A holder is the id of an owner, a space and a
        number. A store may lack `hold`, `holder` and `release`: then two processes do not exclude each other.
        """

    def holder(self, thread_id: str) -> str | None:
        """Return the holder of a thread, or None.

        A settlement calls it before each superstep, also while the store cannot be written.
        """

    def release(self, thread_id: str, holder: str) -> None:
        """Remove the holder of a thread, if it is this one."""

    def changed(self) -> int:
        """Return a number that changes when another writer has written. Cheap enough for 100 calls a second."""

    def check(self) -> list[str]:
        """Return what is wrong with the store itself (damage, a changed schema), one sentence for each problem."""

    def tidy(self) -> None:
        """Merge the small rows of appends into the form that is small and fast to read."""

    def before_fork(self) -> None:
        """Prepare for a fork: finish every operation, so that the child does not inherit half of one."""

    def after_fork(self, *, child: bool) -> None:
        """Resume after a fork; in the child, first drop what belongs to the parent, without closing it."""

    def close(self) -> None:
        """Release everything. After that, every other method raises `StoreClosed`; `close` is idempotent."""


_OPTIONAL = ("hold", "holder", "ids", "learn", "learned", "owner_of", "release")
_VERBS = tuple(name for name in vars(Store) if not name.startswith("_") and name not in _OPTIONAL)


def open_store(
    target: str | os.PathLike[str] | Store, *, synchronous: Synchronous | None = None, busy_timeout: float | None = None
) -> Store:
    """Return the store for a path or URL; a store that is open already is returned as it is.

    `synchronous`, `busy_timeout`: options of SQLite, which a URL may give as well (``sqlite:///runs.db?synchronous=full``).
    With a store that is open already they have no effect, and `open_store` emits a `DeprecationWarning`.
    """
    given = options_of(synchronous, busy_timeout)
    if not isinstance(target, (str, os.PathLike, type)) and all(hasattr(target, verb) for verb in _VERBS):
        # Not isinstance(): from Python 3.12 on it overlooks verbs that a wrapper passes on by __getattr__.
        for name in given:
            warnings.warn(_WITH_A_STORE.format(name=name), DeprecationWarning, stacklevel=3)
        return target
    text = _text(target)
    if isinstance(target, str) and text == ":memory:":
        from .memory import MemoryStore

        return MemoryStore()
    if not isinstance(target, str):  # a path is never a URL
        if _scheme_of(text) in _SERVERS:
            raise UnknownStore(url=masked(text), reason="a Path cannot hold a URL; give it as a str")
        from .sqlite import SqliteStore

        return SqliteStore(Path(text), **given)
    url = bare(text)
    store: Store = module_of(url).open_url(url, **given)
    return store


def options_of(synchronous: Synchronous | None, busy_timeout: float | None) -> dict[str, Any]:
    """Return the options of a store that were given, checked."""
    given: dict[str, Any] = {}
    if synchronous is not None:
        choice("synchronous", synchronous, Synchronous)
        given["synchronous"] = synchronous
    if busy_timeout is not None:
        positive(busy_timeout=busy_timeout)
        given["busy_timeout"] = busy_timeout
    return given


def patience_of(store: Store) -> float:
    """Return how many seconds a store waits for a lock: its `busy_timeout`, if it has one, or else 5."""
    found = getattr(store, "busy_timeout", None)
    return float(found) if isinstance(found, (int, float)) else 5.0


def _text(target: object) -> str:
    text = os.fspath(target) if isinstance(target, (str, os.PathLike)) else None
    if not isinstance(text, str) or not text or "\0" in text:
        shown = target.decode("utf-8", "replace") if isinstance(target, bytes) else text
        value = target if shown is None else masked(shown)
        raise InvalidArgument(name="url", expected='a path, a URL, a Store or ":memory:"', value=value)
    return text


def path_of(url: str) -> Path:
    """Return the file that a path or a URL names. Raises `UnknownStore`, also for the URL of a server."""
    url = bare(url)
    path: Path = module_of(url).path_of(url)
    return path


def is_on_server(url: str) -> bool:
    """Return whether a path or a URL names a database on a server."""
    return _scheme_of(bare(url)) in _SERVERS


def exists(url: str, *, busy_timeout: float | None = None) -> bool:
    """Return whether a server has a journal. Opening one creates it, and this does not. Raises what opening it raises."""
    url = bare(url)
    return bool(module_of(url).exists(url, **options_of(None, busy_timeout)))


def _scheme_of(url: str) -> str:
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]+):", url)  # one letter is a Windows drive
    return scheme[1].lower() if scheme else "sqlite"  # without a scheme, it is a path


def module_of(url: str) -> ModuleType:
    """Return the module of the store that a path or a URL names. Raises `UnknownStore`."""
    name = _scheme_of(url)
    if name not in _MODULES:
        # "postgresql+psycopg", as SQLAlchemy has it, begins with a scheme that is known.
        near = [name.partition("+")[0]] if name.partition("+")[0] in _MODULES else get_close_matches(name, _MODULES, n=1)
        meant = f" (did you mean {near[0]!r}?)" if near else ""
        raise UnknownStore(url=masked(url), reason=f"this version has no store for the scheme {name!r}{meant}")
    if not url.lower().startswith(f"{name}:") and _CONNECTION_STRING.search(url):
        raise UnknownStore(url=MASK, reason="it is a connection string and not a URL")
    if not url.lower().startswith(f"{name}:") and _NEARLY_A_URL.match(url):
        reason = "a URL begins with its scheme and ://, without a quotation mark or the name of a variable before it"
        raise UnknownStore(url=MASK, reason=reason)
    if not url.lower().startswith(f"{name}:") and _USER_IN_PATH.match(url):
        raise UnknownStore(url=MASK, reason="it looks like the user, the password and the host of a URL without its scheme")
    if name in _SERVERS and _OPTIONS_WITHOUT_MARK.match(url):
        raise UnknownStore(url=masked(url), reason="its options begin with & and not with ?")
    if name in _SERVERS and has_unseen(url):
        raise UnknownStore(url=masked(url), reason="a line break or another invisible sign stands in it")
    return import_module(_MODULES[name])


_SERVERS: Final = {
    **dict.fromkeys(("redis", "rediss", "unix", "valkey", "valkeys"), f"{__name__}.redis"),
    **dict.fromkeys(("postgresql", "postgres"), f"{__name__}.postgres"),
}
_MODULES: Final = {"sqlite": f"{__name__}.sqlite", **_SERVERS}
"""The scheme of a URL -> the module of its store, imported at the first use: it may need a driver that is not installed.

The module has `path_of(url)`, and `open_url(url, **given)` and `look_at(url, **given)` (see `look`) for the options that the
program gave as keywords. It raises `InvalidArgument` for an option that its stores do not have. The module of a server also
has `exists(url, **given)`.
"""
_CONNECTION_STRING: Final = re.compile(r"(?:^|[\s,;&?])(?:host|hostaddr|dbname|password|passwd|pwd)\s*=", re.IGNORECASE)
"""What libpq and other drivers take besides a URL. As a path, it would be a file whose name holds the password."""
_NEARLY_A_URL: Final = re.compile(
    r"(?:\w+\s*=)?[\s\"'`]*(?:postgres(?:ql)?|rediss?|valkeys?|unix)(?:\+\w+)?(?:://|//.*@)", re.IGNORECASE
)
"""A URL in quotation marks, or behind the name of a variable, as a file of variables may have it, or without its colon. As a
path, it shows its password."""
_USER_IN_PATH: Final = re.compile(r"[^/\\]{2,}:[^/\\]*@|[^/\\]:[^/\\]*@[^/\\]+/")
"""`user:password@host/database`. One letter before the colon may be a drive of Windows."""
_OPTIONS_WITHOUT_MARK: Final = re.compile(r"[^?#]*&[\w%]+=")
RESTORE: Final = "Restore it from a backup, or delete the damaged run (`runjournal delete`) and go on without it"
"""What to do about damage in the database of a server."""
_WITH_A_STORE: Final = (
    "the option {name!r} has no effect on a store that is open already, and a later release will refuse it: give it to the"
    " store, as in SqliteStore(path, {name}=...)"
)
