"""The promises of a store about appending events, and about the owner that may append them."""

from __future__ import annotations

from collections.abc import Callable

from ...errors import RunFenced, SeqGap
from ...events import Event, RunStatus
from ...stores import Owner, Store
from .support import DELTA, START, StoreTests, at_once, deltas, end, events_of, numbered, raises, row


class AppendContract(StoreTests):
    """The part of `StoreContract` about `append`, `read` and `claim`."""

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
        """The owner that appends the first event of a run owns it, at epoch 1."""
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
        """A read has no side effect."""
        store = self.open()
        store.append("me", [row(deltas("r", 5))])
        assert events_of(store, "r") == events_of(store, "r")
        assert store.read("r", 2, 2) == store.read("r", 2, 2)

    def test_a_batch_is_all_or_nothing(self) -> None:
        """If the store refuses one segment, it stores none of the batch, not even the segments before that one."""
        store = self.open()
        store.append("other", [row(deltas("theirs", 1))])
        with raises(RunFenced):
            store.append("me", [row(deltas("mine", 3)), row(deltas("theirs", 1, 2)), row(deltas("also", 1))])
        assert store.run("mine") is None
        assert store.run("also") is None
        with raises(SeqGap):
            store.append("me", [row(deltas("mine", 3)), row(deltas("mine", 1, 5))])
        assert store.run("mine") is None

    def test_no_gap_is_ever_stored(self) -> None:
        """The store refuses a segment that does not continue its run, and the error says where the run ends."""
        store = self.open()
        with raises(SeqGap):
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
        """A long run can arrive in pieces."""
        store = self.open()
        store.append("me", [row(deltas("r", 1000)), row(deltas("s", 2)), row(deltas("r", 1000, 1001))])
        assert [event.seq for event in events_of(store, "r")] == list(range(1, 2001))

    def test_every_event_keeps_its_call(self) -> None:
        """In short and long rows, for calls that continue, change and come back, tidied or not, read from any seq."""
        store = self.open()
        reader = self.open_again(store)
        events: list[Event] = []
        for number, (count, call) in enumerate(
            [(3, "a"), (700, "a"), (2, "a"), (5, None), (1900, "b"), (9, "b"), (4, "a,b"), *([(120, "c")] * 40)]
        ):
            some = [
                Event(run_id="r", kind=DELTA, data={"text": "x" * 200}, call_id=call, seq=seq, at=1.0)
                for seq in range(len(events) + 1, len(events) + 1 + count)
            ]
            half = len(some) // 2
            for part in (some[:half], some[half:]):
                store.append("me", [row(part)])
            events += some
            if number in (2, 5):
                store.tidy()
            if number < 8 or number == 46:
                for after in (0, len(events) - count, len(events) - 1, 650, 2_650):
                    assert reader.read("r", after, None) == events[after:], (number, after)
        store.tidy()
        for after in range(0, len(events), 100):
            assert store.read("r", after, 150) == events[after : after + 150]

    def test_an_empty_batch_is_fine(self) -> None:
        """An append of no segments does nothing."""
        store = self.open()
        store.append("me", [])
        assert store.runs(thread_id=None, status=None, limit=None) == []

    # --- who may append -----------------------------------------------------------------------------------------------

    def test_an_old_epoch_is_fenced(self) -> None:
        """After a claim the store refuses the old owner, and the new owner continues at the next epoch."""
        store = self.open()
        store.append("old", [row(deltas("r", 2))])
        assert store.claim("r", "new", 1)
        try:
            store.append("old", [row(deltas("r", 1, 3))])
        except RunFenced as exc:
            assert exc.run_ids == ["r"]
        else:
            raise AssertionError("the old owner was not fenced")
        with raises(RunFenced):
            store.append("new", [row(deltas("r", 1, 3), epoch=1)])
        store.append("new", [row(deltas("r", 1, 3), epoch=2)])
        run = store.run("r")
        assert run is not None
        assert (run.owner, run.epoch, run.last_seq) == ("new", 2, 3)

    def test_an_old_owner_is_fenced_from_events_that_are_stored(self) -> None:
        """A store that skips what it has refuses an old owner or an old epoch all the same, and the whole batch with it."""
        store = self.open()
        store.append("old", [row(deltas("r", 3)), row(deltas("s", 1))])
        store.append("old", [row(deltas("r", 1, 3))])
        other = self.open_again(store)
        assert other.claim("r", "new", 1)
        stored = row(deltas("r", 2, 2))
        for batch in ([stored], [stored, row(deltas("s", 1, 2))], [row(deltas("fresh", 1)), stored]):
            with raises(RunFenced):
                store.append("old", batch)
        with raises(RunFenced):
            other.append("new", [row(deltas("r", 2, 2), epoch=1)])
        other.append("new", [row(deltas("r", 2, 2), epoch=2)])
        other.append("new", [row(deltas("r", 2, 3), epoch=2)])
        with raises(RunFenced):
            store.append("old", [stored])
        assert {run.run_id: run.last_seq for run in store.runs(thread_id=None, status=None, limit=None)} == {"r": 4, "s": 1}

    def test_a_claim_is_seen_by_an_owner_that_has_appended_before(self) -> None:
        """A store may cache the owner of a run, but not beyond a claim through another handle."""
        store = self.open()
        store.beat(Owner(owner_id="old", place="here", pid=1, born="2", lease=15.0))
        store.append("old", [row(deltas("r", 2))])
        store.append("old", [row(deltas("r", 1, 3))])
        other = self.open_again(store)
        assert other.claim("r", "new", 1)
        other.append("new", [row(deltas("r", 1, 4), epoch=2)])
        with raises(RunFenced):
            store.append("old", [row(deltas("r", 1, 4))])
        assert store.run("r") == other.run("r")

    def test_a_claim_fences_every_kind_of_batch(self) -> None:
        """Also one with the end of a run, one of several runs, and one that begins another run: nothing of it is stored."""
        store = self.open()
        other = self.open_again(store)
        for name, batch in {
            "continues": [row(deltas("continues", 1, 3))],
            "ends": [row([*deltas("ends", 1, 3), end("ends", 4)])],
            "several": [row(deltas("beside", 1, 2)), row(deltas("several", 1, 3))],
            "begins": [row(deltas("fresh", 1)), row(deltas("begins", 1, 3))],
        }.items():
            store.append("old", [row(deltas(name, 1)), row(deltas("beside", 1))])
            store.append("old", [row(deltas(name, 1, 2))])
            assert other.claim(name, "new", 1)
            with raises(RunFenced):
                store.append("old", batch)
            run = other.run(name)
            assert run is not None
            assert (run.owner, run.last_seq, run.ended) == ("new", 2, False)
            assert (len(events_of(other, "beside")), other.run("fresh")) == (1, None)

    def test_the_owner_of_a_run_is_known_at_once(self) -> None:
        """After a claim, while the run waits for a human, and after its deletion. A store may lack `owner_of`."""
        store = self.open()
        if not hasattr(store, "owner_of"):
            return
        assert store.owner_of("r") is None
        store.append("old", [row(deltas("r", 1))])
        assert store.owner_of("r") == "old"
        other = self.open_again(store)
        assert other.claim("r", "new", 1)
        assert (store.owner_of("r"), other.owner_of("r")) == ("new", "new")
        other.append("new", [row(numbered("r", ["run.pause"], 2), epoch=2)])
        assert store.owner_of("r") == "new"
        other.delete(["r"])
        assert store.owner_of("r") is None

    def test_one_of_many_claims_wins(self) -> None:
        """Of concurrent claims, from any handle, exactly one succeeds."""
        store = self.open()
        store.append("old", [row(deltas("r", 1))])
        handles = [store, self.open_again(store)]
        won: list[str] = []

        def claim(name: str, handle: Store) -> Callable[[], None]:
            return lambda: won.append(name) if handle.claim("r", name, 1) else None

        at_once([claim(f"n{i}", handles[i % 2]) for i in range(8)])
        assert len(won) == 1
        run = store.run("r")
        assert run is not None
        assert (run.owner, run.epoch) == (won[0], 2)

    def test_what_cannot_be_claimed(self) -> None:
        """A run that does not exist, a run at another epoch, and a run that has ended and is settled."""
        store = self.open()
        assert not store.claim("unknown", "new", 1)
        store.append("old", [row(deltas("r", 1))])
        assert not store.claim("r", "new", 2)
        store.append("old", [row([end("r", 2, status="interrupted", settled=False)])])
        assert store.claim("r", "new", 1), "a run that has ended and is not settled must be claimable, to be settled"
        store.append("new", [row([Event(run_id="r", kind="run.settled", seq=3, at=1.0)], epoch=2)])
        assert not store.claim("r", "third", 2)
