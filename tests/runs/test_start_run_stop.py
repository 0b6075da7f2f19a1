"""Stopping what `start_run` began: at any point, from any process, once; and no call of the run continues after that."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, interrupt

from langchain_runjournal import RunHandle, errors, start_run
from langchain_runjournal.journal.core import core_of
from tests.support.agents import asks, words
from tests.support.conversations import PATIENCE, Broken, Gate, the_rest, until, until_said
from tests.support.started_agent import KINDS, Talk, asking, everywhere, facts, needs_311, on, on_a_loop, say, talking

THREE = [("c1", "quick", {"x": 1}), ("c2", "quick", {"x": 2})]
STOPPED = ("interrupted", "stop", True)


async def held(gate: Gate) -> None:
    """Wait until a call is held at the gate, on whatever thread."""
    await until(gate.held.is_set)


async def start_tools(talk: Talk, name: str, **options: Any) -> RunHandle:
    """Start a run and return it in the third of three parallel tools; the others have finished."""
    talk.model.say(asks(*THREE, ("c3", name, {"x": 3})), words("never"))
    handle = await talk.start(**options)
    await held(talk.gate)
    await until_said(talk.journal, handle.run_id, "llm.tool.result", 2)
    return handle


class Holding(InMemorySaver):
    """A checkpointer that holds each write of a checkpoint, while it has a gate."""

    gate: Gate | None = None

    async def aput(self, *args: Any, **given: Any) -> Any:
        if self.gate is not None:
            await self.gate.apass()
        return await super().aput(*args, **given)


# --- at any point -----------------------------------------------------------------------------------------------------


@everywhere
async def test_before_the_first_token(tmp_path: Path, kind: str, saver: str) -> None:
    """The message of the user stays, and the thread has nothing else."""
    async with talking(tmp_path, saver, kind) as talk:
        talk.model.say([talk.gate.apass, *words("never")])
        handle = await talk.start()
        assert facts(await handle.stop()) == STOPPED
        handle = await talk.start("again")
        await held(talk.gate)
        assert facts(await handle.stop()) == STOPPED
        await talk.goes_on("U go", "U again")


@on_a_loop
async def test_as_early_as_it_can_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the moment the journal knows the run, a stop reaches it: also before its first event."""
    async with talking(tmp_path) as talk:
        begin, knows = core_of(talk.journal).store.begin, Gate()

        def held_begin(*args: Any) -> Any:
            done = begin(*args)
            knows.hold()
            return done

        monkeypatch.setattr(core_of(talk.journal).store, "begin", held_begin)
        talk.model.say(words("never"))
        run_id = str(uuid4())
        starting = asyncio.create_task(start_run(talk.agent, say("go"), on("t", run_id=run_id)))
        await held(knows)
        await talk.journal.astop(run_id)
        assert not starting.done()
        knows.open()
        assert facts(await asyncio.wait_for((await starting).wait(), PATIENCE)) == STOPPED
        await talk.goes_on("U go")


@on_a_loop
async def test_at_any_moment_of_its_beginning(tmp_path: Path) -> None:
    """Whenever a stop comes, the journal either does not know the run yet, or the run is stopped."""
    async with talking(tmp_path) as talk:
        for hops in range(40):
            thread, run_id, talk.gate = f"t{hops}", str(uuid4()), Gate()
            talk.model.say([talk.gate.apass, *words("fine")])
            starting = asyncio.create_task(start_run(talk.agent, say("go"), on(thread, run_id=run_id)))
            for _ in range(hops):
                await asyncio.sleep(0 if hops % 2 else 0.0002)
            try:
                await talk.journal.astop(run_id)
            except errors.RunNotFound:
                talk.gate.open()
                assert facts(await (await starting).wait()) == ("completed", None, True)
                continue
            assert facts(await asyncio.wait_for((await starting).wait(), PATIENCE)) == STOPPED
            await talk.goes_on("U go", thread=thread)


@everywhere
async def test_in_mid_token(tmp_path: Path, kind: str, saver: str) -> None:
    """What the model said stays; the reader of the run comes to the end without an error, and has not read more."""
    async with talking(tmp_path, saver, kind) as talk:
        handle = await talk.start_held(stream_mode="messages")
        chunks = handle.stream()
        heard = ""
        while heard != "one two ":
            heard += (await asyncio.wait_for(anext(chunks), PATIENCE))[0].text
        assert facts(await handle.stop()) == STOPPED
        assert "".join([chunk[0].text async for chunk in chunks]) == ""
        kinds = [event.kind for event in await talk.journal.aread(handle.run_id)]
        assert (kinds.count("run.stop"), kinds.count("run.end"), kinds[-1]) == (1, 1, "run.end")
        assert kinds.index("run.stop") < kinds.index("run.settled") < kinds.index("run.end")
        await talk.goes_on("U go", "A~ one two ")


@pytest.mark.guarantee("finished tools")
@everywhere
async def test_in_the_third_tool(tmp_path: Path, kind: str, saver: str) -> None:
    """The results of the tools that had finished stay; the result of the third says that it was cut off."""
    async with talking(tmp_path, saver, kind) as talk:
        handle = await start_tools(talk, "slow")
        assert facts(await handle.stop("timeout")) == ("interrupted", "timeout", True)
        await talk.goes_on("U go", "A Looking. (c1,c2,c3)", "T(c1) quick 1", "T(c2) quick 2", "T*(c3) started")


@everywhere
async def test_in_a_tool_on_a_thread_that_ends_in_time(tmp_path: Path, kind: str, saver: str) -> None:
    """A tool that ends within the grace has its real result in the thread when the stop returns."""
    async with talking(tmp_path, saver, kind) as talk:
        handle = await start_tools(talk, "plod", grace=PATIENCE)
        stopping = asyncio.create_task(handle.stop())
        await until_said(talk.journal, handle.run_id, "run.stop")
        await until(lambda: handle._control.root is not None and handle._control.root.over)
        await asyncio.sleep(0.1)  # no event shows that nothing happens
        assert (await talk.journal.arun(handle.run_id)).status == "running"
        talk.gate.open()
        assert facts(await stopping) == STOPPED
        await talk.goes_on("U go", "A Looking. (c1,c2,c3)", "T(c1) quick 1", "T(c2) quick 2", "T(c3) plod 3")


@everywhere
async def test_in_a_tool_on_a_thread_that_does_not(tmp_path: Path, kind: str, saver: str) -> None:
    """The stop does not wait for the tool; its result comes to the journal late, and to the thread with the next message."""
    async with talking(tmp_path, saver, kind) as talk:
        handle = await start_tools(talk, "plod", grace=0.05)
        assert facts(await asyncio.wait_for(handle.stop(), PATIENCE)) == STOPPED
        left = ["U go", "A Looking. (c1,c2,c3)", "T(c1) quick 1", "T(c2) quick 2"]
        assert await talk.thread() == [*left, "T*(c3) started"]
        ended = (await talk.journal.arun(handle.run_id)).last_seq
        talk.gate.open()
        await until(lambda: len(talk.journal.read(handle.run_id, ended)) > 0)
        late = (await talk.journal.aread(handle.run_id, ended))[0]
        assert (late.kind, late.data["tool_call_id"], late.data["late"]) == ("llm.tool.result", "c3", True)
        await talk.goes_on(*left, "T*(c3) started", heals=(*left, "T(c3) plod 3"))


@pytest.mark.parametrize("how", ["failed", "stopped"])
@on_a_loop
async def test_during_its_settlement(tmp_path: Path, how: str) -> None:
    """The stop waits for the settlement, however long that takes, and changes neither it nor how the run ended."""
    saver = Holding()
    async with talking(tmp_path) as talk:
        talk = Talk(talk.journal, saver)
        handle = await talk.start_held(Broken("by itself"), grace=0.02)
        await until_said(talk.journal, handle.run_id, "run.checkpoint", 3)
        saver.gate = Gate()
        stops = []
        if how == "failed":
            talk.gate.open()
        else:
            stops.append(asyncio.create_task(handle.stop()))
        await asyncio.wait_for(saver.gate.reached.wait(), PATIENCE)
        stops += [asyncio.create_task(handle.stop("timeout")) for _ in range(2)]
        # No event shows that nothing happens, so this sleeps longer than the grace.
        await asyncio.sleep(0.1)
        assert not any(one.done() for one in stops)
        assert (await talk.journal.arun(handle.run_id)).status == "running"
        saver.gate.open()
        expected = STOPPED if how == "stopped" else ("failed", None, True)
        assert [facts(await one) for one in stops] == [expected] * len(stops)
        await talk.goes_on("U go", "A~ one two ")


@on_a_loop
async def test_of_what_does_not_run(tmp_path: Path) -> None:
    """A stop of a run that has ended returns that run; one of an unknown run raises; neither reaches the next run of the
    thread."""
    async with talking(tmp_path) as talk:
        talk.model.say(words("hello"))
        first = await (await talk.start("hi")).wait()
        second = await (await talk.start_held()).stop()
        third = await talk.start_held()
        for run in (first, second):
            assert await talk.journal.astop(run.run_id, "timeout", wait=True) == run
            assert await talk.journal.astop(run.run_id) == run == await talk.journal.arun(run.run_id)
        with pytest.raises(errors.RunNotFound):
            await talk.journal.astop("nobody", wait=True)
        with pytest.raises(errors.InvalidArgument):
            await talk.journal.astop(third.run_id, "whim")  # type: ignore[arg-type]
        with pytest.raises(errors.InvalidArgument):
            await talk.journal.astop(third.run_id, timeout=-1)
        assert (await talk.journal.arun(third.run_id)).stop is None
        talk.gate.open()
        assert facts(await third.wait()) == ("completed", None, True)
        await talk.goes_on("U hi", "A hello", "U go", "A~ one two ", "U go", "A one two three")


@needs_311
@pytest.mark.parametrize("how", ["stop", "timeout"])
@on_a_loop
async def test_stopped_after_it_was_answered(tmp_path: Path, how: str) -> None:
    """What the user has seen since is in the thread, and no question that was answered waits there."""
    async with talking(tmp_path) as talk:
        agent = asking(talk)
        paused = await (await start_run(agent, say("go"), on("t"))).wait()
        talk.model.say([*words("one ", "two "), talk.gate.apass])
        limit = 0.2 if how == "timeout" else None
        handle = await start_run(agent, Command(resume="yes"), on("t"), timeout=limit)
        await asyncio.wait_for(talk.gate.reached.wait(), PATIENCE)
        run = await (handle.stop() if how == "stop" else handle.wait())
        assert (facts(run), run.continues) == (("interrupted", how, True), paused.run_id)
        assert await talk.thread() == ["U go", "A~ one two "]


@needs_311
@on_a_loop
async def test_stopped_with_an_open_question(tmp_path: Path) -> None:
    """One tool asks, another one is running: a stop does not answer the question. The results of both tools say what
    happened."""
    started = asyncio.Event()

    @tool
    async def ask() -> str:
        """Asks."""
        return str(interrupt("may I?"))

    @tool
    async def hang() -> str:
        """Hangs."""
        started.set()
        await asyncio.Event().wait()
        return "never"

    async with talking(tmp_path, kind="agent", tools=[ask, hang]) as talk:
        talk.model.say(asks(("c1", "ask", {}), ("c2", "hang", {})))
        handle = await talk.start()
        await asyncio.wait_for(started.wait(), PATIENCE)
        await until_said(talk.journal, handle.run_id, "tool.error")
        assert facts(await handle.stop()) == STOPPED
        left = ["U go", "A Looking. (c1,c2)", "T*(c1) waiting", "T*(c2) started"]
        await talk.goes_on(*left)


@on_a_loop
async def test_a_stop_that_meets_the_end(tmp_path: Path) -> None:
    """No event follows the end of a run, so a reader that has seen the end has seen all."""
    async with talking(tmp_path) as talk:
        for number in range(40):
            talk.model.say(words("fi", "ne"))
            handle = await talk.start(thread=f"t{number}")
            deliver = core_of(talk.journal).stops.deliver
            asyncio.get_running_loop().call_later(0.0002 * number, deliver, handle.run_id, "stop")
            await handle.wait()
            await the_rest()
            kinds = [event.kind for event in await talk.journal.aread(handle.run_id)]
            assert kinds[-1] == "run.end"
            deliver(handle.run_id, "stop")
            assert len(await talk.journal.aread(handle.run_id)) == len(kinds)


# --- once, from any process ------------------------------------------------------------------------------------------


def cancelled_in(gate: Gate, times: list[str], lets_go: Gate | None = None, gives: str | None = None) -> Any:
    """Return a tool that notes how often it is cancelled, and then takes its time."""

    @tool
    async def stubborn(x: int) -> str:
        """Stubborn."""
        try:
            await gate.apass()
        except asyncio.CancelledError:
            times.append("cancelled")
            try:
                await (asyncio.sleep(0.05) if lets_go is None else lets_go.apass())
            except asyncio.CancelledError:
                times.append("cancelled again")
                raise
            times.append("cleaned up")
            if gives is None:
                raise
        return gives or "whole"

    return stubborn


@pytest.mark.guarantee("durable stop")
@pytest.mark.parametrize("gives", [None, "all the same"])
@pytest.mark.parametrize("kind", KINDS)
@on_a_loop
async def test_many_stops_at_once(tmp_path: Path, kind: str, gives: str | None) -> None:
    """A tool sees one cancellation and cleans up within the grace; what it still returns is kept; the first cause stays."""
    gate, times = Gate(), list[str]()
    async with talking(tmp_path, "file", kind, tools=[cancelled_in(gate, times, gives=gives)]) as talk:
        talk.model.say(asks(("c1", "stubborn", {"x": 1})), words("never"))
        handle = await talk.start(grace=PATIENCE)
        await held(gate)
        await talk.journal.astop(handle.run_id, "timeout")
        in_thread = asyncio.get_running_loop().run_in_executor
        stops = [handle.stop() for _ in range(3)]
        stops += [in_thread(None, lambda: talk.journal.stop(handle.run_id, wait=True)) for _ in range(2)]
        runs = await asyncio.gather(*stops)
        assert {facts(run) for run in runs} == {("interrupted", "timeout", True)}
        assert times == ["cancelled", "cleaned up"]
        result = "T*(c1) started" if gives is None else "T(c1) all the same"
        await talk.goes_on("U go", "A Looking. (c1)", result)


@pytest.mark.parametrize("kind", KINDS)
@on_a_loop
async def test_what_swallows_the_cancellation(tmp_path: Path, kind: str) -> None:
    """A tool that swallows the cancellation is cancelled again after the grace, and the run ends."""
    gate, times = Gate(), list[str]()
    async with talking(tmp_path, "file", kind, tools=[cancelled_in(gate, times, Gate())]) as talk:
        talk.model.say(asks(("c1", "stubborn", {"x": 1})), words("never"))
        handle = await talk.start(grace=0.05)
        await held(gate)
        assert facts(await asyncio.wait_for(handle.stop(), PATIENCE)) == STOPPED
        assert times == ["cancelled", "cancelled again"]
        await talk.goes_on("U go", "A Looking. (c1)", "T*(c1) started")


@on_a_loop
async def test_a_stop_that_takes_too_long(tmp_path: Path) -> None:
    """`StopTimeout`, in the sync and the async way to wait; the request stays, and the run ends when it can."""
    gate, times, lets_go = Gate(), list[str](), Gate()
    async with talking(tmp_path, tools=[cancelled_in(gate, times, lets_go)]) as talk:
        talk.model.say(asks(("c1", "stubborn", {"x": 1})), words("never"))
        handle = await talk.start(grace=PATIENCE)
        await held(gate)
        stop = talk.journal.stop
        with pytest.raises(errors.StopTimeout, match=handle.run_id):
            await talk.journal.astop(handle.run_id, wait=True, timeout=0.05)
        with pytest.raises(TimeoutError):
            await asyncio.get_running_loop().run_in_executor(None, lambda: stop(handle.run_id, wait=True, timeout=0.05))
        run = await talk.journal.arun(handle.run_id)
        assert (run.status, run.stop) == ("running", "stop")
        lets_go.open()
        assert facts(await handle.wait()) == STOPPED
        await talk.goes_on("U go", "A Looking. (c1)", "T*(c1) started")


@on_a_loop
async def test_a_stop_on_the_loop_of_the_run(tmp_path: Path) -> None:
    """Waiting there in a blocking call would be a deadlock, and raises. Asking there without waiting works."""
    async with talking(tmp_path) as talk:
        handle = await talk.start_held()
        with pytest.raises(errors.WouldDeadlock):
            talk.journal.stop(handle.run_id, wait=True)
        assert talk.journal.stop(handle.run_id).status == "running"
        assert facts(await handle.wait()) == STOPPED
        assert facts(talk.journal.stop(handle.run_id, wait=True)) == STOPPED
        await talk.goes_on("U go", "A~ one two ")
