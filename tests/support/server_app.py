"""The server of the examples, and what a test must know of its process as well. `uvicorn tests.support.server_app:app`"""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from typing import Any

from examples import server
from langchain_runjournal.capture.recorder import recorder_of
from langchain_runjournal.journal.core import core_of
from langchain_runjournal.runs.admission import lines_of

HELD = "Nowhere"


@server.app.get("/debug")
async def debug() -> dict[str, Any]:
    """Return what is running: all tasks but this one, and all threads; and what the journal holds in memory for its
    runs."""
    gc.collect()  # a cancelled model call ends when it is garbage-collected, and frames form reference cycles
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    journal = server.app.state.journal
    nodes, runs, lines = recorder_of(journal).tracker.nodes, core_of(journal).local_runs, lines_of(journal).last
    return {
        "pid": os.getpid(),
        "tasks": sorted(getattr(task.get_coro(), "__qualname__", "?") for task in tasks),
        "threads": sorted(thread.name for thread in threading.enumerate()),
        "memory": [len(nodes), len(runs), len(lines)],
    }


async def weather(city: str) -> str:
    """Of one place, nothing is ever heard."""
    if city == HELD:
        await asyncio.Event().wait()
    return f"sunny in {city}"


server.weather.coroutine = weather


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Add the pid of the process to each answer."""

    async def named(message: Any) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], (b"x-pid", str(os.getpid()).encode())]
        await send(message)

    await server.app(scope, receive, named if scope["type"] == "http" else send)
