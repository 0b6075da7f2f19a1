"""Runs whose owners are on other machines, where only heartbeats tell whether an owner is alive."""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph

from langchain_runjournal import Event, RunJournal, attach, errors, start_run
from langchain_runjournal.events import GRAPH
from langchain_runjournal.events.segments import pack
from langchain_runjournal.journal.core import core_of
from langchain_runjournal.journal.ownership import Watch
from langchain_runjournal.stores import Owner
from langchain_runjournal.stores.sqlite import SqliteStore
from langchain_runjournal.testing import FakeClock, FaultyStore, ScriptedChatModel
from tests.support.agents import words
from tests.support.conversations import PATIENCE, story
from tests.support.started_agent import on, on_a_loop, say, talking

FAR = Owner(owner_id="far", place="another machine", pid=1, born="", lease=1.0)


class World:
    """A graph on this machine, and a run of another machine on its thread, in the middle of a tool call."""

    def __init__(self, path: Path, lease: float = 1.0, **options: Any) -> None:
        self.owner = replace(FAR, lease=lease)
        self.store = FaultyStore(SqliteStore(path))
        self.journal = RunJournal(self.store)
        self.model = ScriptedChatModel(["fine"] * 10)

        async def answer(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
            return {"messages": [await self.model.ainvoke(state["messages"], config)]}

        graph = StateGraph(MessagesState).add_node("answer", answer).add_edge(START, "answer")
        plain = graph.compile(checkpointer=InMemorySaver(), name="agent")
        asked = HumanMessage("first", id="asked")
        calls = [{"name": "book", "args": {}, "id": "c1"}]
        plain.update_state(on("t"), {"messages": [asked, AIMessage("", id="a", tool_calls=calls)]}, as_node="answer")
        self.agent = attach(plain, self.journal, **options)
        self.beat()
        about = {"thread_id": "t", "name": "agent", "metadata": {GRAPH: "agent"}}
        message = {"type": "human", "data": {"type": "human", "content": "first", "id": "asked"}}
        said: list[Any] = [("run.start", about), ("llm.human.input", {"message": message})]
        events = [Event(run_id="far", seq=seq, kind=kind, data=data) for seq, (kind, data) in enumerate(said, 1)]
        self.store.append("far", [pack("far", 1, events)])

    def beat(self) -> None:
        self.store.beat(self.owner)
        self.owner = replace(self.owner, beats=self.owner.beats + 1)

    async def beat_until(self, task: asyncio.Task[Any]) -> None:
        while not task.done():
            self.beat()
            await asyncio.sleep(0.01)

    def seen(self) -> list[str]:
        """Return what the model got with the last request."""
        return story(self.model.requests[-1])


@asynccontextmanager
async def elsewhere(db: Path, **options: Any) -> AsyncIterator[World]:
    world = World(db, **options)
    try:
        yield world
    finally:
        await world.journal.aclose()


ANSWERED = ["U first", "A (c1)", "T*(c1) unknown", "U next"]
"""What a model may get of the thread: the open request has a result."""


@on_a_loop
async def test_a_message_waits_no_longer_than_it_may(db: Path, caplog: pytest.LogCaptureFixture) -> None:
    """When the wait ends and the owner may still be alive, the message begins. The model gets no open request, and the run
    is left to its owner."""
    async with elsewhere(db, lease=60.0, wait_for_owner=0.2) as world:
        await world.agent.ainvoke(say("next"), on("t"))
        assert world.seen() == ANSWERED
        assert ["had not run out after 0.2 s" in line for line in caplog.messages] == [True]
        run = await world.journal.arun("far")
        assert (run.epoch, run.status) == (1, "running")
        await world.agent.ainvoke(say("again"), on("t"))
        assert world.seen() == [*ANSWERED, "A fine", "U again"]


@on_a_loop
async def test_a_message_that_did_not_wait(db: Path) -> None:
    """What the run left is settled later, and does not go into the thread behind the message."""
    async with elsewhere(db, lease=1.0, wait_for_owner=0.0) as world:
        await world.agent.ainvoke(say("next"), on("t"))
        assert world.seen() == ANSWERED
        while not (reports := await world.journal.arecover(world.agent)):
            await world.journal.aflush()
        assert [(one.run_id, one.outcome) for one in reports] == [("far", "whole")]
        state = await world.agent.aget_state(on("t"))
        assert story(state.values["messages"]) == [*ANSWERED, "A fine"]


@on_a_loop
async def test_a_message_waits_for_the_end_of_the_lease(db: Path) -> None:
    """By default, the message waits until the owner is certainly dead, and then settles the run."""
    async with elsewhere(db, lease=1.0) as world:
        await world.agent.ainvoke(say("next"), on("t"))
        run = await world.journal.arun("far")
        assert (run.status, run.cause, run.settled) == ("interrupted", "crash", True)
        assert world.seen()[:2] == ANSWERED[:2]
        assert world.seen()[-1] == "U next"


@on_a_loop
async def test_a_message_beside_a_living_owner(db: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The message begins at the next heartbeat, beside the run. The model gets no open request then either."""
    async with elsewhere(db, lease=60.0) as world:
        task = asyncio.create_task(world.agent.ainvoke(say("next"), on("t")))
        await world.beat_until(task)
        assert world.seen() == ANSWERED
        assert ["far is still running on thread t" in line for line in caplog.messages] == [True]


@on_a_loop
async def test_the_store_fails_while_a_message_waits(db: Path) -> None:
    """The message asks again until its wait is over, and settles the run."""
    async with elsewhere(db, lease=3.0) as world:
        failing = [0]
        claim = world.journal.claim

        def claims(run_id: str) -> bool:
            failing[0] += 1
            if failing[0] < 3:
                raise errors.StoreUnreachable(path="far", reason="the cable is cut", hint="Put it in again")
            return claim(run_id)

        world.journal.claim = claims  # type: ignore[method-assign]
        await world.agent.ainvoke(say("next"), on("t"))
        assert failing[0] > 3
        run = await world.journal.arun("far")
        assert (run.status, run.cause, run.settled) == ("interrupted", "crash", True)


@on_a_loop
async def test_a_store_that_is_away_leaves_no_request_open(db: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A message that begins while the store cannot be reached goes to the model with a whole history."""
    async with elsewhere(db, lease=1.0) as world:
        away = errors.StoreUnreachable(path="far", reason="the cable is cut", hint="Put it in again")
        for verb in ("runs", "unsettled", "hold", "holder", "run", "owners"):
            setattr(world.store.inner, verb, functools.partial(_fails, away))
        await world.agent.ainvoke(say("next"), on("t"))
        assert world.seen() == ANSWERED
        assert "before what earlier runs left on its thread is settled" in caplog.text
        for verb in ("runs", "unsettled", "hold", "holder", "run", "owners"):
            delattr(world.store.inner, verb)


def _fails(error: Exception, *_: Any, **__: Any) -> Any:
    raise error


# --- start_run ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("if_busy", ["reject", "stop", "wait"])
@on_a_loop
async def test_start_run_after_another_machine_was_killed(db: Path, if_busy: Any) -> None:
    """The dead owner's run does not make the thread busy: whatever `if_busy` says, the next run settles it and begins."""
    async with elsewhere(db, lease=1.0) as world:
        handle = await start_run(world.agent, say("next"), on("t"), if_busy=if_busy)
        assert (await handle.wait()).status == "completed"
        run = await world.journal.arun("far")
        assert (run.status, run.settled) == ("interrupted", True)


@on_a_loop
async def test_start_run_beside_a_living_owner(db: Path) -> None:
    """While heartbeats arrive, `if_busy="reject"` rejects at once, and does not wait for the next one."""
    async with elsewhere(db, lease=60.0) as world:
        core_of(world.journal).dead_owners.owner_is_gone(await world.journal.arun("far"))
        world.beat()
        with pytest.raises(errors.ThreadBusy, match="far"):
            await start_run(world.agent, say("next"), on("t"))


@on_a_loop
async def test_start_run_waits_no_longer_than_it_may(db: Path) -> None:
    """If the wait ends and the owner may still be alive, the thread is busy."""
    async with elsewhere(db, lease=60.0, wait_for_owner=0.3) as world:
        began = time.monotonic()
        with pytest.raises(errors.ThreadBusy, match="far"):
            await start_run(world.agent, say("next"), on("t"))
        assert time.monotonic() - began >= 0.3


def test_a_run_that_another_machine_has_claimed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its first owner cancels it as soon as the store refuses its events: the model says nothing more to nobody."""

    async def whole() -> None:
        async with talking(tmp_path) as talk:
            with RunJournal(tmp_path / "runs.db") as other:
                handle = await talk.start_claimed_by(other)
                run = await asyncio.wait_for(handle.wait(), PATIENCE)
                assert (run.owner, run.status) == (other.owner_id, "running")
                assert f"another journal has claimed run {handle.run_id}" in caplog.text
                with pytest.raises(errors.RunFenced):
                    await talk.journal.aflush()
            talk.model.say(words("fine"))
            assert (await (await talk.start("next")).wait()).status == "completed"
            await talk.goes_on("U go", "A~ one two ", "U next", "A fine")

    asyncio.run(whole())


# --- the watch ----------------------------------------------------------------------------------------------------------


def test_the_store_was_away_for_all() -> None:
    """An owner that could not send its heartbeats, because nobody could, has a whole lease again."""
    watch, clock = Watch(lease=15.0), FakeClock()
    watch.sent(0.0)
    assert watch.verdict(FAR_15, clock.monotonic()) == "unknown"
    clock.advance(5)
    watch.sent(clock.monotonic())
    clock.advance(60)  # the store is away
    assert watch.verdict(FAR_15, clock.monotonic()) == "unknown"
    watch.sent(clock.monotonic())
    assert watch.verdict(FAR_15, clock.monotonic()) == "unknown"
    for _ in range(2):
        clock.advance(5)
        watch.sent(clock.monotonic())
        assert watch.verdict(FAR_15, clock.monotonic()) == "unknown"
    clock.advance(5)
    assert watch.verdict(FAR_15, clock.monotonic()) == "gone"


FAR_15 = replace(FAR, lease=15.0)


def test_a_heartbeat_is_tried_again_soon(db: Path, caplog: pytest.LogCaptureFixture) -> None:
    """When the store is back, the others need a sign of life: a heartbeat that failed is not put off by a whole interval."""
    caplog.set_level(logging.ERROR)
    clock, store = FakeClock(), FaultyStore(SqliteStore(db))
    with RunJournal(store, clock=clock, lease=15.0) as journal:
        duties = core_of(journal).duties
        store.fail(verb="beat", times=1)
        clock.advance(5.0)
        with pytest.raises(OSError, match="out of order"):
            duties._do_what_is_due()
        assert duties.patience() <= 1.0
