"""Settlements that are interrupted, slow or blocked: one that never began, a second Ctrl-C, a locked file, a busy loop, a
fork."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sqlite3
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

import langchain_runjournal
from langchain_runjournal import JournalCallbackHandler, RunJournal
from langchain_runjournal.capture.recorder import recorder_of
from tests.journal.test_fork_and_exit import in_child, posix
from tests.settle.test_settle import (
    THREAD,
    Asked,
    Saver,
    _sends,
    athread,
    failing,
    kinds,
    made,
    made_by_hand,
    model,
    say,
    shown,
    thread,
    without_recovered,
)
from tests.support.agents import asks, words
from tests.support.attached import HALF, SETTLED, warnings_of
from tests.support.conversations import Gate, collected_here

# Most models here are called by `invoke`, and the tests look at what they have said.
attach = partial(langchain_runjournal.attach, capture_invoke=True)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a new message check soon whether an old run is over, and wait long for a run that is being settled."""
    monkeypatch.setattr("langchain_runjournal.settle.schedule._LEAVING", 0.02)
    monkeypatch.setattr("langchain_runjournal.settle.schedule._SETTLING", 20.0)


# --- endings that take their time ---------------------------------------------------------------------------------------


@pytest.mark.guarantee("before the next message")
@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("how", ["left", "cancelled"])
def test_the_next_message_waits_for_a_run_that_ends_slowly(
    how: str, journal: RunJournal, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A new message waits for a stream left by `break`, or a cancelled task, although a tool cleans up for longer than the
    usual wait."""
    if how == "cancelled" and sys.version_info < (3, 11):
        pytest.skip("before Python 3.11 a task does not say that it is being cancelled")

    async def scenario() -> None:
        started, tidied, looks = asyncio.Event(), asyncio.Event(), 0

        @tool
        async def fast() -> str:
            """Fast."""
            await started.wait()
            return "fast1"

        @tool
        async def tidy() -> str:
            """Cleans up."""
            started.set()
            try:
                await asyncio.Event().wait()
            finally:
                await tidied.wait()
            return "never"

        def wait_for(other: Any, patience: float, **more: Any) -> Any:
            nonlocal looks
            looks += 1
            if looks == 3:
                tidied.set()
                patience = 30.0  # this wait sees the end, however slow the machine is
            return really(other, patience, **more)

        from langchain_runjournal.settle import schedule as _schedule

        really = _schedule.wait_for
        monkeypatch.setattr(_schedule, "wait_for", wait_for)
        asked = model(asks(("c1", "fast", {}), ("c2", "tidy", {})), words("fine"))
        agent = attach(_sends(asked, [fast, tidy], checkpointer=InMemorySaver()), journal)

        async def leave() -> None:
            async for update in agent.astream(say("hi"), THREAD, stream_mode="updates", durability="sync"):
                if "tools" in update:
                    break

        if how == "left":
            await leave()
        else:
            task = asyncio.create_task(agent.ainvoke(say("hi"), THREAD))
            await started.wait()
            task.cancel()
        try:
            await agent.ainvoke(say("next"), THREAD)
        finally:
            tidied.set()
        seen = without_recovered(shown(asked.seen[-1]))
        assert seen == ["U hi", "A Looking. (c1,c2)", "T c1=fast1", "T* c2=started", "U next"]
        assert (looks, warnings_of(caplog)) == (3, [])
        if how == "cancelled":
            await asyncio.wait([task])

    asyncio.run(asyncio.wait_for(scenario(), 60))


# --- a journal that cannot be written -----------------------------------------------------------------------------------


@pytest.mark.parametrize("before", [False, True], ids=["first-run", "later-run"])
@pytest.mark.parametrize("how", ["stopped", "failed", "failed-another-between"])
@pytest.mark.parametrize("durability", ["sync", "exit"])
def test_nothing_is_lost_while_the_journal_is_locked(durability: Any, how: str, before: bool, db: Any) -> None:
    """While another process holds the lock of the file, the thread still gets the input and the words of a run.

    The lock lasts from before the run until the next message, so the store never receives the run.
    """
    with RunJournal(db, busy_timeout=0.02) as journal, contextlib.closing(sqlite3.connect(db, isolation_level=None)) as file:
        asked = model(words("zero"), [*words("one "), KeyboardInterrupt() if how == "stopped" else HALF[-1]], words("fine"))
        agent = made("agent", asked, journal, settle="on_stop")
        another = made("another", model(words("b")), journal)
        if before:
            agent.invoke(say("zero"), THREAD)
            journal.flush()
        asked.turn = 1
        file.execute("begin immediate")
        with pytest.raises((KeyboardInterrupt, RuntimeError)):
            agent.invoke(say("hi"), THREAD, durability=durability)
        if how == "failed-another-between":
            another.invoke(say("to another"), THREAD)
        agent.invoke(say("next"), THREAD, durability=durability)
        file.execute("rollback")
        journal.flush()
        assert without_recovered(shown(asked.seen[-1]))[2 * before :] == [*SETTLED, "U next"]
        assert all(run.ended and run.settled for run in journal.runs())


def test_what_stays_open_while_the_journal_is_locked_is_tried_again(db: Any) -> None:
    """The second attempt to settle writes everything, although the store knows neither run and the first attempt fails."""
    with RunJournal(db, busy_timeout=0.02) as journal, contextlib.closing(sqlite3.connect(db, isolation_level=None)) as file:
        saver, asked = Saver(), model(HALF, [*words("two "), HALF[-1]], words("fine"))
        saver.before = failing(1)
        agent = attach(made_by_hand(asked, [], checkpointer=saver), journal, settle="on_stop")
        file.execute("begin immediate")
        for text in ("hi", "next"):
            with pytest.raises(RuntimeError, match="boom"):
                agent.invoke(say(text), THREAD)
        agent.invoke(say("again"), THREAD)
        file.execute("rollback")
        journal.flush()
        assert sorted(shown(asked.seen[-1])[:-1]) == ["A~ one ", "A~ two ", "U hi", "U next"]
        assert all(run.ended and run.settled for run in journal.runs())


# --- interrupted settlements --------------------------------------------------------------------------------------------


def _hangs(asked: Asked, started: list[asyncio.Event], journal: RunJournal) -> Any:
    @tool
    async def hang() -> str:
        """Hangs."""
        started[-1].set()
        await asyncio.Event().wait()
        return "never"

    return made("agent", asked, journal, hang)


HUNG = ["U hi", "A Looking. (c1)", "T* c1=started"]


def test_a_settlement_that_was_cancelled_before_its_first_step(journal: RunJournal, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of the run is recorded all the same, and the next run settles it."""
    from langchain_runjournal.settle import attach as _attach

    begin = _attach.begin

    def begin_and_cancel(work: Any) -> Any:
        task = begin(work)
        task.cancel()
        return task

    started: list[asyncio.Event] = []
    asked = model(asks(("c1", "hang", {})), words("fine"))
    agent = _hangs(asked, started, journal)

    async def scenario() -> None:
        started.append(asyncio.Event())
        task = asyncio.create_task(agent.ainvoke(say("hi"), THREAD))
        await started[-1].wait()
        monkeypatch.setattr(_attach, "begin", begin_and_cancel)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(asyncio.wait_for(scenario(), 60))
    monkeypatch.setattr(_attach, "begin", begin)
    [run] = journal.runs()
    assert (run.status, run.ended, run.settled) == ("interrupted", True, False)
    assert [report.outcome for report in journal.recover(agent)] == ["settled"]
    assert thread(agent) == HUNG


@pytest.mark.guarantee("every ending")
@pytest.mark.timeout(50)
@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("hops", [0, 1, 2, 4, 8, 16])
def test_a_second_cancel_and_the_end_of_the_loop(hops: int, journal: RunJournal) -> None:
    """Wherever a second cancel interrupts the settlement or LangChain itself, the next message, on a new loop, settles the
    run."""
    with collected_here():  # the garbage collector would report some tasks that LangChain forgets
        for more in range(10):
            started: list[asyncio.Event] = []
            asked = model(asks(("c1", "hang", {})), words("fine"))
            agent = _hangs(asked, started, journal)
            config: RunnableConfig = {"configurable": {"thread_id": f"t{more}"}}
            asyncio.run(_cancelled_twice(agent, started, config, hops, more))
            asyncio.run(agent.ainvoke(say("next"), config))
            assert without_recovered(shown(asked.seen[-1])) == [*HUNG, "U next"]
            assert all(run.ended and run.settled for run in journal.runs(f"t{more}"))


async def _cancelled_twice(agent: Any, started: list[asyncio.Event], config: RunnableConfig, hops: int, more: int) -> None:
    started.append(asyncio.Event())
    task = asyncio.create_task(agent.ainvoke(say("hi"), config))
    await started[-1].wait()
    task.cancel()
    for _ in range(hops):
        await asyncio.sleep(0)
    task.cancel()
    for _ in range(more):
        await asyncio.sleep(0)


@pytest.mark.timeout(50)
@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("who", ["a message", "a message of another thread", "recover"])
@pytest.mark.parametrize("where", ["conclude", "_append_end"])
def test_ctrl_c_at_the_end(where: str, who: str, journal: RunJournal, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next run finds the interrupted one ended, once, and settles it if that was not done."""
    asked = model([*words("one "), KeyboardInterrupt()], words("fine"))
    agent = made("agent", asked, journal)
    with monkeypatch.context() as patched:

        def interrupted(*given: Any, **more: Any) -> None:
            patched.undo()
            raise KeyboardInterrupt

        patched.setattr(recorder_of(journal), where, interrupted)
        with pytest.raises(KeyboardInterrupt):
            agent.invoke(say("hi"), THREAD)
    match who:
        case "recover":
            assert [report.is_final for report in journal.recover(agent)] == [True]
        case "a message":
            agent.invoke(say("next"), THREAD)
        case _:
            with ThreadPoolExecutor(1) as pool:
                pool.submit(agent.invoke, say("next"), THREAD).result()
    assert thread(agent)[:2] == SETTLED
    run = journal.runs()[-1]
    assert (run.status, run.ended, run.settled) == ("interrupted", True, True)
    assert [event.kind for event in journal.read(run.run_id)].count("run.end") == 1
    if who != "recover":
        assert shown(asked.seen[-1]) == [*SETTLED, "U next"]


# --- calls that block ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("leaving", [1.0, -1.0], ids=["at-once", "stalled"])
def test_a_message_while_another_run_goes_on(
    leaving: float, journal: RunJournal, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a loop, the package cannot detect whether the other run is about to end: it warns, and the call works."""
    monkeypatch.setattr("langchain_runjournal.settle.schedule._LEAVING", leaving)
    gate = Gate()
    agent = made("agent", model([*words("slow "), gate.hold], words("fine")), journal)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(agent.invoke, say("hi"), THREAD)
        assert gate.held.wait(30)
        try:
            assert agent.invoke(say("next"), THREAD)["messages"][-1].content == "fine"
        finally:
            gate.open()
        first.result()
    [warning] = warnings_of(caplog)
    assert "is still running on thread t, where another run begins" in warning
    assert [run.status for run in journal.runs()] == ["completed", "completed"]


@pytest.mark.parametrize("name", ["t", "other"])
def test_a_loop_that_is_blocked_by_a_waiting_call(name: str, journal: RunJournal, monkeypatch: pytest.MonkeyPatch) -> None:
    """A settlement does not wait for a loop that is blocked by the call that waits for the settlement.

    A notebook cell that has awaited the agent may pass it to threads and wait for them. Its loop writes nothing then. If the
    loop has only written another thread, the settlement does not wait at all.
    """
    monkeypatch.setattr("langchain_runjournal.settle.pending_writes._BLOCKED", 0.01 if name == "t" else 1e6)
    monkeypatch.setattr("langchain_runjournal.settle.settler._PATIENCE", 5.0)
    asked = model(words("hello"), HALF, words("fine"))
    agent = made("agent", asked, journal)

    def call(text: str) -> Any:
        return agent.invoke(say(text), THREAD)

    async def cell() -> None:
        await agent.ainvoke(say("zero"), {"configurable": {"thread_id": name}})
        with ThreadPoolExecutor(1) as pool:
            with pytest.raises(RuntimeError, match="boom"):
                pool.submit(call, "hi").result()
            run = journal.runs()[0]
            assert (run.status, run.settled) == ("failed", True)
            pool.submit(call, "next").result()
        assert shown(asked.seen[-1])[2 * (name == "t") :] == [*SETTLED, "U next"]

    asyncio.run(asyncio.wait_for(cell(), 60))


# --- what is running --------------------------------------------------------------------------------------------------


def test_recover_leaves_what_only_a_handler_records(journal: RunJournal) -> None:
    """`recover` leaves a running run of this process that only a handler records, though its graph has the name of the
    attached one."""

    async def scenario() -> None:
        gate = Gate()
        graph = made_by_hand(model([*words("one "), gate.apass, *words("two")]), [], checkpointer=InMemorySaver(), name="A")
        agent = attach(graph, journal)
        config: RunnableConfig = {**THREAD, "callbacks": [JournalCallbackHandler(journal)]}
        task = asyncio.create_task(graph.ainvoke(say("hi"), config))
        await gate.reached.wait()
        assert await journal.arecover(agent) == []
        [run] = journal.runs()
        assert (run.status, kinds(journal, run.run_id).count("run.end")) == ("running", 0)
        gate.open()
        await task
        assert await athread(agent) == ["U hi", "A one two"]
        assert (journal.runs()[0].status, await journal.arecover(agent)) == ("completed", [])

    asyncio.run(asyncio.wait_for(scenario(), 60))


# --- forks --------------------------------------------------------------------------------------------------------------


def _forked(work: Callable[[], object]) -> None:
    def child() -> None:
        # The child must not outlive the tests.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(20)
        work()

    in_child(child)


@posix
@pytest.mark.parametrize("while_", ["a run is running", "a thread is settled", "the lock is held"])
def test_a_forked_child_waits_for_nothing_of_its_parent(while_: str, db: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A forked child uses the attached graph on the same thread, and its runs are settled before the next message at the
    latest.

    The parent continues undisturbed.
    """
    gate, saver, parent = Gate(), Saver(), os.getpid()
    scripts = {"a run is running": [*words("slow "), gate.hold], "a thread is settled": HALF}
    asked = model(scripts.get(while_, words("slow ")), [*words("one "), RuntimeError("in the child")], words("fine"))

    def settling(source: str) -> None:
        if source == "update" and os.getpid() == parent:
            gate.hold()

    saver.before = settling
    with RunJournal(db) as journal, ThreadPoolExecutor(1) as pool:
        agent = attach(made_by_hand(asked, [], checkpointer=saver), journal)
        if while_ == "the lock is held":
            done = pool.submit(recorder_of(journal).tracker.do, gate.hold)
        else:
            done = pool.submit(agent.invoke, say("first"), THREAD)
        assert gate.held.wait(30)
        journal.flush()

        ours = next((run.run_id for run in journal.runs()), None)

        def work() -> None:
            caplog.clear()
            asked.turn = 1
            with pytest.raises(RuntimeError, match="in the child"):
                agent.invoke(say("hi"), THREAD)
            if while_ == "the lock is held":
                assert thread(agent)[-2:] == SETTLED
            # The parent's run is older, and is running.
            assert journal.runs(limit=1)[0].settled == (while_ == "the lock is held")
            agent.invoke(say("next"), THREAD)
            assert shown(asked.seen[-1])[-3:] == [*SETTLED, "U next"]
            # Each of the two messages begins beside the run of the parent.
            begins = f"run {ours} is still running on thread t, where another run begins: one of them will lose"
            begins += " what it writes"
            assert warnings_of(caplog) == ([] if while_ == "the lock is held" else [begins] * 2)

        try:
            _forked(work)
        finally:
            gate.open()
        failed = done.exception()
        assert (failed is None) == (while_ != "a thread is settled")
        assert all(run.settled for run in journal.runs() if run.owner == journal.owner_id)
