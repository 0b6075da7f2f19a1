"""Fake models that can be stopped in the middle of an answer, and graphs around them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.language_models.chat_models import agenerate_from_stream, generate_from_stream
from langchain_core.language_models.llms import LLM
from langchain_core.messages import AIMessageChunk, AnyMessage, BaseMessage
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.output_parsers import StrOutputParser
from langchain_core.outputs import ChatGenerationChunk, ChatResult, GenerationChunk
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import TimeoutPolicy, interrupt

TOKENS = tuple(f"w{number} " for number in range(6))
"""The tokens of each answer of a model."""


class Gate:
    """A gate before token number `at` of the first answer. The answer waits there until `open`, and may then fail."""

    def __init__(self, at: int | None = None, error: type[BaseException] | None = None, patience: float = 30.0) -> None:
        self.at, self.error, self.patience = at, error, patience
        self.given: list[str] = []
        """The tokens that models have said, whether or not any consumer got them."""
        self.held = threading.Event()
        """Set when a model begins to wait here, and never cleared."""
        self._go, self._go_on_loop = threading.Event(), asyncio.Event()

    def open(self) -> None:
        """Release all that wait. If there is a loop, call this on its thread."""
        self._go.set()
        self._go_on_loop.set()

    def words(self) -> Iterator[str]:
        for number, token in enumerate(TOKENS):
            if number == self.at:
                self.at = None
                self.held.set()
                self._go.wait(self.patience)
                self._fail()
            self.given.append(token)
            yield token

    async def awords(self) -> AsyncIterator[str]:
        for number, token in enumerate(TOKENS):
            if number == self.at:
                self.at = None
                self.held.set()
                await self._go_on_loop.wait()
                self._fail()
            self.given.append(token)
            yield token

    def _fail(self) -> None:
        if self.error is not None:
            raise self.error("boom")


class ChatTokens(BaseChatModel):
    """A chat model that says `TOKENS`, then calls the tool `asks` if it has one."""

    gate: Any
    asks: str | None = None

    @property
    def _llm_type(self) -> str:
        return "chat-tokens"

    def bind_tools(self, tools: Any, **kwargs: Any) -> ChatTokens:
        return self

    def _requests(self) -> list[ChatGenerationChunk]:
        if self.asks is None:
            return []
        call = tool_call_chunk(name=self.asks, args="{}", id=f"call-{len(self.gate.given)}", index=0)
        return [ChatGenerationChunk(message=AIMessageChunk(content="", tool_call_chunks=[call]))]

    def _stream(self, *args: Any, **kwargs: Any) -> Iterator[ChatGenerationChunk]:
        for word in self.gate.words():
            yield ChatGenerationChunk(message=AIMessageChunk(content=word))
        yield from self._requests()

    async def _astream(self, *args: Any, **kwargs: Any) -> AsyncIterator[ChatGenerationChunk]:
        async for word in self.gate.awords():
            yield ChatGenerationChunk(message=AIMessageChunk(content=word))
        for chunk in self._requests():
            yield chunk

    def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
        return generate_from_stream(self._stream())

    async def _agenerate(self, *args: Any, **kwargs: Any) -> ChatResult:
        return await agenerate_from_stream(self._astream())


class TextTokens(LLM):
    """The same as a plain text model."""

    gate: Any

    @property
    def _llm_type(self) -> str:
        return "text-tokens"

    # A plain text model must report its tokens itself, and the models of all providers do.

    def _stream(self, prompt: str, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> Iterator[GenerationChunk]:
        for word in self.gate.words():
            chunk = GenerationChunk(text=word)
            run_manager.on_llm_new_token(word, chunk=chunk)
            yield chunk

    async def _astream(
        self, prompt: str, stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> AsyncIterator[GenerationChunk]:
        async for word in self.gate.awords():
            chunk = GenerationChunk(text=word)
            await run_manager.on_llm_new_token(word, chunk=chunk)
            yield chunk

    def _call(self, *args: Any, **kwargs: Any) -> str:
        return "".join(self.gate.words())

    async def _acall(self, *args: Any, **kwargs: Any) -> str:
        return "".join([word async for word in self.gate.awords()])


def chain(gate: Gate) -> Runnable[Any, str]:
    """Return an LCEL chain. Its input is ``{"question": ...}``."""
    return ChatPromptTemplate.from_messages([("human", "{question}")]) | ChatTokens(gate=gate) | StrOutputParser()


@tool
def look() -> str:
    """Looks."""
    return "seen"


@tool
def ask() -> str:
    """Asks a human."""
    return str(interrupt("sure?"))


def agent(gate: Gate, *, asks: str | None = None) -> Any:
    """Return an agent of `create_agent`, whose model is called with `invoke`."""
    return create_agent(ChatTokens(gate=gate, asks=asks), [look, ask], checkpointer=InMemorySaver())


def graph(
    gate: Gate,
    how: str,
    heard: list[str],
    *,
    loops: bool = False,
    waits: bool = False,
    timeout: float | None = None,
) -> Any:
    """A graph by hand. Its node calls the model's method `how`, and what it gets of a stream goes to `heard` as well.

    `loops`: the node is run again and again. `waits`: a human has to agree to what follows.
    """
    model = ChatTokens(gate=gate)

    async def amodel(state: MessagesState, config: RunnableConfig) -> dict[str, list[AnyMessage]]:
        # The config is passed by hand: Python 3.10 does not pass it on into the tasks of a loop.
        if how == "ainvoke":
            return {"messages": [await model.ainvoke(state["messages"], config)]}
        whole = AIMessageChunk(content="")
        async for chunk in model.astream(state["messages"], config):
            heard.extend([chunk.text] if chunk.text else [])
            whole += chunk
        return {"messages": [whole]}

    def model_(state: MessagesState, config: RunnableConfig) -> dict[str, list[AnyMessage]]:
        if how == "invoke":
            return {"messages": [model.invoke(state["messages"], config)]}
        whole = AIMessageChunk(content="")
        for chunk in model.stream(state["messages"], config):
            heard.extend([chunk.text] if chunk.text else [])
            whole += chunk
        return {"messages": [whole]}

    builder = StateGraph(MessagesState)
    policy = None if timeout is None else TimeoutPolicy(run_timeout=timeout)
    builder.add_node("model", amodel if how.startswith("a") else model_, timeout=policy)
    builder.add_node("after", lambda state: {})
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", lambda state: "model" if loops else "after", ["model", "after"])
    builder.add_edge("after", END)
    return builder.compile(checkpointer=InMemorySaver(), interrupt_before=["after"] if waits else None)


def words_of(item: Any) -> str:
    """Return the text of the items that a consumer gets, in any stream mode."""
    match item:
        case str():
            return item
        case BaseMessage():
            return str(item.text) if item.type in ("ai", "AIMessageChunk") else ""
        case (BaseMessage() as message, dict()):
            return words_of(message)
        case {"event": "content-block-delta", "delta": {"text": text}}:
            return str(text)
        case {"event": "on_chat_model_stream" | "on_llm_stream", "data": {"chunk": chunk}}:
            return words_of(getattr(chunk, "text", chunk))
        case {"type": "event", "method": "messages", "params": {"data": (said, _)}}:
            return words_of(said)
        case {"messages": messages}:
            return "".join(words_of(message) for message in messages)
        case dict() if not {"event", "type"} & set(item):
            return "".join(words_of(update) for update in item.values())
    return ""
