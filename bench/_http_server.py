"""The process that serves: uvicorn with an application that has all ways to stream a run.

`python -m bench._http_server DIRECTORY IMPLEMENTATION [REDIS_URL]`, then a line of JSON for each command.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import uvicorn
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from starlette.applications import Starlette
from starlette.routing import Route

from langchain_runjournal import RunJournal
from langchain_runjournal.server import Limits, create_app

from . import _http_rivals as ways
from ._load import end, new_id, start, tokens, words


class Served:
    """What the commands work on."""

    def __init__(self, directory: Path, redis_url: str | None) -> None:
        self.directory = directory
        self.journal = RunJournal(directory / "runs.db")
        self.rows = ways.Rows(directory / "rows.db")
        queues, memory = _queues(), ways.Memory()
        redis = ways.Redis(redis_url) if redis_url else None
        found = {"journal": ways.Journal(self.journal), "send": ways.Send(), "queues": queues, "memory": memory}
        self.ways: dict[str, Any] = {**found, "uvicorn": ways.Uvicorn(), "redis": redis, "rows": self.rows}
        routes = [Route(f"/{name}/{{run}}", way.get) for name, way in self.ways.items() if hasattr(way, "get")]
        graph = StateGraph(MessagesState).add_node("answer", lambda state: {}).add_edge(START, "answer")
        served = create_app(
            graph.compile(checkpointer=InMemorySaver()),
            self.journal,
            limits=Limits(streams=10_000),
            write_timeout=300.0,
        )
        self._rivals, self._served = Starlette(routes=[*routes, Route("/wait", ways.wait_for_ever)]), served
        self._paths = {"wait", *self.ways}

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve each way by itself, as one would."""
        name = scope["path"].split("/")[1]
        app = self._rivals if name in self._paths else self._served
        await (self.ways[name] if name == "uvicorn" else app)(scope, receive, send)

    async def do(self, command: dict[str, Any]) -> Any:
        """Carry out a command."""
        verb = command.pop("do")
        return await getattr(self, f"do_{verb}")(**command)

    async def do_gc(self, on: bool) -> None:
        """Switch the garbage collector."""
        gc.collect()
        gc.enable() if on else gc.disable()

    async def do_begin(self, way: str, clients: int) -> Any:
        """Begin a run."""
        run_id = new_id()
        return {"run": run_id, **await self.ways[way].begin(run_id, clients)}

    async def do_produce(self, way: str, run: str, count: int, group: int, pause: float) -> None:
        """Publish tokens, some in each turn of the loop, and end the run."""
        one, due = self.ways[way], time.monotonic()
        for at, text in enumerate(words(count), 1):
            await one.publish(run, text)
            if at % group == 0:
                due += pause
                await asyncio.sleep(max(0.0, due - time.monotonic()) if pause else 0)
        await one.finish(run)

    async def do_append(self, run: str, count: int) -> None:
        """Append to a run of the journal in a thread, and wait for the store."""

        def append() -> None:
            for event in tokens(run, "call", count):
                self.journal.append(event)
            self.journal.flush()

        await asyncio.to_thread(append)

    async def do_store(self, count: int) -> Any:
        """Store a finished run, in the journal and as rows."""
        run_id, call_id = new_id(), new_id()
        events = [start(run_id), *tokens(run_id, call_id, count - 2), end(run_id)]

        def store() -> None:
            for event in events:
                self.journal.append(event)
            self.journal.flush()
            self.rows.store(run_id, events)

        await asyncio.to_thread(store)
        return run_id

    async def do_threads(self, count: int, runs: int) -> Any:
        """Store threads of some short runs each. Return the threads, and the runs of the last one."""

        def store() -> Any:
            threads = [new_id() for _ in range(count)]
            for thread_id in threads:
                ids = [new_id() for _ in range(runs)]
                for run_id in ids:
                    for event in (start(run_id, thread_id), *tokens(run_id, "call", 3), end(run_id)):
                        self.journal.append(event)
                self.journal.flush()
            return threads, ids

        return await asyncio.to_thread(store)

    async def do_running(self, count: int) -> list[str]:
        """Begin runs that say nothing."""
        ids = [new_id() for _ in range(count)]
        for run_id in ids:
            self.journal.append(start(run_id))
        await self.journal.aflush()
        return ids

    async def do_facts(self, after: float = 0.0) -> dict[str, float]:
        """Return the CPU time so far, the memory, and what a connection may cost."""
        await asyncio.sleep(after)
        loop: Any = asyncio.get_running_loop()
        timers = sum(not timer.cancelled() for timer in loop._scheduled)
        files = _open_files()
        databases = sum(name.startswith(str(self.directory)) for name in files)
        counts = {"threads": threading.active_count(), "timers": timers, "databases": databases}
        return {"cpu": time.process_time(), "rss": _rss(), "tasks": len(asyncio.all_tasks()), **counts}


def _queues() -> ways.Queues | None:
    try:
        from sse_starlette import EventSourceResponse, ServerSentEvent
    except ImportError:
        return None
    return ways.Queues(EventSourceResponse, ServerSentEvent)


def _open_files() -> list[str]:
    return [_target(one) for one in Path("/proc/self/fd").iterdir()]


def _target(link: Path) -> str:
    with suppress(OSError):
        return os.readlink(link)
    return ""


def _rss() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) << 10
    return 0


async def _serve(directory: Path, implementation: str, redis_url: str | None) -> None:
    served = Served(directory, redis_url)
    options: dict[str, Any] = {"ws": "none", "interface": "asgi3", "lifespan": "off", "log_level": "error"}
    config = uvicorn.Config(served.app, port=0, http=implementation, access_log=False, **options)
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110 - uvicorn has no event for that
        await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    _tell({"port": port, "sse": served.ways["queues"] is not None, "redis": redis_url is not None})
    while line := await asyncio.to_thread(sys.stdin.readline):
        _tell(await served.do(json.loads(line)))
    server.should_exit = server.force_exit = True
    await serving


def _tell(answer: object) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1]), sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else None))
    os._exit(0)  # connections that are open stay so
