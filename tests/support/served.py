"""A served agent for tests: it answers, holds its answer until a test lets it go on, asks a human, or fails."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt

from langchain_runjournal import RunJournal
from langchain_runjournal.server import create_app
from langchain_runjournal.testing import ScriptedChatModel
from tests.support.asgi import PATIENCE, Reader, fetch, request


class Served:
    """An application with one graph, and its clients."""

    def __init__(self, journal: RunJournal, *, saver: Any = None, name: str = "agent", **options: Any) -> None:
        self.journal = journal
        self.gate = asyncio.Event()
        """Set it, and an answer that is held goes on."""
        self.held = asyncio.Event()
        """Set when an answer is held."""
        self.configured: list[Any] = []
        """What each answer got as `configurable`."""
        self.model = ScriptedChatModel(self._say)
        self.graph = self._graph(saver or InMemorySaver(), name)
        self.app = create_app(options.pop("graphs", self.graph), journal, **options)

    def _say(self, messages: Sequence[BaseMessage]) -> list[Any]:
        asked = messages[-1].text
        if "hold" in asked:
            return ["Wait ", self._hold, "for it."]
        if "fail" in asked:
            return ["Now ", ValueError("secret of the server: /etc/runs.db")]
        return [f"You said {asked}."]

    async def _hold(self) -> None:
        self.held.set()
        await self.gate.wait()

    def _graph(self, saver: Any, name: str) -> Any:
        async def answer(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
            self.configured.append(config["configurable"])
            return {"messages": [await self.model.ainvoke(state["messages"], config)]}

        def ask(state: MessagesState) -> dict[str, Any]:
            return {"messages": [("ai", f"You decided {interrupt({'question': 'May I?'})}.")]}

        graph = StateGraph(MessagesState).add_node("answer", answer).add_node("ask", ask)
        graph.add_conditional_edges(START, lambda state: "ask" if "may" in state["messages"][-1].text else "answer")
        return graph.compile(checkpointer=saver, name=name)

    async def get(self, path: str, **about: Any) -> Reader:
        return await fetch(self.app, path, **about)

    async def post(self, path: str, body: Any = None, **about: Any) -> Reader:
        return await fetch(self.app, path, "POST", json_body=body, **about)

    def open(self, path: str, **about: Any) -> Any:
        """Open a stream."""
        return request(self.app, path, **about)

    async def send(self, text: str, thread: str = "t", **more: Any) -> Reader:
        return await self.post(f"/threads/{thread}/runs", {**says(text), **more})

    async def begin(self, text: str, thread: str = "t", **more: Any) -> str:
        """Begin a run, and return its id."""
        reader = await self.send(text, thread, **more)
        assert reader.status == 201, reader.received
        return str(reader.json["run_id"])

    async def say(self, text: str, thread: str = "t", **more: Any) -> str:
        """Begin a run, and wait until it is over, or waits for a human."""
        run_id = await self.begin(text, thread, **more)
        await self.over(run_id)
        return run_id

    async def hold(self, thread: str = "t", **more: Any) -> str:
        """Begin a run whose answer is held in its middle, and return its id."""
        self.held.clear()
        run_id = await self.begin("hold", thread, **more)
        await asyncio.wait_for(self.held.wait(), PATIENCE)
        async for event in self.journal.afollow(run_id):
            if "applied" in event.data:
                break  # the checkpoint of the input is written in the background: nothing comes behind it
        return run_id

    async def over(self, run_id: str) -> str:
        """Wait until a run has ended or waits for a human, and return its status."""
        async for event in self.journal.afollow(run_id):
            if event.kind == "run.pause":
                break
        status = (await self.journal.arun(run_id)).status
        while status == "running":
            await asyncio.sleep(0)
            status = (await self.journal.arun(run_id)).status
        return str(status)

    async def texts(self, thread: str = "t") -> list[str]:
        """The messages of a thread in a few letters."""
        found = (await self.get(f"/threads/{thread}/messages")).json
        return [f"{one['type']}: {one['text']}" for one in found["messages"]]


def says(text: str, **more: Any) -> dict[str, Any]:
    """The body of a start."""
    return {"input": {"messages": [{"role": "user", "content": text, **more}]}}
