"""No zombie: after a stop has returned, code that could not be interrupted reports no token, and none of its calls
begins."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode

from langchain_runjournal import attach, start_run
from tests.runs.test_start_run_stop import STOPPED, held
from tests.support.agents import words
from tests.support.conversations import PATIENCE, Gate, the_rest, until
from tests.support.started_agent import Talk, facts, on, on_a_loop, say, talking


def in_a_thread(how: str, talk: Talk, started: list[str]) -> Callable[[int, RunnableConfig], Any]:
    """What a synchronous node does, the first time and then once more. The first time, the gate holds it in the middle."""

    @tool
    def works(x: int) -> str:
        """Works."""
        started.append(f"tool {x}")
        if x == 1:
            talk.gate.hold()
        return "worked"

    def call(x: int) -> Any:
        return {"name": "works", "args": {"x": x}, "id": f"c{x}", "type": "tool_call"}

    nodes = ToolNode([works])
    match how:
        case "invoke":
            return lambda x, config: talk.model.invoke("go", config)
        case "stream":
            return lambda x, config: list(talk.model.stream("go", config))
        case "tool":
            return lambda x, config: works.invoke(call(x), config)
    return lambda x, config: nodes.invoke({"messages": [AIMessage(content="", tool_calls=[call(x)])]}, config)


@pytest.mark.parametrize("how", ["invoke", "stream", "tool", "ToolNode"])
@pytest.mark.parametrize("place", ["node", "tool"])
@on_a_loop
async def test_no_zombie_on_a_thread(tmp_path: Path, place: str, how: str) -> None:
    """After a stop has returned, code on a thread that could not be interrupted gets no token, no tool and no model."""
    started: list[str] = []
    raised: list[str] = []
    done = threading.Event()
    async with talking(tmp_path) as talk:
        goes_on = [*words("one "), talk.gate.hold, *words("two "), lambda: started.append("three"), *words("three")]
        talk.model.say(goes_on, words("a second call"))
        does = in_a_thread(how, talk, started)

        def work(x: int, config: RunnableConfig) -> str:
            """Works on and on."""
            try:
                for time in (1, 2):
                    try:
                        does(time, config)
                    except BaseException as exc:
                        raised.append(type(exc).__name__)
                if how in ("tool", "ToolNode"):
                    does(3, config)  # the first call had begun, and ended
            except BaseException as exc:
                raised.append(type(exc).__name__)
            finally:
                done.set()
            return "worked"

        def node(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
            if place == "node":
                work(1, config)
                return {"messages": [("ai", "worked")]}
            asked = AIMessage(content="", tool_calls=[{"name": "work", "args": {"x": 1}, "id": "w", "type": "tool_call"}])
            return {"messages": [asked, *ToolNode([tool(work)]).invoke({"messages": [asked]}, config)["messages"]]}

        graph = StateGraph(MessagesState)
        graph.add_node("node", node)
        graph.add_edge(START, "node")
        agent = attach(graph.compile(checkpointer=talk.saver, name="threaded"), talk.journal)
        handle = await start_run(agent, say("go"), on("t"), grace=0.05, stream_mode="messages")
        await held(talk.gate)
        assert facts(await asyncio.wait_for(handle.stop(), PATIENCE)) == STOPPED
        before = await talk.journal.aread(handle.run_id), list(started), len(talk.model.seen)
        state = (await agent.aget_state(on("t"))).values
        talk.gate.open()
        await until(done.is_set)
        await the_rest()
        assert (list(started), len(talk.model.seen)) == before[1:]
        assert raised.count("CancelledError") == len(raised) == 2
        late = [event.kind for event in (await talk.journal.aread(handle.run_id))[len(before[0]) :]]
        assert not [kind for kind in late if kind not in ("llm.tool.result", "tool.error", "llm.error")]
        assert (await agent.aget_state(on("t"))).values == state
        said = "".join([chunk[0].text async for chunk in handle.stream() if chunk[0].type == "AIMessageChunk"])
        assert said in ("one ", "")


# LangChain does not await the callbacks that come after the one that refuses.
@pytest.mark.filterwarnings("ignore:.*ahandle_event:pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore:.*ahandle_event:RuntimeWarning")
@on_a_loop
async def test_no_zombie_on_the_loop(tmp_path: Path) -> None:
    """A stop abandons a node that swallows every cancellation: the next token of the node is refused, and so is its next
    call."""
    raised: list[str] = []
    waits = Gate()
    async with talking(tmp_path) as talk:
        talk.model.say([*words("one "), talk.gate.apass, *words("two ", "three")], words("a second call"))

        async def stubborn(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
            for call in range(3):
                speaking = asyncio.ensure_future(talk.model.ainvoke(f"go {call}", config))
                while not speaking.done():
                    try:
                        await asyncio.wait([speaking])
                    except asyncio.CancelledError:
                        raised.append("swallowed")
                # In the middle of an answer, LangChain turns the refusal into an error.
                refused = speaking.cancelled() or speaking.exception() is not None
                raised.append("refused" if refused else "answered")
            return {"messages": [("ai", "stubborn")]}

        async def other(state: MessagesState) -> None:
            await waits.apass()

        graph = StateGraph(MessagesState)
        graph.add_node("stubborn", stubborn)
        graph.add_node("other", other)
        graph.add_edge(START, "stubborn")
        graph.add_edge(START, "other")
        agent = attach(graph.compile(checkpointer=talk.saver, name="stubborn"), talk.journal, capture_invoke=True)
        handle = await start_run(agent, say("go"), on("t"), grace=0.05)
        await held(talk.gate)
        await held(waits)
        assert facts(await asyncio.wait_for(handle.stop(), PATIENCE)) == STOPPED
        left = (await agent.aget_state(on("t"))).values
        talk.gate.open()
        await until(lambda: len(raised) == 4)
        await the_rest()
        assert (raised, len(talk.model.seen)) == (["swallowed", "refused", "refused", "refused"], 1)
        assert (await agent.aget_state(on("t"))).values == left


@on_a_loop
async def test_a_node_in_the_task_of_the_graph(tmp_path: Path) -> None:
    """The node swallows each cancellation, and LangGraph cannot abandon it: but every call that it begins is refused, until
    it ends."""
    tried: list[str] = []
    async with talking(tmp_path) as talk:
        talk.model.say([*words("one "), talk.gate.apass], words("a second call"))

        async def alone(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
            for call in range(4):
                try:
                    await talk.model.ainvoke(f"go {call}", config)
                    tried.append("answered")
                except asyncio.CancelledError:
                    tried.append("cancelled")
                # After its first cancellation, and not before its second one.
                await asyncio.wait([asyncio.ensure_future(refusing(handle))]) if call == 0 else None
            return {"messages": [("ai", "alone")]}

        graph = StateGraph(MessagesState)
        graph.add_node("alone", alone)
        graph.add_edge(START, "alone")
        agent = attach(graph.compile(checkpointer=talk.saver, name="alone"), talk.journal, capture_invoke=True)
        handle = await start_run(agent, say("go"), on("t"), grace=0.05)
        await held(talk.gate)
        run = await asyncio.wait_for(handle.stop(), PATIENCE)
        assert run.ended
        assert (set(tried), len(talk.model.seen)) == ({"cancelled"}, 1)


async def refusing(handle: Any) -> None:
    await until(lambda: handle._control.refuses)
