"""A server of scripted agents for clients of the AI SDK, with gates that a client opens: `POST /gates/{key}`."""

from __future__ import annotations

import asyncio
import itertools
from collections import defaultdict
from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import BaseMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_stream_writer
from langgraph.types import interrupt
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route

from langchain_runjournal import RunJournal
from langchain_runjournal.server import create_app
from langchain_runjournal.testing import Call, Reasoning, ScriptedChatModel


class Gates:
    """What holds answers and tools, by a key in the message of the user."""

    def __init__(self) -> None:
        self._events: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)

    def wait(self, key: str) -> Any:
        return self._events[key].wait

    def open(self, key: str) -> None:
        self._events[key].set()


def scripted_agent(gates: Gates, saver: BaseCheckpointSaver[Any]) -> Any:
    """Return an agent that does what the last message of the user says: the keys of `scripts`, and the key of a gate."""
    numbers = itertools.count(1)

    @tool
    def weather(city: str) -> str:
        """Say how the weather is."""
        return f"sunny in {city}"

    @tool
    async def slow(key: str) -> str:
        """Take until somebody opens the gate."""
        await gates.wait(key)()
        return "finally"

    @tool
    def ask(question: str) -> str:
        """Ask a human."""
        return f"the human says {interrupt({'question': question})}"

    @tool
    def progress() -> str:
        """Report how far it is."""
        write = get_stream_writer()
        write({"type": "progress", "id": "p", "done": 0.5})
        write("half")
        write({"type": "progress", "id": "p", "done": 1})
        return "done"

    def script(messages: list[BaseMessage]) -> Any:
        last = max(at for at, one in enumerate(messages) if one.type == "human")
        word, _, key = messages[last].text.partition(":")
        if any(isinstance(one, ToolMessage) for one in messages[last:]):
            return "That is what the tool said."
        wait = gates.wait(key)
        scripts: dict[str, Any] = {
            "plain": "Hello there, friend.",
            "think": [Reasoning("Let me think about it."), "Here it is."],
            "tools": ["Looking. ", Call("weather", {"city": "Oslo"}), Call("weather", {"city": "Rome"})],
            "hold text": ["First half, ", wait, "second half."],
            "hold think": [Reasoning("Half a thought "), wait, Reasoning("and the rest."), "Done."],
            "hold input": ["Looking. ", Call("weather", {"city": "Oslo"}), wait],
            "hold tool": ["Looking. ", Call("slow", {"key": key})],
            "ask": ["A moment. ", Call("ask", {"question": "May I?"})],
            "progress": [Call("progress", {})],
            "fail": ["Well, ", RuntimeError("secret")],
            "count": f"Answer number {next(numbers)}.",
            "echo": " | ".join(f"{one.type}: {one.text}" for one in messages),
        }
        return scripts[word]

    return create_agent(ScriptedChatModel(script), [weather, slow, ask, progress], checkpointer=saver, name="agent")


def gate_route(gates: Gates) -> Route:
    """Return the route that opens a gate."""

    async def open_gate(request: Request) -> Response:
        gates.open(request.path_params["key"])
        return JSONResponse({})

    return Route("/gates/{key}", open_gate, methods=["POST"])


def application(journal: RunJournal, saver: BaseCheckpointSaver[Any] | None = None, **options: Any) -> Starlette:
    """Return the application, with the server below `/agent` and the gates beside it."""
    gates = Gates()
    app = create_app(scripted_agent(gates, saver or InMemorySaver()), journal, **options)
    return Starlette(routes=[gate_route(gates), Mount("/agent", app)])
