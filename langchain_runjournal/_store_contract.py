"""What every store promises, one test per promise. Public as `testing.StoreContract`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from ._segments import Segment, pack
from .errors import RunFenced, RunJournalError, SeqGap, StoreClosed
from .events import Event, Kind, RunStatus
from .stores import Owner, Store

START: Final[Kind] = "run.start"
DELTA: Final[Kind] = "llm.ai.delta"


def numbered(run_id: str, kinds: Sequence[Kind], first: int = 1, at: float = 1_700_000_000.0) -> list[Event]:
    """Events of these kinds, numbered from `first`, a second apart; deltas carry the text of their seq."""
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
    """That many deltas."""
    return numbered(run_id, [DELTA] * count, first)


def row(events: Sequence[Event], epoch: int = 1) -> Segment:
    """One segment of these events."""
    return pack(events[0].run_id, epoch, events)


def events_of(store: Store, run_id: str) -> list[Event]:
    """All that a store has of a run."""
    return store.read(run_id, 0, None)


@contextmanager
def _raises(kind: type[RunJournalError]) -> Iterator[None]:
    try:
        yield
    except kind:
        return
    raise AssertionError(f"{kind.__name__} was not raised")


def _end(run_id: str, seq: int, **data: Any) -> Event:
    return Event(run_id=run_id, kind="run.end", data=data, seq=seq, at=1_700_000_000.0 + seq)


class StoreContract:
    """Subclass it, define `open`, and `open_again` if the same data can be opened twice, as another process would."""

    def open(self) -> Store:
        """A new and empty store."""
        raise TypeError(f"{type(self).__name__} must define open(): return a new and empty store")

    def open_again(self, store: Store) -> Store:
        """A second handle on the same data; the store itself where there can be no other."""
        return store

    # --- appending ----------------------------------------------------------------------------------------------------

    def test_an_event_comes_back_as_it_was_appended(self) -> None:
        """Every field of an event survives: kinds, calls, clocks that jump, and whatever text a model can produce."""
        store = self.open()
        data = {"deep": [{"a": None, "b": True, "c": 1.5, "d": 10**30}], "text": "\x00 ' \" \\ \n é 漢 😀 \ud83d", "": ""}
        events = [
            Event(run_id="r", kind="run.start", data={"thread_id": "t"}, seq=1, at=1_700_000_000.123),
            Event(run_id="r", kind="llm.ai.delta", data={"text": "\ud83d"}, call_id='c "1", \n', seq=2, at=1_600_000_000.0),
            Event(run_id="r", kind="llm.ai.delta", data={"text": ""}, call_id="c2", seq=3, at=1_700_000_001.0),
            Event(run_id="r", kind="llm.ai.delta", data={"text": "x", "index": 1}, seq=4, at=1_700_000_001.0),
            Event(run_id="r", kind="tool.start", data=data, call_id="c2", seq=5, at=1_700_000_001.999),
        ]
        store.append("me", [row(events)])
        assert events_of(store, "r") == events

    def test_a_run_begins_with_its_first_segment(self) -> None:
        """The one who appends the first event of a run is its owner, at epoch 1."""
        store = self.open()
        assert store.run("r") is None
        assert store.read("r", 0, None) == []
        store.append("me", [row(numbered("r", ["llm.ai.delta"]))])
        run = store.run("r")
        assert run is not None
        assert (run.owner, run.epoch, run.status, run.last_seq) == ("me", 1, RunStatus.RUNNING, 1)

    def test_reading_goes_on_after_any_seq(self) -> None:
        """`after` and `limit` cut exactly, wherever segments begin and end, before and after tidying."""
        store = self.open()
        for first in (1, 4, 5, 11):
            store.append("me", [row(deltas("r", {1: 3, 4: 1, 5: 6, 11: 10}[first], first))])
        for _ in range(2):
            for after in range(22):
                for limit in (None, 0, 1, 7, 100):
                    seqs = [event.seq for event in store.read("r", after, limit)]
                    assert seqs == list(range(after + 1, 21))[:limit], (after, limit)
            store.tidy()

    def test_reading_twice_shows_the_same(self) -> None:
        """A read changes nothing."""
        store = self.open()
        store.append("me", [row(deltas("r", 5))])
        assert events_of(store, "r") == events_of(store, "r")
        assert store.read("r", 2, 2) == store.read("r", 2, 2)

    def test_a_batch_is_all_or_nothing(self) -> None:
        """One refused segment, and none of the batch is stored, also not what came before it."""
        store = self.open()
        store.append("other", [row(deltas("theirs", 1))])
        with _raises(RunFenced):
            store.append("me", [row(deltas("mine", 3)), row(deltas("theirs", 1, 2)), row(deltas("also", 1))])
        assert store.run("mine") is None
        assert store.run("also") is None
        with _raises(SeqGap):
            store.append("me", [row(deltas("mine", 3)), row(deltas("mine", 1, 5))])
        assert store.run("mine") is None

    def test_no_gap_is_ever_stored(self) -> None:
        """A segment that does not continue its run is refused, and says where the run ends."""
        store = self.open()
        with _raises(SeqGap):
            store.append("me", [row(deltas("r", 1, 2))])
        store.append("me", [row(deltas("r", 2))])
        try:
            store.append("me", [row(deltas("r", 1, 4))])
        except SeqGap as exc:
            assert (exc.run_id, exc.last, exc.first) == ("r", 2, 4)
        assert [event.seq for event in events_of(store, "r")] == [1, 2]

    def test_a_retry_doubles_nothing(self) -> None:
        """After an unknown outcome the same batch, or a longer one, may be appended again."""
        store = self.open()
        for count in (3, 3, 2, 5, 5):
            store.append("me", [row(numbered("r", [START, *[DELTA] * (count - 1)]))])
        again = self.open_again(store)
        again.append("me", [row(deltas("r", 3, 4))])
        store.append("me", [row(deltas("r", 6, 2))])
        assert [event.seq for event in events_of(store, "r")] == [1, 2, 3, 4, 5, 6, 7]

    def test_several_segments_of_a_run_in_one_batch(self) -> None:
        """Long runs come in pieces."""
        store = self.open()
        store.append("me", [row(deltas("r", 1000)), row(deltas("s", 2)), row(deltas("r", 1000, 1001))])
        assert [event.seq for event in events_of(store, "r")] == list(range(1, 2001))

    def test_an_empty_batch_is_fine(self) -> None:
        """Nothing to do is no error."""
        store = self.open()
        store.append("me", [])
        assert store.runs(thread_id=None, status=None, limit=None) == []

    # --- who may append -----------------------------------------------------------------------------------------------

    def test_an_old_epoch_is_fenced(self) -> None:
        """After a claim the old owner stores nothing, and the new one goes on at the next epoch."""
        store = self.open()
        store.append("old", [row(deltas("r", 2))])
        assert store.claim("r", "new", 1)
        try:
            store.append("old", [row(deltas("r", 1, 3))])
        except RunFenced as exc:
            assert exc.run_ids == ["r"]
        else:
            raise AssertionError("the old owner was not fenced")
        with _raises(RunFenced):
            store.append("new", [row(deltas("r", 1, 3), epoch=1)])
        store.append("new", [row(deltas("r", 1, 3), epoch=2)])
        run = store.run("r")
        assert run is not None
        assert (run.owner, run.epoch, run.last_seq) == ("new", 2, 3)

    def test_a_claim_is_seen_by_an_owner_that_has_appended_before(self) -> None:
        """A store may remember who owns what, but not for longer than it is true."""
        store = self.open()
        store.append("old", [row(deltas("r", 2))])
        store.append("old", [row(deltas("r", 1, 3))])
        other = self.open_again(store)
        assert other.claim("r", "new", 1)
        other.append("new", [row(deltas("r", 1, 4), epoch=2)])
        with _raises(RunFenced):
            store.append("old", [row(deltas("r", 1, 4))])
        assert store.run("r") == other.run("r")

    def test_one_of_many_claims_wins(self) -> None:
        """However many claim at once, from whatever handle."""
        store = self.open()
        store.append("old", [row(deltas("r", 1))])
        handles = [store, self.open_again(store)]
        won: list[str] = []

        def claim(name: str, handle: Store) -> Callable[[], None]:
            return lambda: won.append(name) if handle.claim("r", name, 1) else None

        _at_once([claim(f"n{i}", handles[i % 2]) for i in range(8)])
        assert len(won) == 1
        run = store.run("r")
        assert run is not None
        assert (run.owner, run.epoch) == (won[0], 2)

    def test_what_cannot_be_claimed(self) -> None:
        """A run that is not there, an epoch that has passed, a run that has ended and is settled."""
        store = self.open()
        assert not store.claim("nobody", "new", 1)
        store.append("old", [row(deltas("r", 1))])
        assert not store.claim("r", "new", 2)
        store.append("old", [row([_end("r", 2, status="interrupted", settled=False)])])
        assert store.claim("r", "new", 1), "what has ended unsettled needs somebody to settle it"
        store.append("new", [row([Event(run_id="r", kind="run.settled", seq=3, at=1.0)], epoch=2)])
        assert not store.claim("r", "third", 2)

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
        store.append("me", [row([_end("r", 3, status="interrupted", cause="stop", usage=usage, settled=False)])])
        run = store.run("r")
        assert run is not None
        assert (run.status, run.cause, run.usage, run.settled) == (RunStatus.INTERRUPTED, "stop", usage, False)
        assert run.ended_at == 1_700_000_003.0

    def test_late_facts_change_no_status(self) -> None:
        """What follows the end is kept, and the first end stays; only a settlement is noted."""
        store = self.open()
        store.append("me", [row([*deltas("r", 1), _end("r", 2, status="failed", error="boom", settled=False)])])
        store.append("me", [row(numbered("r", ["llm.tool.result", "run.pause", "run.start", "run.stop"], 3))])
        store.append("me", [row([_end("r", 7, status="completed")])])
        run = store.run("r")
        assert run is not None
        assert (run.status, run.error, run.ended_at, run.settled) == (RunStatus.FAILED, "boom", 1_700_000_002.0, False)
        assert (run.stop, run.last_seq) == (None, 7)
        store.append("me", [row(numbered("r", ["run.settled"], 8))])
        run = store.run("r")
        assert run is not None
        assert run.settled

    def test_runs_are_listed_newest_first(self) -> None:
        """By when they began here: a clock that was set back does not reorder them."""
        store = self.open()
        for number, at in enumerate((50.0, 40.0, 60.0, 10.0)):
            data = {"thread_id": "even" if number % 2 == 0 else "odd"}
            store.append("me", [row([Event(run_id=f"r{number}", kind="run.start", data=data, seq=1, at=at)])])
        store.append("me", [row([_end("r2", 2)])])

        def ids(thread_id: str | None = None, status: RunStatus | None = None, limit: int | None = None) -> list[str]:
            return [run.run_id for run in store.runs(thread_id=thread_id, status=status, limit=limit)]

        assert ids() == ["r3", "r2", "r1", "r0"]
        assert ids(limit=2) == ["r3", "r2"]
        assert ids(limit=0) == []
        assert ids("even") == ["r2", "r0"]
        assert ids("even", RunStatus.RUNNING) == ["r0"]
        assert ids(status=RunStatus.COMPLETED) == ["r2"]
        assert ids("nobody's") == []
        assert [run.last_seq for run in store.runs(thread_id=None, status=None, limit=None)] == [1, 2, 1, 1]

    # --- stop requests, owners ----------------------------------------------------------------------------------------

    def test_a_stop_request_is_kept_once(self) -> None:
        """The first cause stays; the owner finds it; a run that has ended takes none."""
        store = self.open()
        store.append("me", [row(deltas("r", 1)), row(deltas("s", 1))])
        assert store.request_stop("nobody", "stop") is None
        asked = self.open_again(store)
        first = asked.request_stop("r", "timeout")
        second = asked.request_stop("r", "stop")
        assert first is not None
        assert second is not None
        assert (first.stop, second.stop) == ("timeout", "timeout")
        assert store.stops("me") == {"r": "timeout"}
        assert store.stops("other") == {}
        store.append("me", [row([_end("r", 2)]), row([_end("s", 2)])])
        assert store.stops("me") == {}
        ended = store.request_stop("s", "stop")
        assert ended is not None
        assert (ended.stop, ended.status) == (None, RunStatus.COMPLETED)

    def test_owners_come_and_go(self) -> None:
        """A heartbeat adds or replaces; forgetting twice is fine."""
        store = self.open()
        owner = Owner(owner_id="o", place="here", pid=1, born="2", lease=3.5, beats=4)
        store.beat(Owner(owner_id="o", place="here", pid=1, born="2", lease=3.5))
        store.beat(owner)
        assert self.open_again(store).owners() == [owner]
        store.forget("o")
        store.forget("o")
        assert store.owners() == []

    def test_others_notice_a_write(self) -> None:
        """`changed` is another number after somebody else has appended, asked for a stop, or claimed."""
        store = self.open()
        store.append("me", [row(deltas("r", 1))])
        other = self.open_again(store)
        seen = {store.changed()}
        for write in (
            lambda: other.append("me", [row(deltas("r", 1, 2))]),
            lambda: other.request_stop("r", "stop"),
            lambda: other.claim("r", "you", 1),
        ):
            write()
            assert store.changed() not in seen
            seen.add(store.changed())

    # --- pruning, tidying, closing ------------------------------------------------------------------------------------

    def test_pruning_takes_whole_ended_runs(self) -> None:
        """By age and by number; never what runs, waits for a human, or is not settled."""
        store = self.open()
        for number in range(1, 7):
            store.append("me", [row([*deltas(f"e{number}", 1), _end(f"e{number}", 2 + 0)])])
        store.append("me", [row(deltas("running", 1)), row(numbered("paused", ["run.pause"]))])
        store.append("me", [row([_end("unsettled", 1, status="failed", settled=False)])])
        assert store.prune(before=1_000, keep_last=None) == []
        assert len(store.prune(before=None, keep_last=4)) == 2
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
        """A late event for it is refused: a run never begins in the middle."""
        store = self.open()
        store.append("me", [row([*deltas("r", 1), _end("r", 2)])])
        other = self.open_again(store)
        assert other.prune(before=None, keep_last=0) == ["r"]
        with _raises(SeqGap):
            store.append("me", [row(deltas("r", 1, 3))])
        assert store.read("r", 0, None) == []

    def test_tidying_changes_nothing_that_can_be_read(self) -> None:
        """Neither for finished runs, nor for those that go on, nor for whoever reads meanwhile."""
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
        """Every verb, and closing again is fine."""
        store = self.open()
        store.close()
        store.close()
        for verb in (
            lambda: store.append("me", []),
            lambda: store.read("r", 0, None),
            lambda: store.run("r"),
            lambda: store.runs(thread_id=None, status=None, limit=None),
            lambda: store.request_stop("r", "stop"),
            lambda: store.claim("r", "me", 1),
            lambda: store.stops("me"),
            lambda: store.owners(),
            lambda: store.forget("me"),
            lambda: store.prune(before=None, keep_last=1),
            lambda: store.changed(),
            lambda: store.tidy(),
        ):
            with _raises(StoreClosed):
                verb()

    # --- many at once -------------------------------------------------------------------------------------------------

    def test_a_reader_sees_a_prefix(self) -> None:
        """Never n+1 before n, while others append, tidy and read."""
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

        _at_once([write, read, read])
        assert all(seqs == list(range(1, len(seqs) + 1)) and len(seqs) % 3 == 0 for seqs in seen)
        assert events_of(reader, "r") == deltas("r", 600)

    def test_several_write_different_runs(self) -> None:
        """Through several handles at once: none fails, all is there."""
        store = self.open()
        handles = [store, self.open_again(store), self.open_again(store)]

        def write(number: int) -> Callable[[], None]:
            def work() -> None:
                for first in range(1, 100):
                    handles[number].append(f"o{number}", [row(deltas(f"r{number}", 1, first))])

            return work

        _at_once([write(number) for number in range(3)])
        for number in range(3):
            assert events_of(store, f"r{number}") == deltas(f"r{number}", 99)


def _at_once(works: Sequence[Callable[[], None]]) -> None:
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
