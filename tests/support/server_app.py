"""A chat server of `create_app`, and what a test must know of its process as well. `uvicorn tests.support.server_app:app`

Its model follows a script: it counts, asks a tool for the weather, lists what it has been given, and continues an answer
that was cut off, as a real one would.
"""

from __future__ import annotations

import asyncio
import gc
import os
import re
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from langchain_runjournal import RunJournal, attach, is_partial
from langchain_runjournal.capture.recorder import recorder_of
from langchain_runjournal.journal.core import core_of
from langchain_runjournal.runs.admission import lines_of
from langchain_runjournal.server import create_app
from langchain_runjournal.server.transport import ABORT, aborter
from langchain_runjournal.testing import Call, ScriptedChatModel

HELD = "Nowhere"
THREADS, RUNS = os.environ.get("CHAT_THREADS", "threads.db"), os.environ.get("CHAT_RUNS", "runs.db")
PACE = float(os.environ.get("CHAT_PACE", "0.05"))  # seconds per word


def answer_to(question: str, given: Sequence[BaseMessage]) -> list[Any]:
    """Count ("Count to 100"), request tools ("Weather in Rome, Oslo"), or list the messages of the request."""
    if counts := re.match(r"Count to (\d+)", question):
        return ["".join(f"{number} " for number in range(1, min(int(counts[1][:6]), 100_000) + 1))]
    if asks := re.match(r"Weather in (.+)", question):
        return ["Looking. ", *(Call("weather", {"city": city}) for city in re.split(", | and ", asks[1]))]
    kinds = (f"{message.type}{' (cut off)' if is_partial(message) else ''}" for message in given)
    return ["I have been given: " + ", ".join(kinds)]


def say(messages: list[BaseMessage]) -> list[Any]:
    """Return the next answer of the script. "Continue" continues where the answer was cut off, as a real model would."""
    asked = [at for at, message in enumerate(messages) if isinstance(message, HumanMessage)]
    fresh = [at for at in asked if not messages[at].text.startswith("Continue")] or asked[:1]
    since = messages[fresh[-1] + 1 :]
    found = [message.text for message in since if isinstance(message, ToolMessage) and message.status == "success"]
    if isinstance(messages[-1], ToolMessage):
        return [f"Now I know: {', '.join(found)}."]
    whole, *calls = answer_to(messages[fresh[-1]].text, messages)
    if fresh[-1] == asked[-1]:
        return [whole, *calls]
    said = "".join(message.text for message in since if isinstance(message, AIMessage))
    open_calls = [call for call in calls if not any(text.endswith(call.args["city"]) for text in found)]
    return [whole[len(said) :] or ("The others. " if open_calls else "That was all."), *open_calls]


@tool
async def weather(city: str) -> str:
    """Return the weather in a city. Of one place, nothing is ever heard."""
    if city == HELD:
        await asyncio.Event().wait()
    return f"sunny in {city}"


TOOLS = [weather]
model = ScriptedChatModel(say, pace=PACE).bind_tools(TOOLS)


async def answer(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
    return {"messages": [await model.ainvoke(state["messages"], config)]}


graph = StateGraph(MessagesState)
graph.add_node("model", answer)
graph.add_node("tools", ToolNode(TOOLS))
graph.add_edge(START, "model")
graph.add_conditional_edges("model", tools_condition)
graph.add_edge("tools", "model")


@asynccontextmanager
async def lifespan(api: FastAPI) -> AsyncIterator[None]:
    async with AsyncSqliteSaver.from_conn_string(THREADS) as saver, RunJournal(RUNS) as journal:
        agent = attach(graph.compile(checkpointer=saver, name="chat"), journal)
        await journal.arecover(agent)
        api.state.journal = journal
        api.mount("/", create_app(agent, journal))
        yield


api = FastAPI(lifespan=lifespan)


@api.get("/debug")
async def debug() -> dict[str, Any]:
    """Return what is running: all tasks but this one, and all threads; and what the journal holds in memory for its
    runs."""
    gc.collect()  # a cancelled model call ends when it is garbage-collected, and frames form reference cycles
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    journal = api.state.journal
    nodes, runs, lines = recorder_of(journal).tracker.nodes, core_of(journal).local_runs, lines_of(journal).last
    return {
        "pid": os.getpid(),
        "tasks": sorted(getattr(task.get_coro(), "__qualname__", "?") for task in tasks),
        "threads": sorted(thread.name for thread in threading.enumerate()),
        "memory": [len(nodes), len(runs), len(lines)],
    }


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Add the pid of the process to each answer."""

    async def named(message: Any) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], (b"x-pid", str(os.getpid()).encode())]
        await send(message)

    if scope["type"] == "http":
        scope[ABORT] = aborter(send)  # before `named` hides the connection
    await api(scope, receive, named if scope["type"] == "http" else send)
