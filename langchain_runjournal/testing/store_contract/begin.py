"""The promises of a store about runs that begin on a thread, about those that wait for a human, and about ids."""

from __future__ import annotations

from functools import partial

from ...errors import RunFenced
from ...events import Event, RunStatus
from .support import StoreTests, at_once, begun, deltas, end, numbered, raises, row


class BeginContract(StoreTests):
    """The part of `StoreContract` about `begin`, `withdraw` and `ids`."""

    def test_a_run_begins_only_where_no_other_is_running(self) -> None:
        """Of several runs on a thread one begins. A run that has ended, that waits for a human, that is on another thread,
        or that the caller excludes does not prevent it."""
        store = self.open()
        assert store.begin(begun("a", "t"), ()) == []
        run = store.run("a")
        assert run is not None
        assert (run.owner, run.epoch, run.status, run.last_seq) == ("me", 1, RunStatus.RUNNING, 0)
        assert (run.thread_id, run.name, run.metadata, run.started_at) == ("t", "agent", {"user": "ü"}, 5.5)
        other = self.open_again(store)
        assert other.begin(begun("b", "t", "you"), ()) == ["a"]
        assert other.run("b") is None
        assert other.begin(begun("b", "u", "you"), ()) == []
        assert other.begin(begun("c", "t", "you"), ("x", "a")) == []
        assert sorted(store.begin(begun("d", "t"), ("x",))) == ["a", "c"]
        assert store.begin(begun("d", "t"), ("a",)) == ["c"]
        store.append("me", [row([Event(run_id="a", kind="run.start", data={"thread_id": "t"}, seq=1, at=6.0), end("a", 2)])])
        other.append("you", [row(numbered("c", ["run.pause"]))])
        assert store.begin(begun("d", "t"), ()) == []
        assert store.begin(begun("e", None), ()) == []
        assert store.begin(begun("f", None), ()) == []
        assert [run.run_id for run in store.runs(thread_id="t", status=None, limit=None)] == ["d", "c", "a"]

    def test_a_run_that_has_said_nothing_can_be_withdrawn(self) -> None:
        """Its owner can withdraw it, and then it does not exist. A run that has an event stays."""
        store = self.open()
        store.begin(begun("a", "t"), ())
        other = self.open_again(store)
        assert not other.withdraw("a", "you")
        assert not other.withdraw("unknown", "me")
        assert other.begin(begun("b", "t", "you"), ()) == ["a"]
        assert store.withdraw("a", "me")
        assert not store.withdraw("a", "me")
        assert store.run("a") is None
        assert other.begin(begun("b", "t", "you"), ()) == []
        other.append("you", [row(deltas("b", 1))])
        assert not other.withdraw("b", "you")
        assert store.begin(begun("a", "u"), ()) == []
        store.append("me", [row(deltas("a", 2))])
        assert [event.seq for event in store.read("a", 0, None)] == [1, 2]

    def test_no_run_begins_twice(self) -> None:
        """An id can be used once, on any thread, and even if the caller excludes it."""
        store = self.open()
        store.append("me", [row([*deltas("r", 1), end("r", 2)])])
        assert store.begin(begun("r", "t"), ("r",)) == ["r"]
        assert store.begin(begun("s", "t"), ()) == []
        assert self.open_again(store).begin(begun("s", "t"), ("s",)) == ["s"]
        assert self.open_again(store).begin(begun("s", "u"), ("s",)) == ["s"]

    def test_one_of_several_begins(self) -> None:
        """Of concurrent `begin` calls on one thread, exactly one succeeds."""
        store = self.open()
        handles = [store, *(self.open_again(store) for _ in range(5))]
        begun_ids: list[str] = []

        def try_to(number: int) -> None:
            if not handles[number].begin(begun(f"r{number}", "t", f"o{number}"), ()):
                begun_ids.append(f"r{number}")

        at_once([partial(try_to, number) for number in range(len(handles))])
        assert len(begun_ids) == 1
        assert [run.run_id for run in store.runs(thread_id="t", status=None, limit=None)] == begun_ids

    def test_only_its_owner_goes_on_with_a_run_that_has_begun(self) -> None:
        """The owner appends event 1; the store fences other owners."""
        store = self.open()
        store.begin(begun("r", "t"), ())
        with raises(RunFenced):
            self.open_again(store).append("you", [row(deltas("r", 1))])
        store.append("me", [row(deltas("r", 2))])
        assert [event.seq for event in store.read("r", 0, None)] == [1, 2]
        assert store.claim("r", "you", 1)
        with raises(RunFenced):
            store.append("me", [row(deltas("r", 1, 3))])

    def test_a_run_that_waits_for_a_human_is_nobodys(self) -> None:
        """Any owner may claim it. Until then its last owner may append late events, and no other owner may."""
        store = self.open()
        store.append("me", [row(numbered("r", ["run.start", "run.pause"]))])
        for run in (store.run("r"), *store.runs(thread_id=None, status=RunStatus.PAUSED, limit=None)):
            assert run is not None
            assert (run.owner, run.status) == (None, RunStatus.PAUSED)
        with raises(RunFenced):
            self.open_again(store).append("you", [row(deltas("r", 1, 3))])
        store.append("me", [row(deltas("r", 1, 3))])
        assert store.claim("r", "you", 1)
        with raises(RunFenced):
            store.append("me", [row(deltas("r", 1, 4))])

    def test_the_ids_that_begin_alike_are_found(self) -> None:
        """Sorted, at most as many as asked for, whatever letters they have. A store may lack `ids`."""
        store = self.open()
        if not hasattr(store, "ids"):
            return
        assert store.ids("", None) == []
        names = ["r-1", "r-10", "r-100", "r-2", "q", "r", "r-\u00e9", "r-\U0010ffff", "r-\U0010ffffx", "R-1", "r%", "r_1"]
        for name in names:
            store.append("me", [row(deltas(name, 1))])
        other = self.open_again(store)
        for one in (store, other):
            for start in ("", "r", "r-", "r-1", "r-10", "r-\U0010ffff", "r%", "r_", "s", "r-1000"):
                wanted = sorted(name for name in names if name.startswith(start))
                assert one.ids(start, None) == wanted
                assert (one.ids(start, 2), one.ids(start, 0)) == (wanted[:2], [])
        store.delete(["r-10"])
        assert other.ids("r-1", None) == ["r-1", "r-100"]
