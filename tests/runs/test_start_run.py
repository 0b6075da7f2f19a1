"""`start_run`: a graph runs in a task of its own. Its caller and its readers may leave at any time."""

from __future__ import annotations

import asyncio
import gc
from contextvars import ContextVar
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.graph import START, MessagesState, StateGraph

from langchain_runjournal import RunHandle, RunJournal, attach, errors, start_run
from langchain_runjournal.journal.core import core_of
from langchain_runjournal.runs.start import copies_of
from tests.support.agents import words
from tests.support.conversations import PATIENCE, build, the_rest, until
from tests.support.started_agent import everywhere, facts, on, on_a_loop, say, talking

LEAVING = ("aclose", "break", "cancel", "drop", "events", "cancel in events", "wait")
WHO: ContextVar[str] = ContextVar("who")


# --- start ------------------------------------------------------------------------------------------------------------


@everywhere
async def test_a_run_in_a_task_of_its_own(tmp_path: Path, kind: str, saver: str) -> None:
    """The run begins, every process sees it, it ends well, and the next message works."""
    async with talking(tmp_path, saver, kind) as talk:
        handle = await talk.start_held()
        with RunJournal(tmp_path / "runs.db") as other:
            seen = other.run(handle.run_id)
            assert (seen.status, seen.thread_id, seen.owner) == ("running", "t", talk.journal.owner_id)
        assert (handle.thread_id, handle.run_id in repr(handle)) == ("t", True)
        talk.gate.open()
        run = await handle.wait()
        assert facts(run) == ("completed", None, True)
        assert run == await talk.journal.arun(handle.run_id) == await handle.wait()
        with RunJournal(tmp_path / "runs.db") as other:
            assert other.run(handle.run_id).status == "completed"
        await talk.goes_on("U go", "A one two three")


@on_a_loop
async def test_the_id_of_a_run(tmp_path: Path) -> None:
    """The run has the id in the config, a UUID or text, or else a new one."""
    async with talking(tmp_path) as talk:
        talk.model.say(words("fine"))
        given, text = uuid4(), str(uuid4())
        ids = []
        for more in ({"run_id": given}, {"run_id": text}, {"run_id": text[:-4].upper() + "ABCD"}, {}):
            handle = await start_run(talk.agent, say("go"), on("t", **more))
            assert (await handle.wait()).run_id == handle.run_id
            ids.append(handle.run_id)
        assert ids[:3] == [str(given), text, text[:-4] + "abcd"]
        assert [run.run_id for run in await talk.journal.aruns("t")] == ids[::-1]


@on_a_loop
async def test_the_context_of_the_caller(tmp_path: Path) -> None:
    """A node sees the context variables of the caller that started the run, and cannot set them there."""
    seen = []

    async def look(state: MessagesState) -> dict[str, Any]:
        seen.append(WHO.get())
        WHO.set("the node")
        return {"messages": [("ai", "seen")]}

    graph = StateGraph(MessagesState)
    graph.add_node("look", look)
    graph.add_edge(START, "look")
    async with talking(tmp_path) as talk:
        attached = attach(graph.compile(checkpointer=talk.saver, name="looks"), talk.journal)
        WHO.set("the caller")
        handle = await start_run(attached, say("go"), on("t"))
        assert (await handle.wait()).status == "completed"
        assert (seen, WHO.get()) == (["the caller"], "the caller")


@on_a_loop
async def test_a_run_that_a_node_starts_is_a_run_of_its_own(tmp_path: Path) -> None:
    """The inner run has its own thread and its own end; the run around it records nothing of it."""
    handles: list[RunHandle] = []
    async with talking(tmp_path) as talk:

        async def starts(state: MessagesState) -> dict[str, Any]:
            handles.append(await talk.start("inner", "inner"))
            return {"messages": [("ai", "started")]}

        graph = StateGraph(MessagesState)
        graph.add_node("starts", starts)
        graph.add_edge(START, "starts")
        outer = attach(graph.compile(checkpointer=talk.saver, name="outer"), talk.journal)
        talk.model.say([*words("in"), talk.gate.apass, *words("ner")])
        around = await (await start_run(outer, say("go"), on("outer"))).wait()
        assert facts(around) == ("completed", None, True)
        assert (await talk.journal.arun(handles[0].run_id)).status == "running"
        talk.gate.open()
        inner = await handles[0].wait()
        assert (facts(inner), inner.thread_id, inner.continues) == (("completed", None, True), "inner", None)
        kinds = [event.kind for event in await talk.journal.aread(around.run_id)]
        assert (kinds[0], kinds[-1], "llm.start" in kinds) == ("run.start", "run.end", False)
        started = (await talk.journal.aread(inner.run_id))[0]
        assert "parent_run_id" not in started.data
        await talk.goes_on("U inner", "A inner", thread="inner")


@on_a_loop
async def test_a_graph_without_a_thread(tmp_path: Path) -> None:
    """A graph without a checkpointer runs, is stopped and journaled, any number of times at once; nothing is settled."""
    async with talking(tmp_path) as talk:
        agent = attach(build("by hand", talk.model, talk.tools, None), talk.journal)
        talk.model.say([*words("one "), talk.gate.apass, *words("two")])
        first, second = [await start_run(agent, say("go"), grace=0.1) for _ in range(2)]
        assert (first.thread_id, second.thread_id) == (None, None)
        await asyncio.wait_for(talk.gate.reached.wait(), PATIENCE)
        stopped = await first.stop()
        assert (stopped.status, stopped.cause) == ("interrupted", "stop")
        talk.gate.open()
        assert (await second.wait()).status == "completed"
        assert [message.text for message in await talk.journal.atranscript(second.run_id)] == ["go", "one two"]


@on_a_loop
async def test_a_graph_that_is_not_attached(tmp_path: Path) -> None:
    """With `journal`, `start_run` attaches the graph, once, and settles the thread as if the program had attached the graph
    before."""
    async with talking(tmp_path) as talk:
        talk.model.say([*words("one "), talk.gate.apass, *words("two")])
        for agent in (talk.plain, talk.agent):
            thread = uuid4().hex
            handle = await start_run(agent, say("go"), on(thread), journal=talk.journal)
            await talk.gate.reached.wait()
            assert facts(await handle.stop()) == ("interrupted", "stop", True)
            assert await talk.thread(thread) in (["U go", "A~ one "], ["U go"])
        assert len(copies_of(talk.journal).attached) == 1


# --- callers and readers that leave -------------------------------------------------------------------------------------


@on_a_loop
async def test_a_caller_is_cancelled_while_it_starts(tmp_path: Path) -> None:
    """At whatever await that hits: the run has not begun, or it continues to its end; and the thread is free for the next
    run."""
    async with talking(tmp_path) as talk:
        talk.model.say(words("fi", "ne"))
        seen = set()
        for hops in range(0, 60, 3):
            thread = f"t{hops}"
            caller = asyncio.create_task(talk.start("go", thread))
            for _ in range(hops):
                await asyncio.sleep(0 if hops % 2 else 0.0003)
            caller.cancel()
            await asyncio.wait([caller])
            await the_rest()
            ends = [facts(run) for run in await talk.journal.aruns(thread)]
            assert ends in ([], [("completed", None, True)])
            seen.add(str(ends))
            left = ["U go", "A fine"] if "completed" in str(ends) else []
            await talk.goes_on(*left, thread=thread)
        assert len(seen) > 1


async def leave(handle: RunHandle, how: str) -> None:
    """Read the run, or wait for it, and leave in the middle of it."""

    async def read() -> None:
        if how == "drop":
            handle.stream()
        elif how in ("events", "cancel in events"):
            async for event in (events := handle.events()):
                if event.kind == "llm.ai.delta" and how == "events":
                    break
            await events.aclose()  # type: ignore[attr-defined]
        elif how == "wait":
            await handle.wait()
        else:
            async for _ in (stream := handle.stream()):
                if how != "cancel":
                    break
            if how == "aclose":
                await stream.aclose()  # type: ignore[attr-defined]

    reading = asyncio.create_task(read())
    if "cancel" in how or how == "wait":
        for _ in range(50):
            await asyncio.sleep(0)
        assert not reading.done()
        reading.cancel()
    await asyncio.wait([reading])
    gc.collect()


@pytest.mark.guarantee("client leaves")
@pytest.mark.parametrize("how", LEAVING)
@on_a_loop
async def test_a_reader_that_leaves_changes_nothing(tmp_path: Path, how: str) -> None:
    """Code that reads the chunks or the events, or waits, is cancelled or stops reading: the run continues to its end."""
    async with talking(tmp_path) as talk:
        handle = await talk.start_held(stream_mode="messages")
        await leave(handle, how)
        talk.gate.open()
        assert facts(await handle.wait()) == ("completed", None, True)
        await talk.goes_on("U go", "A one two three")


@pytest.mark.parametrize("how", LEAVING)
@on_a_loop
async def test_the_last_reader_that_leaves_stops_the_run_if_asked_to(tmp_path: Path, how: str) -> None:
    """With on_disconnect="stop", the run ends with cause "disconnect" and is settled, but not while another reader is
    left."""
    async with talking(tmp_path) as talk:
        handle = await talk.start_held(stream_mode="messages", on_disconnect="stop")
        stays = asyncio.create_task(handle.wait())
        await asyncio.sleep(0)
        await leave(handle, how)
        for _ in range(50):
            await asyncio.sleep(0)
        assert (await talk.journal.arun(handle.run_id)).stop is None
        stays.cancel()
        await asyncio.wait([stays])
        await until(lambda: talk.journal.run(handle.run_id).ended)
        assert facts(await handle.wait()) == ("interrupted", "disconnect", True)
        await talk.goes_on("U go", "A~ one two ")


# --- what cannot begin ------------------------------------------------------------------------------------------------


BAD: dict[str, tuple[type[Exception], dict[str, Any]]] = {
    "a config of": (errors.InvalidArgument, {"config": {"configurable": {}}}),
    "no thread": (errors.InvalidArgument, {"config": None}),
    "run_id": (errors.InvalidArgument, {"config": on("t", run_id="seven")}),
    "if_busy": (errors.InvalidArgument, {"if_busy": "perhaps"}),
    "on_disconnect": (errors.InvalidArgument, {"on_disconnect": None}),
    "grace": (errors.InvalidArgument, {"grace": -1}),
    "grace none": (errors.InvalidArgument, {"grace": None}),
    "grace text": (errors.InvalidArgument, {"grace": "2"}),
    "timeout": (errors.InvalidArgument, {"timeout": -0.5}),
    "not compiled": (errors.NotAttachable, {"graph": StateGraph(MessagesState)}),
    "no limit": (ValueError, {"config": on("t", recursion_limit=0)}),
}


@pytest.mark.parametrize("what", BAD)
@on_a_loop
async def test_what_cannot_begin(tmp_path: Path, what: str) -> None:
    """The error says what is wrong, no run is left, and the thread is free: also if LangGraph raises the error."""
    error, given = BAD[what]
    async with talking(tmp_path) as talk:
        talk.model.say(words("never"))
        with pytest.raises(error) as raised:
            await start_run(**{"graph": talk.agent, "input": say("go"), "config": on("t"), **given})
        assert what.split()[0] in str(raised.value) or len(what.split()) > 1
        assert (len(core_of(talk.journal).local_runs), talk.model.seen) == (0, [])
        runs = await talk.journal.aruns()
        assert [run.status for run in runs] == (["failed"] if what == "no limit" else [])
        await talk.goes_on()


@on_a_loop
async def test_a_run_id_is_used_once(tmp_path: Path) -> None:
    """`start_run` refuses an id that another run has or had, on whatever thread; neither thread becomes busy."""
    async with talking(tmp_path) as talk:
        handle = await talk.start_held()
        for thread in ("t", "other"):
            with pytest.raises((errors.InvalidArgument, errors.ThreadBusy), match=r"run_id|is busy"):
                await start_run(talk.agent, say("again"), on(thread, run_id=handle.run_id))
        assert await talk.journal.aruns("other") == []
        talk.gate.open()
        assert facts(await handle.wait()) == ("completed", None, True)
        for thread in ("t", "other"):
            with pytest.raises(errors.InvalidArgument, match="an id that no run of the journal has"):
                await start_run(talk.agent, say("again"), on(thread, run_id=handle.run_id))
        await talk.goes_on(thread="other")
        await talk.goes_on("U go", "A one two three")


@on_a_loop
async def test_what_belongs_elsewhere(tmp_path: Path) -> None:
    """`start_run` refuses the config of a node, a graph of no journal, and a closed journal; nothing has begun."""
    told = []
    async with talking(tmp_path) as talk:

        async def tries(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
            with pytest.raises(errors.InvalidArgument, match="config of a node") as raised:
                await start_run(talk.agent, say("inner"), config)
            told.append(raised.value)
            return {"messages": []}

        graph = StateGraph(MessagesState)
        graph.add_node("tries", tries)
        graph.add_edge(START, "tries")
        outer = attach(graph.compile(checkpointer=talk.saver, name="outer"), talk.journal)
        run = await (await start_run(outer, say("go"), on("outer"))).wait()
        assert (facts(run), len(told)) == (("completed", None, True), 1)
        with pytest.raises(errors.InvalidArgument, match="attach"):
            await start_run(talk.plain, say("go"), on("t"))
        other = RunJournal(tmp_path / "other.db")
        other.close()
        for agent, journal in ((talk.plain, other), (attach(talk.plain, other), None)):
            with pytest.raises(errors.JournalClosed):
                await start_run(agent, say("go"), on("t"), journal=journal)
        assert await talk.journal.aruns("t") == []
        await talk.goes_on()


@on_a_loop
async def test_attached_elsewhere(tmp_path: Path) -> None:
    """`start_run` refuses a second journal for an attached graph, before anything begins."""
    async with talking(tmp_path) as talk:
        with RunJournal(tmp_path / "other.db") as other:
            with pytest.raises(errors.InvalidArgument, match="to which the graph is attached"):
                await start_run(talk.agent, say("go"), on("t"), journal=other)
            assert (other.runs(), talk.journal.runs()) == ([], [])


@on_a_loop
async def test_an_unknown_option(tmp_path: Path) -> None:
    """`start_run` refuses it: LangGraph would accept it and say nothing, and a typing error would change what a second
    message does."""
    async with talking(tmp_path) as talk:
        with pytest.raises(errors.InvalidArgument, match="ifbusy"):
            await talk.start(ifbusy="stop")
        assert await talk.journal.aruns() == []
