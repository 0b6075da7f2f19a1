"""Two processes that settle one thread at the same time: the store lets one of them write, and the other one waits."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import threading
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from typing import Any

import pytest

from langchain_runjournal import RunJournal, attach, errors
from langchain_runjournal.common.twins import run_sync
from langchain_runjournal.events import Event
from langchain_runjournal.journal.core import core_of
from langchain_runjournal.settle.graph_thread import GraphThreads
from langchain_runjournal.settle.settlements import ActiveSettlement
from langchain_runjournal.settle.settler import Settler
from langchain_runjournal.settle.thread_hold import Hold, is_held
from langchain_runjournal.stores.memory import MemoryStore
from tests.settle.test_order import CUT, PATIENCE, graph_of, looked_at, outcomes
from tests.settle.test_settle import THREAD, Saver, failing, model, say, shown, thread
from tests.support.agents import words
from tests.support.attached import cancelled, warnings_of
from tests.support.conversations import Gate
from tests.support.left_runs import Journals, begin, words_of
from tests.support.places import PLACES, in_places, on

place = in_places(*PLACES, slow=["redis"])
NAME = f"{os.getpid()} t"
"""The name of the thread in the store. The checkpointer is in memory, so the name includes the process id."""
WHOLE = [*words_of("old"), "U next", "A fine"]


def left_by_the_living(journals: Journals, *run_ids: str) -> RunJournal:
    """Return a journal whose runs have ended, and have not been settled."""
    owner = journals()
    for run_id in run_ids:
        begin(owner, run_id)
        owner.append(Event(run_id=run_id, kind="run.end", data=CUT))
    owner.flush()
    return owner


class Gated(Saver):
    """A saver that waits at a gate before the first checkpoint of a settlement, after `let` checkpoints."""

    def __init__(self, let: int = 0) -> None:
        super().__init__()
        self.gate, self._let = Gate(), let
        self.before = self._hold

    def _hold(self, source: str) -> None:
        if source == "update":
            self._let -= 1
            if self._let < 0:
                self.before = lambda source: None
                self.gate.hold()


def tried(journal: RunJournal, times: int = 3) -> threading.Event:
    """Return an event that is set when a journal has asked so many times for a thread that another journal holds."""
    often, left, hold = threading.Event(), [times], getattr(core_of(journal).store, "hold", None)

    def asked(*given: Any) -> Any:
        found = hold(*given)
        if not found.startswith(journal.owner_id):
            left[0] -= 1
            if left[0] <= 0:
                often.set()
        return found

    core_of(journal).store.hold = asked  # type: ignore[attr-defined]
    return often


def until(event: threading.Event, *futures: Future[Any]) -> None:
    """Wait until the event is set, or one of these threads has ended."""
    for _ in range(int(PATIENCE / 0.05)):
        if event.wait(0.05) or wait(futures, 0).done:
            return
    raise AssertionError("nothing has happened")


def test_a_message_beside_the_recovery_of_the_owner(journals: Journals) -> None:
    """While the owner recovers, the message of another process waits until the thread is settled."""
    owner, here, saver, asked = left_by_the_living(journals, "old"), journals(), Gated(), model(words("fine"))
    agent, waits = attach(graph_of(asked, saver), here), tried(here)
    with ThreadPoolExecutor(2) as pool:
        recovery = pool.submit(owner.recover, graph_of(saver=saver))
        until(saver.gate.held, recovery)
        message = pool.submit(agent.invoke, say("next"), THREAD)
        until(waits, message)
        saver.gate.open()
        assert outcomes(recovery.result(PATIENCE)) == {"old": "settled"}
        message.result(PATIENCE)
    assert shown(asked.seen[0]) == WHOLE[:-1]
    assert thread(agent) == WHOLE
    assert owner.run("old").settled


def test_a_recovery_of_the_owner_beside_a_message(journals: Journals) -> None:
    """While a message settles the thread, a recovery waits, and then leaves the thread to the message."""
    owner, here, saver, asked = left_by_the_living(journals, "old"), journals(), Gated(), model(words("fine"))
    agent, waits = attach(graph_of(asked, saver), here), tried(owner)
    with ThreadPoolExecutor(2) as pool:
        message = pool.submit(agent.invoke, say("next"), THREAD)
        until(saver.gate.held, message)
        recovery = pool.submit(owner.recover, graph_of(saver=saver))
        until(waits, recovery)
        saver.gate.open()
        message.result(PATIENCE)
        assert set(outcomes(recovery.result(PATIENCE)).values()) <= {"held", "whole"}
    assert shown(asked.seen[0]) == WHOLE[:-1]
    assert thread(agent) == WHOLE
    here.flush()
    assert outcomes(owner.recover(graph_of(saver=saver))) in ({"old": "whole"}, {})
    assert owner.run("old").settled
    assert thread(agent) == WHOLE


@pytest.mark.parametrize("first", ["the owner", "another process"])
def test_two_recoveries(first: str, journals: Journals) -> None:
    """The owner and another process, which has claimed nothing, recover at once: one of them writes."""
    owner, here, saver = left_by_the_living(journals, "old"), journals(), Gated()
    settlers = [partial(owner.recover, graph_of(saver=saver)), partial(_settle, here, graph_of(saver=saver))]
    waits = tried(here)
    if first != "the owner":
        settlers, waits = settlers[::-1], tried(owner)
    with ThreadPoolExecutor(2) as pool:
        one = pool.submit(settlers[0])
        until(saver.gate.held, one)
        two = pool.submit(settlers[1])
        until(waits, two)
        assert not two.done()
        saver.gate.open()
        assert [outcomes(found.result(PATIENCE))["old"] for found in (one, two)] == ["settled", "whole"]
    assert thread(graph_of(saver=saver)) == words_of("old")


def test_what_another_process_has_settled_meanwhile_is_left(journals: Journals) -> None:
    """A settlement that has waited does not put back words that the program has removed since."""
    owner, here, graph = left_by_the_living(journals, "old"), journals(), graph_of()
    hold, waits = held(owner), tried(here)
    with ThreadPoolExecutor(1) as pool:
        settlement = pool.submit(_settle, here, graph)
        until(waits, settlement)
        owner.append(Event(run_id="old", kind="run.settled", data={"outcome": "settled", "messages": []}))
        owner.flush()
        hold.release()
        assert outcomes(settlement.result(PATIENCE)) == {"old": "whole"}
    assert thread(graph) == []


def _settle(journal: RunJournal, graph: Any) -> Any:
    return [run_sync(Settler(journal, GraphThreads(graph), None).settle("old", "stop"))]


def test_a_recovery_leaves_a_thread_on_which_a_message_has_begun_elsewhere(
    journals: Journals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recovery leaves a thread whose newer run in another process is at work, though its journal did not show that when it
    was read."""
    owner, here, gate, saver = left_by_the_living(journals, "old"), journals(), Gate(), Saver()
    agent = attach(graph_of(model([gate.hold, *words("fine")]), saver), here)
    with ThreadPoolExecutor(1) as pool:
        message = pool.submit(agent.invoke, say("next"), THREAD)
        until(gate.held, message)
        monkeypatch.setattr("langchain_runjournal.settle.order.Order._waits_in_other_process", _has_said_nothing)
        [report] = owner.recover(graph_of(saver=saver))
        gate.open()
        message.result(PATIENCE)
    assert (report.outcome, "on the same thread" in str(report.reason)) == ("held", True)
    assert thread(agent) == WHOLE


def _has_said_nothing(*given: Any) -> Any:
    yield from ()
    return True


def test_a_message_that_is_cancelled_while_it_waits_for_its_thread(journals: Journals, caplog: Any) -> None:
    """The cancelled message ends at once; the next one settles what is left, and begins."""
    owner = left_by_the_living(journals, "old")

    async def scenario() -> None:
        asked, here = model(words("fine")), journals()
        agent, waits = attach(graph_of(asked), here), tried(here)
        assert core_of(owner).store.hold(NAME, f"{owner.owner_id} 1", None)  # type: ignore[attr-defined]
        message = asyncio.create_task(agent.ainvoke(say("hi"), THREAD))
        assert await asyncio.to_thread(waits.wait, PATIENCE)
        await cancelled(message)
        assert asked.seen == []
        core_of(owner).store.release(NAME, f"{owner.owner_id} 1")  # type: ignore[attr-defined]
        await agent.ainvoke(say("next"), THREAD)
        assert shown(asked.seen[0]) == [*words_of("old"), "U+ hi", "U next"]

    asyncio.run(asyncio.wait_for(scenario(), PATIENCE))
    assert warnings_of(caplog) == []


def test_a_message_waits_while_the_owner_of_a_run_settles_its_end(journals: Journals) -> None:
    """A message waits as long as the owner settles, although the store shows the run as running until then."""
    owner, here, asked = journals(), journals(), model(words("fine"))
    begin(owner, "old")
    hold = held(owner)
    agent, looking = attach(graph_of(asked), here), looked_at(here, "old", times=8)
    with ThreadPoolExecutor(1) as pool:
        message = pool.submit(agent.invoke, say("next"), THREAD)
        until(looking, message)
        assert not asked.seen
        owner.append(Event(run_id="old", kind="run.end", data=CUT))
        owner.flush()
        hold.release()
        message.result(PATIENCE)
    assert shown(asked.seen[0]) == WHOLE[:-1]


def test_a_run_that_ends_between_two_questions_is_over(journals: Journals, monkeypatch: pytest.MonkeyPatch) -> None:
    """The owner stores the end and releases the thread just before a message asks whether it settles."""
    owner, here, asked = journals(), journals(), model(words("fine"))
    begin(owner, "old")
    hold, ask = held(owner), Settler.is_held_elsewhere

    def ends(self: Settler, thread_id: str) -> bool:
        if not owner.run("old").ended:
            owner.append(Event(run_id="old", kind="run.end", data=CUT))
            owner.flush()
            hold.release()
        return ask(self, thread_id)

    monkeypatch.setattr(Settler, "is_held_elsewhere", ends)
    attach(graph_of(asked), here).invoke(say("next"), THREAD)
    assert shown(asked.seen[0]) == WHOLE[:-1]


# --- the hold -----------------------------------------------------------------------------------------------------------


def held(journal: RunJournal, thread_id: str = "t") -> Hold:
    hold = Hold(journal, thread_id, ActiveSettlement(), NAME)
    assert hold.take() is None
    return hold


def test_a_hold_of_a_closed_journal_can_be_taken(journals: Journals) -> None:
    """Another process takes the hold at its next attempt, and the first one's later writes are refused."""
    first, second = journals(), journals()
    before = held(first)
    assert Hold(second, "t", ActiveSettlement(), NAME).take() == first.owner_id
    assert is_held(second, NAME)
    first.close()
    assert not is_held(second, NAME)
    held(second).check()
    with pytest.raises(errors.StoreClosed):
        before.check()


def test_a_settlement_that_has_lost_its_thread_writes_nothing_more(
    journals: Journals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that was suspended beyond its lease in the middle of a settlement writes nothing after another one has taken
    the hold."""
    monkeypatch.setattr("langchain_runjournal.settle.graph_thread._writing_alone", lambda *about: None)
    owner, thief, saver = left_by_the_living(journals, "old"), journals(), Gated(1)
    graph = graph_of(saver=saver)
    graph.update_state(THREAD, say("first"), as_node="__start__")  # the settlement drops this task in a separate write
    with ThreadPoolExecutor(1) as pool:
        recovery = pool.submit(owner.recover, graph)
        until(saver.gate.held, recovery)
        monkeypatch.setattr(core_of(thief).dead_owners, "is_gone", lambda found: found.owner_id == owner.owner_id)
        hold = held(thief)
        saver.gate.open()
        [report] = recovery.result(PATIENCE)
    assert report.outcome == "failed"
    assert "CheckpointFenced" in str(report.reason)
    assert thread(graph) == ["U first"]
    assert core_of(thief).store.holder(NAME) == hold.holder  # type: ignore[attr-defined]


def test_a_hold_is_given_back_when_the_store_can_be_written_again(
    journals: Journals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next heartbeat releases the hold, also that of a settlement whose event loop was closed in the middle."""
    journal, other = journals(), journals()
    loop = asyncio.new_event_loop()
    mine, lost = ActiveSettlement(), loop.run_until_complete(_settling())
    holds = [Hold(journal, "t", mine), Hold(journal, "u", lost)]
    assert [hold.take() for hold in holds] == [None, None]
    with monkeypatch.context() as broken:
        broken.setattr(core_of(journal).store, "release", failing(1))
        mine.done.set_result(None)
        holds[0].release()
    core_of(journal).dead_owners.import_spools()
    assert [core_of(other).store.holder(name) for name in "tu"] == [None, holds[1].holder]  # type: ignore[attr-defined]
    loop.close()
    core_of(journal).dead_owners.import_spools()
    assert core_of(other).store.holder("u") is None  # type: ignore[attr-defined]
    assert core_of(journal).dead_owners.holds == {}


async def _settling() -> ActiveSettlement:
    return ActiveSettlement()


def test_a_hold_that_is_taken_after_its_end_is_none(journals: Journals) -> None:
    """A hold is not taken if the settlement was cancelled while another thread asked the store."""
    journal = journals()
    hold = Hold(journal, "t", ActiveSettlement())
    hold.release()
    assert hold.take() is None
    assert core_of(journal).store.holder("t") is None  # type: ignore[attr-defined]


@on("sqlite")
@pytest.mark.parametrize("held_by_another", [True, False])
def test_a_store_that_cannot_be_written_is_read(held_by_another: bool, journals: Journals) -> None:
    """With a locked store, a settlement reads the holder, and waits only for another living one."""
    journal, other = journals(busy_timeout=0.01), journals()
    if held_by_another:
        held(other)
    with contextlib.closing(sqlite3.connect(core_of(journal).store.path, isolation_level=None)) as con:
        con.execute("BEGIN IMMEDIATE")
        hold = Hold(journal, "t", ActiveSettlement(), NAME)
        assert hold.take() == (other.owner_id if held_by_another else None)
        hold.check()
        con.execute("ROLLBACK")


def test_a_store_without_holds(journals: Journals) -> None:
    """Threads of a store without `hold` are settled all the same."""

    class Plain:
        def __init__(self, store: Any) -> None:
            self._store = store

        def __getattr__(self, name: str) -> Any:
            if name in ("hold", "holder", "release"):
                raise AttributeError(name)
            return getattr(self._store, name)

    journal = journals(url=Plain(MemoryStore()))
    begin(journal, "old")
    journal.append(Event(run_id="old", kind="run.end", data=CUT))
    graph = graph_of()
    assert outcomes(journal.recover(graph)) == {"old": "settled"}
    assert not is_held(journal, NAME)
    assert thread(graph) == words_of("old")


@pytest.mark.parametrize("child", [True, False])
def test_a_forked_child_with_a_copy_of_the_store_waits_for_no_settlement_of_its_parent(child: bool) -> None:
    """The copy of the hold would never end in the child."""
    store = MemoryStore()
    store.hold("t", "parent 1", None)
    store.before_fork()
    store.after_fork(child=child)
    assert store.holder("t") == (None if child else "parent 1")
