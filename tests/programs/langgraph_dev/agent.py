"""A graph for `langgraph dev`: without a checkpointer, because the server brings its own; as an object and as a factory."""

import asyncio
import json
from typing import Any

from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from langchain_runjournal import RunJournal, attach
from langchain_runjournal.testing import Call, ScriptedChatModel


def _answer(messages: list[BaseMessage]) -> Any:
    # The model's requests, for the test in another process.
    with open("requests.jsonl", "a") as file:
        file.write(json.dumps([[message.type, message.text] for message in messages]) + "\n")
    asked = next(message.text for message in reversed(messages) if message.type == "human")
    if asked == "talk":
        return ["one two three ", asyncio.Event().wait, "four"]
    if asked == "fail":
        return ["one two three ", ConnectionError("the provider dropped the stream")]
    if asked == "look" and messages[-1].type == "human":
        return ["Let me look. ", Call("quick", {"x": 1}, "c1"), Call("slow", {"x": 2}, "c2")]
    return f"answer to {asked}"


@tool
async def quick(x: int) -> str:
    """Be quick."""
    return f"quick {x}"


@tool
async def slow(x: int) -> str:
    """Never end."""
    await asyncio.Event().wait()
    return f"slow {x}"


model = ScriptedChatModel(_answer)


async def call_model(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
    return {"messages": [await model.ainvoke(state["messages"], config)]}


builder = StateGraph(MessagesState)
builder.add_node("model", call_model)
builder.add_node("tools", ToolNode([quick, slow]))
builder.add_edge(START, "model")
builder.add_conditional_edges("model", tools_condition)
builder.add_edge("tools", "model")

journal = RunJournal("runs.db")
graph = attach(builder.compile(), journal)  # the one line


def make_graph(config: RunnableConfig) -> Any:
    """A factory, which the server calls for each run."""
    return attach(builder.compile(), journal)
