"""The promises of a store about whole runs: fields, lists, stop requests, owners, deletion; and about many threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import cast

from ...errors import SeqGap, StoreClosed
from ...events import Event, RunStatus
from ...stores import Listening, Owner
from .support import StoreTests, at_once, begun, comes_true, deltas, end, events_of, numbered, raises, row


class RunsContract(StoreTests):
    """The part of `StoreContract` about everything but `append` and `begin`."""

    # --- what a run says of itself ------------------------------------------------------------------------------------

    def test_marks_change_what_a_run_says(self) -> None:
        """The run is the fold of its marks."""
        store = self.open()
        start = {"thread_id": "t", "name": "agent", "metadata": {"user": "ü"}}
        store.append("me", [row([Event(run_id="r", kind="run.start", data=start, seq=1, at=5.5)])])
        store.append("me", [row([Event(run_id="r", kind="run.pause", seq=2, at=6.0)])])
        run = store.run("r")
        assert run is not None
        assert (run.thread_id, run.name, run.metadata, run.started_at) == ("t", "agent", {"user": "ü"}, 5.5)
        assert (run.status, run.ended, run.ended_at) == (RunStatus.PAUSED, False, None)
        usage = {"model": {"input_tokens": 3}}
        store.append("me", [row([end("r", 3, status="interrupted", cause="stop", usage=usage, settled=False)])])
        run = store.run("r")
        assert run is not None
        assert (run.status, run.cause, run.usage, run.settled) == (RunStatus.INTERRUPTED, "stop", usage, False)
        assert run.ended_at == 1_700_000_003.0

    def test_late_facts_change_no_status(self) -> None:
        """Events after the end are stored, and the first end stays. Of their marks, only a settlement changes the run."""
        store = self.open()
        store.append("me", [row([*deltas("r", 1), end("r", 2, status="failed", error="boom", settled=False)])])
        store.append("me", [row(numbered("r", ["llm.tool.result", "run.pause", "run.start", "run.stop"], 3))])
        store.append("me", [row([end("r", 7, status="completed")])])
        run = store.run("r")
        assert run is not None
        assert (run.status, run.error, run.ended_at, run.settled) == (RunStatus.FAILED, "boom", 1_700_000_002.0, False)
        assert (run.stop, run.last_seq) == (None, 7)
        store.append("me", [row(numbered("r", ["run.settled"], 8))])
        run = store.run("r")
        assert run is not None
        assert run.settled

    def test_runs_are_listed_newest_first(self) -> None:
        """In the order in which they began in this store: a clock that was set back does not reorder them."""
        store = self.open()
        for number, at in enumerate((50.0, 40.0, 60.0, 10.0)):
            data = {"thread_id": "even" if number % 2 == 0 else "odd"}
            store.append("me", [row([Event(run_id=f"r{number}", kind="run.start", data=data, seq=1, at=at)])])
        store.append("me", [row([end("r2", 2)])])

        def ids(thread_id: str | None = None, status: RunStatus | None = None, limit: int | None = None) -> list[str]:
            return [run.run_id for run in store.runs(thread_id=thread_id, status=status, limit=limit)]

        assert ids() == ["r3", "r2", "r1", "r0"]
        assert ids(limit=2) == ["r3", "r2"]
        assert ids(limit=0) == []
        assert ids("even") == ["r2", "r0"]
        assert ids("even", RunStatus.RUNNING) == ["r0"]
        assert ids(status=RunStatus.COMPLETED) == ["r2"]
        assert ids("unknown") == []
        assert [run.last_seq for run in store.runs(thread_id=None, status=None, limit=None)] == [1, 2, 1, 1]

    def test_runs_have_numbers_in_the_order_in_which_they_began(self) -> None:
        """Oldest first, of one thread or of all, behind a number; also of runs that have no event yet. A deletion changes no
        other number, and gives none to a later run."""
        store = self.open()
        other = self.open_again(store)

        def ids(after: int | None, thread_id: str | None = None, limit: int | None = None) -> list[str]:
            found = store.began(after, thread_id=thread_id, limit=limit)
            assert other.began(after, thread_id=thread_id, limit=limit) == found
            numbers = [one.number for one in found]
            assert numbers == sorted(set(numbers))
            return [one.run_id for one in found]

        assert (ids(0), ids(None), ids(0, "even")) == ([], [], [])
        for number, at in enumerate((50.0, 40.0, 60.0, 10.0)):
            data = {"thread_id": "even" if number % 2 == 0 else "odd"}
            store.append("me", [row([Event(run_id=f"r{number}", kind="run.start", data=data, seq=1, at=at)])])
        assert other.begin(begun("r4", "even", "you"), ("r0", "r2")) == []
        store.append("me", [row(deltas("r5", 1))])
        first, second, *_ = store.began(0, thread_id=None, limit=None)
        assert first.number > 0
        assert [one.thread_id for one in store.began(0, thread_id=None, limit=None)] == [
            *("even", "odd", "even", "odd", "even", None)
        ]
        assert ids(0) == ["r0", "r1", "r2", "r3", "r4", "r5"]
        assert ids(second.number) == ["r2", "r3", "r4", "r5"]
        assert (ids(0, limit=2), ids(second.number, limit=1), ids(0, limit=0)) == (["r0", "r1"], ["r2"], [])
        assert (ids(0, "even"), ids(first.number, "even"), ids(0, "even", 2)) == (
            ["r0", "r2", "r4"],
            ["r2", "r4"],
            ["r0", "r2"],
        )
        assert (ids(None), ids(None, "odd"), ids(0, "unknown"), ids(None, "unknown")) == (["r5"], ["r3"], [], [])
        before = {one.run_id: one.number for one in store.began(0, thread_id=None, limit=None)}
        assert sorted(store.delete(["r1", "r5"])) == ["r1", "r5"]
        assert other.withdraw("r4", "you")
        assert ids(before["r1"]) == ["r2", "r3"]
        store.append("me", [row([Event(run_id="r6", kind="run.start", data={"thread_id": "even"}, seq=1, at=1.0)])])
        store.append("me", [row([end("r0", 2)])])
        after = {one.run_id: one.number for one in store.began(0, thread_id=None, limit=None)}
        assert after.pop("r6") > max(before.values())
        assert after == {run_id: before[run_id] for run_id in ("r0", "r2", "r3")}

    def test_what_is_to_be_settled_is_listed_in_order(self) -> None:
        """`unsettled` lists runs that are running, or have ended and are neither settled nor given up; not those that wait
        for a human. The order is that in which they began in this store, oldest first, whatever their clocks say."""
        store = self.open()
        other = self.open_again(store)

        def ids(thread_id: str | None = None) -> list[str]:
            found = [run.run_id for run in store.unsettled(thread_id=thread_id)]
            assert [run.run_id for run in other.unsettled(thread_id=thread_id)] == found
            return found

        assert ids() == []
        for number, at in enumerate((50.0, 40.0, 60.0, 10.0, 30.0, 20.0)):
            data = {"thread_id": "even" if number % 2 == 0 else "odd"}
            store.append("me", [row([Event(run_id=f"r{number}", kind="run.start", data=data, seq=1, at=at)])])
        assert other.begin(begun("r6", "even", "you"), ("r0", "r2", "r4")) == []
        assert (ids(), ids("odd"), ids("unknown")) == ([f"r{number}" for number in range(7)], ["r1", "r3", "r5"], [])
        store.append("me", [row([end("r0", 2)]), row([end("r1", 2, status="interrupted", settled=False)])])
        store.append("me", [row([end("r2", 2, status="failed", settled=False, given_up=True, problem="moved_on")])])
        store.append("me", [row(numbered("r3", ["run.pause"], 2))])
        assert (ids(), ids("even")) == (["r1", "r4", "r5", "r6"], ["r4", "r6"])
        assert other.claim("r1", "you", 1)
        [run, *_] = store.unsettled(thread_id=None)
        assert (run.run_id, run.owner, run.epoch, run.last_seq, run.settled) == ("r1", "you", 2, 2, False)
        other.append("you", [row(numbered("r1", ["run.settled"], 3), epoch=2)])
        assert other.withdraw("r6", "you")
        assert store.delete(["r5"]) == ["r5"]
        assert ids() == ["r4"]

    # --- what was learned about graphs --------------------------------------------------------------------------------

    def test_facts_about_graphs_are_only_added(self) -> None:
        """Each graph has its own facts, a fact that is added twice is there once, and no method removes one."""
        store = self.open()
        assert store.learned("g") == set()
        store.learn("g", ["a", "ü"])
        store.learn("h", {"z"})
        store.learn("g", ["b", "a"])
        other = self.open_again(store)
        other.learn("g", ["c"])
        assert (store.learned("g"), other.learned("h"), store.learned("unknown")) == ({"a", "b", "c", "ü"}, {"z"}, set())

    def test_facts_about_graphs_outlive_all_runs(self) -> None:
        """`prune` deletes runs and leaves facts."""
        store = self.open()
        store.append("me", [row([*deltas("r", 1), end("r", 2)])])
        store.learn("g", ["a"])
        assert store.prune(before=None, keep_last=0) == ["r"]
        assert store.learned("g") == {"a"}

    # --- the holder of a thread ---------------------------------------------------------------------------------------

    def test_a_thread_has_one_holder(self) -> None:
        """The first caller of `hold` gets it, another one only in place of the holder that it names."""
        store = self.open()
        other = self.open_again(store)
        assert store.holder("t") is None
        assert store.hold("t", "me 1", None) == other.hold("t", "you 1", None) == other.hold("t", "you 1", "me 0") == "me 1"
        assert [other.hold("u", "you 2", "me 1"), store.holder("u")] == ["you 2", "you 2"]
        assert [other.hold("t", "you 1", "me 1"), store.holder("t")] == ["you 1", "you 1"]
        store.release("t", "me 1")
        assert other.holder("t") == "you 1"
        other.release("t", "you 1")
        assert [store.holder("t"), store.hold("t", "me 2", None), other.holder("u")] == [None, "me 2", "you 2"]

    # --- stop requests, owners ----------------------------------------------------------------------------------------

    def test_a_stop_request_is_kept_once(self) -> None:
        """The first cause stays; `stops` returns it to the owner; a run that has ended accepts no request."""
        store = self.open()
        store.append("me", [row(deltas("r", 1)), row(deltas("s", 1))])
        assert store.request_stop("unknown", "stop") is None
        asked = self.open_again(store)
        first = asked.request_stop("r", "timeout")
        second = asked.request_stop("r", "stop")
        assert first is not None
        assert second is not None
        assert (first.stop, second.stop) == ("timeout", "timeout")
        assert store.stops("me") == {"r": "timeout"}
        assert store.stops("other") == {}
        store.append("me", [row([end("r", 2)]), row([end("s", 2)])])
        assert store.stops("me") == {}
        ended = store.request_stop("s", "stop")
        assert ended is not None
        assert (ended.stop, ended.status) == (None, RunStatus.COMPLETED)

    def test_owners_come_and_go(self) -> None:
        """A heartbeat adds or replaces an owner; `forget` is idempotent."""
        store = self.open()
        owner = Owner(owner_id="o", place="here", pid=1, born="2", lease=3.5, beats=4)
        store.beat(Owner(owner_id="o", place="here", pid=1, born="2", lease=3.5))
        store.beat(owner)
        assert self.open_again(store).owners() == [owner]
        store.forget("o")
        store.forget("o")
        assert store.owners() == []

    def test_others_notice_a_write(self) -> None:
        """`changed` returns another number after another handle has appended, requested a stop, or claimed: at once, or soon
        if the store learns of writes from its server."""
        store = self.open()
        store.append("me", [row(deltas("r", 1))])
        other = self.open_again(store)
        is_told = hasattr(store, "listen")
        if is_told:
            cast("Listening", store).listen(lambda: None)
        seen = {store.changed()}
        for write in (
            lambda: other.append("me", [row(deltas("r", 1, 2))]),
            lambda: other.request_stop("r", "stop"),
            lambda: other.claim("r", "you", 1),
        ):
            write()
            assert store.changed() not in seen or (is_told and comes_true(lambda: store.changed() not in seen))
            seen.add(store.changed())

    # --- pruning, tidying, closing ------------------------------------------------------------------------------------

    def test_pruning_takes_whole_ended_runs(self) -> None:
        """By age and by number; never a run that is running, waits for a human, or is not settled."""
        store = self.open()
        for number in range(1, 7):
            store.append("me", [row([*deltas(f"e{number}", 1), end(f"e{number}", 2 + 0)])])
        store.append("me", [row(deltas("running", 1)), row(numbered("paused", ["run.pause"]))])
        store.append("me", [row([end("unsettled", 1, status="failed", settled=False)])])
        assert store.prune(before=1_000, keep_last=None) == []
        would = store.prune(before=None, keep_last=4, dry_run=True)
        assert len(store.runs(thread_id=None, status=None, limit=None)) == 9
        assert store.prune(before=None, keep_last=4) == would
        assert len(would) == 2
        store.tidy()
        kept = {run.run_id for run in store.runs(thread_id=None, status=None, limit=None)}
        assert {"running", "paused", "unsettled"} < kept
        assert len(kept) == 7
        gone = store.prune(before=1_900_000_000_000, keep_last=None)
        assert len(gone) == 4
        assert all(store.read(run_id, 0, None) == [] and store.run(run_id) is None for run_id in gone)
        assert {run.run_id for run in store.runs(thread_id=None, status=None, limit=None)} == {
            "running",
            "paused",
            "unsettled",
        }
        assert [event.seq for event in events_of(store, "running")] == [1]

    def test_what_was_pruned_cannot_be_continued(self) -> None:
        """The store refuses a late event of a pruned run: a run never begins in the middle."""
        store = self.open()
        store.append("me", [row([*deltas("r", 1), end("r", 2)])])
        other = self.open_again(store)
        assert other.prune(before=None, keep_last=0) == ["r"]
        with raises(SeqGap):
            store.append("me", [row(deltas("r", 1, 3))])
        assert store.read("r", 0, None) == []

    def test_deleting_takes_the_runs_that_are_named(self) -> None:
        """In any state, with all their events, tidied or not. `delete` returns each id once, in the given order."""
        store = self.open()
        store.append("me", [row([*deltas("old", 3), end("old", 4)]), row(deltas("running", 2))])
        store.tidy()
        store.append(
            "me", [row(numbered("paused", ["run.pause"])), row(deltas("running", 2, first=3)), row(deltas("kept", 2))]
        )
        store.append("you", [row([end("unsettled", 1, status="failed", settled=False)])])
        other = self.open_again(store)
        assert other.delete(["unknown"]) == []
        assert other.delete([]) == []
        gone = other.delete(["running", "unknown", "old", "paused", "unsettled", "old"])
        assert gone == ["running", "old", "paused", "unsettled"]
        for one in (store, other):
            assert all(one.read(run_id, 0, None) == [] and one.run(run_id) is None for run_id in gone)
            assert [run.run_id for run in one.runs(thread_id=None, status=None, limit=None)] == ["kept"]
            assert one.check() == []
        assert not store.claim("unsettled", "you", 1)
        assert store.request_stop("running", "stop") is None
        with raises(SeqGap):
            store.append("me", [row(deltas("running", 1, 5))])
        store.append("me", [row(deltas("kept", 1, 3))])
        assert [event.seq for event in events_of(store, "kept")] == [1, 2, 3]

    def test_a_vacuum_changes_nothing_that_is_read(self) -> None:
        """Runs, their order and their events are as before, for other handles as well; and appends still succeed."""
        store = self.open()
        other = self.open_again(store)
        store.append("me", [row([*deltas("a", 3), end("a", 4)]), row(deltas("b", 2)), row(deltas("c", 2))])
        store.tidy()
        store.append("me", [row(deltas("b", 1, 3))])
        assert other.delete(["a"]) == ["a"]
        other.vacuum()
        store.append("me", [row(deltas("b", 1, 4)), row(deltas("d", 1))])
        for one in (store, other):
            assert [run.run_id for run in one.runs(thread_id=None, status=None, limit=None)] == ["d", "c", "b"]
            assert [event.seq for event in events_of(one, "b")] == [1, 2, 3, 4]
            assert one.check() == []

    def test_a_store_that_is_whole_says_so(self) -> None:
        """`check` reports nothing about a store that is new, or that was only used through its methods."""
        store = self.open()
        assert store.check() == []
        store.append("me", [row(deltas("r", 3))])
        store.tidy()
        store.append("me", [row(deltas("r", 1, first=4))])
        assert store.check() == []
        assert self.open_again(store).check() == []

    def test_tidying_changes_nothing_that_can_be_read(self) -> None:
        """Neither for runs that have ended, nor for running ones, nor for a concurrent reader."""
        store = self.open()
        other = self.open_again(store)
        for first in range(1, 200, 3):
            store.append("me", [row(deltas("r", 3, first)), row(deltas("s", 3, first))])
            if first % 10 == 1:
                assert other.read("r", first - 1, None) == deltas("r", 3, first)
                store.tidy()
                assert other.read("r", first - 1, None) == deltas("r", 3, first)
        assert events_of(other, "r") == deltas("r", 201)
        assert events_of(store, "s") == deltas("s", 201)

    def test_a_closed_store_says_so(self) -> None:
        """Every method raises `StoreClosed`; `close` is idempotent."""
        store = self.open()
        store.close()
        store.close()
        for verb in (
            lambda: store.append("me", []),
            lambda: store.read("r", 0, None),
            lambda: store.run("r"),
            lambda: store.runs(thread_id=None, status=None, limit=None),
            lambda: store.unsettled(thread_id=None),
            lambda: store.request_stop("r", "stop"),
            lambda: store.claim("r", "me", 1),
            lambda: store.stops("me"),
            lambda: store.owners(),
            lambda: store.forget("me"),
            lambda: store.delete(["r"]),
            lambda: store.vacuum(),
            lambda: store.prune(before=None, keep_last=1),
            lambda: store.changed(),
            lambda: store.check(),
            lambda: store.tidy(),
        ):
            with raises(StoreClosed):
                verb()

    # --- many at once -------------------------------------------------------------------------------------------------

    def test_a_reader_sees_a_prefix(self) -> None:
        """A reader never sees n+1 before n, while other threads append, tidy and read."""
        store = self.open()
        reader = self.open_again(store)
        done = threading.Event()
        seen: list[list[int]] = []

        def write() -> None:
            for first in range(1, 600, 3):
                store.append("me", [row(deltas("r", 3, first)), row(deltas(f"x{first}", 2))])
                if first % 50 == 1:
                    store.tidy()
            done.set()

        def read() -> None:
            while not done.is_set():
                seen.append([event.seq for event in reader.read("r", 0, None)])

        at_once([write, read, read])
        assert all(seqs == list(range(1, len(seqs) + 1)) and len(seqs) % 3 == 0 for seqs in seen)
        assert events_of(reader, "r") == deltas("r", 600)

    def test_several_write_different_runs(self) -> None:
        """Through several handles at once: no append fails, and no event is lost."""
        store = self.open()
        handles = [store, self.open_again(store), self.open_again(store)]

        def write(number: int) -> Callable[[], None]:
            def work() -> None:
                for first in range(1, 100):
                    handles[number].append(f"o{number}", [row(deltas(f"r{number}", 1, first))])

            return work

        at_once([write(number) for number in range(3)])
        for number in range(3):
            assert events_of(store, f"r{number}") == deltas(f"r{number}", 99)
