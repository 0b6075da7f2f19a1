"""`start_run`: what readers of a run get, and how a run ends whose graph fails or waits for a human, or whose time or loop
ends."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, interrupt

from langchain_runjournal import Event, RunHandle, RunJournal, attach, errors, start_run
from tests.support.agents import asks, words
from tests.support.conversations import (
    PATIENCE,
    Broken,
    Gate,
    Recording,
    build,
    end_of,
    nothing_is_wrong,
    open_saver,
    the_rest,
    until,
)
from tests.support.started_agent import SAVERS, Talk, everywhere, facts, on, on_a_loop, say, talking


def looping(steps: int, passed: list[int]) -> Any:
    """A graph of many steps, each of which is a chunk in mode "updates"."""

    async def step(state: MessagesState) -> dict[str, Any]:
        passed.append(len(passed))
        return {"messages": []}

    graph = StateGraph(MessagesState)
    graph.add_node("step", step)
    graph.add_edge(START, "step")
    graph.add_conditional_edges("step", lambda state: "step" if len(passed) < steps else "__end__", ["step", "__end__"])
    return graph.compile(name="looping")


async def start_looping(talk: Talk, steps: int, passed: list[int], **options: Any) -> RunHandle:
    graph = attach(looping(steps, passed), talk.journal)
    return await start_run(graph, say("go"), {"recursion_limit": steps + 5}, stream_mode="updates", **options)


async def spin(count: int = 300) -> None:
    """Let the other tasks do what they can: a task that has not ended after that waits for something."""
    for _ in range(count):
        await asyncio.sleep(0)


# --- chunks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [None, "updates", "messages", ["values", "custom", "messages"]])
@on_a_loop
async def test_the_chunks_of_the_graph(tmp_path: Path, mode: Any) -> None:
    """A reader gets them to the end as `astream` gives them, in their order, whenever it begins to read."""
    async with talking(tmp_path) as talk:
        given: list[list[str]] = []
        for thread in ("early", "late", "plain"):
            talk.model.say(asks(("c1", "quick", {"x": 1})), words("fi", "ne"))
            if thread == "plain":
                chunks = [chunk async for chunk in talk.agent.astream(say("go"), on(thread), stream_mode=mode)]
            else:
                handle = await talk.start(thread=thread, stream_mode=mode)
                if thread == "late":
                    await handle.wait()
                chunks = [chunk async for chunk in handle.stream()]
            given.append([shape(chunk) for chunk in chunks])
        assert given[0] == given[1] == given[2]
        assert len(given[0]) > 2


def shape(chunk: Any) -> str:
    """What a chunk is, without what belongs to one run only."""
    match chunk:
        case dict():
            return str({key: shape(value) for key, value in chunk.items()})
        case list() | tuple():
            return str([shape(one) for one in chunk if not isinstance(one, dict) or "langgraph_step" not in one])
        case str():
            return chunk
    return f"{type(chunk).__name__} {chunk.text}"


@on_a_loop
async def test_a_slow_reader_is_waited_for(tmp_path: Path) -> None:
    """The graph gets no further ahead of its reader than 64 chunks; when the reader has gone, it continues to its end."""
    async with talking(tmp_path) as talk:
        passed: list[int] = []
        handle = await start_looping(talk, 300, passed)
        reader, taken = handle.stream(), 0
        for read in (1, 50, 100):
            for _ in range(read):
                await reader.__anext__()
            taken += read
            await until(lambda: len(passed) >= taken + 62)  # noqa: B023
            await spin()
            assert len(passed) <= taken + 66
        assert (await talk.journal.arun(handle.run_id)).status == "running"
        await reader.aclose()  # type: ignore[attr-defined]
        assert (await handle.wait()).status == "completed"
        assert len(passed) == 300
        with pytest.raises(errors.ChunksGone, match="reader was closed or garbage-collected"):
            handle.stream()


@on_a_loop
async def test_a_stop_while_the_run_waits_for_its_reader(tmp_path: Path) -> None:
    """The run stops all the same; the reader gets the chunks that are left, and then the end without an error."""
    async with talking(tmp_path) as talk:
        passed: list[int] = []
        handle = await start_looping(talk, 300, passed)
        reader = handle.stream()
        await reader.__anext__()
        await until(lambda: len(passed) >= 64)
        assert facts(await handle.stop())[:2] == ("interrupted", "stop")
        rest = [chunk async for chunk in reader]
        assert (60 <= len(rest) <= 70, len(passed) < 100) == (True, True)


@on_a_loop
async def test_a_reader_that_never_comes(tmp_path: Path) -> None:
    """The run does not wait for the reader, and keeps no more than 1,000 chunks for it."""
    async with talking(tmp_path) as talk:
        for steps in (1_000, 1_001):
            passed: list[int] = []
            handle = await start_looping(talk, steps, passed)
            assert (await handle.wait()).status == "completed"
            assert len(passed) == steps
            if steps == 1_000:
                assert len([chunk async for chunk in handle.stream()]) == 1_000
            else:
                with pytest.raises(errors.ChunksGone, match="more than 1000"):
                    handle.stream()


@on_a_loop
async def test_a_handle_that_is_garbage_collected(tmp_path: Path) -> None:
    """The run continues, and any process finds it in the journal."""
    async with talking(tmp_path) as talk:
        handle = await talk.start_held(on_disconnect="stop")
        run_id = handle.run_id
        del handle
        gc.collect()
        await spin()
        talk.gate.open()
        await until(lambda: talk.journal.run(run_id).ended)
        assert facts(talk.journal.run(run_id)) == ("completed", None, True)
        await talk.goes_on("U go", "A one two three")


@on_a_loop
async def test_one_reader_on_one_loop(tmp_path: Path) -> None:
    """A second reader, and one on another event loop, get `ChunksGone`; they disturb neither the run nor its reader."""
    async with talking(tmp_path) as talk:
        handle = await talk.start_held(stream_mode="messages")
        reader = handle.stream()
        with pytest.raises(errors.ChunksGone, match="already"):
            handle.stream()

        async def elsewhere() -> None:
            with pytest.raises(errors.ChunksGone, match="event loop"):
                await reader.__anext__()

        await asyncio.get_running_loop().run_in_executor(None, lambda: asyncio.run(elsewhere()))
        talk.gate.open()
        assert "".join([chunk[0].text async for chunk in reader]) == "one two three"
        assert facts(await handle.wait()) == ("completed", None, True)


@on_a_loop
async def test_the_events_of_a_run(tmp_path: Path) -> None:
    """Any number of followers, in any process, get each event once."""
    async with talking(tmp_path) as talk:
        handle = await talk.start_held()

        async def follow(after: int) -> list[int]:
            return [event.seq async for event in handle.events(after)]

        early = [asyncio.create_task(follow(after)) for after in (0, 3)]
        await spin()
        talk.gate.open()
        run = await handle.wait()
        whole = list(range(1, run.last_seq + 1))
        found = await asyncio.wait_for(asyncio.gather(*early, follow(0), follow(run.last_seq)), PATIENCE)
        assert found == [whole, whole[3:], whole, []]


@pytest.mark.parametrize("on_disconnect", ["continue", "stop"])
@pytest.mark.parametrize("how", ["stream", "events", "wait"])
@on_a_loop
async def test_a_keep_alive_between_two_steps(tmp_path: Path, how: str, on_disconnect: Any) -> None:
    """A reader that limits how long it waits, sends a keep-alive to its client and waits again misses nothing."""
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
async def test_a_cancelled_reader_that_does_not_return_is_gone(tmp_path: Path) -> None:
    """With on_disconnect="stop", that stops the run; a reader that returns too late gets `ChunksGone`."""
    async with talking(tmp_path) as talk:
        handle = await talk.start_held(stream_mode="messages", on_disconnect="stop")
        reader: Any = handle.stream()
        while True:
            try:
                await asyncio.wait_for(anext(reader), 0.05)
            except asyncio.TimeoutError:
                break
        await end_of(talk.journal, handle.run_id)  # `handle.wait` would be a reader as well
        assert facts(await handle.wait()) == ("interrupted", "disconnect", True)
        with pytest.raises(errors.ChunksGone, match="reader was closed or garbage-collected"):
            await anext(reader)
        await talk.goes_on("U go", "A~ one two ")


# --- how it ends ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("saver", SAVERS)
@pytest.mark.parametrize("reads", ["early", "late", "never"])
@on_a_loop
async def test_a_graph_that_fails(tmp_path: Path, saver: str, reads: str) -> None:
    """The reader gets the chunks and then the error of the graph; `wait` returns a run that failed, and the thread is
    whole."""
    async with talking(tmp_path, saver) as talk:
        error = Broken("in the middle")
        talk.model.say([*words("one ", "two "), talk.gate.apass, error])
        handle = await talk.start(stream_mode="messages")
        await asyncio.wait_for(talk.gate.reached.wait(), PATIENCE)
        reader = handle.stream() if reads == "early" else None
        talk.gate.open()
        run = await handle.wait()
        assert (facts(run), "in the middle" in (run.error or "")) == (("failed", None, True), True)
        if reads != "never":
            said = ""
            with pytest.raises(Broken) as raised:
                async for chunk in reader or handle.stream():
                    said += chunk[0].text
            assert (raised.value, said) == (error, "one two ")
        await talk.goes_on("U go", "A~ one two ")


@everywhere
async def test_a_limit_of_time(tmp_path: Path, kind: str, saver: str) -> None:
    """When the time is over, the run is stopped, cause "timeout"; a quicker run is not disturbed."""
    async with talking(tmp_path, saver, kind) as talk:
        handle = await talk.start_held(timeout=0.3)
        assert facts(await asyncio.wait_for(handle.wait(), PATIENCE)) == ("interrupted", "timeout", True)
        assert [chunk async for chunk in handle.stream()] == []
        await talk.goes_on("U go", "A~ one two ")
        talk.model.say(words("quick"))
        assert facts(await (await talk.start(timeout=1e9)).wait()) == ("completed", None, True)
        assert facts(await (await talk.start(timeout=0)).wait())[:2] in (("interrupted", "timeout"), ("completed", None))


@pytest.mark.parametrize("how", ["async with", "close in a thread"])
@pytest.mark.parametrize("saver", SAVERS)
@on_a_loop
async def test_the_journal_is_closed(tmp_path: Path, saver: str, how: str) -> None:
    """Closing a journal first stops the runs that this process has started, cause "shutdown", and settles them."""
    async with talking(tmp_path, saver) as talk:
        async with RunJournal(tmp_path / "runs.db") as journal:
            model, gate = Recording(), Gate()
            model.say([*words("one ", "two "), gate.apass])
            agent = attach(build("by hand", model, talk.tools, talk.saver), journal, capture_invoke=True)
            handles = [await start_run(agent, say("go"), on(f"s{number}")) for number in range(3)]
            await until(lambda: len(model.seen) == 3)
            waits = asyncio.create_task(handles[0].wait())
            if how != "async with":
                await asyncio.get_running_loop().run_in_executor(None, journal.close)
        assert facts(await waits) == ("interrupted", "shutdown", True)
        for handle in handles:
            assert facts(await handle.wait()) == ("interrupted", "shutdown", True)
            assert facts(await talk.journal.arun(handle.run_id)) == ("interrupted", "shutdown", True)
        await talk.goes_on("U go", "A~ one two ", thread="s0")
        with pytest.raises(errors.JournalClosed):
            await start_run(agent, say("go"), on("s1"))


def test_the_loop_ends_under_a_run(tmp_path: Path) -> None:
    """`asyncio.run` returns while runs are running: they end with cause "shutdown", and their threads are settled."""
    with nothing_is_wrong(), RunJournal(tmp_path / "runs.db") as journal:
        saver: Any = open_saver(None, str(tmp_path / "threads.db"))
        started: list[str] = []

        async def goes_away() -> None:
            opened = await saver.__aenter__()
            talk = Talk(journal, opened)
            started.append((await talk.start_held()).run_id)

        async def comes_back() -> None:
            async with open_saver(None, str(tmp_path / "threads.db")) as opened:
                await Talk(journal, opened).goes_on("U go", "A~ one two ")
                await the_rest()

        asyncio.run(goes_away())
        assert facts(journal.run(started[0])) == ("interrupted", "shutdown", True)
        asyncio.run(comes_back())
        asyncio.run(saver.__aexit__(None, None, None))


@tool
async def ask_human(what: str) -> str:
    """Asks."""
    return f"human says {interrupt(what)}"


@everywhere
async def test_a_run_that_waits_for_a_human(tmp_path: Path, kind: str, saver: str) -> None:
    """The run is paused and has no owner; a stop leaves it alone, and a resume is a new run that continues it."""
    async with talking(tmp_path, saver, kind, tools=[ask_human]) as talk:
        talk.model.say(asks(("c1", "ask_human", {"what": "ok?"})), words("fi", "ne"))
        handle = await talk.start()
        paused = await asyncio.wait_for(handle.wait(), PATIENCE)
        assert (paused.status, paused.owner, paused.continues) == ("paused", None, None)
        assert [event.kind async for event in handle.events()][-1] == "run.pause"
        assert await handle.stop() == await talk.journal.astop(handle.run_id) == paused
        resumed = await start_run(talk.agent, Command(resume="yes"), on("t"))
        run = await resumed.wait()
        assert (facts(run), run.continues) == (("completed", None, True), handle.run_id)
        assert (await talk.journal.arun(handle.run_id)).status == "completed"
        await talk.goes_on("U go", "A Looking. (c1)", "T(c1) human says yes", "A fine")


@pytest.mark.parametrize("saver", SAVERS)
@on_a_loop
async def test_a_stopped_run_is_resumed(tmp_path: Path, saver: str) -> None:
    """With `resume_config`, only what had not finished runs again, and the new run continues the old one."""
    async with talking(tmp_path, saver) as talk:
        talk.model.say(asks(("c1", "quick", {"x": 1})), [*words("one "), talk.gate.apass, *words("two")], words("all"))
        handle = await talk.start()
        await asyncio.wait_for(talk.gate.reached.wait(), PATIENCE)
        assert facts(await handle.stop()) == ("interrupted", "stop", True)
        assert await talk.thread() == ["U go", "A Looking. (c1)", "T(c1) quick 1", "A~ one "]
        resumed = await start_run(talk.agent, None, await talk.journal.aresume_config(handle.run_id))
        run = await resumed.wait()
        assert (facts(run), run.continues) == (("completed", None, True), handle.run_id)
        await talk.goes_on("U go", "A Looking. (c1)", "T(c1) quick 1", "A all")


@on_a_loop
async def test_a_follower_is_cancelled_when_news_comes(tmp_path: Path) -> None:
    """The follower ends, however close the cancellation and the next event are."""
    async with talking(tmp_path) as talk:
        handle = await talk.start_held()

        async def follow() -> None:
            async for _ in handle.events():
                pass

        deaf = []
        for hops in range(12):
            following = asyncio.create_task(follow())
            await asyncio.sleep(0.05)  # no event shows that it sleeps
            talk.journal.append(Event(run_id=handle.run_id, kind="llm.ai.delta", data={"text": "!"}))
            await spin(hops)
            following.cancel()
            await asyncio.wait([following], timeout=0.3)
            if not following.done():
                deaf.append(hops)
                following.cancel()
        talk.gate.open()
        await handle.wait()
        assert deaf == []
