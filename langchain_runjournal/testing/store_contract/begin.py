"""What every store promises of runs that begin on a thread, and of those that wait, one test per promise."""

from __future__ import annotations

from functools import partial

from ...errors import RunFenced
from ...events import Event, Run, RunStatus
from .append import AppendContract, at_once, deltas, end, numbered, raises, row


def begun(run_id: str, thread_id: str | None, owner: str = "me") -> Run:
    """A run as it begins."""
    return Run(run_id=run_id, thread_id=thread_id, owner=owner, name="agent", metadata={"user": "ü"}, started_at=5.5)


class BeginContract(AppendContract):
    """A part of `StoreContract`."""

    def test_a_run_begins_only_where_no_other_is_running(self) -> None:
        """Of several on a thread one begins; what has ended, waits, is elsewhere or not counted, hinders nobody."""
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
        """By its owner, and then it was never there; one that has an event stays."""
        store = self.open()
        store.begin(begun("a", "t"), ())
        other = self.open_again(store)
        assert not other.withdraw("a", "you")
        assert not other.withdraw("nobody", "me")
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
        """Its id may be used once, wherever it is, and whatever is not counted."""
        store = self.open()
        store.append("me", [row([*deltas("r", 1), end("r", 2)])])
        assert store.begin(begun("r", "t"), ("r",)) == ["r"]
        assert store.begin(begun("s", "t"), ()) == []
        assert self.open_again(store).begin(begun("s", "t"), ("s",)) == ["s"]
        assert self.open_again(store).begin(begun("s", "u"), ("s",)) == ["s"]

    def test_one_of_several_begins(self) -> None:
        """At the same time, on one thread."""
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
        """Its first event is its first; others are fenced."""
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
        """Anybody may claim it; until then, who had it may add what comes late, and others may not."""
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
