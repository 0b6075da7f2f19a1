"""Further methods that a store may have: it keeps records, small JSON objects beside the runs, each written by
compare-and-set; or its server reports writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

__all__ = ["Listening", "Recording", "StoredRecord"]


class StoredRecord(NamedTuple):
    """A record, as a store keeps it. Its names are text of 1 to 200 characters that UTF-8 can encode."""

    space: str
    key: str
    """What names the record in its space."""
    group: str | None
    """What `Recording.records` may look for, such as a thread; None for a record of no group."""
    text: str
    """JSON that UTF-8 can encode, without a zero byte, of at most 1 MiB."""
    version: int
    """The number of the write that made it what it is. No other write of the store has it, so a record that was deleted and
    made anew has another version."""
    number: int
    """The version with which it was made. So later records of a space have larger numbers."""


class Recording(Protocol):
    """Further methods of a store that keeps records. Without them, `Records` raises `StoreUnusable` when it is used.

    A record belongs to no run, and is deleted only by `put_record`. A write of a record need not wake who listens.
    """

    def record(self, space: str, key: str) -> StoredRecord | None:
        """Return the record, or None."""

    def put_record(
        self, space: str, key: str, text: str | None, *, version: int | None, group: str | None
    ) -> StoredRecord | None:
        """Write a record, or delete it (`text` is None), if it has this version: atomically, for all processes.

        `version`: 0 stands for a record that does not exist, None for any state. `group`: None keeps the group that the
        record has. Returns the new record; of a deletion, the deleted one. Returns None if the record has another version,
        or if there is nothing to delete. The store may have to ask again after a lost connection: the caller must get the
        answer of the write that was made.
        """

    def records(self, space: str, *, group: str | None, after: int, limit: int | None) -> list[StoredRecord]:
        """Return the records of a space with a larger number than `after`, by number, at most `limit`.

        With a group, return only those of the group. A caller that goes on from the largest number that it has seen misses
        no record of the space.
        """


class Listening(Protocol):
    """A further method of a store whose server reports writes.

    Without it, the journal calls `changed` 100 times a second while a follower waits.
    """

    def listen(self, wake: Callable[[], None]) -> None:
        """Call `wake`, from any thread, soon after another writer has written. `wake` does no I/O and does not wait.

        `changed` has its new number before `wake` is called. A wake-up may be lost, and may come without a change: the
        journal looks at `changed` once a second all the same. Each call replaces the function of the call before.
        """
