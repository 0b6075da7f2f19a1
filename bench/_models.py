"""Models that stream without a provider, and what else than a journal may listen to them."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from langchain_core.callbacks import AsyncCallbackHandler, BaseCallbackHandler
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, ToolCallChunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.tracers import LangChainTracer

from ._load import words

KINDS: Final = ("text", "blocks", "tool calls")
"""What a model can stream: a string, blocks of content as Anthropic's, the arguments of a tool call."""


def _text(count: int) -> Iterator[AIMessageChunk]:
    for text in words(count):
        yield AIMessageChunk(content=text)


def _blocks(count: int) -> Iterator[AIMessageChunk]:
    for text in words(count):
        block = {"type": "text", "text": text, "index": 0}
        yield AIMessageChunk(content=[block], response_metadata={"model_provider": "anthropic"})


def _tool_calls(count: int) -> Iterator[AIMessageChunk]:
    call: ToolCallChunk = {"name": "write_file", "args": "", "id": "call_1", "index": 0, "type": "tool_call_chunk"}
    yield AIMessageChunk(content="", tool_call_chunks=[call])
    for args in ('{"text": "', *words(count - 3), '"}'):
        yield arguments(args)


def arguments(args: str) -> AIMessageChunk:
    """More of the arguments of a tool call."""
    call: ToolCallChunk = {"name": None, "args": args, "id": None, "index": 0, "type": "tool_call_chunk"}
    return AIMessageChunk(content="", tool_call_chunks=[call])


_CHUNKS: Final[dict[str, Callable[[int], Iterator[AIMessageChunk]]]] = {
    "text": _text,
    "blocks": _blocks,
    "tool calls": _tool_calls,
}


def chunks(kind: str, count: int) -> Iterator[AIMessageChunk]:
    """That many chunks, each made when it is asked for, as a provider's package does."""
    return _CHUNKS[kind](count)


class Model(BaseChatModel):
    """Streams as fast as it is asked to."""

    kind: str = "text"
    tokens: int = 2_000

    @property
    def _llm_type(self) -> str:
        return "bench"

    def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=AIMessage(content="not streamed"))])

    async def _astream(self, *args: Any, **kwargs: Any) -> AsyncIterator[ChatGenerationChunk]:
        for message in chunks(self.kind, self.tokens):
            yield ChatGenerationChunk(message=message)


class NoOp(BaseCallbackHandler):
    """The least that a handler can do."""

    run_inline = True

    def on_chat_model_start(self, *args: Any, **kwargs: Any) -> Any:
        """Nothing."""

    def on_llm_new_token(self, *args: Any, **kwargs: Any) -> Any:
        """Nothing."""


class CommitEach(NoOp):
    """A row and a commit for each token: the first idea that one has."""

    def __init__(self, path: Path) -> None:
        self._con = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._con.execute("PRAGMA journal_mode = WAL").fetchone()
        self._con.execute("PRAGMA synchronous = NORMAL")
        self._con.execute("CREATE TABLE tokens (run_id TEXT, at REAL, token TEXT)")

    def on_llm_new_token(self, token: Any, *, run_id: Any, **kwargs: Any) -> Any:
        """Store it."""
        self._con.execute("INSERT INTO tokens VALUES (?, ?, ?)", (str(run_id), time.time(), str(token)))

    def close(self) -> None:
        """Close it."""
        self._con.close()


class AsyncIteratorCallbackHandler(AsyncCallbackHandler):
    """LangChain's own, as langchain_classic has it: a queue, filled by a coroutine for each token."""

    @cached_property
    def queue(self) -> asyncio.Queue[str]:
        """Where the tokens wait. Nobody takes them here; in life, somebody does."""
        return asyncio.Queue()

    async def on_chat_model_start(self, *args: Any, **kwargs: Any) -> None:
        """Nothing."""

    async def on_llm_new_token(self, token: Any, **kwargs: Any) -> None:
        """Hand it on."""
        if token is not None and token != "":
            self.queue.put_nowait(token)


class _NullClient:
    """What LangSmith's tracer reports to, without a network."""

    tracing_queue = None

    def create_run(self, *args: Any, **kwargs: Any) -> None:
        """Nothing."""

    def update_run(self, *args: Any, **kwargs: Any) -> None:
        """Nothing."""


def tracer() -> LangChainTracer:
    """LangSmith's tracer, with a client that does nothing: what it costs beside its network."""
    client: Any = _NullClient()
    return LangChainTracer(project_name="bench", client=client)
