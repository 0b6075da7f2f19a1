"""Which words are answers, in nodes that do more than return what a model says."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, interrupt

from langchain_runjournal import RunJournal, attach, is_partial
from langchain_runjournal.testing import Call, ScriptedChatModel

THREAD: RunnableConfig = {"configurable": {"thread_id": "t"}}


class Stage:
    """An attached graph, and a word of its models at which the test stops it."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.never = asyncio.Event()

    @property
    def stop(self) -> list[Any]:
        """Where the user presses Stop."""
        return [self.reached.set, self.never.wait]

    def perform(self, graph: Any, journal: RunJournal) -> None:
        self.agent = attach(graph.compile(checkpointer=InMemorySaver(), name="g"), journal)

    async def run(self, given: Any = None, config: Any = THREAD) -> None:
        """Run the graph to its end, or until it is stopped."""

        async def stream() -> None:
            async for _ in self.agent.astream(given, config, stream_mode="messages"):
                pass

        self.reached.clear()
        task = asyncio.ensure_future(stream())
        waiting = asyncio.ensure_future(self.reached.wait())
        await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if not task.done():
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        else:
            task.result()

    async def thread_lines(self) -> list[str]:
        """The thread, a line for each message."""
        state = await self.agent.aget_state(THREAD)
        assert state.next == ()
        return [f"{one.type}{'~' if is_partial(one) else ''} {one.text}".strip() for one in state.values["messages"]]


def one_node(node: Any) -> Any:
    return StateGraph(MessagesState).add_node("talk", node).add_edge(START, "talk")


def say(text: str) -> dict[str, Any]:
    return {"messages": [("user", text)]}


RETOLD: dict[str, Callable[[str], Any]] = {
    "stripped": lambda text: AIMessage(text.strip()),
    "with sources": lambda text: AIMessage(f"{text}\n\nSources: [1]"),
    "named": lambda text: AIMessage(f"Bob says: {text}"),
    "of another speaker": lambda text: HumanMessage(text, name="researcher"),
    "in two parts": lambda text: [AIMessage(text[:8]), AIMessage(text[8:])],
    "declined for once": lambda text: AIMessage("I had rather not.") if "First" in text else AIMessage(text),
}


@pytest.mark.parametrize("how", RETOLD)
def test_words_that_a_node_changes_on_their_way_are_kept(how: str) -> None:
    """The node gave them to the user all the same: the words of a later turn that is cut off stand in the thread."""

    async def scenario() -> None:
        stage = Stage()
        model = ScriptedChatModel(["\nFirst answer. ", ["Stop loses ", *stage.stop, "nothing."]])

        async def talk(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
            made = RETOLD[how]((await model.ainvoke(state["messages"], config)).text)
            return {"messages": made if isinstance(made, list) else [made]}

        async with RunJournal(":memory:") as journal:
            stage.perform(one_node(talk), journal)
            await stage.run(say("hi"))
            await stage.run(say("again"))
            assert (await stage.thread_lines())[-2:] == ["human again", "ai~ Stop loses"]

    asyncio.run(scenario())


def test_a_node_that_asks_two_models_and_keeps_one() -> None:
    """From the second turn on, the journal knows which call of the node answers the user, and distinguishes it from the
    other."""

    async def scenario() -> None:
        stage = Stage()
        asks = ScriptedChatModel(["query: rice", "query: beans", ["query: ", *stage.stop, "peas"]])
        talks = ScriptedChatModel(["Rice takes twenty.", ["Beans take ", *stage.stop, "long."]])

        async def talk(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
            query = await asks.ainvoke(state["messages"], config)
            return {"messages": [await talks.ainvoke([("user", query.text)], config)]}

        async with RunJournal(":memory:") as journal:
            stage.perform(one_node(talk), journal)
            for text in ("rice?", "beans?", "peas?"):
                await stage.run(say(text))
            turns = ["human rice?", "ai Rice takes twenty.", "human beans?", "ai~ Beans take", "human peas?"]
            assert await stage.thread_lines() == turns

    asyncio.run(scenario())


@pytest.mark.parametrize("tools", [1, 2])
def test_a_tool_that_asks_a_model_for_itself(tools: int) -> None:
    """LangChain gives the config of the task to a tool that asks for one: the words stay inside of the tool all the same."""

    async def scenario() -> None:
        stage = Stage()
        inner = ScriptedChatModel([["INTERNAL one ", stage.never.wait]] * (tools - 1) + [["INTERNAL verdict ", *stage.stop]])
        calls = [Call("look", {"x": str(one)}) for one in range(tools)]
        outer = ScriptedChatModel([["Let me see. ", *calls], "ok"])

        async def look(x: str, config: RunnableConfig) -> str:
            """Look."""
            return (await inner.ainvoke(x, config)).text

        async with RunJournal(":memory:") as journal:
            agent = create_agent(outer, [look], checkpointer=InMemorySaver(), name="g")
            stage.agent = attach(agent, journal)
            await stage.run(say("hi"))
            thread_lines = await stage.thread_lines()
            assert thread_lines[:2] == ["human hi", "ai Let me see."]
            assert [one.split()[0] for one in thread_lines[2:]] == ["tool"] * tools
            assert not any("INTERNAL" in one for one in thread_lines)

    asyncio.run(scenario())


def test_branches_inside_of_a_subgraph_are_not_attempts_of_each_other() -> None:
    """One branch fails in mid-sentence and another one then asks its model: the journal keeps the words of both."""

    async def scenario() -> None:
        stage, failed = Stage(), asyncio.Event()
        one = ScriptedChatModel([["Alpha ", "beta ", failed.set, ConnectionError("dropped")]])
        two = ScriptedChatModel(["Gamma delta"])

        async def first(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
            return {"messages": [await one.ainvoke(state["messages"], config)]}

        async def plan(state: MessagesState) -> dict[str, Any]:
            try:
                await failed.wait()
                await stage.never.wait()  # it is cancelled, and continues all the same
            except asyncio.CancelledError:
                pass
            return {"messages": [await two.ainvoke(state["messages"])]}

        inner = StateGraph(MessagesState)
        inner.add_node("a", one_node(first).compile()).add_node("b", one_node(plan).compile())
        inner.add_edge(START, "a").add_edge(START, "b")
        graph = StateGraph(MessagesState).add_node("sub", inner.compile()).add_edge(START, "sub")
        async with RunJournal(":memory:") as journal:
            stage.perform(graph, journal)
            with pytest.raises(ConnectionError):
                await stage.run(say("hi"))
            assert "ai~ Alpha beta" in await stage.thread_lines()

    asyncio.run(scenario())


@pytest.mark.parametrize("form", [("ai", "approved"), AIMessage("approved")], ids=["pair", "message"])
@pytest.mark.parametrize("asks", [True, False], ids=["interrupt", "resume_config"])
def test_what_a_node_writes_in_a_resumed_run_stands_there_once(asks: bool, form: Any) -> None:
    """The message has no id, and LangGraph holds it for a task that finished beside one that was cut off."""
    if asks and sys.version_info < (3, 11):
        pytest.skip("LangGraph cannot interrupt there in asynchronous code")

    async def scenario() -> None:
        stage, runs = Stage(), []
        model = ScriptedChatModel([["one ", *stage.stop], ["two ", *stage.stop]])

        async def note(state: MessagesState) -> dict[str, Any]:
            runs.append(1)
            if asks:
                interrupt("ok?")
            elif len(runs) == 1:
                await stage.never.wait()
            return {"messages": [form]}

        async def talk(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
            return {"messages": [await model.ainvoke([("user", "x")], config)]}

        graph = StateGraph(MessagesState).add_node("note", note).add_node("talk", talk)
        graph.add_edge(START, "note").add_edge(START, "talk")
        async with RunJournal(":memory:") as journal:
            stage.perform(graph, journal)
            await stage.run(say("hi"))
            if asks:
                await stage.run(Command(resume="yes"))
            else:
                [run] = await journal.aruns()
                await stage.run(None, journal.resume_config(run.run_id))
            assert await stage.thread_lines() == ["human hi", "ai approved", "ai~ two"]

    asyncio.run(scenario())
