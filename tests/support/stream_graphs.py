"""Graphs of many shapes, which do the same each time: what LangGraph streams of a run is compared with what a server streams
of it."""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Callable
from typing import Annotated, Any, TypedDict

from langchain_core.callbacks.manager import adispatch_custom_event
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, Send, StreamWriter, interrupt

from tests.support.agents import Scripted, asks, words
from tests.support.models import ChatTokens, Gate

HELLO = {"messages": [HumanMessage("hello", id="h1")]}


def model(*scripts: list[Any]) -> Scripted:
    """Return a model that follows the scripts, and then repeats the last one."""
    return Scripted(scripts=list(scripts))


def answers(one: BaseChatModel) -> Callable[..., Any]:
    """Return a node that calls a model by `ainvoke`."""

    async def node(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
        return {"messages": [await one.ainvoke(state["messages"], config)]}

    return node


def _tools_next(state: MessagesState) -> str:
    last = state["messages"][-1]
    return "tools" if isinstance(last, AIMessage) and last.tool_calls else END


@tool
def look(q: str) -> str:
    """Look something up."""
    return f"sunny in {q}"


def tool_loop() -> Any:
    """A model, two tools side by side in one task, the model again."""
    asking = asks(("c1", "look", {"q": "Oslo"}), ("c2", "look", {"q": "Rome"}))
    graph = StateGraph(MessagesState)
    graph.add_node("agent", answers(model(asking, words("Both", " are", " sunny.", usage=True))))
    graph.add_node("tools", ToolNode([look]))
    graph.add_edge(START, "agent")
    graph.add_conditional_edges("agent", _tools_next)
    graph.add_edge("tools", "agent")
    return graph


class Fan(TypedDict):
    messages: Annotated[list[Any], operator.add]
    seen: Annotated[list[str], operator.add]
    secret: str


def fan_out() -> Any:
    """Three tasks side by side, of which one calls a model, and one gives nothing; then one that joins them."""
    one, first_is_over = model(words("From", " the", " first")), asyncio.Event()

    async def first(state: Fan, config: RunnableConfig) -> dict[str, Any]:
        said = await one.ainvoke(state["messages"], config)
        first_is_over.set()
        return {"messages": [said], "seen": ["first"]}

    async def second(state: Fan, config: RunnableConfig) -> dict[str, Any]:
        await first_is_over.wait()
        return {"messages": [await one.ainvoke(state["messages"], config)], "seen": ["second"]}

    def nothing(state: Fan) -> None:
        return None

    graph = StateGraph(Fan)
    graph.add_node("first", first)
    graph.add_node("second", second)
    graph.add_node("nothing", nothing)
    graph.add_node("join", lambda state: {"seen": ["join"], "secret": "s"})
    for name in ("first", "second", "nothing"):
        graph.add_edge(START, name)
    graph.add_edge(["first", "second", "nothing"], "join")
    return graph


def sends() -> Any:
    """Each tool call in a task of its own, by `Send`."""
    asking = asks(("c1", "look", {"q": "Oslo"}), ("c2", "look", {"q": "Rome"}))
    turn = asyncio.Event()

    async def one(state: dict[str, Any], config: RunnableConfig) -> dict[str, Any]:
        if state["id"] == "c2":
            await turn.wait()
        found = await look.ainvoke({"type": "tool_call", "name": "look", "args": state["args"], "id": state["id"]}, config)
        turn.set()
        return {"messages": [found]}

    def each(state: MessagesState) -> Any:
        last = state["messages"][-1]
        return [Send("one", call) for call in last.tool_calls] or END  # type: ignore[union-attr]

    graph = StateGraph(MessagesState)
    graph.add_node("agent", answers(model(asking, words("Both."))))
    graph.add_node("one", one)
    graph.add_edge(START, "agent")
    graph.add_conditional_edges("agent", each, ["one", END])
    graph.add_edge("one", "agent")
    return graph


def router() -> Any:
    """A node that only says where to go, and one whose message no model has made."""

    async def route(state: MessagesState, config: RunnableConfig) -> Command[Any]:
        await model(words("b")).with_config(tags=["nostream"]).ainvoke("where to?", config)
        return Command(goto="told")

    def told(state: MessagesState) -> Command[Any]:
        return Command(goto="agent", update={"messages": [AIMessage("Moment.", id="made")]})

    graph = StateGraph(MessagesState)
    graph.add_node("route", route, destinations=("told",))
    graph.add_node("told", told, destinations=("agent",))
    graph.add_node("agent", answers(model(words("Here", " you", " are."))))
    graph.add_edge(START, "route")
    return graph


def subgraph() -> Any:
    """A graph as a node of another one, with a tool and something of its own to say."""
    inner = tool_loop()

    def report(state: MessagesState, writer: StreamWriter) -> None:
        writer({"step": len(state["messages"])})

    inner.add_node("report", report)
    inner.add_edge("tools", "report")
    graph = StateGraph(MessagesState)
    graph.add_node("sub", inner.compile())
    graph.add_node("after", answers(model(words("So", " there."))))
    graph.add_edge(START, "sub")
    graph.add_edge("sub", "after")
    return graph


def called_graph() -> Any:
    """A graph that a function calls, inside of a graph that is a node."""
    deep = StateGraph(MessagesState)
    deep.add_node("say", answers(model(words("Deep", " words"))))
    deep.add_edge(START, "say")
    compiled = deep.compile()

    async def call(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
        found = await compiled.ainvoke({"messages": state["messages"]}, config)
        return {"messages": [found["messages"][-1]]}

    middle = StateGraph(MessagesState)
    middle.add_node("call", call)
    middle.add_edge(START, "call")
    graph = StateGraph(MessagesState)
    graph.add_node("middle", middle.compile())
    graph.add_edge(START, "middle")
    return graph


class Wide(TypedDict):
    messages: Annotated[list[Any], operator.add]
    secret: str


class Narrow(TypedDict):
    messages: Annotated[list[Any], operator.add]


def narrow() -> Any:
    """A graph whose callers see less than its state; one node writes only what they do not see."""
    graph = StateGraph(Wide, output_schema=Narrow)
    graph.add_node("hide", lambda state: {"secret": "s"})
    graph.add_node("agent", lambda state: {"messages": [AIMessage("Seen", id="seen")]})
    graph.add_edge(START, "hide")
    graph.add_edge("hide", "agent")
    return graph


def held(gate: Gate) -> Any:
    """A model that waits at a gate in the middle of its answer."""
    graph = StateGraph(MessagesState)
    graph.add_node("agent", answers(ChatTokens(gate=gate)))
    graph.add_edge(START, "agent")
    return graph


def asking() -> Any:
    """A question to a human, after words of a model."""

    def ask(state: MessagesState) -> dict[str, Any]:
        answer = interrupt({"go": "ahead?"})
        return {"messages": [AIMessage(f"Heard {answer}.", id="heard")]}

    graph = StateGraph(MessagesState)
    graph.add_node("agent", answers(model(words("May", " I?"))))
    graph.add_node("ask", ask)
    graph.add_edge(START, "agent")
    graph.add_edge("agent", "ask")
    return graph


def asking_inside() -> Any:
    """A question in a graph inside of another one."""
    graph = StateGraph(MessagesState)
    graph.add_node("sub", asking().compile())
    graph.add_edge(START, "sub")
    return graph


def asking_beside() -> Any:
    """Two questions, beside a task that ends."""

    def ask(state: Fan) -> dict[str, Any]:
        return {"seen": [interrupt("first?")]}

    def ask_more(state: Fan) -> dict[str, Any]:
        return {"seen": [interrupt("second?")]}

    async def say(state: Fan, config: RunnableConfig) -> dict[str, Any]:
        return {"messages": [await model(words("Beside", " it")).ainvoke(state["messages"], config)]}

    graph = StateGraph(Fan)
    graph.add_node("say", say)
    graph.add_node("ask", ask)
    graph.add_node("ask_more", ask_more)
    for name in ("say", "ask", "ask_more"):
        graph.add_edge(START, name)
    return graph


def failing() -> Any:
    """A model that fails after two words."""
    graph = StateGraph(MessagesState)
    graph.add_node("agent", answers(model([*words("Not", " yet"), ValueError("kaboom: it has failed")])))
    graph.add_edge(START, "agent")
    return graph


def reporting() -> Any:
    """A node that writes to the stream and dispatches an event, before, between and after words."""

    async def report(state: MessagesState, config: RunnableConfig, writer: StreamWriter) -> dict[str, Any]:
        writer({"progress": 0})
        await adispatch_custom_event("half", {"way": True}, config=config)
        said = await model(words("One", " two")).ainvoke(state["messages"], config)
        writer("a text")
        return {"messages": [said]}

    graph = StateGraph(MessagesState)
    graph.add_node("report", report)
    graph.add_edge(START, "report")
    return graph


ASKING: dict[str, Callable[[], Any]] = {one.__name__: one for one in (asking, asking_inside, asking_beside)}
GRAPHS: dict[str, Callable[[], Any]] = {
    one.__name__: one for one in (tool_loop, fan_out, sends, router, subgraph, called_graph, narrow, failing, reporting)
}
