"""A client of the LangGraph API, without a socket, and the graph that it talks to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

from langchain_runjournal import RunJournal
from tests.support.asgi import PATIENCE, Reader, fetch, request
from tests.support.served import Served, says

OVER = ("success", "error", "interrupted", "timeout")


class Api:
    """An application with the agent of `Served`, which holds an answer if it is asked to, and its clients."""

    def __init__(self, journal: RunJournal, **options: Any) -> None:
        self.served = Served(journal, **options)
        self.app = self.served.app
        self.journal = journal
        self.routes = self.app.state.service.at_open[0].__self__
        self.queue = self.routes.queue

    async def get(self, path: str, **about: Any) -> Reader:
        return await fetch(self.app, f"/langgraph{path}", **about)

    async def post(self, path: str, body: Any = None, method: str = "POST", **about: Any) -> Reader:
        return await fetch(self.app, f"/langgraph{path}", method, json_body=body or {}, **about)

    def open(self, path: str, method: str = "GET", **about: Any) -> Any:
        """Open a stream, or a request that waits."""
        return request(self.app, f"/langgraph{path}", method, **about)

    async def thread(self) -> str:
        """Create a thread."""
        return str((await self.post("/threads")).json["thread_id"])

    async def run(self, thread: str, text: str, **more: Any) -> str:
        """Create a run, and return its id."""
        return await self.run_of(thread, body(text, **more))

    async def run_of(self, thread: str, asked: dict[str, Any]) -> str:
        """Create a run by its whole body, and return its id."""
        reader = await self.post(f"/threads/{thread}/runs", asked)
        assert reader.status == 200, reader.received
        return str(reader.json["run_id"])

    async def hold(self, thread: str, **more: Any) -> str:
        """Create a run, and return its id when its answer is held in the middle."""
        self.served.held.clear()
        run_id = await self.run(thread, "hold", **more)
        await self.until_held()
        return run_id

    async def until_held(self) -> None:
        await asyncio.wait_for(self.served.held.wait(), PATIENCE)

    async def status(self, thread: str, run_id: str) -> str:
        """Return the status of a run; "404" if there is none."""
        reader = await self.get(f"/threads/{thread}/runs/{run_id}")
        return "404" if reader.status == 404 else str(reader.json["status"])

    async def over(self, thread: str, run_id: str) -> str:
        """Wait until a run is over, and return its status."""
        run = await asyncio.wait_for(self.queue.begun(run_id), PATIENCE)
        if run is not None:
            await asyncio.wait_for(self.served.over(run_id), PATIENCE)
        return await self.status(thread, run_id)

    async def cancel(self, thread: str, run_id: str, query: str = "") -> Reader:
        return await self.post(f"/threads/{thread}/runs/{run_id}/cancel{query}")

    async def texts(self, thread: str) -> list[str]:
        """The messages of a thread in a few letters."""
        state = (await self.get(f"/threads/{thread}/state")).json
        return [f"{one['type']}: {one['content']}" for one in state["values"].get("messages", [])]

    async def checkpoints(self, thread: str) -> list[str]:
        """The ids of all checkpoints of a thread, the newest first."""
        found = await self.post(f"/threads/{thread}/history", {"limit": 1000})
        return [one["checkpoint"]["checkpoint_id"] for one in found.json]


def body(text: str | None = None, **more: Any) -> dict[str, Any]:
    """The body of a run."""
    return {"assistant_id": "agent", **({} if text is None else says(text)), **more}


@asynccontextmanager
async def an_api(journal: RunJournal, **options: Any) -> AsyncIterator[Api]:
    """An application that serves until the end of the block."""
    api = Api(journal, **options)
    async with api.app.state.service.serving():
        yield api
        api.served.gate.set()


def an_id() -> str:
    return str(uuid4())
