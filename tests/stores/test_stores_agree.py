"""The SQLite store and the readable specification, the store in memory, do the same, whatever is asked of them."""

from __future__ import annotations

import tempfile
from pathlib import Path

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from langchain_runjournal import Event
from langchain_runjournal.errors import RunJournalError
from langchain_runjournal.events.segments import pack
from langchain_runjournal.stores import Owner, Store
from langchain_runjournal.stores.memory import MemoryStore
from langchain_runjournal.stores.sqlite import SqliteStore

RUNS = ["a", "b", "c"]
OWNERS = ["me", "you"]
runs, owners = st.sampled_from(RUNS), st.sampled_from(OWNERS)
handles, epochs = st.integers(0, 1), st.integers(1, 3)
kinds = st.sampled_from(["run.start", "run.pause", "run.settled", "run.end"])
calls = st.sampled_from([None, "c1", "c2", "c,3"])
counts = st.sampled_from([1, 2, 3, 7, 499, 500, 501, 2_100])


class Agree(RuleBasedStateMachine):
    """Each step is done to both, and to one of two handles of the file."""

    def __init__(self) -> None:
        super().__init__()
        self.handles = self.open()
        for owner_id, handle in zip(OWNERS, self.handles, strict=True):
            # As a journal does, one owner for each: from then on a store may remember what it has written.
            handle.beat(Owner(owner_id=owner_id, place="here", pid=1, born="2", lease=15.0))
        self.memory = MemoryStore()
        self.last = dict.fromkeys(RUNS, 0)
        self.now = 0

    def open(self) -> list[Store]:
        self.place = tempfile.TemporaryDirectory()
        path = Path(self.place.name) / "runs.db"
        return [SqliteStore(path), SqliteStore(path)]

    def remove(self) -> None:
        self.place.cleanup()

    def both(self, handle: int, verb: str, *args: object, **kwargs: object) -> object:
        outcomes = []
        for store in (self.memory, self.handles[handle]):
            store_: Store = store
            try:
                outcomes.append(getattr(store_, verb)(*args, **kwargs))
            except RunJournalError as exc:
                outcomes.append((type(exc), exc.values))
        assert outcomes[0] == outcomes[1], (verb, args, kwargs)
        return outcomes[0]

    @rule(
        run=runs,
        owner=owners,
        epoch=epochs,
        count=counts,
        call=calls,
        back=st.integers(0, 3),
    )
    def append(self, run: str, owner: str, epoch: int, count: int, call: str | None, back: int) -> None:
        first = max(1, self.last[run] + 1 - back)
        self.now += 1
        events = [
            Event(run_id=run, kind="llm.ai.delta", data={"text": f"{seq}"}, call_id=call, seq=seq, at=float(self.now))
            for seq in range(first, first + count)
        ]
        if self.both(OWNERS.index(owner), "append", owner, [pack(run, epoch, events)]) is None:
            self.last[run] = max(self.last[run], first + count - 1)

    @rule(
        run=runs,
        owner=owners,
        kind=st.sampled_from(["run.start", "run.pause", "run.settled", "run.end"]),
    )
    def mark(self, run: str, owner: str, kind: str) -> None:
        self.now += 1
        data = {"thread_id": f"thread-{self.now % 2}"} if kind == "run.start" else {}
        if kind == "run.end":
            data = {"status": "failed", "settled": self.now % 2 == 0}
        event = Event(run_id=run, kind=kind, data=data, seq=self.last[run] + 1, at=float(self.now))
        found = self.memory.run(run)
        if self.both(OWNERS.index(owner), "append", owner, [pack(run, found.epoch if found else 1, [event])]) is None:
            self.last[run] += 1

    @rule(handle=handles, run=runs, owner=owners, epoch=epochs)
    def claim(self, handle: int, run: str, owner: str, epoch: int) -> None:
        self.both(handle, "claim", run, owner, epoch)

    @rule(handle=handles, run=runs, cause=st.sampled_from(["stop", "timeout"]))
    def request_stop(self, handle: int, run: str, cause: str) -> None:
        self.both(handle, "request_stop", run, cause)
        for owner in OWNERS:
            self.both(handle, "stops", owner)

    @rule(handle=handles)
    def tidy(self, handle: int) -> None:
        self.both(handle, "tidy")

    @precondition(lambda self: self.now % 5 == 0)
    @rule(handle=handles, keep=st.integers(0, 2))
    def prune(self, handle: int, keep: int) -> None:
        for run_id in sorted(self.both(handle, "prune", before=None, keep_last=keep)):
            self.last[run_id] = 0

    @precondition(lambda self: self.now % 5 == 1)
    @rule(handle=handles, named=st.lists(runs, max_size=3))
    def delete(self, handle: int, named: list[str]) -> None:
        for run_id in self.both(handle, "delete", named):
            self.last[run_id] = 0

    @precondition(lambda self: self.now % 7 == 0)
    @rule(handle=handles)
    def vacuum(self, handle: int) -> None:
        self.both(handle, "vacuum")

    @rule(handle=handles, run=runs, after=st.integers(0, 3_000), limit=st.none() | st.integers(0, 2_500))
    def read(self, handle: int, run: str, after: int, limit: int | None) -> None:
        self.both(handle, "read", run, after, limit)

    @rule(handle=handles, run=runs)
    def look(self, handle: int, run: str) -> None:
        self.both(handle, "run", run)
        self.both(handle, "read", run, max(0, self.last[run] - 3), None)
        self.both(handle, "runs", thread_id=None, status=None, limit=None)
        self.both(handle, "runs", thread_id="thread-1", status=None, limit=2)

    def teardown(self) -> None:
        for run in RUNS:
            self.both(0, "read", run, 0, None)
        for handle in self.handles:
            handle.close()
        self.remove()


Agree.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestAgree = Agree.TestCase
