"""The graph with which the requests of LangGraph's clients were recorded, made again: it does what a message says.

`tool please`, `interrupt me`, `sub please`, `custom please`, `slow`, `boom`; any other message is answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from langchain_core.messages import BaseMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import StreamWriter, interrupt
from typing_extensions import NotRequired

from langchain_runjournal.testing import Call, ScriptedChatModel

SLOW = 60
"""How many words the slow answer has."""


class ProbeState(MessagesState):
    note: NotRequired[str]


class Pace:
    """The speed of the slow answer: it stops at a word until a test lets it go on."""

    def __init__(self) -> None:
        self.is_open = asyncio.Event()
        """Cleared: the slow answer waits."""
        self.is_open.set()
        self.is_slow = asyncio.Event()
        """Set when the slow answer has said its first words."""

    async def __call__(self) -> None:
        self.is_slow.set()
        await self.is_open.wait()


def script(pace: Callable[[], Awaitable[None]]) -> Callable[[Sequence[BaseMessage]], Any]:
    """Return what the model answers."""

    def say(messages: Sequence[BaseMessage]) -> Any:
        humans = [one for one in messages if one.type == "human"]
        turn, asked, last = len(humans), humans[-1].text if humans else "", messages[-1]
        if last.type == "tool":
            return f"The tool said: {last.text}. Turn {turn}."
        if asked.startswith("tool"):
            return ["Looking it up.", Call("lookup", {"q": "weather", "n": 1})]
        if asked.startswith("interrupt"):
            return ["May I?", Call("danger", {"what": "rm", "n": 1})]
        if asked == "slow":
            return [*(f"w{number} " for number in range(4)), pace, " ".join(f"w{number}" for number in range(4, SLOW))]
        if asked == "boom":
            return [f"Turn {turn}: ", ValueError("kaboom: the graph has failed")]
        return f"Turn {turn}: you said {asked!r} and here is an answer of a few words"

    return say


def probe(saver: Any, name: str = "probe", pace: Callable[[], Awaitable[None]] | None = None) -> Any:
    """Return the compiled graph."""

    async def at_once() -> None:
        pass

    model = ScriptedChatModel(script(pace or at_once), strict=False)

    async def agent(state: ProbeState, config: RunnableConfig, writer: StreamWriter) -> dict[str, Any]:
        if state["messages"] and state["messages"][-1].text.startswith("custom"):
            for number in range(3):
                writer({"progress": number, "of": 3})
        return {"messages": [await model.ainvoke(state["messages"], config)]}

    def tools(state: ProbeState, writer: StreamWriter) -> dict[str, Any]:
        [call] = state["messages"][-1].tool_calls  # type: ignore[union-attr]
        if call["name"] == "lookup":
            writer({"tool": "lookup", "step": 1})
            found = "sunny"
        else:
            found = f"answer was {interrupt({'action': 'danger', 'args': call['args'], 'question': 'go ahead?'})!r}"
        return {"messages": [ToolMessage(found, name=call["name"], tool_call_id=call["id"])]}

    async def inner(state: ProbeState, config: RunnableConfig) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"], config)], "note": "from the subgraph"}

    def after(state: ProbeState) -> str:
        return "tools" if state["messages"] and getattr(state["messages"][-1], "tool_calls", ()) else END

    def first(state: ProbeState) -> str:
        return "sub" if state["messages"] and state["messages"][-1].text.startswith("sub") else "agent"

    sub = StateGraph(ProbeState).add_node("inner", inner).add_edge(START, "inner").compile(name="sub")
    graph = StateGraph(ProbeState).add_node("agent", agent).add_node("tools", tools).add_node("sub", sub)
    graph.add_conditional_edges(START, first, ["agent", "sub"])
    graph.add_conditional_edges("agent", after, ["tools", END])
    graph.add_edge("tools", "agent")
    return graph.compile(checkpointer=saver, name=name)
