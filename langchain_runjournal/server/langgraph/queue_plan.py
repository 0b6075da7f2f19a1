"""Pure: what is next in the queue of a thread.

Rule: the entries of a thread are worked on one after the other, in the order in which they were stored, whichever process
stored them. A rollback comes before every begin, so that no run begins on what is about to be undone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Job = Literal["begin", "rollback"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry in the queue of a thread."""

    key: str
    version: int
    number: int
    job: Job
    run_id: str
    thread_id: str
    owner: str
    """The journal whose process works on it."""
    not_before: float = 0.0
    is_held: bool = False
    """Whether the request that stored it is still at work: only that request begins the run, or lets others do so."""

    def to_json(self) -> dict[str, Any]:
        """Return the value of the record."""
        names = ("job", "run_id", "thread_id", "owner", "not_before", "is_held")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, slots=True)
class Work:
    """The entry on which this process works next."""

    entry: Entry


@dataclass(frozen=True, slots=True)
class Drop:
    """An entry whose request has failed, or whose process is dead: its client never heard of the run."""

    entry: Entry


@dataclass(frozen=True, slots=True)
class Wait:
    """Something else comes first. `until`: look again then at the latest; None if only another process may change it."""

    until: float | None


def entry_of(key: str, version: int, number: int, value: Mapping[str, Any]) -> Entry:
    """Return the entry in a record."""
    return Entry(
        key=key,
        version=version,
        number=number,
        job=value["job"],
        run_id=value["run_id"],
        thread_id=value["thread_id"],
        owner=value["owner"],
        not_before=value.get("not_before", 0.0),
        is_held=value.get("is_held", False),
    )


def next_step(entries: Sequence[Entry], mine: str, holding: Collection[str], now: float) -> Work | Drop | Wait | None:
    """Return what a process does next on a thread; None if no entry of it is its own.

    `mine`: the owner id of the process. `holding`: the keys of the entries that its requests hold now.
    """
    if not any(entry.owner == mine for entry in entries):
        return None
    due = [entry for entry in entries if entry.not_before <= now]
    ordered = sorted(due, key=lambda entry: (entry.job != "rollback", entry.number))
    if not ordered:
        return Wait(min(entry.not_before for entry in entries))
    first = ordered[0]
    if first.owner != mine:
        return Wait(None)
    if first.is_held:
        return Wait(None) if first.key in holding else Drop(first)
    return Work(first)


def before(entries: Sequence[Entry], number: int) -> list[Entry]:
    """Return the entries of runs that came before one with this number, and may begin before it."""
    return [entry for entry in entries if entry.job == "begin" and entry.number < number]
