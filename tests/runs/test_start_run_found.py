"""What reviewers broke, once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, interrupt

from langchain_runjournal import Run, RunJournal, attach, errors, start_run
from langchain_runjournal.journal.core import core_of
from tests.runs.test_start_run_stop import STOPPED
from tests.support.agents import asks, words
from tests.support.conversations import PATIENCE, end_of, the_rest, until_said
from tests.support.started_agent import KINDS, Talk, facts, on, on_a_loop, say, talking


@pytest.mark.parametrize("on_disconnect", ["continue", "stop"])
@pytest.mark.parametrize("how", ["stream", "events", "wait"])
@on_a_loop
async def test_a_sign_of_life_between_two_steps(tmp_path: Path, how: str, on_disconnect: Any) -> None:
    """Who limits how long it waits, to tell its client that it is still there, and waits again, misses nothing."""
    async with talking(tmp_path) as talk:
        handle = await talk.start_held(stream_mode="messages", on_disconnect=on_disconnect)
        readers: dict[str, Any] = {"stream": handle.stream, "events": handle.events, "wait": str}
        reader = readers[how]()
        heard, idle = [], 0
        while True:
            step = handle.wait() if how == "wait" else anext(reader)
            try:
                heard.append(await asyncio.wait_for(step, 0.02))
            except asyncio.TimeoutError:
                idle += 1
                if idle == 3:
                    talk.gate.open()
                continue
            except StopAsyncIteration:
                break
            if how == "wait":
                break
        assert idle >= 3
        assert facts(await handle.wait()) == ("completed", None, True)
        if how == "stream":
            assert "".join(chunk[0].text for chunk in heard) == "one two three"
        elif how == "events":
            assert [event.seq for event in heard] == list(range(1, 1 + len(heard)))
            assert heard[-1].kind == "run.end"
        await talk.goes_on("U go", "A one two three")


@on_a_loop
async def test_who_stays_away_is_gone(tmp_path: Path) -> None:
    """A reader that is cancelled and does not come again has gone; coming back too late, it is told."""
    async with talking(tmp_path) as talk:
        handle = await talk.start_held(stream_mode="messages", on_disconnect="stop")
        reader: Any = handle.stream()
        while True:
            try:
                await asyncio.wait_for(anext(reader), 0.05)
            except asyncio.TimeoutError:
                break
        await end_of(talk.journal, handle.run_id)  # whoever waits by the handle would be a guest as well
        assert facts(await handle.wait()) == ("interrupted", "disconnect", True)
        with pytest.raises(errors.ChunksGone, match="reader was closed or garbage-collected"):
            await anext(reader)
        await talk.goes_on("U go", "A~ one two ")


def asking(talk: Talk) -> Any:
    """A node that asks, and then lets a model speak."""

    async def node(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
        interrupt("may I?")
        return {"messages": [await talk.model.ainvoke(state["messages"], config)]}

    graph = StateGraph(MessagesState)
    graph.add_node("node", node)
    graph.add_edge(START, "node")
    return attach(graph.compile(checkpointer=talk.saver, name="asking"), talk.journal, capture_invoke=True)


needs_311 = pytest.mark.skipif("agent" not in KINDS, reason="LangGraph cannot interrupt there in asynchronous code")


@needs_311
@pytest.mark.parametrize("how", ["stop", "timeout"])
@on_a_loop
async def test_stopped_after_it_was_answered(tmp_path: Path, how: str) -> None:
    """What the user has seen since is in the thread, and nothing waits there for an answer that was given."""
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
    """One tool asks, another one is at work: whoever stops the run does not answer. Both are told so."""
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


@needs_311
@on_a_loop
async def test_who_answers_too_late_takes_up_nothing(tmp_path: Path) -> None:
    """Of several answers one goes on with the run that waits, and names it; the others find nothing to go on with."""
    async with talking(tmp_path) as talk:
        agent = asking(talk)
        paused = await (await start_run(agent, say("go"), on("t"))).wait()
        talk.model.say(words("fine"))
        answers = [start_run(agent, Command(resume=str(n)), on("t"), if_busy="wait") for n in range(3)]
        runs = [await handle.wait() for handle in await asyncio.gather(*answers)]
        assert sorted(str(run.continues) for run in runs) == sorted(["None", "None", paused.run_id])


@on_a_loop
async def test_attached_elsewhere(tmp_path: Path) -> None:
    """A graph has one journal: another one is refused, before anything begins."""
    async with talking(tmp_path) as talk:
        with RunJournal(tmp_path / "other.db") as other:
            with pytest.raises(errors.InvalidArgument, match="to which the graph is attached"):
                await start_run(talk.agent, say("go"), on("t"), journal=other)
            assert (other.runs(), talk.journal.runs()) == ([], [])


@on_a_loop
async def test_a_stop_that_meets_the_end(tmp_path: Path) -> None:
    """Nothing comes behind the end of a run, and whoever has heard that has heard all."""
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


@on_a_loop
async def test_an_option_that_nobody_knows(tmp_path: Path) -> None:
    """LangGraph would take it and say nothing: a slip of the pen would change what happens to a second message."""
    async with talking(tmp_path) as talk:
        with pytest.raises(errors.InvalidArgument, match="ifbusy"):
            await talk.start(ifbusy="stop")
        assert await talk.journal.aruns() == []


@on_a_loop
async def test_a_run_after_a_prune(tmp_path: Path) -> None:
    """A journal that has pruned, or has forgotten a run, takes the events of what start_run begins as before."""
    async with talking(tmp_path) as talk:
        assert talk.journal.prune(keep_last=0) == []
        talk.model.say(words("fi", "ne"))
        run = await (await talk.start()).wait()
        assert facts(run) == ("completed", None, True)
        assert await talk.thread() == ["U go", "A fine"]


@pytest.mark.parametrize("how", ["ends well", "fails", "is stopped"])
@on_a_loop
async def test_pruned_by_another_process_as_soon_as_it_is_over(tmp_path: Path, how: str) -> None:
    """Who waits for a run gets it, and who reads its chunks comes to their end: it was over, and settled."""
    async with talking(tmp_path) as talk:
        if how == "fails":
            talk.model.say([*words("one"), ValueError("broken")])
            handle = await start_run(talk.agent, say("go"), on("t"))
        else:
            handle = await talk.start_held()
        read = talk.journal.arun

        async def arun(run_id: str) -> Run:
            await talk.journal.aflush()
            with RunJournal(tmp_path / "runs.db") as other:
                other.prune(keep_last=0)
            return await read(run_id)

        talk.journal.arun = arun  # type: ignore[method-assign]
        ended = {"ends well": ("completed", None), "fails": ("failed", None), "is stopped": ("interrupted", "stop")}[how]
        if how == "is stopped":
            run = await handle.stop()
        else:
            talk.gate.open()
            run = await handle.wait()
        assert (run.run_id, run.thread_id, run.status, run.cause) == (handle.run_id, "t", *ended)
        assert (run.ended, run.settled, run.error) == (True, True, "ValueError: broken" if how == "fails" else None)
        assert facts(await handle.wait()) == facts(run)
        with pytest.raises(errors.RunNotFound):
            await read(handle.run_id)
        if how == "fails":
            with pytest.raises(ValueError, match="broken"):
                [chunk async for chunk in handle.stream()]
        else:
            # By default, a chunk is what a whole step gave.
            assert len([chunk async for chunk in handle.stream()]) == (how == "ends well")
