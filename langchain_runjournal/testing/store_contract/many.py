"""The promises of a store that several machines use at once: wake-ups, races, unknown outcomes, clocks, large batches."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ...errors import SeqGap, StoreClosed
from ...events import Event, RunStatus
from ...stores import Owner, Store, StoredRun
from .support import PATIENCE, StoreTests, at_once, begun, deltas, end, events_of, numbered, raises, row

ODD = "a\0b'\"\\ %s {} :x \n é 漢 😀"
"""A name that may stand in any argument: text without half of a surrogate pair, also with a zero byte."""
HALF = f"{ODD} \ud83d"
"""A name of a graph, of a node, or of a thread that is held: with half of a surrogate pair, too."""


class ManyContract(StoreTests):
    """The part of `StoreContract` about many writers, and about what crosses a network."""

    # --- wake-ups -----------------------------------------------------------------------------------------------------

    def test_a_write_of_another_handle_wakes_who_listens(self) -> None:
        """`changed` has its new number before `wake` is called, and what was written can be read by then. A store may lack
        `listen`."""
        store: Any = self.open()
        if not hasattr(store, "listen"):
            return
        store.append("me", [row(deltas("r", 1))])
        other = self.open_again(store)
        heard: list[int] = []
        news = threading.Condition()

        def wake() -> None:
            with news:
                heard.append(store.changed())
                news.notify_all()

        store.listen(lambda: None)
        store.listen(wake)  # replaces the other one
        for write, is_there in (
            (lambda: other.append("me", [row(deltas("r", 1, 2))]), lambda: len(store.read("r", 0, None)) == 2),
            (lambda: other.begin(begun("s", "t"), ()), lambda: store.run("s") is not None),
            (lambda: other.request_stop("r", "stop"), lambda: store.stops("me") == {"r": "stop"}),
            (lambda: other.claim("r", "you", 1), lambda: store.run("r").owner == "you"),
            (lambda: other.delete(["r"]), lambda: store.run("r") is None),
        ):
            seen = store.changed()
            write()
            with news:
                assert news.wait_for(partial(_is_new, heard, seen), PATIENCE), "no wake-up came"
                heard.clear()
            assert is_there()

    # --- unknown outcomes, races --------------------------------------------------------------------------------------

    def test_a_batch_is_retried_while_it_is_under_way(self) -> None:
        """The same batch, shorter and longer ones, from several handles at once: each event is stored once."""
        store = self.open()
        handles = [store, self.open_again(store), self.open_again(store), self.open_again(store)]

        def append(number: int, run_id: str) -> None:
            count = (3, 5, 8, 8)[number]
            handles[number].append("me", [row(deltas(run_id, count)), row(deltas(f"{run_id} too", 2))])

        for turn in range(10):
            at_once([partial(append, number, f"r{turn}") for number in range(len(handles))])
            assert events_of(store, f"r{turn}") == deltas(f"r{turn}", 8)
            assert events_of(store, f"r{turn} too") == deltas(f"r{turn} too", 2)

    def test_one_of_many_wins_each_race(self) -> None:
        """Eight threads on three handles, for the same thread, the same run and the same hold: one of them has it, and each
        of the others learns who."""
        store: Any = self.open()
        handles: list[Any] = [store, self.open_again(store), self.open_again(store)]
        with_holds = hasattr(store, "hold")

        def race(work: Callable[[Any, int], Any]) -> list[Any]:
            answers: list[Any] = [None] * 8

            def one(number: int) -> None:
                answers[number] = work(handles[number % 3], number)

            at_once([partial(one, number) for number in range(8)])
            return answers

        for turn in range(5):
            thread = f"t{turn}"
            found = race(partial(_begin, thread))
            (winner,) = [number for number, in_the_way in enumerate(found) if not in_the_way]
            run_id = f"{thread} r{winner}"
            assert all(in_the_way == [run_id] for number, in_the_way in enumerate(found) if number != winner)
            assert [run.run_id for run in store.runs(thread_id=thread, status=None, limit=None)] == [run_id]
            claims = race(partial(_claim, run_id))
            assert claims.count(True) == 1
            run = store.run(run_id)
            assert (run.owner, run.epoch) == (f"c{claims.index(True)}", 2)
            if with_holds:
                holders = race(partial(_hold, thread))
                assert len(set(holders)) == 1
                assert holders[int(holders[0][1:])] == holders[0] == store.holder(thread)

    def test_a_reader_sees_a_run_whole_while_its_rows_are_merged(self) -> None:
        """Another handle merges the rows of a run while a reader takes them in pages: it gets each event once, in order."""
        store = self.open()
        other = self.open_again(store)
        runs = [f"r{number}" for number in range(12)]
        for run_id in runs:
            for first in range(1, 41):
                store.append("me", [row(deltas(run_id, 1, first))])
            store.append("me", [row([end(run_id, 41)])])
        done = threading.Event()

        def tidy() -> None:
            try:
                other.tidy()
            finally:
                done.set()

        def read() -> None:
            is_last = False
            while not is_last:
                is_last = done.is_set()
                for run_id in runs:
                    assert events_of(store, run_id)[:40] == deltas(run_id, 40)

        at_once([tidy, read, read])

    def test_no_run_of_a_thread_appears_behind_a_newer_one(self) -> None:
        """A reader that goes on from the largest number that it has seen sees every run that four handles begin at once, by
        `append` and by `begin`."""
        store = self.open()
        writers = [self.open_again(store) for _ in range(4)]
        left = threading.Semaphore(0)
        seen: list[str] = []

        def write(number: int) -> None:
            try:
                for turn in range(25):
                    run_id, owner = f"w{number} {turn}", f"me{number}"
                    if turn % 5 == 4:
                        known = [one.run_id for one in writers[number].began(0, thread_id="t", limit=None)]
                        writers[number].begin(begun(run_id, "t", owner), known)
                    else:
                        start = Event(run_id=run_id, kind="run.start", data={"thread_id": "t"}, seq=1, at=5.0)
                        other = Event(run_id=f"{run_id} x", kind="run.start", data={"thread_id": "u"}, seq=1, at=5.0)
                        writers[number].append(owner, [row([start]), row([other])])
            finally:
                left.release()

        def read() -> None:
            over = 0
            number = 0
            while over <= 4:  # once more when all are done
                found = store.began(number, thread_id="t", limit=None)
                seen.extend(one.run_id for one in found)
                number = found[-1].number if found else number
                if over == 4:
                    break
                over += left.acquire(blocking=False)

        at_once([*(partial(write, number) for number in range(4)), read])
        there = [run.run_id for run in store.runs(thread_id="t", status=None, limit=None)]
        assert seen == there[::-1]

    def test_pruning_disturbs_nobody_who_appends(self) -> None:
        """Runs end and are pruned while others are written: no append fails, and none of the others loses an event."""
        store = self.open()
        pruner = self.open_again(store)
        done = threading.Event()

        def write() -> None:
            try:
                for turn in range(1, 41):
                    store.append(
                        "me", [row(deltas("live", 2, 2 * turn - 1)), row([*deltas(f"e{turn}", 1), end(f"e{turn}", 2)])]
                    )
            finally:
                done.set()

        def prune() -> None:
            while not done.is_set():
                pruner.prune(before=None, keep_last=1)

        at_once([write, prune])
        pruner.prune(before=None, keep_last=0)
        assert [run.run_id for run in store.runs(thread_id=None, status=None, limit=None)] == ["live"]
        assert events_of(store, "live") == deltas("live", 80)

    # --- large things -------------------------------------------------------------------------------------------------

    def test_a_large_batch_is_one_batch(self) -> None:
        """Two thousand runs in one append, and five megabytes of one run: all or nothing, and read back in pages."""
        store = self.open()
        many = [row(numbered(f"r{number}", ["run.start", "llm.ai.delta"])) for number in range(2_000)]
        store.append("other", [row(deltas("theirs", 1))])
        with raises(SeqGap):
            store.append("me", [*many, row(deltas("gap", 1, 2))])
        assert len(store.runs(thread_id=None, status=None, limit=None)) == 1
        store.append("me", many)
        assert len(store.runs(thread_id=None, status=RunStatus.RUNNING, limit=None)) == 2_001
        assert [run.run_id for run in store.runs(thread_id=None, status=None, limit=2)] == ["r1999", "r1998"]
        large = [
            Event(run_id="large", kind="llm.ai.delta", data={"text": f"{seq:05}" * 200}, call_id="c", seq=seq, at=1.0)
            for seq in range(1, 5_001)
        ]
        store.append("me", [row(large[:2_500]), row(large[2_500:])])
        paged: list[Event] = []
        reader = self.open_again(store)
        while page := reader.read("large", len(paged), 1_999):
            paged += page
        assert paged == large
        gone = store.delete([f"r{number}" for number in range(2_000)])
        assert len(gone) == 2_000

    # --- clocks, names, what a store may lack -------------------------------------------------------------------------

    def test_times_are_those_of_the_writer(self) -> None:
        """A store has no clock of its own: runs of 1970 and of 2100 keep their times, and are pruned by them."""
        store = self.open()
        for run_id, at in (("early", 1.5), ("late", 4_102_444_800.25)):
            store.append("me", [row([Event(run_id=run_id, kind="run.start", seq=1, at=at), _end(run_id, 2, at + 1)])])
            run = store.run(run_id)
            assert run is not None
            assert (run.started_at, run.ended_at) == (at, at + 1)
            assert [event.at for event in events_of(store, run_id)] == [at, at + 1]
        assert store.prune(before=2_500, keep_last=None) == []
        assert store.prune(before=2_501, keep_last=None) == ["early"]
        assert store.prune(before=4_102_444_801_250, keep_last=None) == []

    def test_a_heartbeat_is_a_count(self) -> None:
        """The store changes nothing in an owner, and lets none expire: a journal that watches its count decides by its own
        clock."""
        store = self.open()
        given = [Owner(owner_id=f"o{n}", place=ODD, pid=n, born="", lease=lease) for n, lease in enumerate((0.001, 1e9))]
        for owner in given:
            store.beat(owner)
        other = self.open_again(store)
        for beats in (1 << 40, 3):
            again = Owner(owner_id="o0", place="elsewhere", pid=7, born="x", lease=2.5, beats=beats)
            other.beat(again)
            assert sorted(store.owners(), key=lambda owner: owner.owner_id) == [again, given[1]]

    def test_names_may_be_any_text(self) -> None:
        """In every method that takes one; names that differ only behind a zero byte are different names."""
        store: Any = self.open()
        other: Any = self.open_again(store)
        run_id, thread, owner = f"run {ODD}", f"thread {ODD}", f"owner {ODD}"
        for name in (run_id, f"{run_id}2"):
            assert store.begin(begun(name, f"{thread} {name}", owner), ()) == []
        store.append(owner, [row(numbered(run_id, ["run.start", "llm.ai.delta"]))])
        assert len(other.read(run_id, 0, None)) == 2
        assert other.begin(begun("b", f"{thread} {run_id}", "you"), ()) == [run_id]
        assert [run.run_id for run in other.unsettled(thread_id=f"{thread} {run_id}")] == [run_id]
        assert other.request_stop(run_id, ODD).stop == ODD
        assert store.stops(owner) == {run_id: ODD}
        assert store.withdraw(f"{run_id}2", owner)
        store.beat(Owner(owner_id=owner, place=ODD, pid=1, born=ODD, lease=1.0))
        assert [found.owner_id for found in other.owners()] == [owner]
        assert other.claim(run_id, f"new {ODD}", 1)
        assert other.run(run_id).owner == f"new {ODD}"
        if hasattr(store, "owner_of"):
            assert store.owner_of(run_id) == f"new {ODD}"
        if hasattr(store, "stored"):
            assert store.stored([run_id, "unknown"]) == {run_id: StoredRun(f"new {ODD}", 2, 2)}
        assert store.delete([run_id]) == [run_id]
        store.forget(owner)
        assert other.owners() == []
        if hasattr(store, "learn"):
            store.learn(HALF, [HALF, ODD])
            assert (other.learned(HALF), other.learned(ODD)) == ({HALF, ODD}, set())
        if hasattr(store, "hold"):
            assert store.hold(HALF, ODD, None) == other.hold(HALF, "you", None) == other.holder(HALF) == ODD
            other.release(HALF, ODD)
            assert store.holder(HALF) is None

    def test_what_is_stored_of_many_runs_is_known_at_once(self) -> None:
        """Owner, epoch, last event and gaps; runs that do not exist are left out. A store may lack `stored`, `restore`."""
        store: Any = self.open()
        if not hasattr(store, "stored"):
            return
        store.append("me", [row(deltas("r", 3)), row(deltas("s", 2))])
        store.begin(begun("new", "t"), ())
        assert store.claim("s", "you", 1)
        again: Any = self.open_again(store)
        expected = {"r": StoredRun("me", 1, 3), "s": StoredRun("you", 2, 2), "new": StoredRun("me", 1, 0)}
        assert again.stored(["r", "s", "unknown", "new"]) == expected
        assert store.stored([]) == {}
        if hasattr(store, "restore"):
            store.restore("me", [row(deltas("r", 2, 6)), row(deltas("part", 2, 4))])
            gaps = {"r": StoredRun("me", 1, 7, ((4, 5),)), "part": StoredRun("me", 1, 5, ((1, 3),))}
            assert again.stored(["r", "part"]) == gaps
            store.restore("me", [row(deltas("r", 2, 4))])
            assert store.stored(["r"]) == {"r": StoredRun("me", 1, 7)}
            assert events_of(store, "r") == deltas("r", 7)

    def test_every_method_of_a_closed_store_says_so(self) -> None:
        """Also those that a store may lack, while other handles go on."""
        store: Any = self.open()
        other = self.open_again(store)
        store.append("me", [row(deltas("r", 1))])
        store.close()
        owner = Owner(owner_id="o", place="here", pid=1, born="2", lease=1.0)
        verbs: Sequence[tuple[str, Sequence[Any]]] = [
            ("begin", (begun("s", "t"), ())),
            ("withdraw", ("r", "me")),
            ("beat", (owner,)),
            ("owner_of", ("r",)),
            ("ids", ("r", 1)),
            ("learn", ("graph", ["fact"])),
            ("learned", ("graph",)),
            ("hold", ("t", "me 1", None)),
            ("holder", ("t",)),
            ("release", ("t", "me 1")),
            ("restore", ("me", [row(deltas("r", 1, 2))])),
            ("stored", (["r"],)),
            ("deleted", ("me",)),
        ]
        for name, arguments in verbs:
            if hasattr(store, name):
                with raises(StoreClosed):
                    getattr(store, name)(*arguments)
        if other is not store:
            other.append("me", [row(deltas("r", 1, 2))])
            assert events_of(other, "r") == deltas("r", 2)


def _is_new(heard: Sequence[int], seen: int) -> bool:
    return any(number != seen for number in heard)


def _begin(thread_id: str, handle: Store, number: int) -> list[str]:
    return handle.begin(begun(f"{thread_id} r{number}", thread_id, f"o{number}"), ())


def _claim(run_id: str, handle: Store, number: int) -> bool:
    return handle.claim(run_id, f"c{number}", 1)


def _hold(thread_id: str, handle: Store, number: int) -> str:
    return handle.hold(thread_id, f"h{number}", None)


def _end(run_id: str, seq: int, at: float) -> Event:
    return Event(run_id=run_id, kind="run.end", seq=seq, at=at)
