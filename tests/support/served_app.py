"""The application of `create_app` in a process of its own, for journeys. `uvicorn tests.support.served_app:app`"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.graph import START, MessagesState, StateGraph

from langchain_runjournal import Event, attach
from langchain_runjournal.errors import StoreFailed
from langchain_runjournal.journal.core import core_of
from langchain_runjournal.server import create_app
from langchain_runjournal.testing import ScriptedChatModel
from tests.support.places import place_of

HOME = Path(os.environ["SERVED_HOME"])
WRITE = float(os.environ.get("SERVED_WRITE", "20"))


def say(messages: Sequence[BaseMessage]) -> str:
    """Count as far as the user says."""
    counts = re.match(r"Count to (\d+)", messages[-1].text)
    return "".join(f"{number} " for number in range(1, int(counts[1]) + 1)) if counts else f"You said {messages[-1].text}."


model = ScriptedChatModel(say, pace=0.002)


async def answer(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
    return {"messages": [await model.ainvoke(state["messages"], config)]}


graph = StateGraph(MessagesState).add_node("answer", answer).add_edge(START, "answer")


@asynccontextmanager
async def lifespan(outer: FastAPI) -> AsyncIterator[None]:
    place = place_of(HOME)
    async with place.asaver() as saver, place.open() as journal, place.open() as outer.state.other:
        agent = attach(graph.compile(checkpointer=saver, name="agent"), journal)
        await journal.arecover(agent)
        outer.state.journal = journal
        outer.state.served = create_app(agent, journal, write_timeout=WRITE, heartbeat=0.5)
        yield


api = FastAPI(lifespan=lifespan)


@api.get("/debug")
async def debug() -> dict[str, Any]:
    """Return what this process holds for its readers, and its id."""
    tasks = [getattr(task.get_coro(), "__qualname__", "?") for task in asyncio.all_tasks()]
    streams = api.state.served.state.service.open_streams
    return {"pid": os.getpid(), "threads": [], "streams": streams, "senders": sum("_send_all" in name for name in tasks)}


@api.post("/debug/fill/{run_id}")
async def fill(run_id: str) -> None:
    """Write a long run, which does not end, by another journal than the one that is served."""
    journal = api.state.other
    journal.append(Event(run_id=run_id, kind="run.start", data={"thread_id": "long"}))
    for _ in range(20_000):
        journal.append(Event(run_id=run_id, kind="llm.ai.delta", data={"text": "x" * 500}, call_id="c"))
    await journal.aflush()


@api.post("/debug/break")
async def fail() -> None:
    """Let the store fail for the readers of this process."""
    core = core_of(api.state.journal)

    def read(*about: Any) -> Any:
        raise StoreFailed(path="/srv/secret.db", reason="it is away", hint="Wait")

    core.store.read = read  # type: ignore[method-assign]


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Serve the application of `create_app` at the root, and what tests need besides."""
    is_ours = scope["type"] == "http" and not scope["path"].startswith("/debug")
    await (api.state.served if is_ours else api)(scope, receive, send)
