"""Agents whose model follows a script, for tests of the events that are recorded of them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

from langchain_core.language_models import LLM, BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult, GenerationChunk
from langchain_core.runnables import RunnableConfig
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

USAGE = {"input_tokens": 10, "output_tokens": 4, "total_tokens": 14}


def words(*said: str, usage: bool = False) -> list[Any]:
    """Return the chunks of a text, with the usage at the end."""
    chunks: list[Any] = [AIMessageChunk(content=word) for word in said]
    if usage:
        chunks.append(AIMessageChunk(content="", usage_metadata=USAGE))
    return chunks


def asks(*calls: tuple[str, str, dict[str, Any]], text: str = "Looking. ") -> list[Any]:
    """Return the chunks of a text and of tool requests: (id, name, arguments)."""
    chunks: list[Any] = [AIMessageChunk(content=text)]
    for index, (id, name, args) in enumerate(calls):
        fragment = tool_call_chunk(name=name, args=json.dumps(args), id=id, index=index)
        chunks.append(AIMessageChunk(content="", tool_call_chunks=[fragment]))
    return chunks


class Scripted(BaseChatModel):
    """A model that follows one script after the other, and repeats the last one. It raises an exception that stands in a
    script, and calls a function that stands there (it awaits an asynchronous one)."""

    scripts: list[list[Any]]
    turn: int = 0
    name: str | None = "scripted"

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self

    def _next(self) -> list[Any]:
        script = self.scripts[min(self.turn, len(self.scripts) - 1)]
        self.turn += 1
        return script

    def _stream(self, *args: Any, **kwargs: Any) -> Iterator[ChatGenerationChunk]:
        for step in self._next():
            if isinstance(step, BaseException):
                raise step
            if isinstance(step, AIMessageChunk):
                yield ChatGenerationChunk(message=step.model_copy(deep=True))
            else:
                step()

    async def _astream(self, *args: Any, **kwargs: Any) -> AsyncIterator[ChatGenerationChunk]:
        for step in self._next():
            if isinstance(step, BaseException):
                raise step
            if isinstance(step, AIMessageChunk):
                yield ChatGenerationChunk(message=step.model_copy(deep=True))
            elif (waiting := step()) is not None:
                await waiting

    def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
        return _whole(list(self._stream()))

    async def _agenerate(self, *args: Any, **kwargs: Any) -> ChatResult:
        return _whole([chunk async for chunk in self._astream()])


class PlainText(LLM):
    """A plain text model that yields its text letter by letter."""

    says: str

    @property
    def _llm_type(self) -> str:
        return "plain"

    def _call(self, *args: Any, **kwargs: Any) -> str:
        return self.says

    def _stream(self, *args: Any, run_manager: Any = None, **kwargs: Any) -> Iterator[GenerationChunk]:
        for letter in self.says:
            chunk = GenerationChunk(text=letter)
            # LangChain reports the tokens of a chat model; a text model reports its own.
            run_manager.on_llm_new_token(letter, chunk=chunk)
            yield chunk

    async def _astream(self, *args: Any, run_manager: Any = None, **kwargs: Any) -> AsyncIterator[GenerationChunk]:
        for letter in self.says:
            chunk = GenerationChunk(text=letter)
            await run_manager.on_llm_new_token(letter, chunk=chunk)
            yield chunk


def by_hand(model: Scripted, tools: list[Any]) -> Any:
    """An agent that passes its config on, as asynchronous code on Python 3.10 must: LangChain cannot do that there."""

    async def answer(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"], config)]}

    graph = StateGraph(MessagesState)
    graph.add_node("model", answer)
    graph.add_node("tools", ToolNode(tools))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    return graph.compile()


def _whole(chunks: list[ChatGenerationChunk]) -> ChatResult:
    added = chunks[0]
    for chunk in chunks[1:]:
        added += chunk
    told: Any = added.message
    message = AIMessage(content=told.content, tool_calls=told.tool_calls, usage_metadata=told.usage_metadata)
    return ChatResult(generations=[ChatGeneration(message=message)])
