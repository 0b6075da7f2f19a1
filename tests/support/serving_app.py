"""What `create_app` returns, as a program for a real server: `uvicorn tests.support.serving_app:app`.

Variables: SERVED_HOME, the directory that notes the place of journal and threads; SERVED_OPTIONS, the options of
`create_app` as JSON; SERVED_PACE, seconds for each word; SERVED_SITE, to mount the application at /agent of a FastAPI
("mounted"), with middleware ("all").
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from langchain_runjournal.server import Limits, create_app
from langchain_runjournal.testing import Reasoning, ScriptedChatModel
from tests.support.places import place_of

HOME = Path(os.environ.get("SERVED_HOME", "."))
OPTIONS = json.loads(os.environ.get("SERVED_OPTIONS", "{}"))
PACE = float(os.environ.get("SERVED_PACE", "0.003"))


def say(messages: Sequence[BaseMessage]) -> list[Any]:
    """Count ("count 100"), write long lines ("lines 100"), hold the answer until a Stop ("hold"), or say what was asked."""
    asked = str(messages[-1].text)
    if found := re.match(r"count (\d+)", asked):
        return [Reasoning("Let me see. "), "".join(f"{number} " for number in range(1, int(found[1]) + 1))]
    if found := re.match(r"lines (\d+)", asked):
        return ["".join(f"{number}{'é' * 2_000} " for number in range(int(found[1])))]
    if asked == "hold":
        return ["Wait ", asyncio.Event().wait]
    return [f"You said {asked}, and I was given {len(messages)} messages."]


def graph_on(saver: Any) -> Any:
    """Return the graph, with a checkpointer."""
    model = ScriptedChatModel(say, pace=PACE)

    async def answer(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"], config)]}

    def ask(state: MessagesState) -> dict[str, Any]:
        return {"messages": [("ai", f"You decided {interrupt({'question': 'May I?'})}.")]}

    graph = StateGraph(MessagesState).add_node("answer", answer).add_node("ask", ask)
    graph.add_conditional_edges(START, lambda state: "ask" if state["messages"][-1].text == "may I?" else "answer")
    return graph.compile(checkpointer=saver, name="agent")


def resident() -> int:
    """Return the bytes of memory that the process uses."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def sockets() -> int:
    """Return how many sockets the process has open."""
    found = 0
    for file in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            found += os.readlink(f"/proc/self/fd/{file}").startswith("socket:")
    return found


async def debug(request: Request) -> JSONResponse:
    """Return what the process is doing."""
    gc.collect()
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    return JSONResponse(
        {
            "pid": os.getpid(),
            "streams": app.served.state.service.open_streams,
            "tasks": len(tasks),
            "resident": resident(),
            "sockets": sockets(),
        }
    )


class App:
    """The program. Only its lifespan and /debug are not of the application under test, which gets the functions of the
    server as they are."""

    def __init__(self) -> None:
        self.served: Any = None
        self._site: Any = None
        self._around = Starlette(routes=[Route("/debug", debug)], lifespan=self._lifespan)

    @asynccontextmanager
    async def _lifespan(self, _: Any) -> AsyncIterator[None]:
        place = place_of(HOME)
        async with place.asaver("connection" if place.is_local else "pool") as saver:
            journal = place.open()
            options = {**OPTIONS, "limits": Limits(**OPTIONS.get("limits", {}))}
            self.served = create_app(graph_on(saver), journal, **options)
            self._site = SITES[os.environ.get("SERVED_SITE", "")](self.served)
            async with self.served.router.lifespan_context(self.served):
                yield
            await journal.aclose()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        is_ours = scope["type"] == "lifespan" or scope["path"] == "/debug"
        await (self._around if is_ours else self._site)(scope, receive, send)


def site_with(served: Any) -> Any:
    """Return a FastAPI with all the middleware that sites have, which has an application at /agent."""
    from fastapi import FastAPI
    from starlette.middleware.base import BaseHTTPMiddleware
    from starlette.middleware.cors import CORSMiddleware
    from starlette.middleware.gzip import GZipMiddleware
    from starlette.middleware.trustedhost import TrustedHostMiddleware

    async def named(request: Request, call_next: Any) -> Any:
        response = await call_next(request)
        response.headers["x-site"] = "yes"
        return response

    site = FastAPI()
    site.mount("/agent", served)
    site.add_middleware(GZipMiddleware, minimum_size=1)
    site.add_middleware(BaseHTTPMiddleware, dispatch=named)
    site.add_middleware(CORSMiddleware, allow_origins=["*"])
    site.add_middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost"])
    return site


def mounted(served: Any) -> Any:
    """Return a FastAPI that has the application at /agent, and nothing else."""
    from fastapi import FastAPI

    site = FastAPI()
    site.mount("/agent", served)
    return site


SITES: dict[str, Callable[[Any], Any]] = {"": lambda served: served, "mounted": mounted, "all": site_with}
app = App()
