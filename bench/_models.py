"""Models that stream without a provider, and other handlers to compare the journal with."""

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
"""Forms of streamed content: a string, content blocks as Anthropic streams them, the arguments of a tool call."""


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
    """Return a chunk with the next fragment of the arguments of a tool call."""
    call: ToolCallChunk = {"name": None, "args": args, "id": None, "index": 0, "type": "tool_call_chunk"}
    return AIMessageChunk(content="", tool_call_chunks=[call])


_CHUNKS: Final[dict[str, Callable[[int], Iterator[AIMessageChunk]]]] = {
    "text": _text,
    "blocks": _blocks,
    "tool calls": _tool_calls,
}


def chunks(kind: str, count: int) -> Iterator[AIMessageChunk]:
    """Yield `count` chunks, each created on demand, as the package of a provider does."""
    return _CHUNKS[kind](count)


class Model(BaseChatModel):
    """A model that streams as fast as its consumer reads."""

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
    """An inline handler that does nothing."""

    run_inline = True

    def on_chat_model_start(self, *args: Any, **kwargs: Any) -> Any:
        """Do nothing."""

    def on_llm_new_token(self, *args: Any, **kwargs: Any) -> Any:
        """Do nothing."""


class CommitEach(NoOp):
    """A handler that inserts and commits each token: the obvious solution."""

    def __init__(self, path: Path) -> None:
        self._con = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._con.execute("PRAGMA journal_mode = WAL").fetchone()
        self._con.execute("PRAGMA synchronous = NORMAL")
        self._con.execute("CREATE TABLE tokens (run_id TEXT, at REAL, token TEXT)")

    def on_llm_new_token(self, token: Any, *, run_id: Any, **kwargs: Any) -> Any:
        """Insert the token, and commit."""
        self._con.execute("INSERT INTO tokens VALUES (?, ?, ?)", (str(run_id), time.time(), str(token)))

    def close(self) -> None:
        """Close the database."""
        self._con.close()


class AsyncIteratorCallbackHandler(AsyncCallbackHandler):
    """A copy of the handler in langchain_classic: one coroutine per token puts it into a queue."""

    @cached_property
    def queue(self) -> asyncio.Queue[str]:
        """The queue of the tokens. The bench has no consumer for it; a real program has one."""
        return asyncio.Queue()

    async def on_chat_model_start(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing."""

    async def on_llm_new_token(self, token: Any, **kwargs: Any) -> None:
        """Put the token into the queue."""
        if token is not None and token != "":
            self.queue.put_nowait(token)


class _NullClient:
    """A client for LangSmith's tracer without a network."""

    tracing_queue = None

    def create_run(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing."""

    def update_run(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing."""


def tracer() -> LangChainTracer:
    """Return LangSmith's tracer with a client that does nothing, to measure its cost without the network."""
    client: Any = _NullClient()
    return LangChainTracer(project_name="bench", client=client)
