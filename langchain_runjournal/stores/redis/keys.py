"""Pure: the keys of a store in Redis, and names as bytes."""

from __future__ import annotations

FIELDS = (b"owner", b"epoch", b"last", b"version", b"status", b"thread", b"settled", b"ended_at", b"stop", b"rest")
"""The fields of the hash of a run that a store reads."""


def encoded(name: str) -> bytes:
    """Return a name as bytes. It may hold NUL and half of a surrogate pair, and two names never become the same bytes."""
    return name.encode("utf-8", "surrogatepass")


def decoded(raw: bytes) -> str:
    """Return the name that `encoded` made bytes of."""
    return raw.decode("utf-8", "surrogatepass")


class Keys:
    """The keys of one store. They share a hash tag, so that a server in cluster mode keeps all of them in one slot."""

    def __init__(self, prefix: str) -> None:
        self._base = encoded(prefix if "{" in prefix else f"{{{prefix}}}")
        self.store = self._base + b":store"
        """A hash: the id of the store, the number of its format, and how many runs have begun."""
        self.runs = self._base + b":runs"
        """A sorted set: all runs, by the number in which they began."""
        self.open = self._base + b":open"
        """The same of the runs that `Store.unsettled` lists."""
        self.done = self._base + b":done"
        """A sorted set: the runs that `prune` may delete, by their end."""
        self.untidy = self._base + b":untidy"
        """A set: runs that have ended, and whose events stand in small entries."""
        self.owners = self._base + b":owners"
        self.changes = self._base + b":changes"
        """A stream with an entry for each write, which says only who wrote."""

    def run(self, run_id: bytes) -> bytes:
        """Return the key of the hash of a run."""
        return self._base + b":run:" + run_id

    def events(self, run_id: bytes) -> bytes:
        """Return the key of the stream of a run. The id of an entry is the seq of its last event."""
        return self._base + b":events:" + run_id

    def about(self, kind: str, name: str) -> bytes:
        """Return the key of what is kept about a thread, a status, an owner or a graph."""
        return self._base + b":" + kind.encode() + b":" + encoded(name)
