"""What the parts of the contract share: the store under test, events, and threads that begin together."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from ...errors import RunJournalError
from ...events import Event, Kind, Run
from ...events.segments import Segment, pack
from ...stores import Store

START: Final[Kind] = "run.start"
DELTA: Final[Kind] = "llm.ai.delta"
PATIENCE: Final = 30.0
"""The seconds to wait for a wake-up, which takes some milliseconds."""


def numbered(run_id: str, kinds: Sequence[Kind], first: int = 1, at: float = 1_700_000_000.0) -> list[Event]:
    """Return events of these kinds, numbered from `first`, a second apart; the text of a delta is its seq."""
    return [
        Event(
            run_id=run_id,
            kind=kind,
            data={"text": f"t{seq} "} if kind == "llm.ai.delta" else {},
            call_id="call-1" if kind.startswith("llm.ai") else None,
            seq=seq,
            at=at + seq,
        )
        for seq, kind in enumerate(kinds, first)
    ]


def deltas(run_id: str, count: int, first: int = 1) -> list[Event]:
    """Return `count` deltas."""
    return numbered(run_id, [DELTA] * count, first)


def row(events: Sequence[Event], epoch: int = 1) -> Segment:
    """Return one segment of these events."""
    return pack(events[0].run_id, epoch, events)


def events_of(store: Store, run_id: str) -> list[Event]:
    """Return all events that a store has of a run."""
    return store.read(run_id, 0, None)


@contextmanager
def raises(kind: type[RunJournalError]) -> Iterator[None]:
    """Assert that the block raises `kind`; pytest may not be installed."""
    try:
        yield
    except kind:
        return
    raise AssertionError(f"{kind.__name__} was not raised")


def comes_true(is_true: Callable[[], bool]) -> bool:
    """Wait until a condition holds that another thread brings about. Return whether it does in time."""
    deadline = time.monotonic() + PATIENCE
    while not is_true() and time.monotonic() < deadline:
        time.sleep(0.001)
    return is_true()


def end(run_id: str, seq: int, **data: Any) -> Event:
    """Return the `run.end` event of a run."""
    return Event(run_id=run_id, kind="run.end", data=data, seq=seq, at=1_700_000_000.0 + seq)


def begun(run_id: str, thread_id: str | None, owner: str = "me") -> Run:
    """Return a run as it begins."""
    return Run(run_id=run_id, thread_id=thread_id, owner=owner, name="agent", metadata={"user": "ü"}, started_at=5.5)


def at_once(works: Sequence[Callable[[], None]]) -> None:
    """Run them in threads that begin together, and raise the first error."""
    barrier = threading.Barrier(len(works))
    errors: list[BaseException] = []

    def run(work: Callable[[], None]) -> None:
        barrier.wait()
        try:
            work()
        except BaseException as exc:  # noqa: BLE001 - raised again below, in the thread of the test
            errors.append(exc)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


class StoreTests:
    """The store under test. Each part of the contract builds on it."""

    def open(self) -> Store:
        """Return a new and empty store."""
        raise TypeError(f"{type(self).__name__} must define open(): return a new and empty store")

    def open_again(self, store: Store) -> Store:
        """Return a second handle on the same data, or the store itself if there can be only one."""
        return store
