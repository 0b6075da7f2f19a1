"""The order of settlements: any process settles the runs of a thread in the order in which they began, whatever the clocks
say."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from langchain_runjournal import RunJournal, attach
from langchain_runjournal.capture.recorder import recorder_of
from langchain_runjournal.common.twins import run_async, run_sync, wait_for
from langchain_runjournal.events import Event
from langchain_runjournal.journal.core import core_of
from langchain_runjournal.settle import recovery as _recovery
from langchain_runjournal.settle.graph_thread import GraphThreads
from langchain_runjournal.settle.settler import Settler
from langchain_runjournal.testing import FakeClock
from tests.settle.test_settle import THREAD, Asked, Saver, athread, failing, made_by_hand, model, say, shown, thread
from tests.support.agents import words
from tests.support.attached import cancelled, handlers, warnings_of
from tests.support.command_line import run as command
from tests.support.conversations import Gate
from tests.support.left_runs import Journals, begin, leave, words_of
from tests.support.places import PLACES, Place, in_places, on

place = in_places(*PLACES, slow=["redis"])
PATIENCE = 30.0
OTHER: Any = {"configurable": {"thread_id": "u"}}
CUT = {"status": "interrupted", "cause": "stop", "settled": False}


def graph_of(asked: Asked | None = None, saver: Any = None) -> Any:
    """Return a graph that answers."""
    return made_by_hand(asked or model(words("fine")), [], checkpointer=saver or InMemorySaver(), name="agent")


def outcomes(reports: list[Any]) -> dict[str, str]:
    return {report.run_id: report.outcome for report in reports}


def noticed(monkeypatch: pytest.MonkeyPatch, name: str) -> asyncio.Event:
    """Return an event that is set when something waits at that place."""
    waits = asyncio.Event()

    def waiting(*given: Any, **more: Any) -> Any:
        waits.set()
        return wait_for(*given, **more)

    monkeypatch.setattr(name, waiting)
    return waits


# --- recover ------------------------------------------------------------------------------------------------------------


def test_recover_leaves_a_thread_that_another_process_settles(journals: Journals) -> None:
    """`recover` holds the newer runs of a thread whose oldest run another process has just claimed.

    It reports the reason, leaves the thread unchanged, and settles other threads. The other process then settles all runs in
    order.
    """
    leave(journals, "old", "new", "newest")
    leave(journals, "elsewhere", thread_id="u")
    gate, saver, other, here = Gate(), Saver(), journals(), journals()
    saver.before = lambda source: gate.hold()
    with ThreadPoolExecutor(1) as pool:
        recovery = pool.submit(other.recover, graph_of(saver=saver))
        assert gate.held.wait(PATIENCE)
        saver.before = lambda source: None
        reports = here.recover(graph_of(saver=saver))
        gate.open()
        assert outcomes(recovery.result(PATIENCE)) == dict.fromkeys(("old", "new", "newest"), "settled")
    assert outcomes(reports) == {"new": "held", "newest": "held", "elsewhere": "settled"}
    assert all("run old is older" in str(report.reason) for report in reports if report.outcome == "held")
    assert {run.owner for run in here.runs("t")} == {other.owner_id}
    assert thread(graph_of(saver=saver)) == words_of("old", "new", "newest")


@pytest.mark.parametrize("ended", [False, True])
def test_recover_leaves_a_thread_whose_oldest_run_belongs_to_a_living_process(ended: bool, journals: Journals) -> None:
    """`recover` leaves a thread whose oldest run a living process owns, whether it is running or has ended without a
    settlement.

    When that process recovers, it settles all runs in order.
    """
    other, here, graph = journals(), journals(), graph_of()
    begin(other, "old")
    end = Event(run_id="old", kind="run.end", data={"status": "interrupted", "cause": "stop", "settled": False})
    if ended:
        other.append(end)
        other.flush()
    leave(journals, "new")
    assert (outcomes(here.recover(graph)), thread(graph)) == ({"new": "held"}, [])
    assert (here.run("new").status, here.run("new").epoch) == ("running", 1)
    if not ended:
        other.append(end)
    assert outcomes(other.recover(graph)) == {"old": "settled", "new": "settled"}
    assert thread(graph) == words_of("old", "new")


def test_recover_goes_by_the_order_of_the_store(journals: Journals) -> None:
    """`recover` uses the order of the store, although the clock of the newer run's container is an hour behind."""
    leave(journals, "old", clock=FakeClock(1_700_003_600.0))
    leave(journals, "new", clock=FakeClock(1_700_000_000.0))
    graph = graph_of()
    with journals() as journal:
        assert [(one.run_id, one.outcome) for one in journal.recover(graph)] == [("old", "settled"), ("new", "settled")]
        assert journal.run("old").started_at > journal.run("new").started_at
    assert thread(graph) == words_of("old", "new")


def test_recover_goes_on_beside_a_prune(journals: Journals) -> None:
    """`recover` ignores a run that another process settles and prunes in the meantime."""
    leave(journals, "old", "new")
    leave(journals, "elsewhere", thread_id="u")
    graph, here, other = graph_of(), journals(), journals()
    claim = here.claim

    def claimed(run_id: str) -> bool:
        if run_id == "old":
            other.recover(graph)
            assert "old" in other.prune(keep_last=0)
        return claim(run_id)

    here.claim = claimed  # type: ignore[method-assign]
    assert here.recover(graph) == []
    assert (thread(graph), thread(graph, OTHER)) == (words_of("old", "new"), words_of("elsewhere"))


@pytest.mark.parametrize("read", ["old", "new"])
def test_a_settlement_goes_on_beside_a_prune(read: str, journals: Journals) -> None:
    """A settlement continues when its own run, or a newer run of the thread, is deleted before its events are read."""
    leave(journals, "old")
    graph, here, other = graph_of(), journals(), journals()
    if read == "new":
        leave(journals, "new")
        assert other.claim("new")
        other.append(Event(run_id="new", kind="run.end", data={"status": "completed"}))
        other.flush()
    reading, deleted = here.read, []

    def read_late(run_id: str, *rest: Any) -> Any:
        if run_id == read and not deleted:
            deleted.append(other.delete(run_id=run_id, force=True) if read == "new" else core_of(here).store.delete(["old"]))
        return reading(run_id, *rest)

    here.read = read_late  # type: ignore[method-assign]
    assert outcomes(here.recover(graph)) == ({} if read == "old" else {"old": "moved_on"})
    assert len(deleted) == 1


def test_two_recoveries_of_one_process(journals: Journals) -> None:
    """Of two recoveries at once, one settles the runs in order; the other one leaves the thread."""
    leave(journals, "old", "new")

    async def scenario() -> None:
        gate, graph = Gate(), graph_of(saver=Held())
        graph.checkpointer.gate = gate
        async with journals() as journal:
            first = asyncio.create_task(journal.arecover(graph))
            await gate.reached.wait()
            assert outcomes(await journal.arecover(graph)) == {"new": "held"}
            gate.open()
            assert outcomes(await first) == {"old": "settled", "new": "settled"}
        assert await athread(graph) == words_of("old", "new")

    asyncio.run(asyncio.wait_for(scenario(), PATIENCE))


class Held(InMemorySaver):
    """A checkpointer that waits at a gate before the first checkpoint of a settlement."""

    gate: Gate | None = None

    async def aput(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        gate, source = self.gate, metadata["source"]
        if gate is not None and source == "update":
            self.gate = None
            await gate.apass()
        return super().put(config, checkpoint, metadata, new_versions)


def test_a_recovery_that_has_looked_before_a_message(journals: Journals, monkeypatch: pytest.MonkeyPatch) -> None:
    """A recovery leaves a run that a message of the same process has settled since the recovery listed it.

    A settled run is not marked as given up because a newer one came.
    """
    here = journals()
    begin(here, "old")
    here.append(Event(run_id="old", kind="run.end", data=CUT))
    agent, listed, asked = attach(graph_of(), here), _recovery.unsettled, ["next"]

    def listed_early(journal: RunJournal, thread_id: str | None = None) -> Any:
        found = listed(journal, thread_id)
        while thread_id is None and asked:
            agent.invoke(say(asked.pop()), THREAD)
        return found

    monkeypatch.setattr(_recovery, "unsettled", listed_early)
    assert (here.recover(agent), asked) == ([], [])
    assert (here.run("old").settled, here.run("old").given_up, here.run("old").problem) == (True, False, None)
    assert [event.kind for event in here.read("old")].count("run.settled") == 1


@pytest.mark.parametrize("owner", ["lives", "is gone"])
def test_a_run_that_a_message_of_another_process_has_settled(owner: str, journals: Journals) -> None:
    """A later `recover` finds the words of the run in the thread, and reports "whole" instead of "moved_on".

    The run belongs to a living process, so the message could not append the settlement to its journal.
    """
    theirs, here = journals(), journals()
    begin(theirs, "old")
    theirs.append(Event(run_id="old", kind="run.end", data=CUT))
    theirs.flush()
    agent = attach(graph_of(), here)
    agent.invoke(say("next"), THREAD)
    assert thread(agent) == [*words_of("old"), "U next", "A fine"]
    assert not here.run("old").done
    here.flush()
    if owner == "is gone":
        theirs.close()
    journal = here if owner == "is gone" else theirs
    assert outcomes(journal.recover(graph_of(saver=agent.checkpointer))) == {"old": "whole"}
    assert (here.run("old").settled, here.run("old").given_up, here.run("old").problem) == (True, False, None)
    assert thread(agent) == [*words_of("old"), "U next", "A fine"]


# --- a run that is held -------------------------------------------------------------------------------------------------


def test_a_run_is_held_while_an_older_one_is_not_settled(journals: Journals) -> None:
    """A run that is cut off is held while an older one could not be settled; `recover` then settles both in order."""
    saver = Saver()
    with journals() as journal:
        agent = attach(graph_of(model([*words("one "), OSError("a")], [*words("two "), OSError("b")]), saver), journal)
        saver.before = failing(2)
        for text in ("hi", "next"):
            with pytest.raises(OSError, match=r"a|b"):
                agent.invoke(say(text), THREAD, stream_mode="messages")
        newer, older = journal.runs()
        assert (older.settled, newer.settled, newer.given_up) == (False, False, False)
        assert newer.problem is not None
        assert f"run {older.run_id} is older" in newer.problem
        assert [(one.run_id, one.outcome) for one in journal.recover(agent)] == [
            (older.run_id, "settled"),
            (newer.run_id, "settled"),
        ]
        assert [line for line in thread(agent) if "A~" in line] == ["A~ one ", "A~ two "]


def test_the_next_message_settles_in_order_what_was_held(journals: Journals) -> None:
    """The model of the next message gets the words of both runs that were cut off."""
    saver = Saver()
    asked = model([*words("one "), OSError("a")], [*words("two "), OSError("b")], words("fine"))
    with journals() as journal:
        agent = attach(graph_of(asked, saver), journal)
        saver.before = failing(2)
        for text in ("hi", "next"):
            with pytest.raises(OSError, match=r"a|b"):
                agent.invoke(say(text), THREAD, stream_mode="messages")
        agent.invoke(say("last"), THREAD)
        assert [line for line in shown(asked.seen[-1]) if "A~" in line] == ["A~ one ", "A~ two "]
        assert [run.settled for run in journal.runs()] == [True, True, True]


def test_a_run_that_is_cut_off_beside_an_older_one(journals: Journals, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two parallel runs on a thread, the newer one is stopped first and held; the older one is not left behind."""
    monkeypatch.setattr("langchain_runjournal.settle.schedule._LEAVING", 0.02)

    async def scenario() -> None:
        gates = [Gate(), Gate()]
        asked = model([*words("one "), gates[0].apass], [*words("two "), gates[1].apass], words("fine"))
        async with journals() as journal:
            agent = attach(graph_of(asked), journal)
            runs = []
            for text, gate in zip(("hi", "next"), gates, strict=True):
                runs.append(asyncio.create_task(_read(agent, text)))
                await gate.reached.wait()
            await cancelled(runs[1])
            newer, older = await journal.aruns()
            assert (newer.status, newer.settled, older.status) == ("interrupted", False, "running")
            await cancelled(runs[0])
            assert (await journal.arun(older.run_id)).settled
            await agent.ainvoke(say("last"), THREAD)
            assert [run.settled for run in await journal.aruns()] == [True, True, True]
            assert [line for line in shown(asked.seen[-1]) if "A~" in line] == ["A~ one ", "A~ two "]

    asyncio.run(asyncio.wait_for(scenario(), PATIENCE))


async def _read(agent: Any, text: str) -> None:
    async for _ in agent.astream(say(text), THREAD, stream_mode="messages"):
        pass


@pytest.mark.parametrize("older", ["another graph", "no graph can", "a handler records it", "it was settled here"])
def test_what_no_run_waits_for(older: str, journals: Journals) -> None:
    """A run does not wait for an older run that this graph never settles, that only a handler records, or that is settled
    here already."""
    other = journals()
    about: dict[str, Any] = {"runjournal_problem": "no thread"} if older == "no graph can" else {}
    graph = {"another graph": "else", "a handler records it": None}.get(older, "agent")
    begin(other, "old", graph=graph, **about)
    if older == "it was settled here":
        end = {"status": "interrupted", "cause": "stop", "settled": False}
        other.append(Event(run_id="old", kind="run.end", data=end))
        other.flush()
    with journals() as journal:
        agent = attach(graph_of(model([*words("one "), OSError("a")])), journal)
        with pytest.raises(OSError, match="a"):
            agent.invoke(say("hi"), THREAD, stream_mode="messages")
        assert journal.runs(limit=1)[0].settled
        assert thread(agent)[-2:] == ["U hi", "A~ one "]
        assert not journal.run("old").done


# --- a message that waits -----------------------------------------------------------------------------------------------


def looked_at(journal: RunJournal, run_id: str, times: int = 3) -> threading.Event:
    """Return an event that is set when a journal has tried so many times to claim a run."""
    often, left, claim = threading.Event(), [times], journal.claim

    def claimed(asked: str) -> bool:
        if asked == run_id:
            left[0] -= 1
            if left[0] <= 0:
                often.set()
        return claim(asked)

    journal.claim = claimed  # type: ignore[method-assign]
    return often


def test_a_message_that_waits_for_a_settler_that_dies(journals: Journals, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message claims the run of a dead settler at its next attempt, settles it and the newer ones, and then begins."""
    monkeypatch.setattr("langchain_runjournal.settle.schedule._SETTLING", 0.2)
    leave(journals, "old", "new")
    asked, here, settler = model(words("fine")), journals(), journals()
    assert settler.claim("old")
    agent, looking = attach(graph_of(asked), here), looked_at(here, "old")
    with ThreadPoolExecutor(1) as pool:
        message = pool.submit(agent.invoke, say("next"), THREAD)
        assert looking.wait(PATIENCE)
        assert asked.seen == []
        settler.close()
        message.result(PATIENCE)
    assert shown(asked.seen[0]) == [*words_of("old", "new"), "U next"]
    assert [here.run(run_id).settled for run_id in ("old", "new")] == [True, True]


def test_a_message_begins_only_when_what_it_waits_for_is_settled(
    journals: Journals, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A message waits as long as another living process settles, and the log names that process once for each run."""
    monkeypatch.setattr("langchain_runjournal.settle.schedule._SETTLING", 0.01)
    leave(journals, "old", "new")
    asked, saver, gate = model(words("fine")), Saver(), Gate()
    here, settler = journals(), journals()
    saver.before = lambda source: gate.hold()
    agent, looking = attach(graph_of(asked, saver), here), looked_at(here, "old", times=6)
    with ThreadPoolExecutor(2) as pool:
        recovery = pool.submit(settler.recover, graph_of(saver=saver))
        assert gate.held.wait(PATIENCE)
        saver.before = lambda source: None
        message = pool.submit(agent.invoke, say("next"), THREAD)
        assert looking.wait(PATIENCE)
        assert asked.seen == []
        gate.open()
        assert set(outcomes(recovery.result(PATIENCE)).values()) <= {"settled", "held"}
        message.result(PATIENCE)
    assert shown(asked.seen[0]) == [*words_of("old", "new"), "U next"]
    warning, *later = [one for one in warnings_of(caplog) if "waits for journal" in one]
    assert settler.owner_id in warning
    assert "run old" in warning
    # Where the store takes longer than the 10 ms of this test, the message waits for the other run as well.
    assert ["run new" in one for one in later] in ([], [True])


def test_a_recovery_beside_a_message_that_waits(journals: Journals) -> None:
    """A message of another process that waits for the runs to be recovered does not delay the recovery."""
    leave(journals, "old")
    here, other = journals(), journals()
    assert here.claim("old")
    begun, asked, graph = looked_at(other, "old"), model(words("fine")), graph_of()
    agent = attach(made_by_hand(asked, [], checkpointer=graph.checkpointer, name="agent"), other)
    with ThreadPoolExecutor(1) as pool:
        message = pool.submit(agent.invoke, say("next"), THREAD)
        assert begun.wait(PATIENCE)
        settled = run_sync(Settler(here, GraphThreads(graph), None).settle("old", "crash"))
        assert settled.outcome == "settled"
        here.append(Event(run_id="old", kind="run.settled", data=settled.to_data()))
        here.append(Event(run_id="old", kind="run.end", data={"status": "interrupted", "cause": "crash"}))
        message.result(PATIENCE)
    assert shown(asked.seen[0]) == [*words_of("old"), "U next"]
    assert (here.run("old").settled, here.run("old").given_up) == (True, False)


def test_a_message_waits_for_a_recovery_of_its_own_process(journals: Journals, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message begins after the recovery of its own process has settled the thread."""
    leave(journals, "old", "new")

    async def scenario() -> None:
        gate, asked, saver = Gate(), model(words("fine")), Held()
        waits = noticed(monkeypatch, "langchain_runjournal.settle.schedule.wait_for")
        saver.gate = gate
        async with journals() as journal:
            agent = attach(graph_of(asked, saver), journal)
            recovery = asyncio.create_task(journal.arecover(agent))
            await gate.reached.wait()
            message = asyncio.create_task(agent.ainvoke(say("next"), THREAD))
            await waits.wait()
            gate.open()
            assert "failed" not in outcomes(await recovery).values()
            await message
            assert shown(asked.seen[0]) == [*words_of("old", "new"), "U next"]
            assert await athread(agent) == [*words_of("old", "new"), "U next", "A fine"]

    asyncio.run(asyncio.wait_for(scenario(), PATIENCE))


def test_a_message_that_is_cancelled_while_it_waits(journals: Journals) -> None:
    """A message that is cancelled while it waits ends at once; the next message writes its words behind the older ones."""
    leave(journals, "old")

    async def scenario() -> None:
        asked = model(words("fine"))
        async with journals() as journal, journals() as settler:
            assert await settler.aclaim("old")
            agent, looking = attach(graph_of(asked), journal), looked_at(journal, "old")
            message = asyncio.create_task(agent.ainvoke(say("hi"), THREAD))
            assert await asyncio.to_thread(looking.wait, PATIENCE)
            await cancelled(message)
            [run] = [one for one in await journal.aruns() if one.run_id != "old"]
            assert (run.status, run.settled, asked.seen) == ("interrupted", False, [])
            await settler.aclose()
            await agent.ainvoke(say("next"), THREAD)
            assert shown(asked.seen[0]) == [*words_of("old"), "U+ hi", "U next"]

    asyncio.run(asyncio.wait_for(scenario(), PATIENCE))


# --- a settlement that is begun twice -----------------------------------------------------------------------------------


def test_a_settlement_that_is_begun_twice(journals: Journals, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second of two equal settlements waits for the first, returns its result, and the thread is written once."""
    leave(journals, "old")

    async def scenario() -> None:
        gate, saver = Gate(), Held()
        waits = noticed(monkeypatch, "langchain_runjournal.settle.thread_hold.wait_for")
        saver.gate = gate
        async with journals() as journal:
            graph = graph_of(saver=saver)
            assert await journal.aclaim("old")
            settler = Settler(journal, GraphThreads(graph), None)
            first = asyncio.create_task(run_async(settler.settle("old", "stop")))
            await gate.reached.wait()
            second = asyncio.create_task(run_async(settler.settle("old", "stop")))
            await waits.wait()
            gate.open()
            results = await asyncio.gather(first, second)
            assert results[0].outcome == "settled"
            assert results[1] is results[0]

    asyncio.run(asyncio.wait_for(scenario(), PATIENCE))


def test_an_end_that_is_reported_twice(journals: Journals, monkeypatch: pytest.MonkeyPatch) -> None:
    """When both the task of a run and LangChain report its end, the thread is settled once and one `run.end` is appended.

    The second report returns when the first one has settled.
    """
    settled: list[str] = []
    settle = Settler.settle

    def counting(self: Any, run_id: str, *given: Any, **more: Any) -> Any:
        settled.append(run_id)
        return settle(self, run_id, *given, **more)

    monkeypatch.setattr(Settler, "settle", counting)

    async def scenario() -> None:
        gates, saver = (Gate(), Gate()), Held()
        saver.gate = gates[1]
        asked = model([*words("one "), gates[0].apass], words("fine"))
        async with journals() as journal:
            agent = attach(graph_of(asked, saver), journal)
            run = asyncio.create_task(_read(agent, "hi"))
            await gates[0].reached.wait()
            [found] = await journal.aruns()
            run.cancel()
            await gates[1].reached.wait()
            [again] = [one for one in handlers(agent) if type(one).__name__ == "_AsyncSettlementHandler"]
            root_id = next(root.turn.key for root in _roots(journal))
            second = asyncio.create_task(again.on_chain_error(asyncio.CancelledError(), run_id=uuid.UUID(int=root_id)))
            for _ in range(20):
                await asyncio.sleep(0)
            assert not second.done()
            gates[1].open()
            with suppress(asyncio.CancelledError):
                await run
            await second
            assert settled == [found.run_id]
            kinds = [event.kind for event in await journal.aread(found.run_id)]
            assert (kinds.count("run.settled"), kinds.count("run.end")) == (1, 1)

    asyncio.run(asyncio.wait_for(scenario(), PATIENCE))


def _roots(journal: RunJournal) -> list[Any]:
    return [root for roots in list(recorder_of(journal).threads._turns.values()) for root in roots]


# --- what is said -------------------------------------------------------------------------------------------------------


@on("sqlite")
def test_the_command_line_says_which_runs_are_left(
    journals: Journals, place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command prints a line for each run that is left, names the run that comes first, and exits with the code for work
    left."""
    other = journals()
    begin(other, "old")
    leave(journals, "new")
    (tmp_path / "app_in_order.py").write_text("from tests.settle.test_order import graph_of\n\ngraph = graph_of()\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    done = command("recover", "--graph", "app_in_order:graph", "--journal", place.journal, "--json")
    [told] = [json.loads(line) for line in done.stdout.splitlines()]
    assert (done.exit_code, told["run_id"], told["outcome"]) == (1, "new", "held")
    assert "run old is older" in told["reason"]


def test_the_log_says_nothing_of_what_is_in_order(journals: Journals, caplog: pytest.LogCaptureFixture) -> None:
    """The log reports neither a recovery in order nor a held run as an error."""
    caplog.set_level(logging.WARNING)
    leave(journals, "old", "new")
    with journals() as journal:
        assert outcomes(journal.recover(graph_of())) == {"old": "settled", "new": "settled"}
    assert warnings_of(caplog) == []


def test_recover_goes_on_beside_a_spool_that_cannot_be_read(journals: Journals, monkeypatch: pytest.MonkeyPatch) -> None:
    """`recover` reports the run of an unreadable spool as failed, with the reason, and settles the other threads."""
    leave(journals, "bad", thread_id="bad")
    leave(journals, "good", thread_id="good")
    journal = journals()
    bad = journal.run("bad").owner
    collect = core_of(journal).dead_owners.import_spool_of

    def refused(owner_id: str) -> None:
        if owner_id == bad:
            raise PermissionError(13, "Permission denied", "runs.db-spool-1")
        collect(owner_id)

    monkeypatch.setattr(core_of(journal).dead_owners, "import_spool_of", refused)
    agent = attach(graph_of(), journal)
    found = {report.run_id: (report.outcome, report.reason) for report in journal.recover(agent)}
    assert found["good"] == ("settled", None)
    assert found["bad"][0] == "failed"
    assert "Permission denied" in str(found["bad"][1])


def test_a_run_that_ends_while_it_is_looked_at_holds_nothing(journals: Journals, monkeypatch: pytest.MonkeyPatch) -> None:
    """A newer run that ends between the listing and the read of its events does not hold the older one."""
    leave(journals, "old")
    alive = journals()
    begin(alive, "new")

    def ends(self: Any, other: Any) -> Any:
        alive.append(
            Event(run_id="new", kind="run.end", data={"status": "interrupted", "settled": False, "problem": "held"})
        )
        alive.flush()
        yield from ()
        return False

    monkeypatch.setattr("langchain_runjournal.settle.order.Order._waits_in_other_process", ends)
    journal = journals()
    assert outcomes(journal.recover(attach(graph_of(), journal)))["old"] == "settled"
