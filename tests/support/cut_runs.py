"""Runs that are cut off in the middle of a model call or of a tool call, with tracers in their callbacks."""

from __future__ import annotations

import asyncio
import os
from contextlib import aclosing
from importlib import import_module
from typing import Any, Literal
from uuid import uuid4

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import StructuredTool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode

from langchain_runjournal import RunJournal, attach, because

Cut = Literal["cancel", "cancel twice", "close", "time limit in the node"]
Place = Literal["model", "tool"]
MODEL = "halting-model"


def needed(module: str) -> Any:
    """Return a module of the group `traces`. Without it the test is skipped, but not by `make test-traces`."""
    if os.environ.get("RUNJOURNAL_TEST_TRACES"):
        return import_module(module)
    return pytest.importorskip(module, reason="a package of the group `traces`: make test-traces")


class HaltingModel(BaseChatModel):
    """Says "one two ", and then nothing more; or asks for a tool."""

    place: str
    reached: Any

    @property
    def _llm_type(self) -> str:
        return MODEL

    def _generate(self, *args: Any, **options: Any) -> ChatResult:
        raise NotImplementedError

    async def _astream(self, *args: Any, **options: Any) -> Any:
        if self.place == "tool":
            call = {"name": "book", "args": '{"city": "Rome"}', "id": "call-1", "index": 0}
            yield ChatGenerationChunk(message=AIMessageChunk("", tool_call_chunks=[call]))
            return
        for text in ("one ", "two "):
            yield ChatGenerationChunk(message=AIMessageChunk(text))
        self.reached.set()
        await asyncio.Event().wait()


def agent(place: Place, reached: asyncio.Event, *, limit: asyncio.Event | None = None) -> Any:
    """Return an agent whose model or tool halts. `limit`: its node cancels the model when this is set, and completes."""

    async def book(city: str) -> str:
        """Book a trip."""
        reached.set()
        await asyncio.Event().wait()
        return city

    model = HaltingModel(place=place, reached=reached)

    async def answer(state: MessagesState, config: RunnableConfig) -> Any:
        asked = asyncio.create_task(model.ainvoke(state["messages"], config))
        if limit is None:
            return {"messages": [await asked]}
        await limit.wait()
        asked.cancel()
        await asyncio.wait([asked])
        return {"messages": [AIMessage("too late")]}

    async def plain(state: MessagesState, config: RunnableConfig) -> Any:
        return {"messages": [await model.ainvoke(state["messages"], config)]}

    graph = StateGraph(MessagesState)
    graph.add_node("answer", plain if limit is None else answer)
    graph.add_node("tools", ToolNode([StructuredTool.from_function(coroutine=book)]))
    graph.add_edge(START, "answer")
    if place == "tool":
        graph.add_edge("answer", "tools")
    return graph.compile()


async def cut_run(place: Place, cut: Cut, callbacks: list[Any], *, traces: bool = True) -> str:
    """Run the agent until it halts, and cut it off. Return the run's id."""
    reached, run_id = asyncio.Event(), uuid4()
    limit = asyncio.Event() if cut == "time limit in the node" else None
    with RunJournal(":memory:") as journal:
        graph = attach(agent(place, reached, limit=limit), journal, traces=traces)
        config: Any = {"callbacks": callbacks, "run_id": run_id}

        async def run() -> None:
            stream = graph.astream({"messages": [("user", "hi")]}, config, stream_mode="messages")
            with because("superseded"):
                async with aclosing(stream) as chunks:
                    async for chunk, _ in chunks:
                        if cut == "close" and chunk.content == "two ":
                            break

        task = asyncio.create_task(run())
        if cut != "close":
            waiting = asyncio.create_task(reached.wait())
            await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
        if limit is not None:
            limit.set()
        elif cut != "close":
            task.cancel()
            if cut == "cancel twice":
                await asyncio.sleep(0)
                task.cancel()
        await asyncio.wait([task])
        assert task.cancelled() or task.exception() is None
    return str(run_id)
